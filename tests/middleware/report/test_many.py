"""The end of a run with several trials, as a tired person reads it."""

from __future__ import annotations

from fairtrial.middleware.core.records import (
    Blame,
    Coverage,
    FamilyCoverage,
    Grade,
    Outcome,
    TerminatedBy,
    Trial,
    Verdict,
)
from fairtrial.middleware.report.many import MAX_LINES, Line, counts_of, coverage_of, line_of, run_lines


def trial(
    n: int,
    *,
    blame: Blame = Blame.INDETERMINATE,
    grade: Grade | None = None,
    cause: str | None = None,
    outcome: Outcome = Outcome.UNKNOWN,
    ended_by: str | None = None,
    name: str | None = "",
    memory: FamilyCoverage | None = None,
) -> Line:
    ended = None if ended_by is None else TerminatedBy(cause=ended_by, grade=Grade.PROVED, step=n)
    verdict = Verdict(blame=blame, grade=grade, cause=cause, step=n, sentence=f"Sentence {n}.", terminated_by=ended)
    record = Trial(
        trial=f"0197cccc-0000-7000-8000-{n:012d}",
        name=f"task-{n}" if name == "" else name,
        outcome=outcome,
        verdict=verdict,
        coverage=Coverage(families={"memory": memory} if memory else {}),
    )
    return line_of(record, index=n - 1)


def test_64_trials_are_ten_lines_at_most_with_what_can_be_put_right_first() -> None:
    trials = [trial(n, blame=Blame.NONE, outcome=Outcome.PASSED) for n in range(1, 41)]
    trials += [trial(n, blame=Blame.MODEL, outcome=Outcome.FAILED) for n in range(41, 55)]
    trials += [
        trial(n, blame=Blame.INFRA, grade=Grade.PROVED, cause=cause, outcome=Outcome.FAILED)
        for n, cause in enumerate(["model_api.overloaded"] * 6 + ["node.oom", "model_api.truncated"], 55)
    ]
    trials += [
        trial(64, blame=Blame.FAIRTRIAL, grade=Grade.PROVED, cause="observer.relay_fault", outcome=Outcome.FAILED)
    ]
    lines = run_lines(trials, run="tb2", ended="exit 0", unassigned={"attempts": 3, "attempts.twins": 3})
    assert len(lines) <= MAX_LINES
    assert lines[0].startswith("fairtrial: 63 trials in run tb2 (exit 0): 1 fairtrial, proved, 8 infra, proved")
    assert "observer.relay_fault: task-64 in step 64: Sentence 64." in lines[1]
    assert lines[2] == (
        "  infra, proved · model_api.overloaded ×6: task-55 in step 55, task-56 in step 56, task-57 in step 57, "
        "task-58 in step 58 and 2 more"
    )
    assert any("3 model calls could not be told" in line and "FAIRTRIAL_TRIAL" in line for line in lines)
    assert lines[-1] == "  more: fairtrial trials --run tb2 · fairtrial show TRIAL"


def test_words_that_reached_no_trial_are_said_and_cost_no_other_line() -> None:
    causes = [f"container.{n}" for n in range(9)]
    trials = [
        trial(n, blame=Blame.INFRA, grade=Grade.PROVED, cause=cause, outcome=Outcome.FAILED)
        for n, cause in enumerate(causes, 1)
    ]
    trials += [trial(20)]
    lines = run_lines(trials, run="tb2", ended="exit 0", unassigned={"attempts": 3, "words": 3, "words.run": 1})
    assert len(lines) == MAX_LINES
    assert (
        "  3 words of the control API stayed under the run's own id: 1 of the run's own id, 2 of a name that fits"
        in ("\n".join(lines))
    )
    assert lines[-1] == "  more: fairtrial trials --run tb2 · fairtrial show TRIAL"
    alone = run_lines(trials, run="tb2", ended="exit 0", unassigned={"words": 1, "words.unknown": 1})
    assert "  1 word of the control API stayed under the run's own id: 1 of a name that fits no one trial." in alone


def test_where_nobody_knows_the_outcome_what_ended_a_trial_is_told() -> None:
    lines = run_lines(
        [trial(1, ended_by="model_api.overloaded"), trial(2), trial(3, name=None)],
        run=None,
        ended="exit 0",
        unassigned={},
    )
    assert lines[0] == "fairtrial: 3 trials (exit 0): 1 ended from outside, proved, 2 without a known outcome"
    assert lines[1] == "  ended from outside, proved · model_api.overloaded: task-1 in step 1"
    assert any("fairtrial import" in line for line in lines)
    assert not any("Sentence" in line for line in lines)


def test_a_name_with_control_characters_does_not_steer_the_terminal() -> None:
    lines = run_lines(
        [trial(1, name="a\x1b[2J", ended_by="node.oom"), trial(2)], run="r\x07", ended="exit 1", unassigned={}
    )
    assert all(line.isprintable() for line in lines)


def test_counts_and_coverage_of_a_run_name_the_worst_of_each_family() -> None:
    trials = [
        trial(1, blame=Blame.INFRA, grade=Grade.PROVED, ended_by="node.oom", memory=FamilyCoverage(level="full")),
        trial(2, memory=FamilyCoverage(level="none", why="not watched")),
    ]
    assert counts_of(trials) == {
        "trials": 2,
        "outcome.unknown": 2,
        "blame.infra.proved": 1,
        "blame.indeterminate": 1,
        "ended_by_outside": 1,
    }
    assert coverage_of(trials).families == {"memory": FamilyCoverage(level="none", why="not watched")}
