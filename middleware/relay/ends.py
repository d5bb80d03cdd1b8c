"""One end of a connection: a non-blocking socket whose every way to end is seen and can be reproduced.

In: a connected socket and the callbacks of its owner.  Out: bytes as they were read, `eof`, `error`,
back-pressure, and the endings of the other side: FIN behind the last byte, RST only when the peer's
kernel has everything (an early RST eats bytes that were already delivered).

It works on `loop.add_reader`/`add_writer` and plain `recv`/`send` instead of the loops' transports: those
differ between asyncio and uvloop, close on a failed write before what was received has been read (an
early 413 followed by RST is lost), and do not notice a dead peer while reading is paused.  Here a failed
write never stops reading: Linux keeps the receive queue over an RST, so the rest is read until the socket
says that it ended.

`HangupWatch` is one epoll that watches all sockets for HUP and ERR, and the paused ones for FIN.  It is
needed for the read ones too: at EPOLLERR libuv calls a reader once and never again, whatever is left to read.

What an ending of one side means for the other is decided in `coupled.py`.

**Source:** tcp(7), epoll(7), socket(7) (SO_LINGER), tcp_recvmsg in Linux (queue before error).
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import select
import socket
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import Final

READ_BYTES: Final = 64 * 1024
HIGH_BYTES: Final = 128 * 1024
"""More than this unsent: the owner is told to stop reading the other side."""
LOW_BYTES: Final = 32 * 1024
_LINGER_RST: Final = struct.pack("ii", 1, 0)
_DISCARD_S: Final = 1.0
_LAST_READS: Final = 4
_POLL_S: Final = (0.0005, 0.05)


def _nothing(*_: object) -> None:
    """A callback of an end that nobody owns any more."""


class HangupWatch:
    """One epoll, itself watched by the loop, that tells when a socket has lost its peer.  One-shot."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._links: dict[int, Link] = {}
        loop.add_reader(self._epoll.fileno(), self._ready)

    def arm(self, fd: int, link: Link, *, fin: bool = False) -> None:
        """Tell `link` of HUP and ERR on `fd`, once; with `fin` also of the peer's FIN."""
        events = select.EPOLLONESHOT | (select.EPOLLRDHUP if fin else 0)
        if fd in self._links:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
            self._links[fd] = link

    def remove(self, fd: int) -> None:
        """Stop watching; must come before the fd is closed."""
        if self._links.pop(fd, None) is not None:
            with suppress(OSError):
                self._epoll.unregister(fd)

    def _ready(self) -> None:
        for fd, events in self._epoll.poll(0, 256):
            link = self._links.get(fd)
            if link is not None:
                link.hung_up(events)

    def close(self) -> None:
        """Let the epoll go."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._links.clear()


class Link:
    """A plain socket.  Callbacks are attributes, set by `attach`; none is called after `closed`.

    `on_data(data, t_ns)`, `on_eof(ragged)`, `on_error(exc)` (the end of both directions, everything
    received was given out), `on_write_failed(exc)` (reading goes on), `on_blocked()`, `on_drained()`,
    `on_hangup(errno or None)` (seen by the watch while paused; None is a FIN), `on_closed()`.
    """

    __slots__ = (
        "_after_flush", "_blocked", "_dead", "_fault", "_fd", "_fin_armed", "_is_lost", "_loop", "_out", "_plain",
        "_reading", "_recv", "_send", "_sock", "_timer", "_watch", "_writing", "closed", "closing", "on_blocked",
        "on_closed", "on_data", "on_drained", "on_eof", "on_error", "on_hangup", "on_write_failed", "read_ended",
        "watch_fin", "write_ended",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, watch: HangupWatch) -> None:
        self._loop = loop
        self._sock = sock
        self._recv = sock.recv
        self._send = sock.send
        self._watch = watch
        self._fd = sock.fileno()
        self._plain = type(self) is Link
        self._out = bytearray()
        self._reading = False
        self._writing = False
        self._blocked = False
        self._fin_armed = False
        self._dead = False
        self._is_lost = False
        self._fault: OSError | None = None
        self._after_flush: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.watch_fin = False
        self.read_ended = False
        self.write_ended = False
        self.closing = False
        """An ending is under way that closes this side without further help."""
        self.closed = False
        self.on_data: Callable[[bytes, int], None] = _nothing
        self.on_eof: Callable[[bool], None] = _nothing
        self.on_error: Callable[[OSError], None] = _nothing
        self.on_write_failed: Callable[[OSError], None] = _nothing
        self.on_blocked: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing
        self.on_hangup: Callable[[int | None], None] = _nothing
        self.on_closed: Callable[[], None] = _nothing
        watch.arm(self._fd, self)

    def release(self) -> None:
        """Its owner wants to hear nothing more of it; what it still has to send is sent."""
        self.on_data = self.on_eof = self.on_error = self.on_write_failed = _nothing
        self.on_blocked = self.on_drained = self.on_hangup = self.on_closed = _nothing

    # ------------------------------------------------------------------ reading

    def start(self) -> None:
        """Give out what a protocol above TCP may have read already; call once, after the callbacks are set."""

    def vanished(self) -> bool:
        """Whether the peer's socket is gone, not merely half-closed (POLLHUP; only unix sockets tell at FIN)."""
        if self.closed:
            return True
        poll = select.poll()
        poll.register(self._fd, 0)
        return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))

    def readable(self) -> bool:
        """Whether something has arrived that was not read yet, an ending included."""
        poll = select.poll()
        poll.register(self._fd, select.POLLIN | select.POLLRDHUP)
        return bool(poll.poll(0))

    def resume(self) -> None:
        """Read.  Nothing happens once the read side has ended."""
        if self._reading or self.closed or self.read_ended:
            return
        self._reading = True
        if self._dead:
            self._loop.call_soon(self._drain)
            return
        if self._fin_armed:
            self._fin_armed = False
            self._watch.arm(self._fd, self)
        self._loop.add_reader(self._fd, self._readable)

    def pause(self) -> None:
        """Do not read, but notice when the peer is gone."""
        if self.closed:
            return
        self._stop_reading()
        if self.watch_fin != self._fin_armed and not self.read_ended and not self._dead:
            self._fin_armed = self.watch_fin
            self._watch.arm(self._fd, self, fin=self.watch_fin)

    def _readable(self) -> bool:
        """One read; False if there was nothing."""
        recv = self._recv  # to call a slot by its attribute is slow: Python takes it for a method
        try:
            data = recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._lost(self._fault or error)
            return True
        if data:
            if self._plain:
                on_data = self.on_data
                on_data(data, monotonic_ns())
            else:
                self._ingest(data, monotonic_ns())
        else:
            self._socket_eof()
        return True

    def read_now(self) -> None:
        """Give out what is there already (at most some 256 KiB), for who is about to close."""
        for _ in range(_LAST_READS):
            if not self._reading or self.closed or self.read_ended or not self._readable():
                return

    def _drain(self) -> None:
        """Read what a dead socket still holds: the loop may not call for it any more."""
        if self._reading and not self.closed and not self.read_ended:
            if self._readable():
                self._loop.call_soon(self._drain)
            else:
                self._loop.call_later(_POLL_S[1], self._drain)

    def _ingest(self, data: bytes, t_ns: int) -> None:
        """What a protocol above TCP makes of the bytes that were read."""

    def _socket_eof(self) -> None:
        if self._fault is not None:  # the error was handed to a failed write, so recv shows only an end
            self._lost(self._fault)
        else:
            self._end_read(ragged=False)

    def _end_read(self, *, ragged: bool) -> None:
        self.read_ended = True
        self.pause()
        self.on_eof(ragged)

    def _lost(self, error: OSError) -> None:
        if self._is_lost or self.closed:
            return
        self._is_lost = True
        self.read_ended = True
        self._fault = error
        self._drop_output()
        self._stop_reading()
        self.on_error(error)

    def hung_up(self, events: int) -> None:
        """The watch saw something on this socket."""
        if self.closed:
            return
        if not events & (select.EPOLLERR | select.EPOLLHUP):
            if events & select.EPOLLRDHUP:
                self._fin_armed = False
                self._watch.arm(self._fd, self)
                if not self.read_ended and not self._reading:
                    self.on_hangup(None)
            return
        self._dead = True
        if self._out:
            self._writable()
            if self._sock.fileno() == -1:  # the failed write has closed it
                return
        if self._reading:
            self._loop.remove_reader(self._fd)
            self._loop.call_soon(self._drain)
            return
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code and self._fault is not None:
            code = self._fault.errno or 0
        if not code and events & select.EPOLLERR:
            code = errno.ECONNRESET
        if code:  # else both sides have sent FIN, which is no news
            self._fault = self._fault or OSError(code, os.strerror(code))
            if self.read_ended:
                self._lost(self._fault)
            else:
                self.on_hangup(code)

    # ------------------------------------------------------------------ writing

    @property
    def unsent_bytes(self) -> int:
        """What the kernel has not taken yet."""
        return len(self._out)

    @property
    def blocked(self) -> bool:
        """`on_blocked` was called, and `on_drained` not yet."""
        return self._blocked

    def write(self, data: bytes) -> None:
        """Send now what the kernel takes, keep the rest.  Bytes for a dead peer are dropped."""
        if self._fault is not None or self.closed or self.write_ended:
            return
        if self._out:
            self._out += data
        else:
            send = self._send
            try:
                sent = send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._write_failed(error)
                return
            if sent == len(data):
                return
            self._out += memoryview(data)[sent:]
            self._want_write()
        if len(self._out) > HIGH_BYTES and not self._blocked:
            self._blocked = True
            self.on_blocked()

    def _want_write(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        try:
            while self._out:
                with memoryview(self._out) as view:
                    sent = self._send(view[: 4 * READ_BYTES])
                del self._out[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._write_failed(error)
            return
        if self._blocked and len(self._out) <= LOW_BYTES:
            self._blocked = False
            self.on_drained()
        if not self._out and self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
            after, self._after_flush = self._after_flush, None
            if after is not None:
                after()

    def _write_failed(self, error: OSError) -> None:
        if self._fault is None:
            self._fault = error
        self._drop_output()
        if self.read_ended:
            self._lost(self._fault)
        else:
            self.on_write_failed(self._fault)

    def _drop_output(self) -> None:
        self._out.clear()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        after, self._after_flush = self._after_flush, None
        if after is not None:
            after()

    # ------------------------------------------------------------------ endings

    def _when_flushed(self, act: Callable[[], None]) -> None:
        if self._out:
            self._after_flush = act
        else:
            act()

    def finish(self) -> None:
        """FIN (for TLS: close_notify, then FIN) behind the last byte; reading goes on."""
        if not self.write_ended and not self.closed:
            self.write_ended = True
            self._say_goodbye()
            self._when_flushed(self._shutdown)

    def _say_goodbye(self) -> None:
        """What the protocol above TCP sends before FIN."""

    def _shutdown(self) -> None:
        if not self.closed:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    def finish_and_close(self, limit_s: float | None = None) -> None:
        """FIN behind the last byte, then close both directions; RST if that takes longer than `limit_s`."""
        if self.closed:
            return
        self.closing = True
        if not self.write_ended:
            self.write_ended = True
            self._say_goodbye()
        self._stop_reading()
        if self._out and limit_s is not None:
            self._later(limit_s, self.reset)
        self._when_flushed(self.close)

    def finish_and_discard(self) -> None:
        """FIN behind the last byte; what still arrives is thrown away for a second, so that no RST eats it."""
        if self.closed:
            return
        self.closing = True
        self.on_data = self.on_write_failed = self.on_hangup = _nothing
        self.on_eof = lambda _ragged: self.close()
        self.on_error = lambda _error: self.close()
        self.finish()
        self._later(_DISCARD_S, self.close)
        if self.read_ended:
            self._when_flushed(self.close)
        else:
            self.resume()

    def reset_when_delivered(self, limit_s: float | None = None) -> None:
        """RST once our buffer and the kernel's send queue (SIOCOUTQ) are empty; at once if the peer is gone."""
        if self.closed:
            return
        self.closing = True
        self._stop_reading()
        self.watch_fin = False
        self.on_hangup = lambda _code: self.reset()
        self.on_write_failed = lambda _error: self.reset()
        self.on_error = lambda _error: self.reset()
        if self._fault is not None:
            self.reset()
            return
        self.pause()
        deadline = None if limit_s is None else monotonic_ns() + int(limit_s * 1e9)
        self._poll_delivered(_POLL_S[0], deadline)

    def _poll_delivered(self, wait_s: float, deadline_ns: int | None) -> None:
        if self.closed:
            return
        late = deadline_ns is not None and monotonic_ns() > deadline_ns
        if late or self._fault is not None or (not self._out and not self.kernel_unsent()):
            self.reset()
        else:
            self._later(wait_s, self._poll_delivered, min(wait_s * 2, _POLL_S[1]), deadline_ns)

    def kernel_unsent(self) -> int:
        """What the kernel has taken and the peer's has not (SIOCOUTQ)."""
        try:
            (count,) = struct.unpack("i", fcntl.ioctl(self._fd, termios.TIOCOUTQ, b"\0\0\0\0"))
        except OSError:
            return 0
        return int(count)

    def _later(self, wait_s: float, act: Callable[..., None], *args: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(wait_s, act, *args)

    def reset(self) -> None:
        """RST now; whatever is unsent is lost."""
        if not self.closed:
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RST)
            self.close()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            if not self._dead:
                self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Close the socket now (FIN, or RST if bytes were left unread) and call `on_closed` once."""
        if self.closed:
            return
        self.closed = True
        self._stop_reading()
        self._watch.remove(self._fd)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self._timer is not None:
            self._timer.cancel()
        self._out.clear()
        self._after_flush = None
        self._sock.close()
        told = self.on_closed
        self.release()
        told()
