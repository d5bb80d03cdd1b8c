"""The Docker door: one socket that leads to one container engine, for the clients of one trial.

In: whatever speaks the engine's API.  Out: the same bytes, verbatim: no head line is changed, since the socket alone
says whose it is; but see `bridge.py` for the one kind of body that may be edited.  A hijacked stream (`attach`,
`exec/start`) is a tunnel from its answer on; a client that begins with HTTP/2's preface (`PRI *`) is passed on blind.

A unix client that closed its writing half may still want the answer (every `docker exec` without stdin does so); one
that is gone lets its upstream go.  Both look the same to read(2), POLLHUP tells them apart (`ends.Link.vanished`).
Over TCP they cannot be told apart, so a half-close is always passed on.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from fairtrial.middleware.relay.coupled import DoorPolicy
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.docker_upstream import DockerUpstream
from fairtrial.middleware.relay.environment import Mutation
from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.route import Editor
from fairtrial.middleware.relay.settings import ClientTls, Upstream

_PING: Final = b"GET /_ping HTTP/1.1\r\nHost: docker\r\nUser-Agent: fairtrial\r\nConnection: close\r\n\r\n"
_PING_S: Final = 2.0
_DEFAULT_PORTS: Final = {False: 2375, True: 2376}


class DockerDoor:
    """A bound door.  `url` is what the child's DOCKER_HOST becomes; the rest is for the engine (`coupled.Route`)."""

    label = "docker:engine"
    lead = None
    gate = None

    def __init__(self, upstream: Upstream, dialler: Dialler, listener: socket.socket, trial: str | None) -> None:
        self.upstream = upstream
        self.dialler = dialler
        self.listener = listener
        self._trial = trial
        self.editor: Editor | None = None
        """`bridge.py`, once the engine is known to answer."""
        self.reached = False
        bound = listener.getsockname()
        is_unix = listener.family == socket.AF_UNIX
        self.policy = DoorPolicy(client_eof="unix" if is_unix else "half", docker=True)
        self.url: str = f"unix://{bound}" if is_unix else f"tcp://{bound[0]}:{bound[1]}"

    def rewrite(self, head: RequestHead) -> tuple[bytes, str | None]:
        """See `coupled.Route`: nothing changes, but the length of a body that was edited."""
        return head.sent or head.raw, self._trial

    def rewrite_loosely(self, rest: bytes) -> bytes:
        """See `coupled.Route`: nothing changes."""
        return rest

    async def ping(self) -> str | None:
        """Ask the engine `/_ping`, on a connection of our own.  None when it answers, else why it does not.

        An engine behind TLS or a name is only knocked at: certificates and names are looked up by worker threads, which
        wait for the command's start.  `reached` is set as soon as a connection stands.
        """
        loop = asyncio.get_running_loop()
        if self.dialler.proxy is None and (self.upstream.scheme == "https" or _is_name(self.upstream)):
            return await self._knock(loop)
        answered: asyncio.Future[bytes] = loop.create_future()

        def on_end(*_why: object) -> None:
            if not answered.done():
                answered.set_result(b"")

        def on_data(data: bytes, _t_ns: int) -> None:
            if not answered.done():
                answered.set_result(data)

        try:
            async with asyncio.timeout(_PING_S):
                link, _report = await self.dialler.dial()
                self.reached = True
                try:
                    link.on_data, link.on_eof, link.on_error = on_data, on_end, on_end
                    link.resume()
                    link.write(_PING)
                    said = await answered
                finally:
                    link.reset()
        except TimeoutError:
            return f"it did not answer in {_PING_S:g} s"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
        return None if said.startswith(b"HTTP/1.1 ") else "it does not speak HTTP"

    async def _knock(self, loop: asyncio.AbstractEventLoop) -> str | None:
        """Whether anybody listens there, found out by a thread that nobody waits for."""
        found: asyncio.Future[str | None] = loop.create_future()
        address = (self.upstream.host, self.upstream.port)

        def tell(why: str | None) -> None:
            if not found.done():
                found.set_result(why)

        def knock() -> None:
            why = None
            try:
                socket.create_connection(address, timeout=_PING_S).close()
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or str(error)
            with suppress(RuntimeError):  # the run was faster than a silent engine, and is over
                loop.call_soon_threadsafe(tell, why)

        threading.Thread(target=knock, name="engine", daemon=True).start()
        why = await found
        self.reached = why is None
        return why


def _is_name(upstream: Upstream) -> bool:
    if upstream.scheme == "unix":
        return False
    try:
        ipaddress.ip_address(upstream.host)
    except ValueError:
        return True
    return False


def child_changes(environ: Mapping[str, str], door_url: str, engine: DockerUpstream) -> tuple[Mutation, ...]:
    """What a Docker door changes in the child's environment: `what` is `environment NAME`, `new` the value."""
    changes = [
        Mutation(
            what="environment DOCKER_HOST",
            old=environ.get("DOCKER_HOST"),
            new=door_url,
            why="the engine is behind the door",
            side_effects="programs that compare the address, or mount the socket that it names into a container, see "
            "another path; `docker context` says that the variable overrides it",
        )
    ]
    scheme, _, path = (engine.url or "").partition("://")
    if scheme == "unix" and not environ.get("TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE"):
        changes.append(
            Mutation(
                what="environment TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE",
                old=environ.get("TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE"),
                new=path,
                why="Testcontainers mounts the engine's own socket into its helper",
            )
        )
    return tuple(changes)


def upstream_of(engine: DockerUpstream) -> Upstream:
    """The relay's upstream for an engine that the environment names.  Raises `ValueError` with a sentence.

    TLS as the docker command has it: with verification only the engine's own authority is trusted; `DOCKER_TLS` without
    `DOCKER_TLS_VERIFY` encrypts and checks nobody.
    """
    url = engine.url or ""
    scheme, _, rest = url.partition("://")
    if scheme == "unix":
        return Upstream.parse("engine", url)
    is_tls = scheme == "https" or engine.tls_dir is not None
    address, _, path = rest.partition("/")
    if ":" not in address.rpartition("]")[2]:
        address = f"{address}:{_DEFAULT_PORTS[is_tls]}"
    return Upstream.parse(
        "engine",
        f"{'https' if is_tls else 'http'}://{address}/{path}",
        _client_tls(engine) if is_tls else None,
    )


def _client_tls(engine: DockerUpstream) -> ClientTls:
    def there(name: str) -> str | None:
        path = os.path.join(engine.tls_dir or "", name)
        with suppress(OSError):
            if os.stat(path).st_size:
                return path
        return None

    cert, key = there("cert.pem"), there("key.pem")
    return ClientTls(
        ca_file=there("ca.pem") if engine.tls_verify else None,
        cert_file=cert if key is not None else None,
        key_file=key if cert is not None else None,
        verify=engine.tls_verify,
    )
