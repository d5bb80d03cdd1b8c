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
from typing import Final

import zstandard

_ZSTANDARD: Final = frozenset({20, 93})
_LOCAL: Final = struct.Struct("<4s22xHH")
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
    mark, name_bytes, extra_bytes = _LOCAL.unpack(file.read(_LOCAL.size))
    if mark != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no local header for {member}")
    file.seek(info.header_offset + _LOCAL.size + name_bytes + extra_bytes)
    packed = io.BytesIO(file.read(info.compress_size))
    with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
        content = reader.read(most)
    if info.file_size and len(content) < min(most, info.file_size):
        raise zipfile.BadZipFile(f"{member} ends early")
    return content
