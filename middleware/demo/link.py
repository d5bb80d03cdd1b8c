"""One client connection as bare bytes: requests read leniently, silences, and ends that are no ends.

In: a pair of asyncio streams.  Out: heads and bodies of requests; to the client bytes, and FIN, reset or a ragged end
when told so.  Bare streams and not an HTTP library, because the faults need what libraries rightly forbid: half
a chunk, a declared length that is not kept, a reset instead of an end. It is for a test server.
"""

from __future__ import annotations

import asyncio
import fcntl
import gzip
import os
import socket
import struct
import time
import zlib
from dataclasses import dataclass
from typing import Literal

HEAD_LIMIT_BYTES = 256 * 1024
_SIOCOUTQ = 0x5411  # linux/sockios.h: bytes in the socket's send queue


class ClientGone(Exception):
    """The client closed or reset the connection before its answer was whole, or sent what is no HTTP."""


@dataclass(slots=True)
class Head:
    """The first line and the headers of a request."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """The first header of this name (lower case), or an empty text."""
        return next((value for key, value in self.headers if key.lower() == name), "")


class Link:
    """The bytes of one client, until either side ends them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._early = bytearray()  # read while watching for the client's end during a pause

    @property
    def peer_port(self) -> int | None:
        """The client's port; None over a unix socket."""
        peer = self._writer.get_extra_info("peername")
        return peer[1] if isinstance(peer, tuple) else None

    def close(self) -> None:
        """End it once all is sent."""
        self._writer.close()

    # ---- reading ----

    async def _fill(self) -> bool:
        """Read more bytes; False at the client's end."""
        got = await self._reader.read(65536)
        self._early += got
        return bool(got)

    async def _take(self, size: int) -> bytes:
        while len(self._early) < size:
            if not await self._fill():
                raise ClientGone
        taken = bytes(self._early[:size])
        del self._early[:size]
        return taken

    async def _take_through(self, mark: bytes) -> bytes:
        while (end := self._early.find(mark)) < 0:
            if len(self._early) > HEAD_LIMIT_BYTES or not await self._fill():
                raise ClientGone
        return await self._take(end + len(mark))

    async def read_head(self) -> Head | None:
        """The next request's head; None at the client's end. Raises ClientGone for what is no HTTP."""
        while not self._early:
            if not await self._fill():
                return None
        first, *lines = (await self._take_through(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.rpartition(" ")[0]
        pairs = (line.partition(":") for line in lines)
        return Head(method, path, tuple((name, value.strip()) for name, _, value in pairs))

    async def read_body(self, head: Head) -> bytes:
        """The body as it came, without its framing. Raises ClientGone."""
        if head.get("expect").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in head.get("transfer-encoding").lower():
            body = bytearray()
            while size := _size((await self._take_through(b"\r\n")).split(b";")[0].decode("latin-1"), 16):
                body += await self._take(size)
                await self._take(2)
            while await self._take_through(b"\r\n") != b"\r\n":
                pass
            return bytes(body)
        return await self._take(_size(head.get("content-length") or "0", 10))

    async def take_some(self) -> bytes:
        """Whatever came, at least a byte; none at the client's end."""
        if not self._early and not await self._fill():
            return b""
        data = bytes(self._early)
        self._early.clear()
        return data

    # ---- pauses and ends ----

    async def pause(self, duration_s: float | None) -> None:
        """Be silent for so long, or until the client leaves when None. Raises ClientGone at the client's end."""
        deadline = None if duration_s is None else time.monotonic() + duration_s
        while True:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            try:
                if not await asyncio.wait_for(self._fill(), left_s):
                    raise ClientGone
            except TimeoutError:
                return

    async def send(self, data: bytes) -> None:
        """Write and wait until the transport has taken it. Raises ClientGone."""
        if self._writer.transport.is_closing():
            raise ClientGone
        self._writer.write(data)
        try:
            await self._writer.drain()
        except ConnectionError as gone:
            raise ClientGone from gone

    async def end(self, how: Literal["fin", "rst", "ragged"]) -> None:
        """End the connection now; all that was written before has left this host."""
        # A twin of the descriptor: loops hand out sockets that may not be configured, and options belong to both.
        with socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno())) as twin:
            for _ in range(200):
                if self._writer.transport.get_write_buffer_size() == 0 and _unsent_bytes(twin) == 0:
                    break
                await asyncio.sleep(0.005)
            if how == "rst":
                twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "fin":
            self._writer.close()
        else:
            self._writer.transport.abort()


def _size(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise ClientGone from None


def _unsent_bytes(sock: socket.socket) -> int:
    """Bytes in the kernel's send queue that the peer has not acknowledged; 0 when the socket is gone."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), _SIOCOUTQ, b"\0\0\0\0"))[0])
    except OSError:
        return 0


def decoded(body: bytes, encoding: str) -> bytes:
    """The request body without its content coding; as it is when the coding is unknown or broken."""
    try:
        if encoding == "gzip":
            return gzip.decompress(body)
        if encoding == "zstd":
            import zstandard

            return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    except (OSError, EOFError, zlib.error, ValueError):
        return body
    return body
