"""Yardsticks are made of other trials of the store: of the same hour, over before this one, and of the same task."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fairtrial.middleware.analysis.yardsticks import LEAST_CALLS, yardsticks
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.records import Attempt, Blame, Call, Outcome, Step, Trial, Verdict
from fairtrial.middleware.store.database import insert_trial, open_database

HOUR_NS = 3_600_000_000_000
WEEK_NS = 168 * HOUR_NS
NOW_NS = 1_790_000_000_000_000_000
MODEL = "claude-test"


@pytest.fixture
def store(tmp_path: Path) -> sqlite3.Connection:
    return open_database(tmp_path / "store.db")


def call(first_s: float, *, tokens: int = 100, rate: float = 50.0, stream: bool = True) -> Call:
    last = Attempt(first_token=first_s, duration=first_s + tokens / rate)
    return Call(
        id="c", model=MODEL, stream=stream, outcome="ok", input_tokens=1_500, output_tokens=tokens, attempts=[last]
    )


def trial(
    name: str,
    *,
    ago_ns: int = 0,
    lasted_s: float = 60.0,
    calls: list[Call] | None = None,
    outcome: Outcome = Outcome.FAILED,
    task: str | None = "t",
) -> Trial:
    began = NOW_NS - ago_ns
    return Trial(
        trial=name,
        task=task,
        started=rfc3339(began),
        ended=rfc3339(began + round(lasted_s * 1e9)),
        closed="normal",
        outcome=outcome,
        steps=[Step(index=1, calls=calls or [])],
        verdict=Verdict(blame=Blame.NONE, sentence="s"),
    )


def with_calls(store: sqlite3.Connection, name: str, *, ago_ns: int, count: int = LEAST_CALLS) -> None:
    insert_trial(store, trial(name, ago_ns=ago_ns, calls=[call(1.0 + n / 100) for n in range(count)]))


def test_the_reference_is_of_the_same_hour_of_the_week_and_over_before_the_trial_began(
    store: sqlite3.Connection,
) -> None:
    with_calls(store, "a", ago_ns=WEEK_NS)
    found = yardsticks(store, trial("now")).reference
    assert found is not None
    assert found.source == "the same hour of the week over 4 weeks (20 calls)"
    assert found.first_token_p95_s[MODEL, 1] == pytest.approx(1.18, abs=0.01)
    assert found.token_rate_p5[MODEL] == pytest.approx(50.0)
    assert found.expected_s(MODEL, 1_500, 100) == pytest.approx(3.18, abs=0.01)


@pytest.mark.parametrize("ago_ns", [WEEK_NS + 5 * HOUR_NS, 6 * WEEK_NS, 0, 30_000_000_000])
def test_another_hour_an_older_month_and_a_trial_that_still_ran_are_not_in_it(
    store: sqlite3.Connection, ago_ns: int
) -> None:
    with_calls(store, "a", ago_ns=ago_ns)
    assert yardsticks(store, trial("now")).reference is None


def test_few_calls_and_calls_that_are_not_streamed_make_no_reference(store: sqlite3.Connection) -> None:
    with_calls(store, "a", ago_ns=WEEK_NS, count=LEAST_CALLS - 1)
    insert_trial(store, trial("b", ago_ns=WEEK_NS, calls=[call(1.0, stream=False)] * 40))
    assert yardsticks(store, trial("now")).reference is None


def test_the_need_is_the_p90_of_passed_trials_of_the_task(store: sqlite3.Connection) -> None:
    for n in range(1, 12):
        insert_trial(store, trial(f"p{n}", lasted_s=10.0 * n, outcome=Outcome.PASSED))
    insert_trial(store, trial("failed", lasted_s=9_000.0))
    insert_trial(store, trial("other", lasted_s=9_000.0, outcome=Outcome.PASSED, task="u"))
    found = yardsticks(store, trial("now"))
    assert found.need_s == pytest.approx(100.0)
    assert found.need_trials == 11
    assert yardsticks(store, trial("now", task=None)).need_s is None


def test_two_passed_trials_are_no_need(store: sqlite3.Connection) -> None:
    for n in range(2):
        insert_trial(store, trial(f"p{n}", outcome=Outcome.PASSED))
    assert yardsticks(store, trial("now")).need_s is None
