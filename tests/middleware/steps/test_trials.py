"""Who a request belongs to is told by what it shows; what a client merely says counts within its own tenant only."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core.claims import Assigned, Claims
from fairtrial.middleware.core.observations import ReplyFacts, RequestFacts
from fairtrial.middleware.steps.trials import ClosedTrial, TrialResolver
from tests.middleware.steps.story import request_facts

SECOND_NS = 1_000_000_000


class Door:
    """A resolver that is asked on a clock which the test moves; implicit trials are called i1, i2, …"""

    def __init__(self, *, implicit: bool = True, **options: object) -> None:
        self.opened: list[tuple[str, str | None]] = []
        self.s = 0.0
        self._attempts = itertools.count(1)
        names = (f"i{n}" for n in itertools.count(1))
        self.resolver = TrialResolver(
            tokens={"tok-a": "A", "tok-b": "B"},
            implicit=implicit,
            new_trial=lambda: next(names),
            on_opened=lambda trial, name: self.opened.append((trial, name)),
            **options,  # type: ignore[arg-type]  # the test names them
        )
        self.last = ""

    def ask(
        self,
        request: RequestFacts | None = None,
        *,
        key: str | None = "k1",
        peer: str | None = "10.0.0.1",
        ends: bool = True,
        whole: bool = True,
        response: str | None = None,
        **claims: object,
    ) -> Assigned:
        """One request; it ends at once unless told otherwise."""
        self.last = f"attempt-{next(self._attempts)}"
        assigned = self.resolver.resolve(
            Claims(
                attempt=self.last,
                at_ns=round(self.s * SECOND_NS),
                request=request or RequestFacts(operation="other"),
                key=key,
                peer=peer,
                **claims,  # type: ignore[arg-type]  # the test names them
            )
        )
        if ends:
            self.end(self.last, whole=whole, response=response)
        return assigned

    def end(self, attempt: str, *, whole: bool = True, response: str | None = None) -> None:
        self.resolver.ended(attempt, ReplyFacts(response_id=response), whole=whole)


CLAUDE = (("x-claude-code-session-id", "s1"),)


def nameless(turns: int, **changes: object) -> RequestFacts:
    """What a client without any id sends after `turns` assistant messages."""
    return request_facts(turns, session=None, session_kind=None, **changes)


def test_a_known_token_beats_all_that_the_client_says() -> None:
    door = Door(peers={"10.0.0.1": "P"}, aliases={"k1": "K"})
    assert door.ask(token="tok-a", named="else", ids=CLAUDE) == Assigned(trial="A", how="token")
    assert door.ask(token="tok-b", named="else", ids=CLAUDE) == Assigned(trial="B", how="token")


def test_an_unknown_token_is_no_token() -> None:
    door = Door()
    assert door.ask(token="junk", ids=CLAUDE) == Assigned(trial="i1", how="id:x-claude-code-session-id")
    assert door.ask(token="junk") == Assigned(why="no_identity")
    assert door.resolver.unassigned == {"no_identity": 1}


@pytest.mark.parametrize("how", ["header", "baggage"])
def test_a_name_opens_a_trial_and_leads_back_to_it(how: str) -> None:
    door = Door()

    def ask(name: str) -> Assigned:
        return door.ask(named=name) if how == "header" else door.ask(baggage=name)

    assert [ask(name).trial for name in ("t42", "t43", "t42")] == ["i1", "i2", "i1"]
    assert door.opened == [("i1", "t42"), ("i2", "t43")]
    assert ask("t42").how == how


def test_the_same_name_of_another_tenant_is_another_trial() -> None:
    door = Door()
    trials = [door.ask(named="t42", key=key, peer=peer).trial for key in ("k1", "k2") for peer in ("p1", "p2")]
    assert len(set(trials)) == 4


def test_a_key_that_is_an_alias_tells_the_trial() -> None:
    door = Door(aliases={"k-alias": "K"}, peers={"10.0.0.1": "P"})
    assert door.ask(key="k-alias", ids=CLAUDE) == Assigned(trial="K", how="key_alias")
    assert door.ask(key="k-alias", named="t42").how == "header"


def test_ids_of_one_session_are_one_trial_and_its_subagents_are_in_it() -> None:
    door = Door()
    codex = (("session-id", "c1"), ("thread-id", "c1"))
    assert door.ask(ids=CLAUDE).trial == "i1"
    assert door.ask(ids=codex).trial == "i2"
    # Older and newer names of one id, and a thread that names its parent.
    assert door.ask(ids=(("session_id", "c1"),)).trial == "i2"
    assert door.ask(ids=(("prompt_cache_key", "c1"),)) == Assigned(trial="i2", how="id:prompt_cache_key")
    assert door.ask(ids=(("thread-id", "c2"),), parents=(("agent", "c1"),)).trial == "i2"
    assert door.ask(ids=(("thread-id", "c2"),)).trial == "i2"
    assert door.ask(ids=CLAUDE).trial == "i1"


def test_a_call_or_response_that_is_known_leads_to_its_trial_and_opens_none() -> None:
    door = Door()
    assert door.ask(ids=(("x-irid", "call-1"),)) == Assigned(why="no_identity")
    assert door.ask(ids=(*CLAUDE, ("x-irid", "call-2")), response="resp_1").trial == "i1"
    assert door.ask(ids=(("x-irid", "call-2"),)) == Assigned(trial="i1", how="id:x-irid")
    assert door.ask(ids=(("previous_response_id", "resp_1"),)).how == "id:previous_response_id"
    assert door.ask(ids=(("previous_response_id", "resp_1"),), key="k2") == Assigned(why="no_identity")


def test_a_peer_that_was_given_to_a_trial_comes_before_an_id_that_nobody_knows() -> None:
    door = Door(peers={"172.17.0.2": "P"})
    assert door.ask(peer="172.17.0.2", ids=CLAUDE) == Assigned(trial="P", how="peer")
    assert door.ask(peer="172.17.0.2") == Assigned(trial="P", how="peer")
    assert door.ask(peer="172.17.0.3", ids=CLAUDE).trial == "i1"


@pytest.mark.parametrize(
    "other", [{"key": "k2"}, {"key": None}, {"peer": "10.0.0.2"}, {"peer": None}, {"token": "tok-b"}], ids=str
)
def test_the_id_of_an_explicit_trials_session_does_not_let_anyone_else_in(other: dict[str, object]) -> None:
    door = Door()
    assert door.ask(token="tok-a", ids=CLAUDE, response="resp_1").trial == "A"
    assert door.ask(nameless(1), token="tok-a").trial == "A"
    for ids in (CLAUDE, (("previous_response_id", "resp_1"),), ()):
        assert door.ask(nameless(2), ids=ids, **other).trial != "A"  # type: ignore[arg-type]
    assert door.ask(named="A", **other).trial != "A"  # type: ignore[arg-type]


def test_who_has_shown_the_token_may_name_the_session_or_the_trial_alone() -> None:
    door = Door()
    door.ask(token="tok-a", ids=CLAUDE)
    assert door.ask(ids=CLAUDE) == Assigned(trial="A", how="id:x-claude-code-session-id")
    assert door.ask(named="A") == Assigned(trial="A", how="header")
    assert door.opened == []


def test_without_a_key_whoever_sits_at_the_address_gets_into_no_explicit_trial() -> None:
    door = Door()
    door.ask(token="tok-a", ids=CLAUDE, key=None)
    assert door.ask(ids=CLAUDE, key=None).trial != "A"
    assert door.ask(named="A", key=None).trial != "A"


def test_a_session_that_two_live_trials_claim_leads_to_neither() -> None:
    door = Door()
    door.ask(token="tok-a", ids=CLAUDE, ends=False)
    door.ask(token="tok-b", ids=CLAUDE)
    assert door.ask(ids=CLAUDE) == Assigned(why="contested")


def test_a_session_that_is_resumed_in_a_later_trial_leads_there() -> None:
    door = Door()
    door.ask(token="tok-a", ids=CLAUDE)
    door.ask(token="tok-b", ids=CLAUDE)
    assert door.ask(ids=CLAUDE).trial == "B"


def test_a_trace_decides_nothing_and_is_a_hint() -> None:
    door = Door()
    assert door.ask(ids=CLAUDE, trace="t1").trial == "i1"
    assert door.ask(trace="t1") == Assigned(why="no_identity", hint="i1")
    assert door.ask(trace="t1", key="k2") == Assigned(why="no_identity")


def test_a_client_without_ids_is_followed_by_its_conversation() -> None:
    door = Door()
    assert [door.ask(nameless(turns)) for turns in range(4)] == [Assigned(trial="i1", how="history")] * 4
    other = nameless(0, first_user_digest="x", message_digests=["x"])
    assert door.ask(other).trial == "i2"
    assert door.ask(nameless(4, operation="count_tokens")).trial == "i1"


def test_a_conversation_that_was_begun_with_a_token_goes_on_without_it() -> None:
    door = Door()
    door.ask(nameless(0), token="tok-a")
    assert door.ask(nameless(1)) == Assigned(trial="A", how="history")
    assert door.ask(nameless(1), key=None).trial != "A"


def test_a_retry_after_a_failure_stays_in_its_trial() -> None:
    door = Door()
    assert door.ask(nameless(0), whole=False).trial == "i1"
    assert door.ask(nameless(0)).trial == "i1"


def test_live_twins_could_be_two_trials_and_from_then_on_their_words_decide_nothing() -> None:
    door = Door()
    assert door.ask(nameless(0), ends=False).trial == "i1"
    assert door.ask(nameless(0)) == Assigned(why="twins")
    assert door.ask(nameless(1)) == Assigned(why="twins")
    assert door.ask(nameless(1), ids=CLAUDE).trial == "i2"
    assert door.resolver.unassigned == {"twins": 2}


def test_the_first_words_again_after_a_whole_answer_could_be_the_next_trial() -> None:
    door = Door()
    assert door.ask(nameless(0)).trial == "i1"
    assert door.ask(nameless(0)) == Assigned(why="twins")


def test_a_task_that_begins_again_beside_one_that_went_on_is_a_trial_of_its_own() -> None:
    door = Door()
    for turns in range(3):
        assert door.ask(nameless(turns)).trial == "i1"
    branch = ["m0", "a1", "r1"]
    assert door.ask(nameless(0)).trial == "i2"
    assert door.ask(nameless(1, message_digests=branch)).trial == "i2"
    assert door.ask(nameless(3)).trial == "i1"


def test_a_branch_that_fits_nobody_is_given_to_nobody() -> None:
    door = Door()
    for turns in range(3):
        door.ask(nameless(turns))
    door.ask(nameless(0))
    door.ask(nameless(1, message_digests=["m0", "a1", "a2"]))
    stray = nameless(2, message_digests=["m0", "b1", "b2", "b3", "b4"])
    assert door.ask(stray) == Assigned(why="fork")


def test_a_history_that_was_trimmed_stays_with_the_only_one_it_can_be_of() -> None:
    door = Door()
    for turns in range(3):
        door.ask(nameless(turns))
    assert door.ask(nameless(2, message_digests=["m0", "short"], history_len=2)).trial == "i1"


def test_an_idle_gap_closes_an_implicit_trial_and_the_next_word_opens_another() -> None:
    door = Door(idle_s=60)
    assert door.ask(named="t42", ids=CLAUDE).trial == "i1"
    door.s = 59
    assert door.ask(ids=CLAUDE).trial == "i1"
    door.s = 120
    assert door.ask(ids=CLAUDE).trial == "i2"
    assert door.ask(named="t42").trial == "i3"
    assert door.resolver.sweep(120 * SECOND_NS) == [ClosedTrial(trial="i1", why="idle", last_ns=59 * SECOND_NS)]
    assert door.resolver.sweep(121 * SECOND_NS) == []
    assert door.resolver.open_trials == ("i2", "i3")


def test_a_trial_with_a_request_in_flight_is_not_idle() -> None:
    door = Door(idle_s=60)
    door.ask(ids=CLAUDE, ends=False)
    assert door.resolver.sweep(3600 * SECOND_NS) == []
    assert door.ask(ids=CLAUDE).trial == "i1"


def test_an_explicit_trial_is_never_idle_and_leads_nowhere_once_forgotten() -> None:
    door = Door(idle_s=60)
    door.ask(token="tok-a", ids=CLAUDE)
    assert door.resolver.sweep(3600 * SECOND_NS) == []
    assert door.ask(ids=CLAUDE).trial == "A"
    door.resolver.forget("A")
    assert door.ask(ids=CLAUDE).trial == "i1"


def test_an_implicit_trial_may_be_told_to_be_over() -> None:
    door = Door()
    door.ask(ids=CLAUDE, ends=False)
    door.resolver.forget("i1")
    assert [closed.why for closed in door.resolver.sweep(0)] == ["told"]
    assert door.ask(ids=CLAUDE).trial == "i2"
    door.end("attempt-1", response="resp_1")
    assert door.ask(ids=(("previous_response_id", "resp_1"),)) == Assigned(why="no_identity")


def test_the_end_closes_what_is_open() -> None:
    door = Door()
    door.ask(named="t42")
    assert door.resolver.close() == [ClosedTrial(trial="i1", why="end", last_ns=0)]
    assert door.resolver.open_trials == ()


def test_too_many_trials_put_out_the_one_that_was_silent_longest_but_none_that_is_live() -> None:
    door = Door(max_implicit=2)
    door.ask(named="a", ends=False)
    door.ask(named="b")
    assert door.ask(named="c", ends=False).trial == "i3"
    assert door.ask(named="d") == Assigned(why="full")
    assert [closed.why for closed in door.resolver.sweep(0)] == ["evicted"]


def test_under_run_only_the_token_counts() -> None:
    door = Door(implicit=False)
    assert door.ask(nameless(0), token="tok-a", ids=CLAUDE, named="x").trial == "A"
    said: list[dict[str, Any]] = [{"ids": CLAUDE}, {"named": "A"}, {"baggage": "A"}, {"trace": "t"}, {}]
    for claims in said:
        assert door.ask(nameless(1), **claims) == Assigned(why="no_identity")
    assert door.opened == []


def test_the_ids_of_a_trial_are_bounded() -> None:
    door = Door()
    door.ask(named="t42")
    for n in range(3000):
        assert door.ask(named="t42", ids=(("session-id", str(n)), ("x-irid", str(n))), trace=str(n)).trial == "i1"
    assert door.ask(ids=(("session-id", "2999"),)).trial == "i1"
    assert door.ask(ids=(("session-id", "0"),)).trial == "i2"


_REQUESTS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["k1", "k2", None]),
        "peer": st.sampled_from(["p1", "p2"]),
        "ids": st.sampled_from([(), CLAUDE, (("session-id", "s1"),), (("previous_response_id", "r1"),)]),
        "named": st.sampled_from([None, None, "A", "t42"]),
        "trace": st.sampled_from([None, "t1"]),
        "ends": st.booleans(),
        "whole": st.booleans(),
        "response": st.sampled_from([None, "r1"]),
        "turns": st.integers(0, 3),
    }
)


@given(st.lists(_REQUESTS, max_size=40))
def test_nobody_without_the_token_ever_gets_into_anothers_trial(asked: list[dict[str, object]]) -> None:
    door = Door()
    door.ask(nameless(1), token="tok-a", ids=CLAUDE, key="owner", peer="p1", response="r1")
    owners: dict[str, tuple[object, object]] = {"A": ("owner", "p1")}
    for one in asked:
        claims = dict(one)
        turns = claims.pop("turns")
        assert isinstance(turns, int)
        assigned = door.ask(nameless(turns), **claims)  # type: ignore[arg-type]
        if assigned.trial is not None:
            tenant = (one["key"], one["peer"])
            assert owners.setdefault(assigned.trial, tenant) == tenant
