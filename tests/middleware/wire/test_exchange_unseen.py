"""What was not seen, or not understood, is a gap or a hole in one message, and no failure of anybody."""

import pytest

from fairtrial.middleware.core.observations import GapSeen, Note
from fairtrial.middleware.wire.dialects import anthropic_messages
from fairtrial.middleware.wire.feed import Flag, Kind
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, MONO_NS, TOKEN, WALL_NS, Wire, anthropic_request, one_call


def test_what_the_feed_lost_is_a_gap_and_no_truncation() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM[:500])
    wire.json(Kind.LOST, {"records": 3, "bytes": 900, "since_ns": wire.now_ns, "until_ns": wire.now_ns})
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.parse, ended.reply.terminator) == ("ok", "partial", None)
    gap = next(value for value in wire.values() if isinstance(value, GapSeen))
    assert (gap.source, gap.families, gap.lost_records, gap.lost_bytes) == ("feed", ["model_api"], 3, 900)
    assert gap.since_ns is not None
    assert gap.since_ns > WALL_NS


def test_a_dropped_payload_leaves_a_hole_and_no_claim() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data((5).to_bytes(8, "big"), flags=Flag.DROPPED)
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.parse) == ("ok", "partial")
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, b"POST /v1/messages HTTP/1.1\r\n\r\n")
    wire.write(Kind.REQUEST_DATA, (5).to_bytes(8, "big"), Flag.DROPPED)
    wire.json(Kind.REQUEST_END, {"wire_bytes": 5, "complete": True})
    assert wire.started()[1].request.unreadable is not None
    assert wire.started()[1].request.operation == "chat"


def test_a_blind_connection_is_noted_and_a_gap() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.json(Kind.BLIND, {"side": "response", "reason": "bad chunk"})
    wire.json(Kind.RESPONSE_END, {"wire_bytes": None, "complete": None, "how": "blind"})
    (ended,) = wire.ended()
    assert (ended.parse, ended.outcome) == ("none", "ok")
    assert any(isinstance(value, Note) and value.event == "blind" for value in wire.values())
    since = wire.now_ns
    wire.ms += 2000
    wire.json(Kind.CLOSE, {"how": "fin", "first": "client"})
    (gap,) = [value for value in wire.values() if isinstance(value, GapSeen)]
    assert (gap.since_ns, gap.until_ns) == (WALL_NS + since - MONO_NS, WALL_NS + wire.now_ns - MONO_NS)


def test_a_blind_connection_that_is_open_at_the_end_is_a_gap_up_to_it() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.json(Kind.BLIND, {"side": "request", "reason": "junk"})
    wire.json(Kind.BYE, {})
    assert [value.until_ns for value in wire.values() if isinstance(value, GapSeen)] == [
        WALL_NS + wire.now_ns - MONO_NS
    ]


def test_a_dialect_that_raises_is_given_up_for_that_message_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("bug")

    wire = Wire()
    with monkeypatch.context() as patch:
        patch.setattr(anthropic_messages, "_facts", fails)
        one_call(wire)
    one_call(wire)
    first, second = wire.ended()
    assert (first.parse, first.request.operation, first.bytes_down) == ("none", "other", 1000)
    assert (second.parse, second.outcome) == ("full", "ok")
    assert wire.tracker.faults == 1


def test_a_corrupt_encoding_is_given_up_and_is_no_truncation() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head(headers=["Content-Encoding: gzip"])
    wire.data(b"not gzip at all")
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.parse) == ("ok", "partial")


def test_a_response_whose_request_was_lost_is_recorded_all_the_same() -> None:
    wire = Wire()
    wire.msg = 9
    wire.head()
    wire.end()
    (ended,) = wire.ended()
    assert (ended.parse, ended.method, ended.reply.status) == ("none", None, 200)


def test_junk_records_are_counted_and_skipped() -> None:
    wire = Wire()
    wire.write(Kind.DIAL, b"not json")
    wire.write(Kind.OPEN, b"[1,2]")
    assert wire.tracker.faults == 2
    assert wire.tracker.last_fault is not None


def test_a_request_with_a_hole_in_its_copy_was_not_seen_and_one_of_junk_was() -> None:
    wire = Wire()
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, f"POST /t/{TOKEN}/v1/messages HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    wire.write(Kind.REQUEST_DATA, (5000).to_bytes(8, "big"), Flag.DROPPED)
    wire.json(Kind.REQUEST_END, {"wire_bytes": 5300, "complete": True})
    wire.broken("cut", "upstream")
    wire.request(b"no json")
    wire.broken("cut", "upstream")
    assert [(e.request.unreadable is None, e.request.unseen) for e in wire.ended()] == [(False, True), (False, False)]
