"""Attempts fold into calls by what was asked and how the one before ended, never by a client's counter alone."""

import random
from typing import Any

import pytest

from fairtrial.middleware.core.observations import AttemptEnded, AttemptStarted, decode
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
