"""The `docker` SDK behind one adapter: it blocks, so it lives in threads; the loop sees only callbacks and futures.

In: where the engine is.  Out: decoded JSON, each event of a container as it comes, and word of every loss and return of
the stream.  Importing the SDK takes a third of a second and happens in the thread.  Nothing here judges or keeps state
of containers; that is `docker_events.py`.  A silent, slow or broken engine costs a thread its time, never the loop.

Reconnecting asks for the events since the last one, minus an overlap; what that can cost is `docker_continuity.py`'s.
An engine whose API is older than 1.40, or whose oldest is newer than the newest known, is not spoken to, and why is
said in one sentence; one that knows more than we do is spoken to in the newest version that is known to both.
"""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from fairtrial.collectors.engine_api import ApiRange, NotSpoken, choose
from fairtrial.collectors.engine_process import EngineProcess, listening_process
from fairtrial.collectors.parse.docker import ID, EventFacts, names_no_id, parse_event, parse_stamp

if TYPE_CHECKING:
    from docker.client import DockerClient

CALL_TIMEOUT_S: Final = 5.0
_WORKERS: Final = 3
_JOIN_S: Final = 0.1
_OVERLAP_NS: Final = 1_000_000_000
_BACKOFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_MOMENT_S: Final = 0.15
_GONE: Final = 404
_OLDEST_PATH: Final = "1.40"
"""Only `/version` without a version is asked by it."""
_UNFIT_WAIT_S: Final = 30.0
_LOCAL_SCHEMES: Final = ("unix://", "http+unix://")


class _NotFound:
    """See `NOT_FOUND`."""


