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
    Connection,
    ContainerUse,
    Coverage,
    EndedAs,
    Evidence,
    FamilyCoverage,
    Gap,
    Grade,
    Mark,
    Mutation,
    Outcome,
    Present,
    Question,
    Questions,
    Step,
    TerminatedBy,
    Tool,
    Trial,
    Trust,
    Verdict,
    Victim,
)
from fairtrial.middleware.report.text import PREFIX, ending_lines, show_lines
from fairtrial.middleware.report.words import printable

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
        calls=[Call(id="1", duration=2.5, attempts=attempts, stop_reason="max_tokens", fell_back="non_streaming")],
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
        mutations=[
            Mutation(what="environment X_URL", old=None, new="http://127.0.0.1:1/t/…"),
            Mutation(what=f"peak{ESCAPE} reset", old=None, new="0", why="per step"),
        ],
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
                Evidence(
                    id="01930000aabbcc",
                    at="2026-11-29T10:00:03.123456Z",
                    source="collector.cgroup",
                    trust=Trust.HOST,
                    claim=f"rose{ESCAPE}",
                )
            ],
            questions=Questions(happened=Question(answer=Answer.YES, by=["01930000aabbcc", "0193000not5hown"])),
            present=[Present(cause="model_api.overloaded", step=1, why=f"recovered{ESCAPE}")],
            answers=Answers(retry=Answer.YES),
            thresholds={"stall_s": 90.0},
            flips_if=f"turns to proved if it is killed again{ESCAPE}",
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


def passed_without_calls() -> Trial:
    verdict = Verdict(blame=Blame.INDETERMINATE, sentence="No model call came through the door.")
    doors = Coverage(doors={"model.anthropic": "on"})
    return Trial(trial="0" * 36, outcome=Outcome.PASSED, exit_code=0, closed="normal", verdict=verdict, coverage=doors)


def test_a_pass_without_a_model_call_is_one_line_that_asks_the_right_question() -> None:
    (line,) = ending_lines(passed_without_calls())
    assert line.startswith(f"{PREFIX}passed, but no model call came through the door: does the command use ANTHROPIC_")
    assert line.endswith("· fairtrial show 000000000000")
    assert len(ending_lines(passed_without_calls(), verbose=True)) > 1


def test_a_pass_without_a_connection_asks_for_the_variable_that_via_connect_sets() -> None:
    doors = Coverage(doors={"egress.connect": "on"})
    (line,) = ending_lines(msgspec.structs.replace(passed_without_calls(), coverage=doors))
    assert "no connection came through the connect door: does the command honour HTTPS_PROXY?" in line
    assert "ANTHROPIC_BASE_URL" not in line


def test_a_pass_inside_another_run_names_that_run_in_one_line() -> None:
    sentence = "The command ended with exit code 0. Its calls went through the doors of trial 1. Read: fairtrial show 1"
    verdict = Verdict(blame=Blame.INDETERMINATE, sentence=sentence)
    trial = msgspec.structs.replace(passed_without_calls(), verdict=verdict, coverage=Coverage())
    assert ending_lines(trial) == [
        f"{PREFIX}passed. Its calls went through the doors of trial 1. Read: fairtrial show 1",
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"side_calls": [Call(id="1", role="probe")]},
        {"coverage": Coverage(gaps=[Gap(source="observer")])},
        {"coverage": Coverage(dropped=1)},
        {"closed": "incomplete"},
        {"outcome": Outcome.FAILED},
    ],
)
def test_a_doubt_that_has_another_reason_is_said_in_full(changes: dict[str, object]) -> None:
    lines = ending_lines(msgspec.structs.replace(passed_without_calls(), **changes))
    assert "No model call came through the door." in lines[1]


def test_events_that_did_not_matter_are_counted_in_the_plural() -> None:
    present = [Present(cause="model_api.overloaded", why="recovered")] * 2
    for count, said in ((1, "1 outside event did"), (2, "2 outside events did")):
        verdict = Verdict(blame=Blame.NONE, sentence="ok", present=present[:count])
        (line,) = ending_lines(Trial(trial="0" * 36, outcome=Outcome.PASSED, exit_code=0, verdict=verdict))
        assert said in line


def test_a_failed_trial_says_headline_sentence_end_answers_and_where_to_look() -> None:
    lines = ending_lines(failed_trial())
    assert lines[0] == f"{PREFIX}failed (exit 1) → infra, suspected · container.oom_kill in step 1"
    assert "Killed at the ceiling." in lines[1]
    assert lines[2] == "  ended by: container.oom_kill (proved) in step 1"
    assert lines[3].startswith("  also: model_api.overloaded in step 1")
    assert lines[4] == "  run it again: yes · count it: unknown · reward valid: unknown"
    assert lines[5] == "  more: fairtrial show 00000000000a"
    assert len(lines) == 6


def test_the_end_does_not_repeat_the_headline_nor_name_a_place_where_nothing_is() -> None:
    trial = failed_trial()
    assert trial.verdict is not None
    verdict = msgspec.structs.replace(trial.verdict, grade=Grade.PROVED)
    lines = ending_lines(msgspec.structs.replace(trial, verdict=verdict), stored=False)
    assert not any("ended by" in line or "more:" in line for line in lines)
    limit = msgspec.structs.replace(verdict, ended_as=EndedAs.STEP_LIMIT)
    assert "  ended as: step_limit" in ending_lines(msgspec.structs.replace(trial, verdict=limit))
    unknown = msgspec.structs.replace(verdict, ended_as=EndedAs.UNKNOWN)
    assert not any("ended as" in line for line in show_lines(msgspec.structs.replace(trial, verdict=unknown)))


