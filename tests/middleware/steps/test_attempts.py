"""Attempts fold into calls by what was asked and how the one before ended, never by a client's counter alone."""

import random
from typing import Any

import pytest

from fairtrial.middleware.core.observations import AttemptEnded, AttemptStarted, ReplyFacts, decode
from fairtrial.middleware.core.records import CallOutcome
from fairtrial.middleware.steps.attempts import FoldedCall, SeenAttempt, call_record, fold, seen
from tests.middleware.steps.story import Story


def attempts_of(told: Story) -> list[SeenAttempt]:
    found: dict[str, SeenAttempt] = {}
    for o in told.observations:
        value = decode(o)
        if isinstance(value, AttemptEnded) or (isinstance(value, AttemptStarted) and value.attempt not in found):
            found[value.attempt] = seen(value, observation=o.id, wall_ns=o.wall_ns)
    return list(found.values())


def folded(told: Story) -> list[FoldedCall]:
    return fold(attempts_of(told))


@pytest.mark.parametrize("outcome", ["error", "truncated", "client_disconnect"])
def test_the_same_body_after_a_failure_is_the_same_call(outcome: CallOutcome) -> None:
    told = Story()
    told.attempt(turns=0, outcome=outcome)
    told.s += 3000
    told.attempt(turns=0)
    (call,) = folded(told)
    record = call_record(call, "step")
    assert (record.outcome, len(record.attempts), record.fell_back) == ("ok", 2, None)
    assert [a.wait_before for a in record.attempts] == [None, 3000.0]
    assert record.duration == 3002.0


def test_the_same_body_after_a_whole_reply_is_a_new_call() -> None:
    told = Story()
    told.attempt(turns=0)
    told.attempt(turns=0)
    assert len(folded(told)) == 2


def test_twins_that_overlap_in_time_are_kept_apart() -> None:
    told = Story()
    told.attempt(turns=0, outcome="error", seconds=2.0, advance=False)
    told.s += 1
    told.attempt(turns=0)
    assert len(folded(told)) == 2


def test_an_attempt_that_has_no_end_yet_is_not_retried_by_the_next() -> None:
    told = Story()
    told.attempt(turns=0, started_only=True)
    told.s += 1
    told.attempt(turns=0)
    assert [call.outcome for call in folded(told)] == [None, "ok"]


def test_sessions_do_not_share_calls() -> None:
    told = Story()
    told.attempt(turns=0, outcome="error")
    told.attempt(turns=0, session="session-2")
    assert len(folded(told)) == 2


def test_a_title_call_between_two_attempts_does_not_part_them() -> None:
    told = Story()
    told.attempt(turns=0, outcome="error")
    told.attempt(turns=0, has_tools=False, body_digest="title", message_digests=["t"], first_user_digest="t")
    told.attempt(turns=0)
    assert [len(call.attempts) for call in folded(told)] == [2, 1]


@pytest.mark.parametrize(
    "changes, fell_back",
    [
        ({"stream": False}, "non_streaming"),
        ({"max_tokens": 8000}, "max_tokens"),
        ({"model": "claude-small", "body_digest": "b2"}, "model"),
        ({"tools_digest": "fewer", "body_digest": "b2"}, "capability"),
        ({"body_digest": "b2"}, "capability"),
        ({"stream": False, "model": "claude-small", "body_digest": "b2"}, "non_streaming,model"),
        ({"max_tokens": 64000}, None),
    ],
)
def test_what_the_client_gave_up_on_a_retry_is_said(changes: dict[str, Any], fell_back: str | None) -> None:
    told = Story()
    told.attempt(turns=1, outcome="truncated")
    told.attempt(turns=1, **changes)
    (call,) = folded(told)
    assert call_record(call, "step").fell_back == fell_back


def test_a_changed_request_long_after_the_failure_is_a_new_call() -> None:
    told = Story()
    told.attempt(turns=1, outcome="error")
    told.s += 121
    told.attempt(turns=1, model="claude-small", body_digest="b2")
    assert len(folded(told)) == 2


def test_a_retry_count_lifts_the_time_bound_only() -> None:
    told = Story()
    told.attempt(turns=1, outcome="error")
    told.s += 500
    told.attempt(turns=1, model="claude-small", body_digest="b2", retry_count=1)
    told.attempt(turns=2, retry_count=2)
    assert [len(call.attempts) for call in folded(told)] == [2, 1]


BARE: dict[str, Any] = {"message_digests": [], "history_len": None, "body_digest": None, "raw_digest": None}
"""The connection was lost before the body had come: nothing of the request is known but its head."""


