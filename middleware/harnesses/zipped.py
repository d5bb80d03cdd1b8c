"""One member of a zip, unpacked within a bound, zstandard's method included.

In: an open archive and a member's name.  Out: its first bytes.  Python's zipfile knows zstandard (method 93, which
Inspect writes) from 3.14 on; here its bytes are found by the local header.
**Source:** PKWARE APPNOTE 6.3.10, sections 4.3.7 (local file header) and 4.4.5 (methods).
"""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Final

import zstandard

_ZSTANDARD: Final = frozenset({20, 93})
_LOCAL: Final = struct.Struct("<4sHHH4xIIIHH")
"""Mark, version, flags, method, time and date left out, checksum, packed size, size, name bytes, extra bytes."""
_MARK: Final = b"PK\x03\x04"
_SIZES_LATER: Final = 0x08
UNPACK_ERRORS: Final = (
    zipfile.BadZipFile,
    zstandard.ZstdError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""All that a damaged, encrypted or cut-off archive may raise."""


def unpacked(archive: zipfile.ZipFile, member: str, most: int) -> bytes:
    """At most `most` bytes of a member.  Raises one of `UNPACK_ERRORS`."""
    info = archive.getinfo(member)
    if info.compress_type not in _ZSTANDARD:
        with archive.open(info) as opened:
            return opened.read(most)
    file = archive.fp
    if file is None:
        raise zipfile.BadZipFile("the archive is closed")
    file.seek(info.header_offset)
    head = _LOCAL.unpack(file.read(_LOCAL.size))
    if head[0] != _MARK:
        raise zipfile.BadZipFile(f"no local header for {member}")
    file.seek(info.header_offset + _LOCAL.size + head[7] + head[8])
    return _plain(file.read(info.compress_size), info.compress_type, member, info.file_size, most)


def _plain(packed: bytes, method: int, member: str, size: int, most: int) -> bytes:
    if method == zipfile.ZIP_STORED:
        content = packed[:most]
    elif method == zipfile.ZIP_DEFLATED:
        content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most)
    elif method in _ZSTANDARD:
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True) as reader:
            content = reader.read(most)
    else:
        raise NotImplementedError(f"{member} is packed by method {method}")
    if size and len(content) < min(most, size):
        raise zipfile.BadZipFile(f"{member} ends early")
    return content


def salvaged(content: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """Members that stand whole in a zip that was cut off before its directory: name and content, in order.

    Only those whose header tells their size; the first that does not, or that cannot be unpacked, ends it.
    """
    at = 0
    while content[at : at + 4] == _MARK and at + _LOCAL.size <= len(content):
        _, _, flags, method, _, packed_bytes, size, name_bytes, extra_bytes = _LOCAL.unpack_from(content, at)
        begin = at + _LOCAL.size + name_bytes + extra_bytes
        name = content[at + _LOCAL.size : at + _LOCAL.size + name_bytes].decode("utf-8", "replace")
        at = begin + packed_bytes
        if flags & _SIZES_LATER or at > len(content):
            return
        try:
            yield name, _plain(content[begin:at], method, name, size, most)
        except UNPACK_ERRORS:
            return