def test_show_has_every_part_and_no_control_character() -> None:
    text = "\n".join(show_lines(failed_trial()))
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
    for part in (
        "VERDICT",
        "EVIDENCE FOR",
        "aabbcc  10:00:03.123Z  collector.cgroup [host]: rose",
        "PRESENT, AND IT DID NOT MATTER",
        "529×2→200 2.5 s max_tokens fell back: non_s…",
        "bash (137)",
        "64 MiB/64 MiB",
        "OOM kill ×1 (ta",
        "network    none     nobody looked",
        "gap: observer",
        "dropped: 3",
        "would change: it turns to proved if it is killed again",
        "ended by: container.oom_kill (proved) in step 1; ended as: agent.gave_up",
        "1 variable of the command (--json: old, new, side effects): X_URL",
        "reset: 0 (per step)",
        "stall_s 90",
        "started: 2026-11-29 10:00:00Z",
        "after 5.5 s",
    ):
        assert part in text, part


def test_only_evidence_that_is_printed_is_cited() -> None:
    (line,) = [line for line in show_lines(failed_trial()) if "did it happen?" in line]
    assert line.endswith("yes      aabbcc")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_show_keeps_to_the_width_of_the_terminal_and_breaks_no_word(width: int) -> None:
    trial = failed_trial()
    assert trial.verdict is not None
    sentence = "The kernel killed a process because the memory of its own cgroup was full in this step. " * 3
    verdict = msgspec.structs.replace(trial.verdict, sentence=sentence)
    lines = show_lines(msgspec.structs.replace(trial, verdict=verdict), width=width, cut_tables=True)
    assert [line for line in lines if len(line) > width] == []
    assert " ".join(sentence.split()) in " ".join(" ".join(lines).split())


def test_a_trial_without_a_model_call_says_so() -> None:
    trial = msgspec.structs.replace(failed_trial(), steps=[])
    assert any("no model call reached a door" in line for line in show_lines(trial))


def test_a_trial_without_a_command_names_none_and_what_is_undecided_is_not_said_to_be_harmless() -> None:
    trial = failed_trial()
    assert trial.verdict is not None
    verdict = msgspec.structs.replace(trial.verdict, blame=Blame.INDETERMINATE, grade=None, cause=None, step=None)
    served = msgspec.structs.replace(trial, command=[], exit_code=None, signal=None, verdict=verdict)
    text = "\n".join(show_lines(served))
    assert "command:" not in text
    assert "exit ?" not in text
    assert "ALSO PRESENT" in text
    assert "DID NOT MATTER" not in text


def test_one_of_several_trials_in_a_run_has_no_exit_status_of_its_own() -> None:
    none = {"exit_code": None, "signal": None, "outcome": Outcome.UNKNOWN}
    part = msgspec.structs.replace(failed_trial(), closed="normal", **none)
    assert "exit ?" not in "\n".join(show_lines(part))
    assert "exit ?" in "\n".join(show_lines(msgspec.structs.replace(part, closed="incomplete")))


def test_the_sign_before_a_memory_peak_is_explained_where_it_stands() -> None:
    trial = failed_trial()
    assert not any("memory peak:" in line for line in show_lines(trial))
    steps = [
        msgspec.structs.replace(
            step, containers=[msgspec.structs.replace(use, memory_peak_kind="sampled") for use in step.containers]
        )
        for step in trial.steps
    ]
    assert "  memory peak: ≥ at least this" in show_lines(msgspec.structs.replace(trial, steps=steps))


def test_a_pass_with_opaque_connections_is_one_line_and_show_lists_them() -> None:
    trial = msgspec.structs.replace(
        passed_without_calls(), connections=[Connection(host="api.anthropic.com", port=443, ok=True)]
    )
    (line,) = ending_lines(trial)
    assert line.startswith(f"{PREFIX}passed, 1 connection, whose calls were not read (--via connect)")
    shown = show_lines(trial)
    assert "CONNECTIONS" in shown
    assert any("api.anthropic.com:443" in row for row in shown)


def test_the_containers_from_which_calls_came_are_named() -> None:
    trial = failed_trial()
    assert not any("came from inside" in line for line in show_lines(trial))
    boxes = [ContainerUse(id="c" * 64, name=f"ma{ESCAPE}in")]
    inside = [Call(id="1", container_id="c" * 64), Call(id="2", container_id="c" * 64), Call(id="3")]
    step = msgspec.structs.replace(trial.steps[0], calls=inside, containers=boxes)
    side = [Call(id="4", container_id="d" * 64, role="title")]
    shown = show_lines(msgspec.structs.replace(trial, steps=[step], side_calls=side))
    assert f"  calls came from inside: {printable(boxes[0].name or '')} ×2, {'d' * 12} ×1" in shown


def test_moments_that_were_told_from_inside_are_marked_as_such_and_bounded() -> None:
    at = "2026-11-29T10:00:01.500000Z"
    marks = [Mark(at=at, told=at, name=f"m{ESCAPE}{n}", text=f"half{ESCAPE}", step=1) for n in range(30)]
    marks.append(Mark(at=at, told=at, name="last"))
    text = "\n".join(show_lines(msgspec.structs.replace(failed_trial(), marks=marks)))
    assert "SAID FROM INSIDE (the control API); it counts for nothing" in text
    assert "10:00:01.500Z in step 1: m" in text
    assert "… and 11 more (--json shows all)" in text
    assert "said from inside ×30" in text
    assert "\x1b" not in text
    assert "SAID FROM INSIDE" not in "\n".join(show_lines(failed_trial()))
