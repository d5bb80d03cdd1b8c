"""Whose a request is: asked once, told with each attempt; a gap of a connection is a gap of each trial that used it."""

import json

import pytest

from fairtrial.middleware.core.claims import Assigned, Claims
from fairtrial.middleware.core.observations import GapSeen, ReplyFacts
from fairtrial.middleware.wire.feed import Kind
from fairtrial.middleware.wire.session import KeyDigest
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, TOKEN, Wire, anthropic_request, one_call


class Desk:
    """Gives every second request to a trial, and remembers what it was told."""

    def __init__(self) -> None:
        self.asked: list[Claims] = []
        self.over: list[tuple[str, str | None, bool]] = []

    def resolve(self, claims: Claims) -> Assigned:
        self.asked.append(claims)
        if len(self.asked) % 2:
            return Assigned(why="no_identity", hint="trial-9")
        return Assigned(trial="trial-8", how="id:session-id")

    def ended(self, attempt: str, reply: ReplyFacts, *, whole: bool) -> None:
        self.over.append((attempt, reply.response_id, whole))


def test_a_request_without_a_known_token_belongs_to_no_trial() -> None:
    wire = Wire()
    wire.request(anthropic_request(), token=None)
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.request(anthropic_request(), token="guessed")
    wire.end()
    assert {o.subject.trial for o in wire.observations} == {None}
    assert wire.edges == []
    assert "guessed" not in json.dumps([o.value for o in wire.observations])


def test_whose_a_request_is_is_asked_once_when_head_and_body_are_known() -> None:
    desk = Desk()
    wire = Wire(assigns=desk)
    one_call(wire)
    one_call(wire)
    wire.request(anthropic_request(), headers=["x-fairtrial-trial: t42"])
    wire.broken("cut", "upstream")
    started, ended = wire.started(), wire.ended()
    assert [claims.attempt for claims in desk.asked] == [value.attempt for value in started]
    assert [(c.token, c.peer, c.named) for c in desk.asked] == [
        (TOKEN, "127.0.0.1", None),
        (TOKEN, "127.0.0.1", None),
        (TOKEN, "127.0.0.1", "t42"),
    ]
    assert [claims.request for claims in desk.asked] == [value.request for value in started]
    assert desk.asked[0].request.history_len == 3
    for values in (started, ended):
        assert [(v.assigned_by, v.unassigned_why, v.trial_hint) for v in values] == [
            (None, "no_identity", "trial-9"),
            ("id:session-id", None, None),
            (None, "no_identity", "trial-9"),
        ]
    trials = [o.subject.trial for o in wire.observations if o.kind.startswith("attempt.")]
    assert trials == [None, None, "trial-8", "trial-8", None, None]
    assert [(name, whole) for _, name, whole in desk.over] == [("msg_1", True), ("msg_1", True), (None, False)]
    assert wire.edges == ["call_started", "call_ended"]


def test_the_key_of_a_request_leaves_the_observers_memory_as_a_keyed_digest_only() -> None:
    desk, keys = Desk(), KeyDigest(b"k")
    wire = one_call(Wire(assigns=desk, keys=keys))
    assert desk.asked[0].key == keys.of("sk-secret")
    assert keys.of("sk-secret") not in json.dumps([o.value for o in wire.observations])


def test_a_blind_connection_is_a_gap_of_each_trial_that_used_it() -> None:
    wire = Wire(assigns=Desk())
    for _ in range(4):
        one_call(wire)
    wire.json(Kind.BLIND, {"side": "request", "reason": "x"})
    wire.json(Kind.CLOSE, {"first": "client", "how": "fin"})
    told = [(o.kind, o.subject.trial) for o in wire.observations if not o.kind.startswith("attempt.")]
    assert told == [("trial.note", "trial-8"), ("coverage.gap", "trial-8")]


@pytest.mark.parametrize("token", [None, "guessed"])
def test_junk_on_a_connection_that_never_carried_a_token_of_the_trial_hides_nothing_of_it(token: str | None) -> None:
    wire = Wire()
    if token is not None:
        wire.request(anthropic_request(), token=token)
    wire.json(Kind.BLIND, {"side": "request", "reason": "no HTTP"})
    wire.json(Kind.CLOSE, {"how": "fin", "first": "client"})
    assert [value for value in wire.values() if isinstance(value, GapSeen)] == []