NOT_FOUND: Final = _NotFound()
"""The engine's own answer that it knows no such container or exec; None means that it did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerUpstream:
    """An engine: `url` as in DOCKER_HOST (unix:///… or tcp://…); PEM file paths where it wants TLS."""

    url: str
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_verify: bool = True

    @property
    def local(self) -> bool:
        """Whether its clock is surely ours."""
        return self.url.startswith(_LOCAL_SCHEMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """`skew_ns`: its clock minus ours, 0 for a local one; `process`: who listens, of a local one that can be told."""

    engine_id: str | None
    version: str | None
    skew_ns: int
    api_version: str | None = None
    process: EngineProcess | None = None

    def restarted_since(self, before: EngineFacts) -> bool | None:
        """Whether this is another process than `before`; None where that cannot be told."""
        if self.process is None or before.process is None:
            return None
        return self.process != before.process


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedContainer:
    """One row of the engine's list; `created_ns` is whole seconds of its clock."""

    id: str
    running: bool
    created_ns: int | None


class Listener(Protocol):
    """All called on the event loop, in order."""

    def on_up(self, engine: EngineFacts, *, again: bool) -> None:
        """The event stream is open; what was there before must now be listed."""
        ...

    def on_event(self, event: EventFacts) -> None:
        """One event of a container; replayed ones come again."""
        ...

    def on_strange(self, what: str) -> None:
        """An event was left out; a clause for people."""
        ...

    def on_down(self, why: str) -> None:
        """The stream is not open: called once per loss, and once when it never was."""
        ...


class DockerAdapter:
    """One engine, one event thread, a few threads for questions."""

    def __init__(self, upstream: DockerUpstream, *, since_ns: int, listener: Listener) -> None:
        self._upstream = upstream
        self._listener = listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._since_ns = since_ns
        self._closed = threading.Event()
        self._stream: _Closable | None = None
        self._jobs: queue.SimpleQueue[tuple[Callable[[DockerClient], object], Future[object]] | None] = (
            queue.SimpleQueue()
        )
        self._workers = 0
        self._threads: list[threading.Thread] = []
        self._skew_ns = 0
        self._version: str | None = None
        """Of the API, as chosen at the first meeting with the engine that is there now."""
        self._process: EngineProcess | None = None
        """Who listened at the last knock."""

    def start(self) -> None:
        """Begin in threads; returns at once."""
        self._loop = asyncio.get_running_loop()
        self._run(self._follow, "docker-events")

    def _run(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    # --- questions ----------------------------------------------------------------------------------------------

    async def container(self, container_id: str) -> object:
        """GET /containers/ID/json; `NOT_FOUND` when it is gone, None when the engine did not answer in time."""
        if ID.match(container_id) is None:
            return NOT_FOUND  # it would become another path
        return await self._ask(lambda client: client.api.inspect_container(container_id))

    async def exec(self, exec_id: str) -> object:
        """GET /exec/ID/json; `NOT_FOUND` and None as above."""
        if ID.match(exec_id) is None:
            return NOT_FOUND
        return await self._ask(lambda client: client.api.exec_inspect(exec_id))

    async def listed(self, *, everything: bool) -> list[ListedContainer] | None:
        """The running containers, with `everything` also the stopped ones; None when the engine did not answer."""
        found = await self._ask(lambda client: client.api.containers(all=everything))
        if not isinstance(found, list):
            return None
        rows = cast("list[object]", found)
        return [row for row in map(_row, rows) if row is not None]

    async def _ask(self, call: Callable[[DockerClient], object]) -> object:
        if self._closed.is_set():
            return None
        if self._workers < _WORKERS:
            self._workers += 1
            self._run(self._work, f"docker-ask-{self._workers}")
        future: Future[object] = Future()
        self._jobs.put((call, future))
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        client: DockerClient | None = None
        while (job := self._jobs.get()) is not None:
            call, future = job
            if self._closed.is_set() or not future.set_running_or_notify_cancel():
                future.cancel()
                continue
            try:
                if client is None:
                    client = self._client()
                else:
                    self._knock()  # the SDK leaves a socket open when nobody listens
                future.set_result(call(client))
            except Exception as error:  # noqa: BLE001 - a thread's outermost frame: what the SDK raises is "no answer"
                future.set_result(NOT_FOUND if getattr(error, "status_code", None) == _GONE else None)
        if client is not None:
            client.close()

    # --- the event stream ---------------------------------------------------------------------------------------

    def _knock(self) -> None:
        """Raise OSError when nobody listens: says why more plainly than the SDK, before it is even imported."""
        scheme, _, path = self._upstream.url.partition("://")
        if scheme not in ("unix", "http+unix"):
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.settimeout(CALL_TIMEOUT_S)
            try:
                door.connect("/" + path.lstrip("/"))
            except PermissionError as error:
                why = f"{self._upstream.url}: {error.strerror} for uid {os.geteuid()} (is it in the group `docker`?)"
                raise OSError(error.errno, why) from None
            except OSError as error:
                raise OSError(error.errno, f"{self._upstream.url}: {error.strerror or error}") from None
            self._process = listening_process(door)

    def _client(self) -> DockerClient:
        self._knock()
        if "docker" not in sys.modules:
            # A third of a second of CPU: not beside the start and end of a command of a moment, which it would delay.
            self._closed.wait(_MOMENT_S)
            if self._closed.is_set():
                raise OSError("the run is over")
        import docker
        from docker.tls import TLSConfig

        up = self._upstream
        tls: TLSConfig | bool = False
        if up.tls_ca or up.tls_cert:
            pair = (up.tls_cert, up.tls_key) if up.tls_cert and up.tls_key else None
            tls = TLSConfig(client_cert=pair, ca_cert=up.tls_ca, verify=up.tls_verify)

        def speaking(version: str | None) -> DockerClient:
            timeout = cast("int", CALL_TIMEOUT_S)
            client = docker.DockerClient(base_url=up.url, version=version, timeout=timeout, tls=tls)
            client.api.trust_env = False  # a proxy of the environment is not for an engine that was named by address
            return client

        if self._version is None:
            asking = speaking(_OLDEST_PATH)
            try:
                self._version = choose(ApiRange.of(asking.api.version(api_version=False)))
            finally:
                asking.close()
        return speaking(self._version)

    def _tell(self, call: Callable[..., None], *args: object, **kwargs: object) -> None:
        loop = self._loop
        if loop is None or self._closed.is_set():
            return
        try:
            loop.call_soon_threadsafe(lambda: None if self._closed.is_set() else call(*args, **kwargs))
        except RuntimeError:
            self._closed.set()  # the loop is closed: nobody listens any more

    def _follow(self) -> None:
        losses = 0
        again = False
        client: DockerClient | None = None
        while not self._closed.is_set():
            why = "the engine closed the event stream"
            wait_s = _BACKOFF_S[min(losses, len(_BACKOFF_S) - 1)]
            try:
                if client is None:
                    client = self._client()
                engine = self._meet(client)
                events = self._subscribe(client)
                self._tell(self._listener.on_up, engine, again=again)
                again = True
                losses = 0
                for raw in events:
                    event = parse_event(raw)
                    if event is None:
                        if names_no_id(raw):
                            self._tell(self._listener.on_strange, "the engine told of a container by what is no id")
                        continue
                    self._since_ns = max(self._since_ns, event.at_ns - self._skew_ns)
                    self._tell(self._listener.on_event, event)
            except NotSpoken as error:
                why, wait_s = str(error), _UNFIT_WAIT_S
            except Exception as error:  # noqa: BLE001 - a thread's outermost frame: the loss is reported with its reason
                why = _reason(error)
            if self._stream is not None:
                self._stream.release()
                self._stream = None
            if self._closed.is_set():
                break
            if losses == 0:
                self._tell(self._listener.on_down, why)
            if client is not None:
                client.close()
                client = None
            self._version = None  # the next engine there may be another one
            self._closed.wait(wait_s)
            losses += 1
        if client is not None:
            client.close()

    def _meet(self, client: DockerClient) -> EngineFacts:
        asked_ns = time.time_ns()
        info = cast("dict[str, object]", client.info())
        answered_ns = time.time_ns()
        if not self._upstream.local:
            theirs = parse_stamp(info.get("SystemTime"))
            if theirs is not None:
                self._skew_ns = theirs - (asked_ns + answered_ns) // 2
        identity, version = info.get("ID"), info.get("ServerVersion")
        return EngineFacts(
            engine_id=identity if isinstance(identity, str) and identity else None,
            version=version if isinstance(version, str) else None,
            skew_ns=self._skew_ns,
            api_version=self._version,
            process=self._process,
        )

    def _subscribe(self, client: DockerClient) -> Iterator[object]:
        since_ns = self._since_ns + self._skew_ns - _OVERLAP_NS
        since = f"{since_ns // 1_000_000_000}.{since_ns % 1_000_000_000:09d}"
        # The daemon takes seconds with a fraction; the SDK passes any text through but is annotated for whole seconds.
        stream: Any = client.api.events(since=cast("int", since), filters={"type": "container"}, decode=True)
        self._stream = _Closable(stream)
        return cast("Iterator[object]", iter(stream))

    def close(self) -> None:
        """Stop the threads; a call that hangs is left behind (they are daemon threads)."""
        if self._closed.is_set():
            return
        self._closed.set()
        stream = self._stream
        if stream is not None:
            stream.interrupt()
        for _ in range(self._workers):
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(_JOIN_S)


class _Closable:
    """An event stream that another thread can interrupt; the SDK's own close() takes the descriptor from the reader."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def release(self) -> None:
        """By the reading thread, when it stopped reading."""
        try:
            self._stream._response.close()  # noqa: SLF001 - the SDK has no call that gives the connection back
        except Exception:  # noqa: BLE001 - closing what is already broken may fail in any way
            return

    def interrupt(self) -> None:
        """By any thread: the blocking read ends."""
        try:
            response = self._stream._response.raw  # noqa: SLF001 - the SDK gives no access to its socket
            connection = getattr(response, "_connection", None) or getattr(response, "connection", None)
            sock = getattr(connection, "sock", None)
            if isinstance(sock, socket.socket):
                sock.shutdown(socket.SHUT_RDWR)
            else:
                self._stream.close()
        except Exception:  # noqa: BLE001 - closing what is already broken may fail in any way; the thread is a daemon
            return


def _row(row: object) -> ListedContainer | None:
    """One row of GET /containers/json; None without an id."""
    if not isinstance(row, dict):
        return None
    told = cast("dict[str, object]", row)
    container_id, created = told.get("Id"), told.get("Created")
    if not isinstance(container_id, str) or ID.match(container_id) is None:
        return None
    return ListedContainer(
        id=container_id,
        running=told.get("State", "running") in ("running", "paused", "restarting"),
        created_ns=created * 1_000_000_000 if isinstance(created, int) else None,
    )


def _reason(error: Exception) -> str:
    """One line for people: the innermost cause says more than the SDK's wrapping."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    inner: BaseException = error
    while inner.__cause__ is not None or inner.__context__ is not None:
        inner = inner.__cause__ or inner.__context__ or inner
    text = str(inner).strip() or type(inner).__name__
    return f"{type(error).__name__}: {text}"[:300]
