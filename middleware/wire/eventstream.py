"""AWS event streams: bytes become messages, however the bytes were cut, and both checksums are compared.

In: body bytes of one `application/vnd.amazon.eventstream` response in any pieces.  Out: `Message`s in order.  What this
module does not do: read payloads (dialects do), keep header values that are no strings, or write messages.

A message is: total length u32, length of headers u32, CRC-32 of these 8 bytes; headers (length of name u8, name, type
u8, value), payload, CRC-32 of all before it; big endian.  After a wrong checksum nothing more can be told apart:
`failed` says why, and no further message comes out.  A message of more than 1 MiB whose lengths are right is skipped
and counted in `skipped`, so the carry is bounded.

**Source:** AWS event stream encoding (Amazon Lex V2 and Transcribe developer guides), reference page model-api.md
section 1.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

MAX_MESSAGE_BYTES: Final = 1 << 20

_PRELUDE: Final = Struct(">III")
_CRC: Final = Struct(">I")
_OVERHEAD_BYTES: Final = _PRELUDE.size + _CRC.size
_FIXED: Final[Mapping[int, int]] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES: Final = 6
_STRING: Final = 7


class Message(NamedTuple):
    """One message; `headers` holds those whose value is a string."""

    headers: Mapping[str, str]
    payload: bytes


class EventStreamFramer:
    """Incremental; one per response."""

    __slots__ = ("_carry", "_to_skip", "failed", "skipped")

    def __init__(self) -> None:
        self._carry = bytearray()
        self._to_skip = 0
        self.failed: str | None = None
        """Why nothing more is read; None while all is well."""
        self.skipped = 0
        """Messages that were longer than the bound and were not handed out."""

    @property
    def pending(self) -> bool:
        """Whether a message is half there."""
        return bool(self._carry) or self._to_skip > 0

    def feed(self, chunk: bytes) -> list[Message]:
        """Take bytes, give the messages that they complete."""
        if self.failed is not None:
            return []
        if self._to_skip:
            passed = min(self._to_skip, len(chunk))
            self._to_skip -= passed
            chunk = chunk[passed:]
        carry = self._carry
        messages: list[Message] = []
        carry += chunk
        at = 0
        while len(carry) - at >= _PRELUDE.size:
            total, head_size, prelude_crc = _PRELUDE.unpack_from(carry, at)
            if crc32(carry[at : at + 8]) != prelude_crc:
                return self._fail("the checksum of a prelude is wrong", messages)
            if total < _OVERHEAD_BYTES + head_size:
                return self._fail("the lengths of a message do not fit", messages)
            if total > MAX_MESSAGE_BYTES:
                self.skipped += 1
                self._to_skip = max(0, total - (len(carry) - at))
                at = min(len(carry), at + total)
                continue
            if len(carry) - at < total:
                break
            raw = bytes(carry[at : at + total])
            at += total
            if crc32(raw[: -_CRC.size]) != _CRC.unpack_from(raw, total - _CRC.size)[0]:
                return self._fail("the checksum of a message is wrong", messages)
            headers = _headers(raw[_PRELUDE.size : _PRELUDE.size + head_size])
            if headers is None:
                return self._fail("the headers of a message cannot be read", messages)
            messages.append(Message(headers, raw[_PRELUDE.size + head_size : -_CRC.size]))
        del carry[:at]
        return messages

    def _fail(self, why: str, messages: list[Message]) -> list[Message]:
        self.failed = why
        self._carry.clear()
        return messages


def _headers(raw: bytes) -> dict[str, str] | None:
    """The string headers; None when the block is not what the format promises."""
    headers: dict[str, str] = {}
    at = 0
    while at < len(raw):
        name_end = at + 1 + raw[at]
        if name_end >= len(raw):
            return None
        name, kind = raw[at + 1 : name_end], raw[name_end]
        at = name_end + 1
        if kind in {_BYTES, _STRING}:
            size = int.from_bytes(raw[at : at + 2], "big")
            at += 2
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            return None
        if at + size > len(raw):
            return None
        if kind == _STRING:
            headers[name.decode("utf-8", "replace")] = raw[at : at + size].decode("utf-8", "replace")
        at += size
    return headers
