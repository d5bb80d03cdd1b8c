"""The tracker against a feed that makes no sense: it never raises, ends nothing twice, and lets go of everything.

The relay's own feed is not like this; one that lost records, or whose relay died and came again, may be.
"""

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import AttemptEnded, AttemptStarted, Host, Observation, decode
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire.exchange import ExchangeTracker
from fairtrial.middleware.wire.feed import Flag, Kind, Record
from tests.middleware.held import held_bytes
from tests.middleware.wire.families import FAMILIES
from tests.middleware.wire.traffic import TOKEN, TRIAL

HEADS = [
    *(f"POST /t/{TOKEN}{family.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for family in FAMILIES),
    b"GET /v1/responses HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
    b"nonsense",
]
ANSWERS = [
    *(f"HTTP/1.1 200 OK\r\nContent-Type: {family.media}\r\n\r\n".encode() for family in FAMILIES),
    b"HTTP/1.1 101 X\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
    b"HTTP/1.1 529 X\r\nContent-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"",
]
BODIES = [*(piece for family in FAMILIES for piece in family.pieces[:3]), b"\x81\x02{}", b"x"]
NUMBERS = st.none() | st.integers(-5, 10**12) | st.just("x") | st.booleans()
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "complete": st.sampled_from([True, False, None, "yes"]),
        "how": st.sampled_from(["framed", "tunnel", "cut", "client_gone", "aborted", "blind", "?", 3]),
        "first": st.sampled_from(["client", "upstream", "fairtrial", None, "?"]),
        "side": st.sampled_from(["client", "upstream", "request", "response"]),
        "ok": st.booleans(),
        **dict.fromkeys(("wire_bytes", "first_ns", "since_ns", "until_ns", "lag_s", "records", "errno"), NUMBERS),
    },
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """One record of any kind on one of a few connections."""
    kind = draw(st.sampled_from(list(Kind)))
    match kind:
        case Kind.REQUEST_HEAD:
            payload = draw(st.sampled_from(HEADS))
        case Kind.RESPONSE_HEAD:
            payload = draw(st.sampled_from(ANSWERS))
        case Kind.REQUEST_DATA | Kind.RESPONSE_DATA | Kind.TUNNEL_UP | Kind.TUNNEL_DOWN:
            payload = draw(st.sampled_from([*BODIES, *(family.body for family in FAMILIES)]))
        case _:
            payload = draw(FACTS.map(lambda facts: json.dumps(facts).encode()) | st.sampled_from([b"", b"[]", b"{"]))
    flags = draw(st.sampled_from([0] * 6 + [Flag.DROPPED, Flag.INTERIM]))
    return Record(kind, flags, draw(st.integers(0, 2)), draw(st.integers(0, 3)), draw(st.integers(0, 10**12)), payload)


@given(st.lists(records(), max_size=60))
@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
def test_no_order_of_records_raises_or_ends_an_attempt_twice_or_is_kept(feed: list[Record]) -> None:
    observations: list[Observation] = []
    tracker = ExchangeTracker(
        Source("door.model", observations.append, host=Host(name="node"), trial=TRIAL), trial_of_token={TOKEN: TRIAL}
    )
    for record in feed:
        tracker.take(record)
    tracker.close()
    assert tracker.open_attempts == 0
    values = [decode(observation) for observation in observations]
    begun = [value.attempt for value in values if isinstance(value, AttemptStarted)]
    ended = [value.attempt for value in values if isinstance(value, AttemptEnded)]
    assert set(ended) <= set(begun)
    assert len(set(ended)) == len(ended)
    assert held_bytes(tracker, without=(Source,)) < 64 * 1024


ASKED = (Record(Kind.REQUEST_HEAD, 0, 1, 1, 5, HEADS[0]), Record(Kind.REQUEST_END, 0, 1, 1, 6, b'{"complete":true}'))


@pytest.mark.parametrize(
    "senseless",
    [
        pytest.param(ASKED, id="its number is used again"),
        pytest.param((Record(Kind.CLOSE, 0, 1, 0, 9, b"[]"),), id="its connection closes in a way that cannot be read"),
        pytest.param((Record(Kind.OPEN, 0, 1, 0, 9, b"{}"),), id="its connection's number is given out again"),
    ],
)
def test_an_open_attempt_has_its_end_whatever_nonsense_follows(senseless: tuple[Record, ...]) -> None:
    observations: list[Observation] = []
    tracker = ExchangeTracker(
        Source("door.model", observations.append, host=Host(name="node"), trial=TRIAL), trial_of_token={TOKEN: TRIAL}
    )
    for record in (*ASKED, *senseless):
        tracker.take(record)
    tracker.close()
    values = [decode(observation) for observation in observations]
    begun = [value.attempt for value in values if isinstance(value, AttemptStarted)]
    assert sorted(begun) == sorted(value.attempt for value in values if isinstance(value, AttemptEnded))


def test_a_feed_of_a_thousand_connections_that_never_end_holds_what_is_open_only() -> None:
    observations: list[Observation] = []
    tracker = ExchangeTracker(
        Source("door.model", observations.append, host=Host(name="node"), trial=TRIAL), trial_of_token={TOKEN: TRIAL}
    )
    for conn in range(1000):
        for kind, payload in (
            (Kind.REQUEST_HEAD, HEADS[0]),
            (Kind.REQUEST_DATA, FAMILIES[0].body),
            (Kind.REQUEST_END, b'{"complete":true}'),
            (Kind.RESPONSE_HEAD, ANSWERS[0]),
            (Kind.RESPONSE_DATA, FAMILIES[0].pieces[0]),
        ):
            tracker.take(Record(kind, 0, conn, 1, conn + 1, payload))
    assert tracker.open_attempts == 1000
    assert held_bytes(tracker, without=(Source,)) < 1000 * 8192
    tracker.close()
    assert held_bytes(tracker, without=(Source,)) < 64 * 1024
