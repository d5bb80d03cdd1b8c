"""Writes AWS event stream messages, for tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from zlib import crc32


def header(name: str, kind: int, value: bytes) -> bytes:
    """One header; for strings and bytes (7, 6) the length is added."""
    sized = struct.pack(">H", len(value)) + value if kind in {6, 7} else value
    return bytes([len(name.encode())]) + name.encode() + bytes([kind]) + sized


def strings(headers: Mapping[str, str]) -> bytes:
    """A block of string headers."""
    return b"".join(header(name, 7, value.encode()) for name, value in headers.items())


def packed(headers: bytes, payload: bytes) -> bytes:
    """One whole message."""
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return body + struct.pack(">I", crc32(body))


def event(kind: str, payload: bytes) -> bytes:
    """An event of this type with a JSON payload."""
    names = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return packed(strings(names), payload)


def exception(kind: str, payload: bytes) -> bytes:
    """A modelled exception."""
    return packed(strings({":exception-type": kind, ":message-type": "exception"}), payload)
