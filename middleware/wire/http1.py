"""Heads of HTTP/1.1 messages, read leniently for observing.

In: the raw bytes of one head, as the relay copied them.  Out: a `RequestHead` or `ResponseHead`, or None for bytes that
are no head.  What this module does not do: frame messages or judge them (`relay/framing.py` does, on the traffic
itself); here nothing is refused, because the bytes have passed already.

Bounds: 64 KiB per head, 512 fields; what is beyond them is not read.

**Source:** RFC 9112 sections 2.2, 3, 4, 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 512

Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Headers:
    """Header fields in order; names are lower case, values stripped and decoded as latin-1."""

    fields: Fields = ()

    def get(self, name: str) -> str | None:
        """The first value of a field (name in lower case), None when it is absent or empty."""
        for known, value in self.fields:
            if known == name:
                return value or None
        return None

    def joined(self, name: str) -> str | None:
        """All values of a list-valued field, joined by commas."""
        values = [value for known, value in self.fields if known == name and value]
        return ", ".join(values) if values else None


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The first line of a request and its fields; `target` still holds the trial token and any query."""

    method: str
    target: str
    headers: Headers


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The status of a response and its fields."""

    status: int
    headers: Headers


def parse_request_head(raw: bytes) -> RequestHead | None:
    """Read a request head; None when its first line is none."""
    lines = _lines(raw)
    parts = lines[0].split(" ") if lines else []
    if len(parts) < 2 or not parts[0] or not parts[1]:
        return None
    return RequestHead(method=parts[0].upper(), target=parts[1], headers=_headers(lines[1:]))


def parse_response_head(raw: bytes) -> ResponseHead | None:
    """Read a response head; None when its first line is none."""
    lines = _lines(raw)
    parts = lines[0].split(None, 2) if lines else []
    if len(parts) < 2 or not parts[0].startswith("HTTP/") or not parts[1].isdecimal():
        return None
    return ResponseHead(status=int(parts[1]), headers=_headers(lines[1:]))


def _lines(raw: bytes) -> list[str]:
    # latin-1 never fails; only LF ends a line (NEL and friends are ordinary bytes of a value).
    text = raw[:MAX_HEAD_BYTES].decode("latin-1").lstrip("\r\n")
    return [line.rstrip("\r") for line in text.split("\n", MAX_FIELDS + 1)[: MAX_FIELDS + 1]]


def _headers(lines: list[str]) -> Headers:
    fields: list[tuple[str, str]] = []
    for line in lines:
        if not line:
            break
        name, colon, value = line.partition(":")
        if colon and name.strip():
            fields.append((name.strip().lower(), value.strip()))
    return Headers(tuple(fields))
