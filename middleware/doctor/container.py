"""`fairtrial doctor --from-container IMAGE`: can an agent in a container of this engine reach a model door?

In: an environment, an image, a network.  Out: one `Proof`, with what to do where the answer is no.  It is tried, not
guessed: doors of a real relay are opened, a container is made through the Docker door as a harness makes one, with the
model door's URL in its Env, and calls it with whatever client its image has.  That the call came through is told by the
server behind the door, which is ours and answers everybody.  Nothing is left behind: container, doors, folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from fairtrial.middleware.core import config, ids
from fairtrial.middleware.core.errors import ConfigError, HostError
from fairtrial.middleware.relay import docker, docker_upstream, runtime_dir
from fairtrial.middleware.relay.bridge import Bridge
from fairtrial.middleware.relay.bridge_place import NO_NETWORK, OUT_OF_REACH
from fairtrial.middleware.relay.docker import DockerDoor
from fairtrial.middleware.relay.environment import Mutation
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.relay import Relay, new_event_loop, unix_listener
from fairtrial.middleware.relay.settings import RelaySettings, Upstream

if TYPE_CHECKING:
    from docker import DockerClient

VARIABLE: Final = "FAIRTRIAL_DOCTOR_URL"
LABEL: Final = "fairtrial-doctor"
_CONTAINER_S: Final = 40.0
_NO_CLIENT: Final = "no client"
_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
_SCRIPT: Final = f"""
u=${VARIABLE}/doctor; asked=
rest=${{u#http://}}; place=${{rest%%/*}}; host=${{place%:*}}; port=${{place##*:}}
asks() {{ command -v "$1" >/dev/null 2>&1 && asked=1; }}
asks curl && curl -sS -m 4 -o /dev/null "$u" && exit 0
asks python3 && python3 -c '
import sys, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=4)
except OSError as error:
    sys.exit(str(error))
' "$u" && exit 0
asks wget && wget -q -T 4 -O /dev/null "$u" && exit 0
asks node && node -e '
const ask = require("http").get(process.argv[1], () => process.exit(0));
ask.setTimeout(4000, () => ask.destroy(new Error("timed out")));
' "$u" && exit 0
asks nc && {{ printf 'GET /%s HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n' "${{rest#*/}}"; sleep 1; }} |
  nc -w 4 "$host" "$port" && exit 0
asks bash && timeout 4 bash -c '
exec 3<>"/dev/tcp/$0/$1"; printf "GET /%s HTTP/1.0\\r\\n\\r\\n" "$2" >&3; read -r _ <&3
' "$host" "$port" "${{rest#*/}}" && exit 0
[ -n "$asked" ] || echo "{_NO_CLIENT}"
exit 1
"""
"""Asks by each of these clients that the image has, until one comes through; what they say goes to the output.

nc keeps its input open: a half-close would be taken for a client that left.
"""


@dataclass(frozen=True, slots=True)
class Proof:
    """One line of the screen; `remedy` is what to change, where there is something."""

    state: Literal["ok", "no"]
    text: str
    remedy: str | None = None
    name: str = "container"

    @property
    def line(self) -> str:
        """As it is shown."""
        return f"{self.state:<7}  {self.name}  {self.text}" + (f" → {self.remedy}" if self.remedy else "")


def prove(environ: Mapping[str, str], image: str, network: str | None = None) -> Proof:
    """Start a container from `image`, on the engine that `environ` names, and see whether its call arrives."""
    engine = docker_upstream.resolve(environ)
    if engine.url is None:
        return Proof("no", f"there is no engine: {engine.skipped}", "start one, or name it by DOCKER_HOST")
    try:
        chosen = config.read_sources(environ, {}).config.relay.runtime_dir
    except ConfigError:
        chosen = None  # `doctor` itself tells of wrong settings
    trial = ids.new_id()
    try:
        folder = runtime_dir.create(environ, trial, chosen=chosen)
    except HostError as error:
        return Proof("no", error.what, error.remedy)
    try:
        with _doors(engine, trial, Path(folder.path)) as doors:
            return _asked(doors, image, network)
    except (OSError, ValueError) as error:
        return Proof("no", f"the doors cannot be opened: {error}", "see the other lines of `fairtrial doctor`")
    finally:
        folder.remove()


# --- how it works ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Doors:
    docker_host: str
    model_url: str
    arrived: threading.Event = field(default_factory=threading.Event)
    moved_to: list[str] = field(default_factory=list[str])
    """The URL that the container was given instead; empty: it was left as it was."""
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@contextlib.contextmanager
def _doors(engine: docker_upstream.DockerUpstream, trial: str, folder: Path) -> Iterator[_Doors]:
    """A relay in a thread of its own, with a model door to a server that answers everything, and a Docker door."""
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="doctor", daemon=True)
    thread.start()
    relay = Relay(RelaySettings(), FeedSender(None))
    servers: list[asyncio.Server] = []

    async def close() -> None:
        await relay.close(0.0)
        for server in servers:
            server.close()
        await loop.shutdown_default_executor()

    try:
        opening = _open(relay, servers, engine, trial, folder)
        yield asyncio.run_coroutine_threadsafe(opening, loop).result(_CONTAINER_S)
    finally:
        asyncio.run_coroutine_threadsafe(close(), loop).result(_CONTAINER_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _open(
    relay: Relay, servers: list[asyncio.Server], engine: docker_upstream.DockerUpstream, trial: str, folder: Path
) -> _Doors:
    doors = _Doors("", "")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if b"/doctor" in await reader.readuntil(b"\r\n\r\n"):
                doors.arrived.set()
            writer.write(_ANSWER)
            await writer.drain()
        writer.close()

    def tell(mutation: Mutation) -> None:
        doors.moved_to.append(mutation.new or "")

    servers.append(await asyncio.start_server(answer, "127.0.0.1", 0))
    port = servers[0].sockets[0].getsockname()[1]
    token = ids.new_token()
    relay.add_token(token, trial)
    model = await relay.open_model_door(Upstream.parse("doctor", f"http://127.0.0.1:{port}"))
    door = relay.open_door(
        docker.upstream_of(engine),
        unix_listener(str(folder / runtime_dir.DOCKER_SOCKET)),
        lambda upstream, dialler, listener: DockerDoor(upstream, dialler, listener, trial),
    )
    door.editor = Bridge(
        relay,
        door,
        [model],
        lambda _container: token,
        tell_mutation=tell,
        tell_note=lambda event, text: doors.notes.append((event, text)),
    )
    doors.docker_host, doors.model_url = door.url, model.url(token)
    return doors


def _asked(doors: _Doors, image: str, network: str | None) -> Proof:
    from docker import DockerClient
    from docker.errors import APIError, DockerException, ImageNotFound

    try:
        with contextlib.closing(DockerClient(base_url=doors.docker_host, timeout=int(_CONTAINER_S))) as client:
            said = _container_says(client, doors, image, network)
    except ImageNotFound:
        return Proof("no", f"the engine has no image {image}", f"docker pull {image}, or name one that it has")
    except APIError as error:
        why = str(error.explanation or error)
        if '"sh"' in why:
            return Proof(
                "no", f"{image} has no sh, so nothing can be asked from in there", "name an image with a shell"
            )
        return Proof("no", f"the engine did not start a container from {image}: {why}", "try the same by docker run")
    except (DockerException, OSError) as error:
        return Proof("no", f"the engine does not answer: {error}", "start it, or correct DOCKER_HOST")
    return _judged(doors, image, network or "bridge", said)


def _container_says(client: DockerClient, doors: _Doors, image: str, network: str | None) -> str:
    """What the container printed, to its end."""
    container = client.containers.create(
        image,
        entrypoint=["sh", "-c", _SCRIPT],
        command=[],
        environment={VARIABLE: doors.model_url},
        labels={LABEL: "1"},
        network=network,
    )
    try:
        container.start()
        with contextlib.suppress(OSError):  # a container that hangs has said what it says
            container.wait(timeout=_CONTAINER_S)
        return container.logs().decode(errors="replace").strip()
    finally:
        container.remove(force=True)


def _judged(doors: _Doors, image: str, network: str, said: str) -> Proof:
    first = said.splitlines()[0][:200] if said else "it said nothing"
    where = f"from {image} on the network {network}"
    if doors.arrived.is_set():
        if not doors.moved_to:
            return Proof("ok", f"a container {where} reaches the model door on loopback, as the host does")
        return Proof("ok", f"a container {where} reaches the model door at {_place(doors.moved_to[0])}")
    if first == _NO_CLIENT:
        clients = "curl, python3, wget, node, nc or bash"
        return Proof("no", f"{image} has none of {clients} to ask with", "name an image that has one")
    for event, text in doors.notes:
        if event in (OUT_OF_REACH, NO_NETWORK):
            why = text.partition(": ")[2].rstrip(".")
            return Proof("no", f"a container {where} cannot reach a model door: {why}", _remedy(why))
        if event == "bridge.turned_away":
            return Proof("no", f"a container {where} was turned away: {text}", "report this: fairtrial misjudged it")
    if not doors.moved_to:
        return Proof("no", f"a container {where} was given no door: {first}", "see `fairtrial run --verbose`")
    place = _place(doors.moved_to[0])
    gateway = place.rpartition(":")[0].strip("[]")
    remedy = (
        f"a firewall may drop what comes from containers: allow TCP to {gateway} (iptables -I INPUT -d {gateway} "
        f"-p tcp -j ACCEPT; ufw allow in to {gateway} proto tcp; firewalld: put the bridge into the zone docker), "
        f"or use the host's network"
    )
    return Proof("no", f"a container {where} does not reach the model door at {place}: {first}", remedy)


def _place(url: str) -> str:
    found = re.match(r"http://([^/]+)", url)
    return found[1] if found else url


def _remedy(why: str) -> str:
    if "another machine" in why:
        return "run fairtrial on the engine's machine, or send the agent's calls to a `fairtrial serve` that both reach"
    if "rootless" in why or "no interface" in why:
        return "use the rootful engine of this machine, or a `fairtrial serve` on an address that containers reach"
    if "no network" in why:
        return "give the container a bridge network, or let the agent run outside of it"
    return "use a bridge network (docker network create NAME), or the host's network"
