"""Content encodings, undone on the observer's copy only.

In: body bytes as they were on the wire, in any pieces, and the `Content-Encoding`.  Out: decoded pieces of at most 256
KiB. What this module does not do: raise, or touch what the client gets.  It fails open: at a corrupt body, an encoding
that it does not know or a body that grows beyond the bounds it stops, and `failed` says why.

Bounds: 64 MiB of decoded bytes per body, and no more than 600 times the encoded bytes once 4 MiB are out (gzip can at
most reach 1 032, text never comes near 600), so 6 KB that would become 200 MB cost 4 MiB of work. zstd and gzip bodies
of several frames are read as one (RFC 8878 section 3.1, RFC 1952 section 2.2).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, Protocol

PIECE_BYTES: Final = 1 << 18
MAX_DECODED_BYTES: Final = 64 << 20
MAX_RATIO: Final = 600
RATIO_FROM_BYTES: Final = 4 << 20

_ZSTD_SLICE_BYTES: Final = 64
"""zstandard gives all that a slice decodes to at once: a slice of 64 bytes holds at most 16 blocks of 128 KiB."""


class _Codec(Protocol):
    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Decode; may raise the library's error."""
        ...


class BodyDecoder:
    """One body; `encoding` is the value of its Content-Encoding (None or "identity": bytes pass as they are)."""

    def __init__(self, encoding: str | None) -> None:
        self.failed: str | None = None
        """Why nothing more is decoded; None while all is well."""
        self._in = 0
        self._out = 0
        self._codecs: list[_Codec] = []
        # Encodings are listed in the order in which they were applied, so they are undone from the end.
        for name in reversed([part.strip().lower() for part in (encoding or "").split(",")]):
            if name in {"", "identity"}:
                continue
            codec = _open(name)
            if codec is None:
                self.failed = f"content-encoding {name[:32]} is not known"
                return
            self._codecs.append(codec)

    @property
    def plain(self) -> bool:
        """Nothing has to be decoded."""
        return not self._codecs and self.failed is None

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Decode a piece of the body; ends early, with `failed` set, where it cannot go on."""
        if self.failed is not None:
            return
        if not self._codecs:
            yield chunk
            return
        self._in += len(chunk)
        try:
            for piece in self._through(0, chunk):
                self._out += len(piece)
                if self._out > MAX_DECODED_BYTES:
                    self.failed = f"more than {MAX_DECODED_BYTES} decoded bytes"
                elif self._out > RATIO_FROM_BYTES and self._out > MAX_RATIO * self._in:
                    self.failed = f"more than {MAX_RATIO} times its encoded size"
                if self.failed is not None:
                    return
                yield piece
        except Exception as error:  # noqa: BLE001 - three libraries, each with its own classes; the copy is given up
            self.failed = f"cannot be decoded: {type(error).__name__}"

    def _through(self, level: int, chunk: bytes) -> Iterator[bytes]:
        if level == len(self._codecs):
            if chunk:
                yield chunk
            return
        for piece in self._codecs[level].pieces(chunk):
            yield from self._through(level + 1, piece)


def decode_whole(body: bytes, encoding: str | None) -> tuple[bytes | None, str | None]:
    """Decode a body that is there as a whole: (bytes, None), or (None, why)."""
    decoder = BodyDecoder(encoding)
    if decoder.plain:
        return body, None
    decoded = b"".join(decoder.feed(body))
    return (None, decoder.failed) if decoder.failed is not None else (decoded, None)


def _open(name: str) -> _Codec | None:
    if name in {"gzip", "x-gzip"}:
        return _Zlib(16 + zlib.MAX_WBITS)
    if name == "deflate":
        return _Deflate()
    if name == "br":
        return _Brotli()
    if name == "zstd":
        return _Zstd()
    return None


class _Zlib:
    """gzip of any number of members, or one zlib or raw deflate stream."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._stream = zlib.decompressobj(wbits)

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        while chunk:
            if self._stream.eof:
                chunk = chunk.lstrip(b"\0")  # padding between members is allowed by tools, if not by the RFC
                if not chunk:
                    return
                self._stream = zlib.decompressobj(self._wbits)
            yield self._stream.decompress(chunk, PIECE_BYTES)
            while self._stream.unconsumed_tail and not self._stream.eof:
                yield self._stream.decompress(self._stream.unconsumed_tail, PIECE_BYTES)
            chunk = self._stream.unused_data if self._stream.eof else b""


class _Deflate:
    """ "deflate" is zlib by the RFC and raw deflate by some servers: the first two bytes tell (RFC 9110 section
    8.4.1.2)."""

    def __init__(self) -> None:
        self._head = b""
        self._inner: _Zlib | None = None

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        if self._inner is None:
            self._head += chunk
            if len(self._head) < 2:
                return
            is_zlib = self._head[0] & 0x0F == 8 and int.from_bytes(self._head[:2], "big") % 31 == 0
            self._inner = _Zlib(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
            chunk = self._head
        yield from self._inner.pieces(chunk)


class _Brotli:
    def __init__(self) -> None:
        import brotli

        self._stream = brotli.Decompressor()

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        yield self._stream.process(chunk, output_buffer_limit=PIECE_BYTES)
        while not self._stream.can_accept_more_data():
            yield self._stream.process(b"", output_buffer_limit=PIECE_BYTES)


class _Zstd:
    def __init__(self) -> None:
        import zstandard

        self._context = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        self._frame = self._context.decompressobj()

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        for start in range(0, len(chunk), _ZSTD_SLICE_BYTES):
            rest = chunk[start : start + _ZSTD_SLICE_BYTES]
            while rest:
                if self._frame.eof:
                    self._frame = self._context.decompressobj()
                decoded = self._frame.decompress(rest)
                rest = self._frame.unused_data if self._frame.eof else b""
                for at in range(0, len(decoded), PIECE_BYTES):
                    yield decoded[at : at + PIECE_BYTES]
