"""A relay in a thread with its own loop, an upstream under the test's control, and a reader of the feed.

Tests drive both sides with blocking sockets, so every FIN and RST is sent exactly where the test says.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import trustme
import uvloop

from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.model import ModelDoor
from fairtrial.middleware.relay.relay import Relay
from fairtrial.middleware.relay.settings import RelaySettings, Upstream
from fairtrial.middleware.wire.feed import Decoder, Kind, Record

DEADLINE_S = 10.0
TOKEN = "0123456789abcdef0123456789abcdef"
AUTHORITY = trustme.CA()


def eventually(claim: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Polls until the claim is true; fails with `what` after the deadline."""
    end = time.monotonic() + deadline_s
    while not claim():
        assert time.monotonic() < end, what
        time.sleep(0.001)


def reset(sock: socket.socket) -> None:
    """Closes with RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def read_all(sock: socket.socket) -> tuple[bytes, str]:
    """Everything until the end, and how it ended: fin, rst, or ragged (TLS)."""
    parts: list[bytes] = []
    try:
        while data := sock.recv(65536):
            parts.append(data)
    except ConnectionResetError:
        return b"".join(parts), "rst"
    except ssl.SSLEOFError:
        return b"".join(parts), "ragged"
    return b"".join(parts), "fin"


def read_exactly(sock: socket.socket, count: int) -> bytes:
    """Exactly that many bytes."""
    parts = bytearray()
    while len(parts) < count:
        data = sock.recv(count - len(parts))
        assert data, f"ended after {len(parts)} of {count} bytes"
        parts += data
    return bytes(parts)


def read_head(sock: socket.socket) -> bytes:
    """One head, byte by byte, so that nothing behind it is taken."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        data = sock.recv(1)
        assert data, f"ended within a head: {head!r}"
        head += data
    return head


def fill(sock: socket.socket, patience_s: float = 0.3, limit_bytes: int = 1 << 30) -> bytes:
    """Sends until nobody takes any more for `patience_s`; gives what was sent."""
    sock.settimeout(patience_s)
    sent = bytearray()
    piece = bytes(range(256)) * 64
    with contextlib.suppress(TimeoutError):
        while len(sent) < limit_bytes:
            sent += piece[: sock.send(piece)]
    sock.settimeout(DEADLINE_S)
    return bytes(sent)


class UpstreamSide:
    """A listening socket; `accept` gives one raw connection, with TLS if asked."""

    def __init__(self, *, tls: bool = False) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.listener.settimeout(DEADLINE_S)
        self.port: int = self.listener.getsockname()[1]
        self.tls = tls
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
            self._context.set_alpn_protocols(["http/1.1"])
            AUTHORITY.issue_cert("localhost").configure_cert(self._context)
        self.open: list[socket.socket] = []

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}" if self.tls else f"http://127.0.0.1:{self.port}"

    def accept(self) -> socket.socket:
        sock, _ = self.listener.accept()
        sock.settimeout(DEADLINE_S)
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_side=True, suppress_ragged_eofs=False)
        self.open.append(sock)
        return sock

    def close(self) -> None:
        self.listener.close()
        for sock in self.open:
            sock.close()


class Observer(threading.Thread):
    """Reads the feed until it ends."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(name="observer", daemon=True)
        self.sock = sock
        self.records: list[Record] = []
        self.decoder = Decoder()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.sock.recv(1 << 20):
                self.records.extend(self.decoder.feed(data))

    def of(self, kind: Kind, conn: int | None = None, msg: int | None = None) -> list[Record]:
        return [
            record
            for record in tuple(self.records)
            if record.kind == kind and conn in (None, record.conn) and msg in (None, record.msg)
        ]

    def joined(self, kind: Kind, conn: int = 1, msg: int | None = None) -> bytes:
        return b"".join(record.payload for record in self.of(kind, conn, msg))

    def wait(self, kind: Kind, count: int = 1, conn: int | None = None) -> list[Record]:
        eventually(lambda: len(self.of(kind, conn)) >= count, f"no {count} records of {kind.name}")
        return self.of(kind, conn)


class Rig:
    """One relay with one model door in front of one upstream."""

    def __init__(
        self, loop_kind: str, upstream: UpstreamSide, *, base: str = "", settings: RelaySettings | None = None
    ) -> None:
        self.upstream = upstream
        self.loop = uvloop.new_event_loop() if loop_kind == "uvloop" else asyncio.new_event_loop()
        self.settings = settings or RelaySettings()
        near, far = socket.socketpair()
        self.feed = FeedSender(near)
        self.observer = Observer(far)
        self.observer.start()
        self.relay = Relay(self.settings, self.feed)
        self.relay.add_token(TOKEN, "trial-1")
        self.thread = threading.Thread(target=self.loop.run_forever, name="relay", daemon=True)
        self.thread.start()
        self.door = self.open_door(Upstream.parse("test", upstream.url + base))
        self.clients: list[socket.socket] = []

    def open_door(self, upstream: Upstream) -> ModelDoor:
        return asyncio.run_coroutine_threadsafe(self.relay.open_model_door(upstream), self.loop).result(DEADLINE_S)

    def client(self, *, receive_bytes: int | None = None, door: ModelDoor | None = None) -> socket.socket:
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(DEADLINE_S)
        try:
            sock.connect(("127.0.0.1", (door or self.door).port))
        except OSError:
            sock.close()
            raise
        self.clients.append(sock)
        return sock

    def in_loop(self, act: Callable[[], object]) -> object:
        """Runs something in the relay's thread and gives its result."""
        future: Future[object] = Future()

        def run() -> None:
            try:
                future.set_result(act())
            except BaseException as error:
                future.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return future.result(DEADLINE_S)

    def no_pair_open(self, deadline_s: float = DEADLINE_S) -> None:
        """Waits until every pair has ended (within the deadline), then until the feed has told of it."""
        eventually(lambda: self.relay.counters.open_pairs == 0, f"pairs open: {self.relay.counters}", deadline_s)
        wanted = self.relay.counters.connections
        eventually(
            lambda: not self.observer.is_alive() or len(self.observer.of(Kind.CLOSE)) >= wanted,
            "the feed does not tell of every end",
        )

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.relay.close(0.0), self.loop).result(DEADLINE_S)
        open_pairs = self.relay.counters.open_pairs
        self.in_loop(self.feed.flush_now)
        self.in_loop(self.feed.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(DEADLINE_S)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.observer.join(DEADLINE_S)
        self.observer.sock.close()
        for sock in self.clients:
            sock.close()
        assert open_pairs == 0
        assert self.relay.counters.swallowed == 0, self.relay.counters.last_swallowed


@contextlib.contextmanager
def running(
    loop_kind: str, *, tls: bool = False, base: str = "", settings: RelaySettings | None = None
) -> Iterator[Rig]:
    """A rig whose relay must end without a pair left open and without a swallowed fault."""
    upstream = UpstreamSide(tls=tls)
    rig = Rig(loop_kind, upstream, base=base, settings=settings)
    try:
        yield rig
    finally:
        rig.close()
        upstream.close()


def request(method: str = "POST", path: str = "/v1/messages", body: bytes = b"", *lines: str) -> bytes:
    """A request as a client would send it to the door."""
    head = [f"{method} /t/{TOKEN}{path} HTTP/1.1", "Host: 127.0.0.1", *lines]
    if body:
        head.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body
