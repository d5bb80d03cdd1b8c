"""TLS towards an upstream as a `Link`, on `ssl.MemoryBIO`, the same on asyncio and uvloop.

In: a connected socket and a context.  Out: decrypted bytes, and every ending told apart: close_notify
(clean), TCP FIN without it (ragged), RST, a broken record.  The loops' own TLS hides ragged ends, cannot
half-close, and loses an early response when a write fails; this one does none of that because the
socket's part is `ends.Link`.

It offers http/1.1 by ALPN and verifies against the system store plus the files it is given.
The server side of TLS is not here: doors are loopback or unix sockets.

**Source:** RFC 8446 section 6.1 (close_notify, truncation), RFC 9112 section 9.8.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from errno import EPROTO
from time import monotonic_ns as _now_ns
from typing import Final

from fairtrial.middleware.relay.ends import HangupWatch, Link

_RECORD_BYTES: Final = 16 * 1024
"""The most that OpenSSL gives at once: one record."""


def make_context(ca_files: Sequence[str] = (), *, ragged_visible: bool = True, system: bool = True) -> ssl.SSLContext:
    """A verifying client context: the system's store (with `system`) and, in addition, `ca_files` (files or folders).

    An unreadable CA file is left out: a direct client with that setting would have failed on its own, and
    the handshake then says which certificate was not trusted.  Loading takes tens of milliseconds without
    the GIL, so call it in a thread.
    """
    context = ssl.create_default_context() if system else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for path in ca_files:
        with suppress(OSError, ssl.SSLError):
            context.load_verify_locations(cafile=path)
            continue
        with suppress(OSError, ssl.SSLError):
            context.load_verify_locations(capath=path)
    context.set_alpn_protocols(["http/1.1"])
    if ragged_visible:
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


class TlsLink(Link):
    """A TLS client connection.  `await handshake()` first; callbacks see plaintext only."""

    __slots__ = ("_handshake", "_incoming", "_outgoing", "_tls")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        watch: HangupWatch,
        context: ssl.SSLContext,
        server_name: str,
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Before the socket is watched: a name that is none raises here.
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        super().__init__(loop, sock, watch)
        self._plain = False
        self._handshake: asyncio.Future[None] | None = None

    async def handshake(self) -> None:
        """Run the handshake.  Raises `OSError` (`ssl.SSLError` included); the link is paused afterwards."""
        self._handshake = self._loop.create_future()
        self.on_error = self._handshake_failed
        self.on_write_failed = self._handshake_failed
        self._step_handshake()
        self.resume()
        try:
            await self._handshake
        finally:
            self._handshake = None
            self.pause()

    def _handshake_failed(self, error: OSError) -> None:
        waiting = self._handshake
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)

    def _step_handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except OSError as error:
            self._flush()  # the alert, if there is one
            self._handshake_failed(error)
            return
        self._flush()
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_result(None)
            self.pause()

    def _flush(self) -> None:
        if self._outgoing.pending:
            super().write(self._outgoing.read())

    def start(self) -> None:
        """Give out what came right behind the handshake; call once, after the callbacks are set."""
        if self._incoming.pending or self._tls.pending():
            self._decrypt(_now_ns())

    def _ingest(self, data: bytes, t_ns: int) -> None:
        self._incoming.write(data)
        if self._handshake is not None:
            self._step_handshake()
        else:
            self._decrypt(t_ns)

    def _decrypt(self, t_ns: int) -> None:
        tls, incoming = self._tls, self._incoming
        pieces: list[bytes] = []
        ended: bool | None = None
        failed: OSError | None = None
        try:
            while True:
                piece = tls.read(_RECORD_BYTES)
                if not piece:
                    ended = False
                    break
                pieces.append(piece)
                if not (incoming.pending or incoming.eof or tls.pending()):
                    break  # nothing is left: asking again would only raise, which costs as much as decrypting
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            ended = False
        except ssl.SSLEOFError:
            ended = True
            self._outgoing.read()  # OpenSSL's alert would only be answered with RST
        except ssl.SSLError as error:
            failed = OSError(EPROTO, f"TLS: {error.reason or error}")
        self._flush()
        if pieces:
            self._deliver(pieces[0] if len(pieces) == 1 else b"".join(pieces), t_ns)
        if self.closed:
            return
        if failed is not None:
            self._lost(failed)
        elif ended is not None and not self.read_ended:
            self._end_read(ragged=ended)

    def _deliver(self, data: bytes, t_ns: int) -> None:
        on_data = self.on_data
        on_data(data, t_ns)

    def _socket_eof(self) -> None:
        if self._fault is not None:
            self._lost(self._fault)
            return
        self._incoming.write_eof()
        if self._handshake is not None:
            self._handshake_failed(ConnectionResetError("connection closed during the TLS handshake"))
            return
        self._decrypt(_now_ns())

    def write(self, data: bytes) -> None:
        """Encrypt and send; see `Link.write`."""
        if self._fault is not None or self.closed or self.write_ended:
            return
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._write_failed(OSError(EPROTO, f"TLS: {error.reason or error}"))
            return
        self._flush()

    def _say_goodbye(self) -> None:
        with suppress(ssl.SSLError, OSError):
            self._tls.unwrap()
        if self._outgoing.pending:
            self.write_ended = False
            self._flush()
            self.write_ended = True
