"""Behind a proxy that is itself reached by https: an upstream's TLS within the proxy's, or bytes that are not ours.

In: a socket connected to the proxy.  Out: `OuterTls` (the proxy's own TLS, in which CONNECT is asked) and one of
`TunnelledTlsLink` (the upstream's TLS within it, which to its owner is a `TlsLink` like any other) and `OpaqueTlsLink`
(a client's bytes within it, read by nobody here).
The inner layer alone decides what an ending means: a proxy that ends its own TLS, cleanly or not, is a socket that
ended, so an upstream's end without close_notify is still ragged.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import suppress
from time import monotonic_ns
from typing import Final

from fairtrial.middleware.relay.ends import READ_BYTES, HangupWatch, Link
from fairtrial.middleware.relay.tls import TlsLink

_RECORD_BYTES: Final = 64 * 1024
_TLS_HANDSHAKE: Final = 0x16
"""RFC 8446 section 5.1: the type of the record by which a TLS server begins."""


class OuterTls:
    """TLS to the proxy.  Before the tunnel opens it is spoken by `handshake`, `sendall` and `recv`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, context: ssl.SSLContext, server_name: str
    ) -> None:
        self._loop = loop
        self._sock = sock
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=server_name)

    async def handshake(self) -> None:
        """Raises `OSError` (`ssl.SSLError` included)."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except ssl.SSLError:
                with suppress(OSError):
                    await self._flush()  # the alert
                raise
            else:
                await self._flush()
                return

    async def sendall(self, data: bytes) -> None:
        """Encrypt and send."""
        self.tls.write(data)
        await self._flush()

    async def recv(self, most: int) -> bytes:
        """At most so many bytes; b"" at the end."""
        while True:
            try:
                return self.tls.read(most)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def _receive(self) -> None:
        data = await self._loop.sock_recv(self._sock, READ_BYTES)
        if data:
            self.incoming.write(data)
        elif self.incoming.eof:
            raise ConnectionResetError(errno.ECONNRESET, "the proxy closed during its TLS handshake")
        else:
            self.incoming.write_eof()

    async def _flush(self) -> None:
        if self.outgoing.pending:
            await self._loop.sock_sendall(self._sock, self.outgoing.read())


class TunnelledTlsLink(TlsLink):
    """The upstream's TLS inside the proxy's."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        watch: HangupWatch,
        context: ssl.SSLContext,
        server_name: str,
        outer: OuterTls,
    ) -> None:
        super().__init__(loop, sock, watch, context, server_name)
        self._outer = outer
        self._outer_ended = False

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._outer.tls.write(self._outgoing.read())
        self._flush_outer()

    def _flush_outer(self) -> None:
        if self._outer.outgoing.pending:
            Link.write(self, self._outer.outgoing.read())

    def _ingest(self, data: bytes, t_ns: int) -> None:
        self._outer.incoming.write(data)
        self._unwrap_outer(t_ns)

    def _unwrap_outer(self, t_ns: int) -> None:
        pieces: list[bytes] = []
        failed: OSError | None = None
        try:
            while piece := self._outer.tls.read(_RECORD_BYTES):
                pieces.append(piece)
            self._outer_ended = True
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._outer_ended = True
        except ssl.SSLError as error:
            failed = OSError(errno.EPROTO, f"TLS of the proxy: {error.reason or error}")
        if pieces:
            super()._ingest(b"".join(pieces), t_ns)
        if failed is not None:
            self._lost(failed)
        elif self._outer_ended and not self.closed and not self.read_ended:
            super()._socket_eof()

    def _socket_eof(self) -> None:
        if not self._outer_ended:
            self._outer.incoming.write_eof()
            self._unwrap_outer(monotonic_ns())
        if not self.closed and not self.read_ended:
            super()._socket_eof()

    def _say_goodbye(self) -> None:
        super()._say_goodbye()
        with suppress(ssl.SSLError, OSError):
            self._outer.tls.unwrap()
        self.write_ended = False
        self._flush_outer()
        self.write_ended = True


class OpaqueTlsLink(TlsLink):
    """What a client sends through the tunnel, inside the proxy's TLS; the handshake and CONNECT are done.

    A proxy that ends without close_notify is a plain end to a client that speaks TLS to its upstream: that TLS says
    whether anything is missing.  To any other client it is a ragged end, since nothing else could tell it.
    """

    __slots__ = ("_says_its_end",)

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, watch: HangupWatch, outer: OuterTls
    ) -> None:
        Link.__init__(self, loop, sock, watch)
        self._incoming, self._outgoing, self._tls = outer.incoming, outer.outgoing, outer.tls
        self._plain = False
        self._handshake = None
        self._says_its_end: bool | None = None
        """Whether the upstream speaks TLS of its own; None before its first byte."""

    def _deliver(self, data: bytes, t_ns: int) -> None:
        if self._says_its_end is None:
            self._says_its_end = data[0] == _TLS_HANDSHAKE
        super()._deliver(data, t_ns)

    def _end_read(self, *, ragged: bool) -> None:
        super()._end_read(ragged=ragged and not self._says_its_end)
