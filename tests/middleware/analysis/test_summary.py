"""A run in numbers: each trial in one class, three denominators, and what is worth a look."""

from __future__ import annotations

import pytest

from fairtrial.middleware.analysis.summary import CLASSES, WORTH, class_of, passed_by_dead_harness, summed_up
from fairtrial.middleware.core.records import (
    Blame,
    Booked,
    Coverage,
    EndedAs,
    FamilyCoverage,
    Grade,
    Outcome,
    TerminatedBy,
    Trial,
    Verdict,
)

P, F, E = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED


def trial(
    number: int,
    outcome: Outcome = F,
    blame: Blame = Blame.MODEL,
    grade: Grade | None = Grade.PROVED,
    *,
    ended_by: str | None = None,
    ended_as: EndedAs = EndedAs.UNKNOWN,
    booked: Booked | None = None,
    watched: bool = True,
    cause: str | None = None,
) -> Trial:
    terminated = None if ended_by is None else TerminatedBy(cause=ended_by, grade=Grade.PROVED)
    verdict = Verdict(blame=blame, grade=grade, cause=cause, sentence="S.", terminated_by=terminated, ended_as=ended_as)
    covered = Coverage(doors={"model": "on"}, families={"memory": FamilyCoverage(level="full")})
    return Trial(
        trial=f"t{number:02}",
        name=f"task-{number}",
        run="r",
        outcome=outcome,
        outcome_source=booked.harness if booked is not None else "exit_code",
        verdict=verdict,
        booked=[booked] if booked is not None else [],
        coverage=covered if watched else Coverage(),
    )


def told(reward: float | None = 0.0, *, valid: bool | None = True, **more: object) -> Booked:
    return Booked(harness="harbor", label="x", scored=True, reward=reward, reward_valid=valid, **more)  # type: ignore[arg-type]


MIXED = (
    trial(1, P, Blame.NONE, None, booked=told(1.0)),
    trial(2, P, Blame.NONE, None, booked=told(1.0), ended_by="container.oom_kill"),
    trial(3, booked=told(0.0)),
    trial(4, F, Blame.INFRA, Grade.PROVED, ended_by="model_api.overloaded", booked=told(0.0)),
    trial(5, F, Blame.INFRA, Grade.SUSPECTED, ended_by="container.oom_kill"),
    trial(6, F, Blame.HARNESS),
    trial(7, F, Blame.OPERATOR),
    trial(8, E, Blame.TASK, Grade.SUSPECTED, booked=told(None, valid=False)),
    trial(9, F, Blame.FAIRTRIAL),
    trial(10, F, Blame.INDETERMINATE, None),
)


def test_every_trial_is_in_exactly_one_class() -> None:
    found = summed_up("r", MIXED)
    assert found.classes == dict(zip(CLASSES, (2, 1, 1, 1, 1, 1, 1, 1, 1), strict=True))
    assert sum(found.classes.values()) == found.trials == len(MIXED)


def test_three_denominators_and_none_with_what_fairtrial_spoiled() -> None:
    scores = summed_up("r", MIXED).scores
    assert (scores.infra_as_failures.passed, scores.infra_as_failures.counted) == (2, 9)
    assert (scores.infra_excluded.passed, scores.infra_excluded.counted) == (2, 8)
    assert (scores.lowest.passed, scores.highest.passed, scores.highest.counted) == (2, 5, 9)


def test_an_unknown_outcome_is_neither_passed_nor_failed_and_only_in_the_bounds() -> None:
    nobody = Outcome.UNKNOWN
    unknown = [
        trial(n, nobody, Blame.INDETERMINATE, None, ended_by=by) for n, by in ((11, None), (12, "container.oom_kill"))
    ]
    found = summed_up("r", [*MIXED, *unknown, trial(13, nobody, Blame.FAIRTRIAL)])
    scores = found.scores
    assert found.outcome_unknown == 3
    assert (scores.infra_as_failures.passed, scores.infra_as_failures.counted) == (2, 9)
    assert (scores.infra_excluded.passed, scores.infra_excluded.counted) == (2, 8)
    assert (scores.lowest.passed, scores.lowest.counted) == (2, 11)
    assert (scores.highest.passed, scores.highest.counted) == (7, 11)
    assert sum(found.classes.values()) == found.trials
    alone = summed_up("r", unknown)
    assert (alone.scores.infra_as_failures.rate, alone.scores.infra_excluded.rate) == (None, None)
    assert (alone.scores.lowest.rate, alone.scores.highest.rate) == (0, 1)
    assert [look.why for look in alone.worth_a_look] == ["ended by container.oom_kill", "its outcome is not known"]


def test_what_was_booked_stands_as_it_was_booked() -> None:
    found = summed_up("r", MIXED)
    assert found.booked == {"passed": 2, "failed": 7, "errored": 1}
    assert (found.mean_reward, found.rewards) == (0.5, 4)
    assert found.by_exit_code_only == 5


def test_ended_by_infra_is_a_line_of_its_own_and_counts_the_passed_as_well() -> None:
    ended = summed_up("r", MIXED).ended_by_infra
    assert (ended.trials, ended.proved, ended.suspected) == (3, 3, 0)
    assert ended.causes == {"container.oom_kill": 2, "model_api.overloaded": 1}


@pytest.mark.parametrize(
    "one, dead",
    [
        (trial(1, P, Blame.NONE, None, ended_by="container.oom_kill"), True),
        (trial(1, P, Blame.NONE, None, ended_as=EndedAs.KILLED), True),
        (trial(1, P, Blame.NONE, None, booked=told(1.0, error="NonZeroAgentExitCodeError")), True),
        (trial(1, P, Blame.NONE, None, booked=told(1.0, marks=["terminal_gone"])), True),
        (trial(1, P, Blame.NONE, None, booked=told(1.0)), False),
        (trial(1, F, Blame.MODEL, ended_as=EndedAs.KILLED), False),
    ],
)
def test_a_pass_of_a_dead_harness_is_told_apart(one: Trial, dead: bool) -> None:
    assert passed_by_dead_harness(one) is dead


def test_a_passed_trial_that_was_only_suspected_counts_as_passed() -> None:
    assert class_of(trial(1, P, Blame.INFRA, Grade.SUSPECTED)) == "passed"


def test_attempts_tried_again_and_wholes_are_not_counted_twice() -> None:
    whole = trial(1, P, Blame.NONE, None)
    parts = [trial(n, booked=told(part_of="t01"), watched=False) for n in (2, 3)]
    again = trial(4, E, booked=told(None, retried=True), watched=False)
    found = summed_up("r", [whole, *parts, again])
    assert (found.trials, found.wholes, found.retried, found.imported_only) == (2, 1, 1, 2)


def test_the_trials_most_worth_a_look_come_first_and_are_ten_at_most() -> None:
    looks = summed_up("r", MIXED).worth_a_look
    assert [look.trial for look in looks[:3]] == ["t02", "t09", "t04"]
    assert looks[0].why == "booked as passed by a dead harness"
    assert "t03" not in {look.trial for look in looks}
    many = [trial(n, F, Blame.INFRA) for n in range(40)]
    assert len(summed_up("r", many).worth_a_look) == WORTH


def test_an_empty_run_has_no_rates() -> None:
    found = summed_up("r", [])
    assert (found.trials, found.scores.lowest.rate, found.worth_a_look) == (0, None, [])


def test_coverage_is_counted_by_family() -> None:
    found = summed_up("r", [trial(1), trial(2, watched=False)])
    assert found.coverage["memory"] == {"full": 1, "partial": 0, "none": 1}
