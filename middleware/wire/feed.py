"""The feed: how the relay process hands copies and stamps to the observer process.

In: facts about one connection, message or child.  Out: a byte stream of records for a unix socketpair.
Standard library only, because the relay process imports it.  Encoding is one `struct.pack` and one
join; nothing here blocks, parses content, or knows a socket.  The counterpart that sends is
`relay/feed.py`, the one that reads is `app.py`.

A record is a 24-byte head and a payload::

    kind u8 | flags u8 | head u16 | conn u32 | msg u32 | t_ns u64 | length u32        (big endian)

`head` is 0 except in a record with `Flag.WHOLE`: a message that one read brought whole travels as that read,
untouched, and the decoder takes it apart into head, data and end.
`t_ns` is CLOCK_MONOTONIC of the relay process in nanoseconds; HELLO carries the pair of wall and
monotonic time that turns it into a date.  `conn` counts client connections of this relay from 1, `msg`
counts requests on the connection from 1 (a response carries the number of its request).
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

PROTOCOL: Final = 1
HEAD: Final = struct.Struct(">BBHIIQI")
MAX_PAYLOAD: Final = 1 << 24
"""A record longer than this (bytes) is a framing fault: the reader gives up on the stream."""


class Kind(IntEnum):
    """What a record says.  "JSON" payloads are one object, all others are raw bytes."""

    HELLO = 1
    """JSON: {protocol, pid, wall_ns, mono_ns, boot_ns, …the run's parameters}.  First record of every feed."""
    OPEN = 2
    """JSON: {door, upstream, peer, trial_token?}: a client connection was accepted."""
    DIAL = 3
    """JSON: {ok, dns_s, connect_s, tls_s, remote, via_proxy, stage, errno, error}: one dial of the upstream."""
    REQUEST_HEAD = 4
    """Raw head as the client sent it (before rewriting; holds secrets: never leaves the observer's memory)."""
    REQUEST_DATA = 5
    """Body bytes with the transfer framing taken off."""
    REQUEST_END = 6
    """JSON: {wire_bytes, complete}."""
    RESPONSE_HEAD = 7
    """Raw head of one response, 1xx included (one record per head)."""
    RESPONSE_DATA = 8
    """Body bytes of one read with the transfer framing taken off; `t_ns` is when that read returned."""
    RESPONSE_END = 9
    """JSON: {wire_bytes, complete, how: framed|close_delimited|cut|client_gone|aborted}."""
    TUNNEL_UP = 10
    TUNNEL_DOWN = 11
    BLIND = 12
    """JSON: {side: request|response, reason}: framing was given up, bytes pass unobserved from here."""
    CLOSE = 13
    """JSON: see `relay/account.py`: {first: client|upstream|fairtrial, how: fin|rst|tls_ragged|abort, errno, text,
    client_last_ns, upstream_last_ns, bytes_up, bytes_down, lag_max_s, suspend_gap_s, in_flight}."""
    BLOCKED = 14
    """JSON: {side: client|upstream, since_ns, until_ns}: writing to that side was paused (back-pressure)."""
    LAG = 15
    """JSON: {lag_s}: the relay's event loop woke later than asked, by more than the noted threshold."""
    LOST = 16
    """JSON: {records, bytes, since_ns, until_ns}: what the bounded feed dropped since the last LOST."""
    CHILD = 17
    """JSON: {event: started|exited, pid, exit_code, signal}."""
    MUTATION = 18
    """JSON: {what, old, new, why, side_effects}."""
    NOTE = 19
    """JSON: {event, …}: a fact about the relay itself (door bound, settings file found, observer restarted …)."""
    BYE = 20
    """JSON: {exit_code, signal, …}: the child is gone and every record before this one was handed over."""

    TUNNEL_END = 21
    """JSON: {stdin, stdout, stderr, raw, framed, whole, upstream_ended}: sums of a Docker door's tunnel, whose bytes
    are counted in the relay and not copied."""

    SENDER = 22
    """JSON: {pid, start_ticks, parents}: the process at the client's end of the connection (`relay/senders.py`)."""

    READY = 64
    """JSON, observer -> relay: {pid}: the observer reads."""
    VERDICT = 65
    """JSON, observer -> relay: {lines: [str], gate: int | null}: what to print on stderr, and the gate's answer."""
    WATCHED = 66
    """JSON, observer -> relay: {containers: int}: a container is watched, so the end may take longer."""
    STATUS = 67
    """JSON, observer of a `serve` -> relay, now and then: see `sidecar.py`."""


class Flag(IntFlag):
    """Bits of the flags byte."""

    NONE = 0
    DROPPED = 1
    """The payload was dropped for want of room; payload is the u64 count of bytes that were not copied."""
    INTERIM = 2
    """RESPONSE_HEAD is a 1xx that is not 101."""
    WHOLE = 4
    """REQUEST_HEAD or RESPONSE_HEAD whose payload is a whole message: a head of `head` bytes, then the body (with
    DROPPED: the count of its bytes).
    """


class Record(NamedTuple):
    """One decoded record (a tuple, because a frozen dataclass takes four times as long to make)."""

    kind: int
    flags: int
    conn: int
    msg: int
    t_ns: int
    payload: bytes

    def json(self) -> dict[str, object]:
        """The payload as an object; an unreadable payload is an empty object (the feed fails open)."""
        try:
            value = json.loads(self.payload)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


_WHOLE: Final = int(Flag.WHOLE)
_DROPPED: Final = int(Flag.DROPPED)
_ENDS: Final = {
    int(Kind.REQUEST_HEAD): b'{"wire_bytes":%d,"complete":true}',
    int(Kind.RESPONSE_HEAD): b'{"wire_bytes":%d,"complete":true,"how":"framed"}',
}


class FeedCorrupt(ValueError):
    """The byte stream is not a feed: its head names an impossible length."""


def encode(kind: int, payload: bytes, *, conn: int = 0, msg: int = 0, t_ns: int = 0, flags: int = 0) -> bytes:
    """One record as bytes."""
    return HEAD.pack(kind, flags, 0, conn, msg, t_ns, len(payload)) + payload


def parts_of_whole(
    kind: int, flags: int, head_bytes: int, conn: int, msg: int, t_ns: int, wire: bytes | memoryview
) -> list[Record]:
    """Head, data (if there is any) and end of a message that came as one record."""
    body_flags = flags & _DROPPED
    parts = [Record(kind, 0, conn, msg, t_ns, bytes(wire[:head_bytes]))]
    wire_bytes = len(wire)
    if wire_bytes > head_bytes:
        body = bytes(wire[head_bytes:])
        if body_flags:
            wire_bytes = head_bytes + int.from_bytes(body, "big")
        parts.append(Record(kind + 1, body_flags, conn, msg, t_ns, body))
    parts.append(Record(kind + 2, 0, conn, msg, t_ns, _ENDS[kind] % wire_bytes))
    return parts


def encode_json(kind: int, value: dict[str, object], *, conn: int = 0, msg: int = 0, t_ns: int = 0) -> bytes:
    """One record with a JSON payload."""
    return encode(kind, json_bytes(value), conn=conn, msg=msg, t_ns=t_ns)


def json_bytes(value: object) -> bytes:
    """JSON that every reader takes: a byte of an argument or a path that is no UTF-8 (a lone surrogate in Python's
    text) becomes a question mark, what JSON does not know its `str`."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str).encode("utf-8", "replace")


class Decoder:
    """Turns arbitrary cuts of the byte stream into records.

    The carry is bounded by one record (`MAX_PAYLOAD`).  Raises `FeedCorrupt` once the stream cannot be
    a feed; records before that point were already returned.
    """

    def __init__(self) -> None:
        self._carry = bytearray()

    def feed(self, chunk: bytes) -> list[Record]:
        """Take bytes, give the records that they complete."""
        carry = self._carry
        if carry:
            carry += chunk
        records: list[Record] = []
        with memoryview(carry or chunk) as view:
            start = _take_records(view, records)
        if carry:
            del carry[:start]
        else:
            carry += chunk[start:]
        if len(carry) >= HEAD.size:
            length = HEAD.unpack_from(carry)[-1]
            if length > MAX_PAYLOAD:
                raise FeedCorrupt(f"record of {length} bytes announced, at most {MAX_PAYLOAD} are possible")
        return records


def _take_records(view: memoryview, records: list[Record]) -> int:
    """Put every whole record into `records`; how many bytes they were.  Stops at one of an impossible length."""
    start, end, size = 0, len(view), HEAD.size
    unpack_from = HEAD.unpack_from
    while end - start >= size:
        kind, flags, head_bytes, conn, msg, t_ns, length = unpack_from(view, start)
        body = start + size
        if end - body < length or length > MAX_PAYLOAD:
            break
        start = body + length
        if flags & _WHOLE and kind in _ENDS:
            records += parts_of_whole(kind, flags, head_bytes, conn, msg, t_ns, view[body:start])
        else:
            records.append(Record(kind, flags, conn, msg, t_ns, bytes(view[body:start])))
    return start
