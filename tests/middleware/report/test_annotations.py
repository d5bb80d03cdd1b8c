"""Annotations: at most ten, one line each, and no text of others begins a command."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from fairtrial.middleware.core.records import Blame, EndedAs, Grade, Outcome, Present, TerminatedBy, Trial
from fairtrial.middleware.report.annotations import MAX_ANNOTATIONS, annotation_lines, output_lines
from tests.middleware.report.trials import trial


def kinds(lines: list[str]) -> list[str]:
    return [line.split(" ", 1)[0] for line in lines]


def test_infra_is_a_warning_the_model_an_error_and_a_calm_pass_nothing() -> None:
    lines = annotation_lines(
        [
            trial(1),
            trial(2, blame=Blame.MODEL),
            trial(3, blame=Blame.INDETERMINATE),
            trial(4, outcome=Outcome.PASSED, blame=Blame.NONE),
            trial(5, outcome=Outcome.PASSED, blame=Blame.HARNESS),
        ]
    )
    assert kinds(lines) == ["::error", "::warning", "::warning", "::notice"]


def passed(*present: str, number: int = 1, **changes: Any) -> Trial:
    calm = trial(number, outcome=Outcome.PASSED, blame=Blame.NONE)
    assert calm.verdict is not None
    were = [Present(cause=cause, step=1, why="the next step ended normally") for cause in present]
    return msgspec.structs.replace(calm, verdict=msgspec.structs.replace(calm.verdict, present=were, **changes))


def test_a_pass_with_a_kill_in_it_is_a_notice_that_names_it() -> None:
    (line,) = annotation_lines([passed("container.oom_kill", "model_api.overloaded", "container.oom_kill")])
    assert line.startswith("::notice title=")
    assert " → nothing to blame (present%3A container.oom_kill)::" in line


@pytest.mark.parametrize(
    "changes",
    [
        {"ended_as": EndedAs.HARNESS_KILLED},
        {"terminated_by": TerminatedBy(cause="container.killed", grade=Grade.PROVED)},
    ],
)
def test_a_pass_of_what_was_ended_is_a_notice(changes: dict[str, Any]) -> None:
    assert kinds(annotation_lines([passed(**changes)])) == ["::notice"]


@pytest.mark.parametrize("cause", ["model_api.overloaded", "gateway.error", "network.reset", "container.cpu_throttled"])
def test_a_call_that_was_asked_for_again_and_what_was_slow_are_no_notice(cause: str) -> None:
    assert annotation_lines([passed(cause)]) == []


def test_notices_stand_behind_the_failures_and_never_take_their_place() -> None:
    kills = [passed("container.oom_kill", number=n) for n in range(20)]
    lines = annotation_lines([*kills, trial(90, blame=Blame.MODEL), trial(91)])
    assert kinds(lines) == ["::error", "::warning", *["::notice"] * 8]
    assert "13 more trials" in lines[-1]


def test_what_ended_an_undecided_trial_is_said() -> None:
    (line,) = annotation_lines([trial(outcome=Outcome.UNKNOWN, blame=Blame.INDETERMINATE)])
    assert " Ended by model_api.overloaded, proved. Run it again: yes." in line
    (line,) = annotation_lines([trial()])
    assert "Ended by" not in line, "the title says it"


def test_fifty_failures_are_ten_annotations_the_gravest_first_and_the_rest_counted() -> None:
    lines = annotation_lines([trial(n, blame=Blame.MODEL if n % 2 else Blame.INFRA) for n in range(50)])
    assert len(lines) == MAX_ANNOTATIONS == 10
    assert kinds(lines) == ["::error"] * 9 + ["::notice"]
    assert "41 more trials" in lines[-1]


def test_ten_are_all_shown() -> None:
    assert kinds(annotation_lines([trial(n) for n in range(10)])) == ["::warning"] * 10


def test_no_text_of_others_begins_a_command_or_ends_a_property() -> None:
    (line,) = annotation_lines([trial()])
    assert "\n" not in line
    assert "\x1b" not in line
    found = re.fullmatch(r"::warning title=([^:,]*)::(.*)", line)
    assert found is not None
    assert "50%25" in found[2]
    assert re.search(r"%(?!25|3A|2C)", line) is None


def test_outputs_are_one_line_each_whatever_is_in_them() -> None:
    lines = output_lines(trial())
    assert dict(line.split("=", 1) for line in lines)["cause"] == "model_api.overloaded"
    assert all(re.fullmatch(r"[a-z-]+=.*", line) for line in lines)
