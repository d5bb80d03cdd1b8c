"""Agents in containers: the model doors on the engine's bridge, and a door's URL in an Env made one that leads there.

In: the Docker door, the model doors, the trial's token.  Out: an `Editor` for the Docker door (`editing.py`), and
`GatewayDoor`s, opened when the first container that needs one is asked for.  Each edited value is told as a mutation,
each value that had to stay although it leads nowhere from there as a note.

Who may come in at a gateway: clients whose address the engine says is that of a container of this run, which is one
whose Env holds our token, or whose exec was given it.  An engine that does not answer lets in by the token alone.
Nothing here asks the engine before a door's URL is seen in an Env, and nothing here is loaded before one can be
(`bridge_front.py`): a run without such containers pays nothing.

Seam: which token a container is given is asked of `token_for`; today a `run` is one trial with one token.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable, Sequence
from typing import Final

from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.relay import container_env
from fairtrial.middleware.relay.bridge_front import TARGET
from fairtrial.middleware.relay.bridge_place import OUT_OF_REACH, Elsewhere, Place, Places
from fairtrial.middleware.relay.container_env import Asked, DoorValue, Unreadable
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.docker import DockerDoor
from fairtrial.middleware.relay.engine_client import EngineSilent
from fairtrial.middleware.relay.environment import Mutation, point_to
from fairtrial.middleware.relay.gateway import GatewayDoor
from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.model import ModelDoor
from fairtrial.middleware.relay.relay import Relay, tcp_listener
from fairtrial.middleware.relay.route import Admission, Thinking
from fairtrial.middleware.relay.settings import ProxySettings, Upstream

_TOKEN: Final = re.compile(r"/t/([0-9a-f]{32})")
_THINK_S: Final = 30.0
"""So long a request waits for what we ask, each question two thirds of it; then it passes as it is.

Long, since an agent whose door leads nowhere is worse off than one that starts late on a busy engine.
"""
_ADMIT_S: Final = 3.0
"""So long a client waits at a gateway; then its token alone decides."""
_KNOCKS_S: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
"""A container's first process may call before the engine lists it."""
_MOST_TOLD: Final = 200
_SIDE_EFFECTS: Final = (
    "in the container a client may take this for a gateway (see the same variable of the environment); a proxy that "
    "the container is told of must except the address (NO_PROXY)"
)


