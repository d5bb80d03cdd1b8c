"""What is told of a tunnel: its waits, its gaps, whether its end was clean; never a byte of it."""

from __future__ import annotations

import json
import socket

from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.opaque import Opaque
from fairtrial.middleware.wire.feed import Decoder, Kind

SECOND = 1_000_000_000


def end_of(*steps: tuple[str, bytes, int]) -> dict[str, object]:
    """TUNNEL_END after these reads; times in tenths of a second from 1 s."""
    near, far = socket.socketpair()
    feed = FeedSender(near)
    account = Opaque(feed, 1)
    for way, data, tenths in steps:
        kind = Kind.TUNNEL_UP if way == "up" else Kind.TUNNEL_DOWN
        account.record(kind, data, 1, 0, SECOND + tenths * SECOND // 10)
    account.note_first("upstream", "fin", None, None)
    account.close(1, 1)
    feed.flush_now()
    feed.close()
    with far:
        records = list(Decoder().feed(far.recv(1 << 20)))
    assert [record.kind for record in records] == [Kind.TUNNEL_END, Kind.CLOSE]
    told = json.loads(records[0].payload)
    assert isinstance(told, dict)
    return told


def record(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2) + b"\0" * size


def test_a_wait_is_from_the_clients_byte_to_the_upstreams_and_a_gap_between_two_of_the_upstream() -> None:
    told = end_of(
        ("up", b"hello", 0),
        ("down", record(10), 2),
        ("up", b"ask", 3),
        ("down", record(5), 13),
        ("down", record(5), 18),
    )
    assert told["max_wait_s"] == 1.0
    assert told["max_wait_ns"] == SECOND + 3 * SECOND // 10
    assert told["max_gap_s"] == 0.5
    assert (told["up"], told["down"]) == (8, 35)
    assert told["upstream_ended"] is True


def test_an_end_without_close_notify_is_not_clean() -> None:
    goodbye = record(19)
    assert end_of(("up", b"x", 0), ("down", record(10) + goodbye, 1))["clean"] is True
    assert end_of(("up", b"x", 0), ("down", record(10), 1))["clean"] is False
    assert end_of(("up", b"x", 0), ("down", goodbye[:-1], 1))["clean"] is False


def test_what_never_came_is_null() -> None:
    told = end_of(("up", b"x", 0))
    assert [told[name] for name in ("first_down_ns", "max_wait_s", "max_gap_s", "clean")] == [None] * 4
