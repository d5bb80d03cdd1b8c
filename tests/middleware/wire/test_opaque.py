"""Records of the connect door become one observation per connection, whole or as far as it is known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import Observation, OpaqueConnection, decode
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.feed import Kind
from fairtrial.middleware.wire.opaque import DOOR, OpaqueTracker, provider_of

BEGUN = clock.Instant(1_700_000_000 * 10**9, 5 * 10**9)
S = 10**9
HEAD = b"CONNECT API.anthropic.com:443 HTTP/1.1\r\nHost: h\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n"


class Told:
    """A tracker, and what it said."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        source = Source("door.egress", self.observations.append, host=this_host(), trial="t")
        self.tracker = OpaqueTracker(source, trial="t", at=BEGUN)
        self.decoder = feed.Decoder()

    def say(self, kind: Kind, value: Mapping[str, object] | bytes, at_s: float) -> None:
        t_ns = 5 * S + round(at_s * S)
        if isinstance(value, bytes):
            self.tracker.take(feed.Record(kind, 0, 1, 1, t_ns, value))
        else:
            (record,) = self.decoder.feed(feed.encode_json(kind, dict(value), conn=1, msg=1, t_ns=t_ns))
            self.tracker.take(record)

    def begin(self, **dial: object) -> None:
        self.say(Kind.OPEN, {"door": DOOR, "upstream": "tcp://localhost:0", "peer": "127.0.0.1:5"}, 0)
        self.say(Kind.REQUEST_HEAD, HEAD, 0)
        self.say(Kind.DIAL, {"ok": True, "dns_s": 0.01, "connect_s": 0.02, "remote": "1.2.3.4:443"} | dial, 0.1)

    @property
    def one(self) -> OpaqueConnection:
        (observation,) = self.observations
        value = decode(observation)
        assert isinstance(value, OpaqueConnection)
        return value


def test_a_whole_connection_has_its_host_its_times_and_its_end() -> None:
    told = Told()
    told.begin()
    measures = {
        "up": 900, "down": 4000, "first_up_ns": 5 * S + S // 10, "first_down_ns": 5 * S + 3 * S // 10,
        "last_up_ns": 6 * S, "last_down_ns": 7 * S, "max_wait_s": 0.8, "max_gap_s": 0.2, "clean": True,
    }  # fmt: skip
    told.say(Kind.TUNNEL_END, measures, 2.5)
    told.say(Kind.CLOSE, {"first": "upstream", "how": "fin"}, 2.5)
    value = told.one
    assert (value.host, value.port, value.provider, value.ok) == ("api.anthropic.com", 443, "anthropic", True)
    assert (value.dns, value.connect) == (0.01, 0.02)
    assert value.tls == pytest.approx(0.2)
    assert (value.bytes_up, value.bytes_down, value.max_wait, value.max_gap) == (900, 4000, 0.8, 0.2)
    assert (value.duration, value.silent) == (2.5, 0.5)
    assert (value.closed_by, value.close_kind, value.cut) == ("upstream", "fin", False)
    assert value.started_wall_ns == BEGUN.wall_ns
    assert "c2VjcmV0" not in repr(told.observations)


@pytest.mark.parametrize("first, cut", [("upstream", True), ("client", None), ("fairtrial", None)])
def test_an_end_without_close_notify_is_a_cut_only_when_the_upstream_made_it(first: str, cut: bool | None) -> None:
    told = Told()
    told.begin()
    told.say(Kind.TUNNEL_END, {"up": 1, "down": 1, "clean": False}, 1)
    told.say(Kind.CLOSE, {"first": first, "how": "fin"}, 1)
    assert told.one.cut is cut


def test_a_dial_that_failed_says_where_and_why() -> None:
    told = Told()
    told.begin(ok=False, stage="dns", error="gaierror: no such name", dns_s=0.3, connect_s=None, remote=None)
    told.say(Kind.CLOSE, {"first": "upstream", "how": "dial", "text": "dns: …"}, 0.4)
    value = told.one
    assert (value.ok, value.stage, value.error) == (False, "dns", "gaierror: no such name")
    assert (value.bytes_up, value.tls, value.silent) == (None, None, None)


def test_what_is_still_open_at_the_end_is_told_once_as_far_as_it_is_known() -> None:
    told = Told()
    told.begin()
    told.tracker.close()
    told.tracker.close()
    assert (told.one.ok, told.one.closed_by) == (True, None)


def test_a_refused_request_and_records_that_make_no_sense_tell_nothing() -> None:
    told = Told()
    told.say(Kind.OPEN, {"door": DOOR}, 0)
    told.say(Kind.REQUEST_HEAD, b"\xff\xfe", 0)
    told.say(Kind.DIAL, b"{", 0)
    told.say(Kind.CLOSE, {"first": "fairtrial", "how": "fin"}, 1)
    assert told.observations == []
    assert told.tracker.faults == 2


@pytest.mark.parametrize(
    "host, provider",
    [
        ("api.anthropic.com", "anthropic"),
        ("api.openai.com", "openai"),
        ("us.api.openai.com", "openai"),
        ("us-east5-aiplatform.googleapis.com", "vertex"),
        ("bedrock-runtime.us-east-1.amazonaws.com", "bedrock"),
        ("api.anthropic.com.evil.example", None),
        ("pypi.org", None),
    ],
)
def test_providers_are_known_by_their_public_names(host: str, provider: str | None) -> None:
    assert provider_of(host) == provider
