"""Bodies are gathered within bounds, read through their dialects, and let go; what fails costs facts only."""

import gzip

import pytest

from fairtrial.middleware.wire import bodies
from fairtrial.middleware.wire.bodies import Bodies
from fairtrial.middleware.wire.dialects import choose
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.passing import Exchange
from fairtrial.middleware.wire.redact import digest
from fairtrial.middleware.wire.stalls import Stalls
from tests.middleware.wire.families import MESSAGES


def passing(*fields: tuple[str, str]) -> Exchange:
    head = RequestHead("POST", "/v1/messages", Headers(fields))
    return Exchange(
        id="a",
        conn=1,
        msg=1,
        started_ns=0,
        head=head,
        path="/v1/messages",
        dialect=choose("POST", "/v1/messages"),
        stalls=Stalls(0),
    )


def test_a_request_is_read_from_its_pieces_and_let_go() -> None:
    reading, exchange = Bodies(), passing()
    for i in range(0, len(MESSAGES.body), 7):
        reading.gather(exchange, MESSAGES.body[i : i + 7])
    assert reading.held_bytes == len(MESSAGES.body)
    facts = reading.read_request(exchange)
    reading.release(exchange)
    assert (facts.history_len, facts.raw_digest, facts.unseen) == (3, digest(MESSAGES.body), False)
    assert (reading.held_bytes, len(exchange.body), exchange.parse) == (0, 0, "full")


def test_bodies_are_bounded_each_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_REQUEST_BODY_BYTES", 10)
    monkeypatch.setattr(bodies, "MAX_BODIES_BYTES", 15)
    reading = Bodies()
    first, second, third = passing(), passing(), passing()
    reading.gather(first, b"x" * 10)
    reading.gather(second, b"x" * 5)
    reading.gather(third, b"x")
    assert (first.body_lost, second.body_lost) == (None, None)
    assert third.body_lost == "the body is larger than what is kept for reading"
    reading.gather(first, b"x")
    assert (first.body_lost, reading.held_bytes) == (third.body_lost, 5)
    reading.gather(first, b"x")
    assert reading.held_bytes == 5


def test_a_body_that_was_not_seen_whole_says_so_and_one_that_was_not_sent_whole_does_not() -> None:
    for whole, unseen in ((True, True), (None, True), (False, False)):
        reading, exchange = Bodies(), passing()
        exchange.request_whole = whole
        reading.lose(exchange, "the feed dropped a part of the body")
        facts = reading.read_request(exchange)
        assert (facts.unseen, facts.unreadable, facts.raw_digest) == (
            unseen,
            "the feed dropped a part of the body",
            None,
        )
        assert exchange.parse == "partial"


def test_an_encoding_that_cannot_be_undone_costs_the_facts() -> None:
    reading, exchange = Bodies(), passing(("content-encoding", "gzip"))
    reading.gather(exchange, gzip.compress(MESSAGES.body)[:20] + b"\xff" * 50)
    facts = reading.read_request(exchange)
    assert (facts.history_len, exchange.parse) == (None, "partial")
    assert (facts.unreadable or "").startswith("cannot be decoded")
    assert reading.faults == 0


def test_a_reply_without_a_head_has_said_nothing() -> None:
    reading, exchange = Bodies(), passing()
    assert reading.feed_reply(exchange, b"data", 1) is True
    assert reading.finish_reply(exchange, whole=True).terminator is None


def test_a_hole_takes_back_only_that_the_end_mark_is_missing() -> None:
    for pieces, terminator in ((MESSAGES.pieces, True), (MESSAGES.pieces[:4], None)):
        reading, exchange = Bodies(), passing()
        reading.begin_reply(exchange, ResponseHead(200, Headers((("content-type", "text/event-stream"),))))
        for piece in pieces:
            reading.feed_reply(exchange, piece, 1)
        exchange.holed = True
        assert reading.finish_reply(exchange, whole=True).terminator is terminator
