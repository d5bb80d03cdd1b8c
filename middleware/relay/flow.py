"""A non-blocking socket: bytes in as they were read, bytes out as they are taken, back-pressure, the death of a peer.

It works on `loop.add_reader`/`add_writer` and plain `recv`/`send` instead of the loops' transports: those
differ between asyncio and uvloop, close on a failed write before what was received has been read (an
early 413 followed by RST is lost), and do not notice a dead peer while reading is paused.  Here a failed
write never stops reading: Linux keeps the receive queue over an RST, so the rest is read until the socket
says that it ended.  How a connection is ended by us is in `ends.py`.

**Source:** tcp(7), tcp_recvmsg in Linux (queue before error).
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from fairtrial.middleware.relay.hangup import HangupWatch

READ_BYTES: Final = 64 * 1024
HIGH_BYTES: Final = 128 * 1024
"""More than this unsent: the owner is told to stop reading the other side."""
LOW_BYTES: Final = 32 * 1024
_LAST_READS: Final = 4
_DRAIN_S: Final = 0.05


def nothing(*_: object) -> None:
    """A callback of an end that nobody owns any more."""


class Flow:
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
        self._plain = True
        """Nothing stands between the socket and the owner: `_ingest` is not asked."""
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
        self.on_data: Callable[[bytes, int], None] = nothing
        self.on_eof: Callable[[bool], None] = nothing
        self.on_error: Callable[[OSError], None] = nothing
        self.on_write_failed: Callable[[OSError], None] = nothing
        self.on_blocked: Callable[[], None] = nothing
        self.on_drained: Callable[[], None] = nothing
        self.on_hangup: Callable[[int | None], None] = nothing
        self.on_closed: Callable[[], None] = nothing
        watch.arm(self._fd, self)

    def ends(self) -> tuple[object, object]:
        """The other side's address and our own, as the socket names them.  Raises OSError when it is gone."""
        return self._sock.getpeername(), self._sock.getsockname()

    def release(self) -> None:
        """Its owner wants to hear nothing more of it; what it still has to send is sent."""
        self.on_data = self.on_eof = self.on_error = self.on_write_failed = nothing
        self.on_blocked = self.on_drained = self.on_hangup = self.on_closed = nothing

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
                self._loop.call_later(_DRAIN_S, self._drain)

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
        if not code:
            if not self.write_ended:  # a unix peer that is gone; else both sides have sent FIN, which is no news
                self.on_hangup(None)
        else:
            self._fault = self._fault or OSError(code, os.strerror(code))
            if self.read_ended:
                self._lost(self._fault)
            else:
                self.on_hangup(code)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            if not self._dead:
                self._loop.remove_reader(self._fd)

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
