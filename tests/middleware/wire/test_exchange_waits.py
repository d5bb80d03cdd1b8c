"""Silences and lags: pings are bytes and no content, a client that does not read is told apart, our lag is our own."""

from typing import Any

import pytest

from fairtrial.middleware.wire.feed import Kind
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, Wire, anthropic_request


@pytest.mark.parametrize(
    "said, expected",
    [
        ({"lag_max_s": 3.0}, 0.0),
        ({"lag_max_s": 3.0, "lag_now_s": 1.5}, 1.5),
        ({"lag_max_s": 4.0}, 4.0),
    ],
    ids=str,
)
def test_lag_from_before_an_exchange_on_its_connection_is_not_charged_to_it(
    said: dict[str, Any], expected: float
) -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.json(Kind.LAG, {"lag_s": 3.0})
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.request(anthropic_request())
    wire.broken("cut", "upstream", **said)
    assert [value.our_lag for value in wire.ended()] == [3.0, expected]


def test_pings_count_as_bytes_but_not_as_content() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM[: ANTHROPIC_STREAM.index(b"event: content_block_delta")])
    for _ in range(4):
        wire.data(b'event: ping\ndata: {"type": "ping"}\n\n', after_ms=100)
    wire.data(ANTHROPIC_STREAM[ANTHROPIC_STREAM.index(b"event: content_block_delta") :], after_ms=100)
    wire.end()
    (ended,) = wire.ended()
    assert (ended.max_gap, ended.max_gap_with_pings) == (0.5, 0.1)


def test_back_pressure_of_the_client_is_told_apart_even_when_it_then_hangs_up() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM[:400])
    since = wire.now_ns
    wire.ms += 300
    ending: dict[str, object] = {"complete": False, "how": "client_gone", "first": "client", "first_ns": wire.now_ns}
    wire.json(Kind.RESPONSE_END, ending)
    wire.json(Kind.BLOCKED, {"side": "client", "since_ns": since, "until_ns": wire.now_ns})
    wire.json(Kind.CLOSE, {"first": "client", "how": "rst"})
    (ended,) = wire.ended()
    assert (ended.outcome, ended.downstream_blocked) == ("client_disconnect", 0.3)
    assert ended.blocked_before_end == 0.3


def test_a_cut_that_came_while_the_client_did_not_read_says_so_though_it_reads_again_later() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM[:400])
    since = wire.now_ns
    wire.ms += 3000
    cut_at = wire.now_ns
    wire.ms += 2000
    wire.json(Kind.BLOCKED, {"side": "client", "since_ns": since, "until_ns": wire.now_ns})
    wire.json(Kind.RESPONSE_END, {"complete": False, "how": "cut", "first": "upstream", "first_ns": cut_at})
    wire.json(Kind.CLOSE, {"first": "upstream", "how": "rst"})
    (ended,) = wire.ended()
    assert (ended.outcome, ended.blocked_before_end) == ("truncated", 3.0)


def test_a_client_that_reads_again_long_before_the_cut_was_reading_at_the_cut() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    since = wire.now_ns
    wire.ms += 500
    wire.json(Kind.BLOCKED, {"side": "client", "since_ns": since, "until_ns": wire.now_ns})
    wire.data(ANTHROPIC_STREAM[:400])
    wire.broken("cut", "upstream", after_ms=400)
    (ended,) = wire.ended()
    assert (ended.downstream_blocked, ended.blocked_before_end) == (0.5, 0.0)


def test_our_own_lag_is_noted_on_the_attempts_that_were_open() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.json(Kind.LAG, {"lag_s": 0.25})
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    assert [ended.our_lag for ended in wire.ended()] == [0.25, 0.0]
