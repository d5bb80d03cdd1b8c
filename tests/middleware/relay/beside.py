"""The same story told twice, over a direct connection and through the relay, so that one can be held beside the other.

A story gets a `Meeting`: the client's socket, and the upstream's as soon as somebody calls.  It says what both sides
saw; `beside` demands that this is the same.  Direct, the client asks the upstream's own authority and path; through the
relay, the door's and its token's: then the upstream must see the very same bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import ssl
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from tests.middleware.relay.rig import AUTHORITY, DEADLINE_S, TOKEN, Rig

_Seen = TypeVar("_Seen")


def close_cleanly(sock: socket.socket) -> None:
    """FIN; behind a close_notify if it is TLS (Python's close sends none)."""
    if isinstance(sock, ssl.SSLSocket):
        sock.setblocking(False)
        with contextlib.suppress(ssl.SSLError, OSError):
            sock.unwrap()
    sock.close()


def unsent(sock: socket.socket) -> int:
    """Bytes that the peer's kernel has not taken yet."""
    return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0])


class Meeting:
    """One client, and the connection that the upstream gets from it."""

    def __init__(self, rig: Rig, *, direct: bool, receive_bytes: int | None = None) -> None:
        self.direct = direct
        self.tls = rig.upstream.tls
        self._accepted: Future[socket.socket] = Future()
        self.rig = rig
        threading.Thread(target=self._accept, name="accept", daemon=True).start()
        if direct:
            self.authority = rig.door.upstream.authority
            self.prefix = rig.door.upstream.base_path
            self.client = self._call_directly(rig, receive_bytes)
        else:
            self.authority = f"127.0.0.1:{rig.door.port}"
            self.prefix = f"/t/{TOKEN}"
            self.client = rig.client(receive_bytes=receive_bytes)

    def _accept(self) -> None:
        try:
            self._accepted.set_result(self.rig.upstream.accept())
        except BaseException as error:
            self._accepted.set_exception(error)

    def _call_directly(self, rig: Rig, receive_bytes: int | None) -> socket.socket:
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(DEADLINE_S)
        sock.connect(("127.0.0.1", rig.upstream.port))
        if rig.upstream.tls:
            context = ssl.create_default_context()
            AUTHORITY.configure_trust(context)
            context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
            sock = context.wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False)
        rig.clients.append(sock)
        return sock

    @property
    def up(self) -> socket.socket:
        """The upstream's socket, once it was called."""
        return self._accepted.result(DEADLINE_S)

    def leave(self) -> None:
        """Both close: a tunnel ends with its second end only."""
        self.client.close()
        if self._accepted.done() and self._accepted.exception() is None:
            self._accepted.result().close()

    def ask(self, method: str = "POST", path: str = "/v1/messages", *lines: str, body: bytes = b"") -> bytes:
        """A request as the client says it here; a body gets its Content-Length."""
        head = [f"{method} {self.prefix}{path} HTTP/1.1", f"Host: {self.authority}", *lines]
        if body:
            head.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1") + body


def beside(rig: Rig, story: Callable[[Meeting], _Seen], *, receive_bytes: int | None = None) -> _Seen:
    """What the story sees through the relay, which must be what it sees over a direct connection."""
    seen: list[_Seen] = []
    for direct in (True, False):
        meeting = Meeting(rig, direct=direct, receive_bytes=receive_bytes)
        try:
            seen.append(story(meeting))
        finally:
            meeting.leave()
    assert seen[1] == seen[0], f"through the relay {seen[1]!r:.2000}, directly {seen[0]!r:.2000}"
    rig.no_pair_open()
    return seen[1]


@contextlib.contextmanager
def in_background(act: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Runs something beside the block; what it raised is in the list afterwards."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="beside", daemon=True)
    thread.start()
    yield raised
    thread.join(3 * DEADLINE_S)
    assert not thread.is_alive()
