"""Where a container stands in the engine's networks, and by which address of this machine it can reach us.

In: what a create's body or an exec's path names; answers of the engine; the interfaces of this machine.  Out: a `Place`
with a gateway that is an address of ours, or `Elsewhere` with the reason in words.  Nothing is opened or changed.

A gateway counts as ours when the engine runs on this machine (same kernel, not rootless, no virtual machine in between)
and the network's bridge is an interface in our own network namespace.  A container on any bridge of this machine
reaches that address, also when it is on several networks.

**Source:** Docker Engine API v1.41 (`NetworkInspect`, `ContainerInspect`, `SystemInfo`); bridge driver options;
netdevice(7) for the address of an interface.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from fairtrial.middleware.relay import engine_client
from fairtrial.middleware.relay.docker import DockerDoor
from fairtrial.middleware.relay.engine_client import NotThere

_SIOCGIFADDR: Final = 0x8915
_BRIDGE_NAME: Final = "com.docker.network.bridge.name"
_DEFAULT: Final = frozenset({"", "default", "bridge"})
OUT_OF_REACH: Final = "bridge.out_of_reach"
"""Without fairtrial a call from there might have come through."""
NO_NETWORK: Final = "bridge.no_network"
"""It would not have."""
Json = Mapping[str, Any]


class Elsewhere(Exception):
    """No address of ours is reached from there.  `event`: the note that is due; None: the URL that stays is right."""

    def __init__(self, why: str, *, event: str | None = OUT_OF_REACH) -> None:
        super().__init__(why)
        self.event = event


@dataclass(frozen=True, slots=True)
class Place:
    """`gateway`: our address as seen from there.  `container`: its whole id, of an exec.  `shares`: the container whose
    network it uses."""

    gateway: str
    network: str
    container: str | None = None
    shares: str | None = None


class Places:
    """Asks one engine."""

    def __init__(self, engine: DockerDoor) -> None:
        self._engine = engine
        self._version = ""
        self._limit_s = engine_client.ANSWER_S
        self._foreign: str | None = None
        self._known = False

    async def of(self, network: str, container: str | None, version: str, *, limit_s: float) -> Place:
        """The place of a container that is made with this NetworkMode, or (`container`) of one that is there.

        `limit_s`: for each question.  Raises `Elsewhere`, `EngineSilent`.
        """
        self._version = version or self._version
        self._limit_s = limit_s
        await self._check_engine()
        if container is not None:
            return await self._of_container(container)
        if network.startswith("container:"):
            return await self._of_container(network.partition(":")[2], shared=True)
        return await self._of_network(network)

    async def inspect(self, container: str, *, limit_s: float = engine_client.ANSWER_S) -> Json:
        """Raises `EngineSilent`."""
        about = await self._get(f"/containers/{quote(container, safe='')}/json", limit_s)
        return about if isinstance(about, dict) else {}

    async def container_at(self, address: str) -> str | None:
        """The id of the running container that has this address.  Raises `EngineSilent`."""
        wanted = ipaddress.ip_address(address)
        for one in await self._get("/containers/json", engine_client.ANSWER_S):
            networks: Mapping[str, Json] = (one.get("NetworkSettings") or {}).get("Networks") or {}
            for settings in networks.values():
                said = (settings.get("IPAddress"), settings.get("GlobalIPv6Address"))
                if any(text and ipaddress.ip_address(text) == wanted for text in said):
                    return str(one["Id"])
        return None

    # ------------------------------------------------------------------ how it works

    async def _get(self, path: str, limit_s: float) -> Any:
        return await engine_client.ask(self._engine.dialler, self._version + path, limit_s=limit_s)

    async def _check_engine(self) -> None:
        """Whether the engine's bridges can be interfaces of this machine at all."""
        if not self._known:
            self._foreign = _foreign(await self._get("/info", self._limit_s))
            self._known = True
        if self._foreign is not None:
            raise Elsewhere(self._foreign)

    async def _of_container(self, ref: str, *, shared: bool = False, depth: int = 3) -> Place:
        about = await self.inspect(ref, limit_s=self._limit_s)
        mode = str((about.get("HostConfig") or {}).get("NetworkMode") or "")
        whole = str(about.get("Id") or "")
        if mode.startswith("container:"):
            if not depth:
                raise Elsewhere("its network is another container's, and so on")
            place = await self._of_container(mode.partition(":")[2], shared=True, depth=depth - 1)
            return Place(place.gateway, place.network, None if shared else whole, place.shares)
        networks: Mapping[str, Json] = (about.get("NetworkSettings") or {}).get("Networks") or {}
        if mode in ("host", "none"):
            await self._of_network(mode)
        why: Elsewhere | None = None
        for name in networks or (mode,):
            try:
                place = await self._of_network(name)
            except Elsewhere as error:
                why = why or error
            else:
                return Place(place.gateway, name, None if shared else whole, whole if shared else None)
        raise why or Elsewhere("it is on no network")

    async def _of_network(self, name: str) -> Place:
        if name == "host":
            raise Elsewhere("it shares the host's network", event=None)  # the door on loopback is its own, too
        if name == "none":
            raise Elsewhere("it has no network (none)", event=NO_NETWORK)
        try:
            found = await self._get(
                f"/networks/{'bridge' if name in _DEFAULT else quote(name, safe='')}", self._limit_s
            )
        except NotThere:
            raise Elsewhere(f"the engine knows no network {name or 'bridge'}") from None
        return Place(_gateway(found), str(found.get("Name") or name))


def _foreign(info: object) -> str | None:
    """Why the engine's networks are none of this machine's."""
    if not isinstance(info, dict):
        return "the engine does not say what it is"
    if any("rootless" in str(option) for option in info.get("SecurityOptions") or ()):
        return "the engine is rootless, its networks are in a namespace of its own"
    kernel = info.get("KernelVersion")
    if kernel != os.uname().release:
        return f"the engine runs on another machine (kernel {kernel})"
    return None


def _gateway(network: Json) -> str:
    """The address of ours on this network's bridge.  Raises `Elsewhere`."""
    name = network.get("Name")
    if network.get("Driver") != "bridge":
        raise Elsewhere(f"the network {name} is no bridge ({network.get('Driver')})")
    options: Mapping[str, str] = network.get("Options") or {}
    interface = options.get(_BRIDGE_NAME) or f"br-{str(network.get('Id'))[:12]}"
    if interface not in {known for _, known in socket.if_nameindex()}:
        raise Elsewhere(f"{interface}, the bridge of the network {name}, is no interface of this machine")
    configured = (network.get("IPAM") or {}).get("Config") or []
    gateways = [str(each["Gateway"]).partition("/")[0] for each in configured if each.get("Gateway")]
    # The engine does not always name the gateway of its default bridge: then it is the interface's own address.
    for candidate in sorted((*gateways, *_address_of(interface)), key=lambda text: ":" in text):
        if _is_ours(candidate):
            return candidate
    raise Elsewhere(f"this machine has no address on {interface}, the bridge of the network {name}")


def _address_of(interface: str) -> tuple[str, ...]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return ()
    return (socket.inet_ntoa(answer[20:24]),)


def _is_ours(address: str) -> bool:
    """Whether it can be listened on here."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