def test_a_retry_of_an_attempt_whose_body_never_came_is_told_by_the_clients_counter() -> None:
    told = Story()
    told.attempt(turns=0, outcome="error", reply=ReplyFacts(), retry_count=0, session=None, **BARE)
    told.attempt(turns=0, outcome="error", reply=ReplyFacts(), retry_count=1)
    told.attempt(turns=0, retry_count=2)
    (call,) = folded(told)
    assert len(call.attempts) == 3


@pytest.mark.parametrize("bare", [(1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_whichever_of_the_bodies_never_came_the_counter_makes_them_one_call(bare: tuple[int, ...]) -> None:
    """An upstream that is not there: whether a body is read before the dial has failed is a matter of microseconds."""
    told = Story()
    for count in range(3):
        came: dict[str, Any] = {"session": None, **BARE} if count in bare else {}
        told.attempt(turns=0, outcome="error", reply=ReplyFacts(), retry_count=count, **came)
    (call,) = folded(told)
    assert (len(call.attempts), call.fell_back) == (3, [])
    assert (call.request.history_len is None) == (bare == (0, 1, 2)), "told by an attempt whose body came"


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("count", [0, 1])
def test_two_sessions_that_ask_the_same_of_an_upstream_that_is_not_there_are_two_calls(count: int, bare: bool) -> None:
    told = Story()
    told.attempt(turns=0, outcome="error", reply=ReplyFacts(), retry_count=0, session="session-1")
    came: dict[str, Any] = BARE if bare else {}
    told.attempt(turns=0, outcome="error", reply=ReplyFacts(), retry_count=count, session="session-2", **came)
    assert len(folded(told)) == 2


@pytest.mark.parametrize("count", [None, 0, 2])
def test_without_the_next_count_an_attempt_whose_body_never_came_stands_alone(count: int | None) -> None:
    told = Story()
    told.attempt(turns=0, outcome="error", reply=ReplyFacts(), retry_count=0, session=None, **BARE)
    told.attempt(turns=0, retry_count=count)
    assert len(folded(told)) == 2


def test_a_count_ties_nothing_to_another_sessions_call_that_was_read() -> None:
    told = Story()
    told.attempt(turns=0, outcome="error", retry_count=0)
    told.attempt(turns=0, retry_count=1, session="session-2")
    assert len(folded(told)) == 2


def test_an_accepted_truncation_is_followed_by_a_new_call() -> None:
    told = Story()
    told.attempt(turns=0, outcome="truncated")
    told.attempt(turns=1)
    assert len(folded(told)) == 2


def test_a_clients_own_call_key_folds_whatever_changed() -> None:
    told = Story()
    told.attempt(turns=0, outcome="error", call_key="k")
    told.attempt(turns=0, call_key="k", body_digest="b2", message_digests=["x"])
    assert len(folded(told)) == 1


def test_a_storm_of_attempts_is_one_call_in_any_order_of_delivery() -> None:
    """T38: attempts are not counted as calls."""
    told = Story()
    for _ in range(30):
        told.attempt(turns=3, outcome="error", seconds=0.1)
    attempts = attempts_of(told)
    random.Random(7).shuffle(attempts)
    (call,) = fold(attempts)
    assert [a.id for a in call.attempts] == [f"attempt-{i:05d}" for i in range(1, 31)]


def test_attempts_of_an_unknown_dialect_fold_by_their_raw_body() -> None:
    told = Story()
    for outcome in ("error", "ok"):
        told.attempt(
            turns=0, outcome=outcome, operation="other", body_digest=None, message_digests=[], history_len=None
        )
    told.attempt(turns=0, operation="hello", body_digest=None, raw_digest=None, message_digests=[])
    told.attempt(turns=0, operation="hello", body_digest=None, raw_digest=None, message_digests=[])
    assert [len(call.attempts) for call in folded(told)] == [2, 1, 1]


CODEX: dict[str, Any] = {
    "session_kind": "session-id",
    "session": "50d6fc60cd0ad058826bf4011cbdf9a8",
    "tools_digest": "0c65e4156263f41c858308d4bff94353",
    "first_user_digest": "9c33627e0b46c9406a8aa7aebb9a9403",
    "history_len": 7,
    "max_tokens": None,
}
"""What the dialect read of Codex 0.171.0 over a WebSocket that was cut once, and its digests."""


def test_a_whole_history_after_a_cut_socket_is_the_retry_of_the_part_that_was_sent_before() -> None:
    told = Story()
    last = "28e2242094c8ea88a75de4e679156c68"
    whole = ["81b06bda", "402d98d6", "9c33627e", "0bbc57ee", "952c6422", "3dc7032b", last]
    told.attempt(turns=1, outcome="truncated", body_digest=None, raw_digest="ff87", message_digests=[last], **CODEX)
    told.attempt(turns=1, body_digest="61b7", raw_digest="1f80", message_digests=whole, **CODEX)
    (call,) = folded(told)
    assert [a.outcome for a in call_record(call, "step").attempts] == ["truncated", "ok"]
    assert call.fell_back == []


def test_asking_the_same_again_after_a_whole_reply_is_resampling_and_says_of_what() -> None:
    told = Story()
    first = told.attempt(turns=0)
    told.attempt(turns=0)
    told.attempt(turns=1)
    calls = [call_record(call, "step") for call in folded(told)]
    assert [call.duplicate_of for call in calls] == [None, first, None]
    assert [call.concurrent_duplicate for call in calls] == [None, None, None]


def test_a_retry_of_a_resample_is_folded_into_the_resample() -> None:
    told = Story()
    first = told.attempt(turns=0)
    told.attempt(turns=0, outcome="error")
    told.attempt(turns=0)
    calls = folded(told)
    assert [(len(call.attempts), call.duplicate_of) for call in calls] == [(1, None), (2, first)]


def test_a_twin_in_flight_is_a_hedge_and_says_of_what() -> None:
    told = Story()
    first = told.attempt(turns=0, seconds=5.0, advance=False)
    told.s += 1
    told.attempt(turns=0)
    calls = [call_record(call, "step") for call in folded(told)]
    assert [call.concurrent_duplicate for call in calls] == [None, first]
    assert [call.duplicate_of for call in calls] == [None, None]


def test_a_retry_finds_its_own_call_behind_a_twin_that_is_still_in_flight() -> None:
    told = Story()
    told.attempt(turns=0, outcome="error", seconds=2.0, advance=False)
    told.s += 1
    told.attempt(turns=0, seconds=10.0, advance=False)
    told.s += 2
    told.attempt(turns=0)
    assert [[a.id[-1] for a in call.attempts] for call in folded(told)] == [["1", "3"], ["2"]]


def test_a_failure_behind_which_a_twin_was_answered_is_not_retried_by_the_next() -> None:
    told = Story()
    told.attempt(turns=0, outcome="error", seconds=1.0, advance=False)
    told.s += 0.5
    twin = told.attempt(turns=0, seconds=2.0)
    told.s += 1
    told.attempt(turns=0)
    calls = folded(told)
    assert [len(call.attempts) for call in calls] == [1, 1, 1]
    assert calls[2].duplicate_of == twin


@pytest.mark.parametrize("waited, obeyed", [(0.5, False), (4.85, False), (4.95, True), (5.0, True), (60.0, True)])
def test_whether_the_client_waited_as_long_as_it_was_asked_to(waited: float, obeyed: bool) -> None:
    told = Story()
    told.attempt(turns=0, outcome="error", reply=ReplyFacts(status=429, retry_after=5.0))
    told.s += waited
    told.attempt(turns=0, outcome="error")
    told.s += 1
    told.attempt(turns=0)
    (call,) = folded(told)
    record = call_record(call, "step")
    assert [a.retry_after_obeyed for a in record.attempts] == [None, obeyed, None]
    assert [a.retry_after for a in record.attempts] == [5.0, None, None]
    assert record.backoff == pytest.approx(waited + 1)


def test_waits_are_none_where_an_end_was_not_seen_and_zero_where_there_was_none() -> None:
    told = Story()
    told.attempt(turns=0)
    (call,) = folded(told)
    assert call_record(call, "step").backoff is None
    assert call_record(call, "step").attempts[0].wait_before is None


@pytest.mark.parametrize(
    "changes",
    [
        {"max_tokens": 100},
        {"stream": False},
        {"body_digest": "without a beta field", "max_tokens": 100},
        {"body_digest": "without thinking", "stream": False, "model": "claude-small", "tools_digest": "t2"},
    ],
    ids=str,
)
def test_retries_that_change_limits_betas_stream_or_model_still_fold(changes: dict[str, Any]) -> None:
    told = Story()
    told.attempt(turns=2, outcome="error")
    told.attempt(turns=2, **changes)
    assert len(folded(told)) == 1


def test_only_chats_are_called_duplicates() -> None:
    told = Story()
    told.attempt(turns=0, operation="count_tokens")
    told.attempt(turns=0, operation="count_tokens")
    assert [call.duplicate_of for call in folded(told)] == [None, None]
