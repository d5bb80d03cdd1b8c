"""Servers that read requests in other ways than we do: the same bytes, and which requests each of them sees.

In: everything that reached an upstream on one connection.  Out: the targets of the requests that a server of this
flavour answers.  Each flavour is some real server's mercy (of old ones, mostly); `STRICT` is RFC 9112.  Not imitated:
a server that ignores the body of a method (no front can help it).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Flavour:
    """What a server takes that RFC 9112 does not allow it to."""

    name: str
    bare_lf: bool = False
    bare_cr: bool = False
    folds: bool = False
    loose_names: bool = False
    """White space, controls and NUL around a name are taken off."""
    loose_numbers: bool = False
    """Lengths and sizes as strtol reads them: spaces, a sign, 0x, and what follows is ignored."""
    length: Literal["first", "last"] = "first"
    coding: Literal["exact", "contains", "ignored"] = "exact"
    chunks_win: bool = True
    """Over a length beside them."""
    http09: bool = False
    any_version: bool = False


STRICT: Final = Flavour("strict")
FLAVOURS: Final = (
    STRICT,
    Flavour("line feeds", bare_lf=True, folds=True),
    Flavour("carriage returns", bare_cr=True, bare_lf=True),
    Flavour("names", loose_names=True, bare_lf=True),
    Flavour("numbers", loose_numbers=True, length="last"),
    Flavour("first number", loose_numbers=True, loose_names=True),
    Flavour("any chunked", coding="contains", loose_names=True, folds=True, loose_numbers=True),
    Flavour("no chunked", coding="ignored", loose_numbers=True, folds=True),
    Flavour("length wins", chunks_win=False, coding="contains", length="last"),
    Flavour("old", http09=True, any_version=True, bare_lf=True, loose_names=True, loose_numbers=True),
    Flavour(
        "everything",
        bare_lf=True,
        bare_cr=True,
        folds=True,
        loose_names=True,
        loose_numbers=True,
        coding="contains",
        http09=True,
        any_version=True,
    ),
)

_NAME_DIRT: Final = bytes(range(33)) + b"\x7f\xa0"
_STRTOL: Final = re.compile(rb"[ \t\v\f]*([+-]?)0*([0-9]+)")
_STRTOL_HEX: Final = re.compile(rb"[ \t\v\f]*[+]?(?:0x)?([0-9a-f_]*)")


class _Stop(Exception):
    """The server closes here, or waits for more."""


@dataclass
class _Reading:
    data: bytes
    flavour: Flavour
    pos: int = 0

    def line(self) -> bytes:
        """The next line without its end."""
        ends = [b"\r\n"]
        ends += [b"\n"] if self.flavour.bare_lf else []
        ends += [b"\r"] if self.flavour.bare_cr else []
        found = [(at, -len(end)) for end in ends if (at := self.data.find(end, self.pos)) != -1]
        if not found:
            raise _Stop
        at, size = min(found)
        line = self.data[self.pos : at]
        self.pos = at - size
        return line

    def skip(self, count: int) -> None:
        if self.pos + count > len(self.data):
            raise _Stop
        self.pos += count

    def request(self, seen: list[bytes]) -> None:
        """One request; adds its target once its head is whole."""
        first = self.line()
        while not first:
            first = self.line()
        parts = first.split() if self.flavour.any_version else first.split(b" ")
        if len(parts) == 2 and self.flavour.http09:
            seen.append(parts[1])
            return
        good = len(parts) >= 3 and re.fullmatch(rb"HTTP/1\.[01]", parts[-1]) is not None
        if not good and not (self.flavour.any_version and len(parts) >= 3):
            raise _Stop
        lengths, codings = self._fields()
        seen.append(parts[1])
        chunked = self._is_chunked(codings)
        if chunked and (self.flavour.chunks_win or not lengths):
            self._chunks()
        elif lengths:
            self.skip(self._number(lengths[0] if self.flavour.length == "first" else lengths[-1]))

    def _fields(self) -> tuple[list[bytes], list[bytes]]:
        fields: list[list[bytes]] = []
        while line := self.line():
            if line[:1] in b" \t" and self.flavour.folds and fields:
                fields[-1][1] += b" " + line.strip()
                continue
            name, colon, value = line.partition(b":")
            if self.flavour.loose_names:
                name = bytes(byte for byte in name if byte not in _NAME_DIRT)
            if colon:
                fields.append([name.lower(), value.strip(b" \t\v\f\0" if self.flavour.loose_names else b" \t")])
        return (
            [value for name, value in fields if name == b"content-length"],
            [value for name, value in fields if name == b"transfer-encoding"],
        )

    def _is_chunked(self, codings: list[bytes]) -> bool:
        whole = b",".join(codings).lower()
        match self.flavour.coding:
            case "contains":
                return b"chunked" in whole
            case "ignored":
                return False
            case _:
                return whole.rsplit(b",", 1)[-1].strip(b" \t") == b"chunked"

    def _number(self, value: bytes) -> int:
        if self.flavour.loose_numbers:
            if self.flavour.length == "last":
                value = value.rsplit(b",", 1)[-1]
            match = _STRTOL.match(value)
            return 0 if match is None or match[1] == b"-" else int(match[2]) % 2**64
        if not value.isdigit():
            raise _Stop
        return int(value)

    def _chunks(self) -> None:
        while size := self._size(self.line()):
            self.skip(size)
            if self.data[self.pos : self.pos + 2] == b"\r\n":
                self.pos += 2
            elif self.flavour.bare_lf and self.data[self.pos : self.pos + 1] == b"\n":
                self.pos += 1
            else:
                raise _Stop
        while self.line():
            pass

    def _size(self, line: bytes) -> int:
        text = line.split(b";", 1)[0]
        if self.flavour.loose_numbers:
            match = _STRTOL_HEX.match(text.lower())
            digits = b"" if match is None else match[1].replace(b"_", b"")
            return int(digits or b"0", 16) % 2**64
        text = text.rstrip(b" \t")
        if re.fullmatch(rb"[0-9A-Fa-f]+", text) is None:
            raise _Stop
        return int(text, 16)


def requests_seen(data: bytes, flavour: Flavour) -> list[bytes]:
    """The targets of the requests that a server of this flavour sees, in order."""
    reading = _Reading(data, flavour)
    seen: list[bytes] = []
    try:
        while reading.pos < len(data):
            reading.request(seen)
    except _Stop:
        pass
    return seen
