"""The summary's text: no line wider than the terminal, nothing of others' control characters."""

from __future__ import annotations

import pytest

from fairtrial.middleware.report.summary import Look, Told, summary_lines

CLASSES = {"passed": 12, "model": 9, "infra_proved": 4, "infra_suspected": 3, "indeterminate": 2, "fairtrial": 0}
LOOK = Look(
    trial="0197aaaa-0000-7000-8000-000000000001",
    name="a-task-with-a-rather-long-name__" + "x" * 70,
    why="counted against the model, and infra is proved",
    blame="infra",
    grade="proved",
    cause="model_api.overloaded",
    step=14,
    sentence="The API answered 529 at each of 9 attempts over 181 s. " * 5,
)


def told(**changes: object) -> Told:
    values: dict[str, object] = {
        "run": "tb2\x1b[31m",
        "trials": 30,
        "started": "2026-11-30T14:50:00.000000Z",
        "ended": "2026-11-30T15:50:00.000000Z",
        "harnesses": {"harbor": 28, "exit_code": 2},
        "booked": {"passed": 12, "failed": 14, "errored": 4},
        "mean_reward": 0.412,
        "rewards": 26,
        "by_exit_code_only": 2,
        "outcome_unknown": 0,
        "classes": CLASSES,
        "ended_by_infra": (7, 5, 2),
        "infra_causes": {"container.oom_kill": 4, "model_api.overloaded": 3},
        "passed_by_dead_harness": 1,
        "as_failures": (12, 30),
        "excluded": (12, 26),
        "lowest": (12, 30),
        "highest": (21, 30),
        "coverage": {"model_api": {"full": 28, "partial": 1, "none": 1}, "disk": {"full": 0, "partial": 0, "none": 30}},
        "imported_only": 1,
        "still_open": 1,
        "retried": 2,
        "wholes": 1,
        "looks": [LOOK],
    }
    return Told(**(values | changes))  # type: ignore[arg-type]


def test_a_run_of_which_no_trial_has_ended_has_no_tables_of_noughts() -> None:
    lines = summary_lines(told(trials=0, harnesses={}, started=None, retried=0, wholes=0, still_open=2), width=80)
    assert [line.strip() for line in lines[1:]] == ["Not counted: 2 trials that still run."]
    assert lines[0].endswith(": 0 trials")


def test_outcomes_that_nobody_told_are_no_failures_and_the_command_that_brings_them_is_said() -> None:
    some = {
        "outcome_unknown": 4,
        "as_failures": (12, 26),
        "excluded": (12, 22),
        "lowest": (12, 30),
        "highest": (25, 30),
    }
    text = "\n".join(summary_lines(told(run="tb 2", **some), width=120))
    assert "  The outcome of 4 trials is not known, neither passed nor failed: import the harness's results\n" in text
    assert "    fairtrial import HARNESS PATH --run 'tb 2'\n" in text
    assert "  of the 26 trials whose outcome is known; the bounds are of all\n" in text
    assert "46.2 %   12 of 26" in text
    assert "of 30\n  infra that is proved" not in text


def test_without_any_outcome_there_is_no_score() -> None:
    none = {"outcome_unknown": 3, "trials": 3, "by_exit_code_only": 0, "harnesses": {"nobody": 3}}
    none |= {"as_failures": (0, 0), "excluded": (0, 0), "lowest": (0, 3), "highest": (3, 3)}
    text = "\n".join(summary_lines(told(**none), width=120))
    assert "3 trials (3 without a known outcome)" in text
    assert "  no score: the outcome of no trial is known\n  bounds (all open ones failed … passed)" in text
    assert "infra counted as failures" not in text and "0 of " not in text
    assert "0.0 % … 100.0 %" in text


@pytest.mark.parametrize("width", [70, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert [line for line in summary_lines(told(), width=width) if len(line) > width] == []


def test_every_part_is_told() -> None:
    text = "\n".join(summary_lines(told(), width=80))
    flat = " ".join(text.split())
    for part in (
        "passed 12 · failed 14 · errored 4 of 30",
        "mean reward 0.412",
        "infra, proved         4   13.3 %",
        "7 of 30 (23.3 %): 5 proved, 2 suspected",
        "1 by a dead harness",
        "46.2 %   12 of 26",
        "40.0 % … 70.0 %",
        "28 whole, 1 in part, 1 not",
        "not at all: disk",
        "2 attempts that the harness tried again",
        "infra, proved · model_api.overloaded in step 14",
    ):
        assert part in text or part in flat, part
    assert "\x1b" not in text
