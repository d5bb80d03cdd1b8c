"""An upstream that answers garbage: its client gets every byte of it, everybody else is served, and nothing grows.

Whatever the relay makes of an answer it makes on a copy; so the claims are the same for every kind of garbage.
"""

import contextlib
import random
import threading
from collections.abc import Callable

import pytest
import zstandard

from fairtrial.middleware.core.observations import Host, Observation
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire.exchange import ExchangeTracker
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.held import held_bytes
from tests.middleware.relay.observed import attempts, held_by_pairs
from tests.middleware.relay.rig import TOKEN, Rig, eventually, read_all, read_exactly, read_head, request, reset
from tests.middleware.relay.talk import ask_stream, chunk, json_answer, say, stream_head
from tests.middleware.wire.families import MESSAGES

MEGABYTES = 3_000_000
HELD_BYTES = 1 << 20
"""What the relay may hold for a pair whose both sides take what they get."""

CHUNKED = stream_head(MESSAGES)
OK = json_answer(b"{}")


def _noise(size: int) -> bytes:
    return random.Random(3).randbytes(size)


GARBAGE: dict[str, Callable[[], bytes]] = {
    "random bytes": lambda: _noise(500_000),
    "a head of endless lines": lambda: b"HTTP/1.1 200 OK\r\n" + b"X-Line: y\r\n" * (MEGABYTES // 11),
    "a head of one endless line": lambda: b"HTTP/1.1 200 OK\r\nX: " + b"y" * MEGABYTES,
    "an endless reason": lambda: b"HTTP/1.1 200 " + b"y" * MEGABYTES,
    "an endless version": lambda: b"HTTP/1.1" + b"1" * MEGABYTES,
    "endless empty lines": lambda: b"\r\n" * (MEGABYTES // 2),
    "an endless size of a chunk": lambda: CHUNKED + b"0" * MEGABYTES,
    "an endless extension of a chunk": lambda: CHUNKED + b"5;" + b"x" * MEGABYTES,
    "a size that overflows": lambda: CHUNKED + b"ffffffffffffffffff\r\n" + b"x" * 100_000,
    "a negative size": lambda: CHUNKED + b"-5\r\nhello\r\n",
    "a giant size": lambda: CHUNKED + b"fffffffffffffff\r\n" + b"x" * MEGABYTES,
    "chunks of one byte": lambda: CHUNKED + b"1\r\nx\r\n" * 50_000,
    "endless trailers": lambda: CHUNKED + b"0\r\n" + b"T: y\r\n" * (MEGABYTES // 6),
    "a negative length": lambda: b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello",
    "two lengths": lambda: b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
    "a length that overflows": lambda: b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\nhello",
    "a flood of interim answers": lambda: b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    "a flood of hints": lambda: b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" * 5_000,
    "answers that nobody asked for": lambda: OK * 1_000,
    "an upgrade that nobody asked for": lambda: b"HTTP/1.1 101 X\r\nUpgrade: y\r\n\r\n" + _noise(100_000),
    "HTTP/2": lambda: b"\0\0\x12\x04\0\0\0\0\0" + bytes(18) + _noise(1000),
    "HTTP/0.9": lambda: b"<html>hello" + b"x" * 100_000,
    "TLS": lambda: b"\x15\x03\x01\x00\x02\x02\x28",
    "line feeds only": lambda: b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "NULs": lambda: bytes(200_000),
    "an event that never ends": lambda: CHUNKED + chunk(b"data: " + b"x" * MEGABYTES),
    "events without a meaning": lambda: CHUNKED + chunk(b"data: {\n\n" * 60_000),
    "a JSON body that is none": lambda: json_answer(b'{"content":[' * 100_000),
    "a bomb": lambda: (
        stream_head(MESSAGES, "Content-Encoding: zstd") + chunk(zstandard.compress(bytes(200 << 20), level=19))
    ),
}


def observer_holds(rig: Rig) -> int:
    """The most that a tracker holds while it reads this feed."""
    observations: list[Observation] = []
    source = Source("door.model", observations.append, host=Host(name="node"), trial="trial-1")
    tracker = ExchangeTracker(source, trial_of_token={TOKEN: "trial-1"})
    most = 0
    records = tuple(rig.observer.records)
    for turn, record in enumerate(records):
        tracker.take(record)
        if turn % (len(records) // 50 + 1) == 0:
            most = max(most, held_bytes(tracker, without=(Source,)))
    return most


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_reaches_its_client_and_costs_nobody_anything(rig: Rig, kind: str) -> None:
    garbage = GARBAGE[kind]()
    client, up = ask_stream(rig, MESSAGES)
    sender = threading.Thread(target=up.sendall, args=(garbage,))
    sender.start()
    half = len(garbage) // 2
    assert read_exactly(client, half) == garbage[:half]
    other = rig.client()
    other.sendall(request("POST", MESSAGES.path, MESSAGES.body))
    second = rig.upstream.accept()
    read_head(second)
    read_exactly(second, len(MESSAGES.body))
    say(second, other, json_answer(MESSAGES.unary))
    assert read_exactly(client, len(garbage) - half) == garbage[half:]
    sender.join(10)
    eventually(lambda: held_by_pairs(rig) < HELD_BYTES, "what has passed is still held")
    client.close()
    up.close()
    other.close()
    rig.no_pair_open()
    assert rig.relay.counters.swallowed == 0
    healthy = [ended for ended in attempts(rig) if ended.conn == 2]
    assert [(ended.outcome, ended.reply.output_tokens) for ended in healthy] == [("ok", 42)]
    if rig.feed.stats.dropped_records == 0:
        assert observer_holds(rig) < 8 << 20


@pytest.mark.parametrize("kind", ["random bytes", "an endless extension of a chunk", "a flood of interim answers"])
def test_a_client_that_does_not_read_garbage_holds_it_back_at_its_source(rig: Rig, kind: str) -> None:
    client, up = ask_stream(rig, MESSAGES)
    up.settimeout(0.3)
    garbage = GARBAGE[kind]()
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 60_000_000:
            sent += up.send(garbage)
    assert sent < 60_000_000
    assert held_by_pairs(rig) < HELD_BYTES
    reset(client)
    up.close()
    rig.no_pair_open()


def test_an_upstream_that_answers_before_it_is_asked_is_not_taken_for_an_answer(rig: Rig) -> None:
    """A response that came before its request is nobody's; the request behind it has its own."""
    client = rig.client()
    client.sendall(request("POST", MESSAGES.path, MESSAGES.body))
    up = rig.upstream.accept()
    read_head(up)
    read_exactly(up, len(MESSAGES.body))
    say(up, client, json_answer(MESSAGES.unary) + json_answer(b'{"type":"error","error":{"type":"planted"}}'))
    client.sendall(request("POST", MESSAGES.path, MESSAGES.body))
    read_head(up)
    read_exactly(up, len(MESSAGES.body))
    say(up, client, json_answer(MESSAGES.unary))
    client.close()
    rig.no_pair_open()
    ours = [ended for ended in attempts(rig) if ended.msg]
    assert [(ended.msg, ended.outcome) for ended in ours] == [(1, "ok"), (2, "ok")]


def test_an_upstream_that_closes_at_once_a_hundred_times_is_dialled_once_for_each_client(rig: Rig) -> None:
    for _ in range(100):
        client = rig.client()
        client.sendall(request("POST", MESSAGES.path, MESSAGES.body))
        up = rig.upstream.accept()
        reset(up)
        assert read_all(client)[0] == b""
        client.close()
    rig.no_pair_open()
    assert len(rig.observer.of(Kind.DIAL)) == 100
