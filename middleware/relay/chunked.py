"""The chunked coding, extensions and trailers included, cut anywhere.

In: bytes of a body as they were read.  Out: its payload, and where it ends.  Strict, with a bound on every line.

**Source:** RFC 9112 section 7.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

MAX_CHUNK_LINE_BYTES: Final = 16 * 1024
MAX_TRAILER_BYTES: Final = 64 * 1024
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class FramingError(ValueError):
    """A chunked body that is none."""


@dataclass(slots=True)
class ChunkedBody:
    """The chunked coding, extensions and trailers included, cut anywhere."""

    _left: int = 0
    _state: int = 0  # 0 size line, 1 data, 2 CRLF behind data, 3 trailer lines
    _line: bytearray = field(default_factory=bytearray)
    _trailer_bytes: int = 0

    def feed(self, data: bytes, pos: int, out: list[bytes]) -> tuple[int, bool]:
        """Take bytes from `pos`, put payload pieces into `out`, give (new position, body is whole).

        Raises `FramingError`.
        """
        end = len(data)
        while pos < end:
            if self._state == 1:
                take = min(self._left, end - pos)
                out.append(data[pos : pos + take])
                pos += take
                self._left -= take
                if not self._left:
                    self._state = 2
                continue
            at = data.find(b"\n", pos)
            if at == -1:
                self._line += data[pos:]
                self._bound()
                return end, False
            line = data[pos : at + 1] if not self._line else bytes(self._line + data[pos : at + 1])
            self._line.clear()
            pos = at + 1
            if self._take_line(line):
                return pos, True
        return pos, False

    def whole(self, data: bytes) -> bytes | None:
        """The payload, if `data` is one chunk from its size line to its last CRLF; else None, nothing taken."""
        if self._state or self._line:
            return None
        match = _CHUNK_LINE.match(data)
        if match is None or not data.endswith(b"\r\n"):
            return None
        start = match.end()
        size = int(match[1], 16)
        if not size or start + size + 2 != len(data) or start > MAX_CHUNK_LINE_BYTES:
            return None
        return data[start:-2]

    def _take_line(self, line: bytes) -> bool:
        if self._state == 0:
            match = _CHUNK_LINE.fullmatch(line)
            if match is None or len(line) > MAX_CHUNK_LINE_BYTES:
                raise FramingError("not a chunk size line")
            self._left = int(match[1], 16)
            self._state = 1 if self._left else 3
        elif self._state == 2:
            if line != b"\r\n":
                raise FramingError("no line end behind a chunk")
            self._state = 0
        else:
            if line == b"\r\n":
                return True
            self._trailer_bytes += len(line)
            # A bare CR ends a line for some servers: then a request could begin within these.
            if not line.endswith(b"\r\n") or line.count(b"\r") > 1 or b":" not in line or line[0] in b" \t:":
                raise FramingError("not a trailer line")
            if self._trailer_bytes > MAX_TRAILER_BYTES:
                raise FramingError("trailers over 64 KiB")
        return False

    def _bound(self) -> None:
        line = self._line
        if self._state == 2 and (len(line) > 1 or line != b"\r"):
            raise FramingError("no line end behind a chunk")
        if self._state == 0 and len(line) > MAX_CHUNK_LINE_BYTES:
            raise FramingError("chunk size line over 16 KiB")
        if self._state == 3 and len(line) + self._trailer_bytes > MAX_TRAILER_BYTES:
            raise FramingError("trailers over 64 KiB")
