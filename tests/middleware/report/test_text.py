"""What a person reads: short when all is well, whole when it is not, and never steered by what others wrote."""

from __future__ import annotations

import msgspec
import pytest

from fairtrial.middleware.core.records import (
    Answer,
    Answers,
    Attempt,
    Blame,
    Call,
    ContainerUse,
    Coverage,
    EndedAs,
    Evidence,
    FamilyCoverage,
    Gap,
    Grade,
    Mutation,
    Outcome,
    Present,
    Step,
    TerminatedBy,
    Tool,
    Trial,
    Trust,
    Verdict,
    Victim,
)
from fairtrial.middleware.report.text import PREFIX, ending_lines, printable, seconds, show_lines, size, table_lines

ESCAPE = "\x1b[2J\x07"


def failed_trial() -> Trial:
    use = ContainerUse(
        id="c", oom_kills=1, memory_peak=67108864, memory_limit=67108864, oom_victims=[Victim(comm=f"ta{ESCAPE}il")]
    )
    attempts = [
        Attempt(status=529, outcome="error"),
        Attempt(status=529, outcome="error"),
        Attempt(status=200, outcome="ok"),
    ]
    step = Step(
        index=1,
        calls=[Call(id="1", duration=2.5, attempts=attempts, fell_back="non_streaming")],
        tools=[Tool(name="bash", exit_code=137)],
        containers=[use],
    )
    return Trial(
        trial="01930000-0000-7000-8000-00000000000a",
        name=f"a{ESCAPE}b",
        command=["agent", ESCAPE],
        started="2026-11-29T10:00:00.000000Z",
        ended="2026-11-29T10:00:05.500000Z",
        outcome=Outcome.FAILED,
        exit_code=1,
        steps=[step],
        mutations=[Mutation(what="environment X", old=None, new="http://127.0.0.1:1/t/…")],
        coverage=Coverage(
            families={"network": FamilyCoverage(level="none", why="nobody looked")},
            gaps=[Gap(source="observer", why="killed")],
            dropped=3,
        ),
        verdict=Verdict(
            blame=Blame.INFRA,
            grade=Grade.SUSPECTED,
            cause="container.oom_kill",
            step=1,
            sentence=f"Killed at the ceiling.{ESCAPE}",
            terminated_by=TerminatedBy(cause="container.oom_kill", grade=Grade.PROVED, step=1),
            ended_as=EndedAs.AGENT_GAVE_UP,
            evidence=[
                Evidence(id="01930000aabbcc", source="collector.cgroup", trust=Trust.HOST, claim=f"rose{ESCAPE}")
            ],
            present=[Present(cause="model_api.overloaded", step=1, why=f"recovered{ESCAPE}")],
            answers=Answers(retry=Answer.YES),
            thresholds={"stall_s": 90.0},
            flips_if=f"a rerun{ESCAPE}",
        ),
    )


def test_a_passed_trial_is_one_line() -> None:
    trial = Trial(trial="0" * 36, outcome=Outcome.PASSED, exit_code=0, verdict=Verdict(blame=Blame.NONE, sentence="ok"))
    lines = ending_lines(trial)
    assert len(lines) == 1
    assert lines[0].startswith(f"{PREFIX}passed, 0 steps")


def test_a_passed_trial_with_something_to_blame_is_said_in_full() -> None:
    verdict = Verdict(blame=Blame.HARNESS, grade=Grade.PROVED, cause="harness.killed", sentence="Dead harness.")
    lines = ending_lines(Trial(trial="0" * 36, outcome=Outcome.PASSED, exit_code=0, verdict=verdict))
    assert "Dead harness." in lines[1]


def test_a_failed_trial_says_what_was_booked_and_what_was_true() -> None:
    lines = ending_lines(failed_trial())
    assert lines[0] == f"{PREFIX}failed (exit 1) → infra, suspected · container.oom_kill in step 1"
    assert "Killed at the ceiling." in lines[1]
    assert any("ended by: container.oom_kill (proved) in step 1; ended as: agent.gave_up" in line for line in lines)
    assert any("also: model_api.overloaded in step 1" in line for line in lines)
    assert lines[-1].endswith("fairtrial show 00000000000a")


def test_show_has_every_part_and_no_control_character() -> None:
    text = "\n".join(show_lines(failed_trial()))
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
    for part in (
        "VERDICT",
        "EVIDENCE FOR",
        "PRESENT, AND IT DID NOT MATTER",
        "529×2→200 2.5 s fell back: non_streaming"[:33],
        "bash (137)",
        "64 MiB / 64 MiB",
        "OOM kill ×1 (ta",
        "network    none     nobody looked",
        "gap: observer",
        "dropped: 3",
        "unset → http://127.0.0.1:1/t/…",
        "stall_s 90",
        "after 5.5 s",
    ):
        assert part in text, part


def test_a_trial_without_a_model_call_says_so() -> None:
    trial = msgspec.structs.replace(failed_trial(), steps=[])
    assert any("no model call reached a door" in line for line in show_lines(trial))


@pytest.mark.parametrize(
    "value, text", [(0.0031, "3 ms"), (1.24, "1.2 s"), (119.9, "119.9 s"), (250, "4 min 10 s"), (0, "0 ms")]
)
def test_durations_for_people(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize("value, text", [(0, "0 B"), (1023, "1023 B"), (64 << 20, "64 MiB"), (3 << 30, "3.0 GiB")])
def test_sizes_for_people(value: int, text: str) -> None:
    assert size(value) == text


def test_a_table_keeps_one_row_on_one_line_and_cuts_only_for_a_terminal() -> None:
    rows = [("a", "bbb", "sentence"), ("aaaa", "b", "another sentence")]
    assert table_lines(rows, width=None) == ["a     bbb  sentence", "aaaa  b    another sentence"]
    assert table_lines(rows, width=12) == ["a     bbb  …", "aaaa  b    …"]