class Bridge:
    """See the module.  `tell_mutation`, `tell_note` (event, text) take what is to be recorded."""

    def __init__(
        self,
        relay: Relay,
        engine: DockerDoor,
        doors: Sequence[ModelDoor],
        token_for: Callable[[str | None], str],
        *,
        tell_mutation: Callable[[Mutation], None],
        tell_note: Callable[[str, str], None],
        think_s: float = _THINK_S,
    ) -> None:
        """`token_for`: a container's id or name (None: one that is about to be made) -> the token of its trial."""
        self._relay = relay
        self._dialler = engine.dialler
        self._doors = {door.port: door for door in doors if door.port}
        self._token_for = token_for
        self._tell_mutation = tell_mutation
        self._tell_note = tell_note
        self._think_s = think_s
        self._places = Places(engine)
        self._open: dict[tuple[str, int], GatewayDoor] = {}
        self._ours: set[str] = set()
        """Containers that were given a door of ours."""
        self._shared: set[str] = set()
        """Containers whose network others use too: who of them calls cannot be told."""
        self._told: set[tuple[str, ...]] = set()

    # ------------------------------------------------------------------ bodies (`route.Editor`)

    def wants(self, head: RequestHead) -> bool:
        """Whether a container or an exec is asked for."""
        return head.method == b"POST" and TARGET.fullmatch(head.target) is not None

    def edit(self, head: RequestHead, body: bytes) -> Thinking | None:
        """Looks for doors in the Env, and for the place from which they must be reached."""
        return lambda: self._edit(head.target, body)

    def not_edited(self, why: str) -> None:
        """Counted; said once for each reason."""
        self._relay.counters.not_edited += 1
        self._note("bridge.not_looked_at", f"The Env of a container or an exec was not looked at: {why}.")

    async def _edit(self, target: bytes, body: bytes) -> bytes | None:
        found = TARGET.fullmatch(target)
        assert found is not None
        try:
            asked = container_env.read(body)
        except Unreadable as error:
            self.not_edited(f"its body cannot be read ({error})")
            return None
        ours = [value for value in asked.values if value.port in self._doors and value.token in self._relay.tokens]
        if not ours:
            return None
        container = None if found["container"] is None else found["container"].decode("latin-1")
        try:
            async with asyncio.timeout(self._think_s):
                version = (found["version"] or b"").decode()
                place = await self._places.of(asked.network, container, version, limit_s=self._think_s / 1.5)
        except Elsewhere as error:
            if error.event is not None:
                self._leads_nowhere(ours, error, error.event)
            return None
        except (EngineSilent, TimeoutError) as error:
            self._leads_nowhere(ours, f"the engine was asked about its network, and {str(error) or 'gave no answer'}")
            return None
        return self._rewrite(asked, ours, place, container)

    def _leads_nowhere(self, values: Sequence[DoorValue], why: object, event: str = OUT_OF_REACH) -> None:
        names = ", ".join(dict.fromkeys(value.name for value in values))
        self._note(event, f"{names} leads nowhere in a container of this run: {why}.")

    def _rewrite(self, asked: Asked, ours: Sequence[DoorValue], place: Place, container: str | None) -> bytes | None:
        new: dict[DoorValue, str] = {}
        for value in ours:
            try:
                door = self._gateway_door(place.gateway, value.port)
            except OSError as error:
                why = f"the model door cannot listen on {place.gateway}, the bridge's address ({error.strerror})"
                self._leads_nowhere(ours, why)
                return None
            new[value] = point_to(door.url(self._token_for(container)), value.rest, value.login)
        if place.container is not None:
            self._ours.add(place.container)
        if place.shares is not None:
            self._ours.add(place.shares)
            self._shared.add(place.shares)
        self._relay.counters.edited += 1
        for value, url in new.items():
            self._tell(value, url, place, container)
        excepted = ProxySettings(no_proxy=asked.no_proxy).bypasses(place.gateway, ours[0].port)
        if asked.proxy is not None and not excepted:
            text = f"A container of this run has {asked.proxy}, and its no_proxy does not except {place.gateway}"
            self._note("bridge.proxy", f"{text}: its model calls may go to that proxy and not to the door.")
        return container_env.rewritten(asked, new)

    def _tell(self, value: DoorValue, url: str, place: Place, container: str | None) -> None:
        what = f"container environment {value.name}" if container is None else f"exec environment {value.name}"
        of = place.container or place.network
        if (what, of) in self._told or len(self._told) >= _MOST_TOLD:
            return
        self._told.add((what, of))
        old = point_to(self._doors[value.port].url(value.token), value.rest, value.login)
        self._tell_mutation(
            Mutation(
                what=what,
                old=mask_url(old),
                new=mask_url(url),
                why=f"the door as containers on the network {place.network} reach it",
                side_effects=_SIDE_EFFECTS,
            )
        )

    def _note(self, event: str, text: str) -> None:
        if (event, text) not in self._told and len(self._told) < 2 * _MOST_TOLD:
            self._told.add((event, text))
            self._tell_note(event, text)

    # ------------------------------------------------------------------ doors

    def _gateway_door(self, gateway: str, port: int) -> GatewayDoor:
        """The door beside the one on `port`; at the same port where that is free.  Raises `OSError`."""
        if (gateway, port) not in self._open:
            beside = self._doors[port]
            try:
                listener = tcp_listener(gateway, port)
            except OSError:
                listener = tcp_listener(gateway)
            self._open[gateway, port] = self._relay.open_door(beside.upstream, listener, self._make_door)
        return self._open[gateway, port]

    def _make_door(self, upstream: Upstream, dialler: Dialler, listener: socket.socket) -> GatewayDoor:
        return GatewayDoor(upstream, dialler, listener, self._relay.tokens, self.admit)

    async def admit(self, peer: str) -> Admission:
        """Whose a client at a gateway is (`route.Gate`).  The engine is asked anew for each connection: an address
        goes to another container as soon as its first one has ended.
        """
        try:
            async with asyncio.timeout(_ADMIT_S):
                for wait_s in _KNOCKS_S:
                    await asyncio.sleep(wait_s)
                    found = await self._places.container_at(peer.strip("[]"))
                    if found is not None:
                        return await self._admitted(found, peer)
        except (EngineSilent, TimeoutError) as error:
            self._note("bridge.engine_silent", f"The engine was asked whose a client is: {str(error) or 'no answer'}.")
            return Admission(admitted=True)
        self._note("bridge.turned_away", f"A client at {peer} was turned away: no container has this address.")
        return Admission(admitted=False)

    async def _admitted(self, container: str, peer: str) -> Admission:
        if container not in self._ours:
            about = await self._places.inspect(container)
            env = (about.get("Config") or {}).get("Env") or []
            if not any(token in self._relay.tokens for token in _TOKEN.findall(json.dumps(env))):
                text = f"A client at {peer} was turned away: its container {container[:12]} is none of this run's."
                self._note("bridge.turned_away", text)
                return Admission(admitted=False)
            self._ours.add(container)
        return Admission(admitted=True, container=None if container in self._shared else container)
