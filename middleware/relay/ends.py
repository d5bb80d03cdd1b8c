"""One end of a connection, and every way to end it that can be told apart: FIN, RST, and when.

In: a connected socket and the callbacks of its owner (`flow.py`).  Out: the endings of the other side: FIN behind the
last byte, RST only when the peer's kernel has everything (an early RST eats bytes that were already delivered).

What an ending of one side means for the other is decided in `endings.py`.

**Source:** tcp(7), socket(7) (SO_LINGER).
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import Final

from fairtrial.middleware.relay.flow import HIGH_BYTES, LOW_BYTES, READ_BYTES, Flow, nothing
from fairtrial.middleware.relay.hangup import HangupWatch

__all__ = ("HIGH_BYTES", "LOW_BYTES", "READ_BYTES", "HangupWatch", "Link")

_LINGER_RST: Final = struct.pack("ii", 1, 0)
_DISCARD_S: Final = 1.0
_POLL_S: Final = (0.0005, 0.05)


class Link(Flow):
    """A plain socket that is ended properly."""

    __slots__ = ()

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
        self.on_data = self.on_write_failed = self.on_hangup = nothing
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
        """What the kernel has taken and the peer's has not (SIOCOUTQ); nothing of a unix socket.

        There it lies in the peer's own queue at once, where it stays readable whatever becomes of this end; SIOCOUTQ
        counts what the peer has not *read*, and a client that uploads may wait for its reset before it reads.
        """
        if self._sock.family == socket.AF_UNIX:
            return 0
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
