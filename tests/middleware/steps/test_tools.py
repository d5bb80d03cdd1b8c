"""Tool calls meet the execs and runs that served them, from the runtime's word, the door's sight, or both."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import CoverageChanged, DoorContainer, DoorExec, ExecEnded, ExecStarted
from fairtrial.middleware.core.records import PhaseName, Tool
from fairtrial.middleware.steps.assembler import assemble
from tests.middleware.steps.story import BOX, TRIAL, Story

RUN = "d" * 64


def asked(*tools: tuple[str, str, str | None]) -> Story:
    """One reply with these tool calls, and a container."""
    told = Story().begin().box()
    told.attempt(turns=0, tools=tools)
    told.s += 0.1
    return told


def passed(told: Story, exec_id: str = "exec-0", *, seconds: float = 0.5, **seen: object) -> Story:
    """The door's sight of an exec that lasts until now plus `seconds`."""
    fields: dict[str, object] = {
        "container_id": BOX,
        "text_digest": "d",
        "plumbing": False,
        "dispatch_delay": 0.02,
        "duration": seconds,
        "stdin": 0,
        "stdout": 10,
        "stderr": 4,
        "raw": 0,
        "ended_by": "process",
        "started_wall_ns": told.wall(),
    }
    told.s += seconds
    told.tell(DoorExec(exec_id=exec_id, **(fields | seen)), source=told.door)  # type: ignore[arg-type]
    return told


def tools_of(told: Story, step: int = 0) -> list[Tool]:
    return assemble(told.end().observations, TRIAL).trial.steps[step].tools


def test_what_the_runtime_and_the_door_know_of_an_exec_is_one_tool() -> None:
    told = asked(("t0", "Bash", "d"))
    told.tell(ExecStarted(container_id=BOX, exec_id="exec-0", pid=9))
    began = told.wall()
    passed(told)
    told.tell(ExecEnded(container_id=BOX, exec_id="exec-0", exit_code=3))
    (tool,) = tools_of(told)
    assert (tool.exec_id, tool.exec_via, tool.join, tool.exit_code) == ("exec-0", "docker", "text", 3)
    assert (tool.bytes_out, tool.bytes_err, tool.bytes_in) == (14, 4, 0)
    assert (tool.dispatch_delay, tool.exec_duration, tool.ended_by) == (0.02, 0.5, "process")
    assert tool.ended == rfc3339(began + 500_000_000)


def test_the_door_alone_will_do_and_an_exit_code_that_nobody_told_is_unknown() -> None:
    (tool,) = tools_of(passed(asked(("t0", "Bash", "d"))))
    assert (tool.exec_id, tool.join, tool.exit_code) == ("exec-0", "text", None)


def test_without_a_door_there_are_no_counts_of_its_own() -> None:
    told = asked(("t0", "Bash", "d"))
    told.ran("exec-0", digest="d", exit_code=0)
    (tool,) = tools_of(told)
    assert (tool.bytes_out, tool.bytes_err, tool.ended_by, tool.exec_duration) == (7, None, None, None)
    assert tool.dispatch_delay == pytest.approx(0.1)


def test_a_client_that_left_is_told() -> None:
    (tool,) = tools_of(passed(asked(("t0", "Bash", "d")), ended_by="client"))
    assert (tool.ended_by, tool.exit_code) == ("client", None)


@pytest.mark.parametrize(
    "exit_code, lost_after_s, ended_by",
    [(None, 0.5, "engine"), (None, 30.0, "process"), (0, 0.5, "process")],
    ids=["lost", "lost later", "its code is known"],
)
def test_an_exec_whose_engine_died_with_it_did_not_end_by_itself(
    exit_code: int | None, lost_after_s: float, ended_by: str
) -> None:
    told = asked(("t0", "Bash", "d"))
    told.tell(CoverageChanged(source="collector.docker_events", state="on"))
    told.tell(ExecStarted(container_id=BOX, exec_id="exec-0"))
    passed(told)
    told.tell(ExecEnded(container_id=BOX, exec_id="exec-0", exit_code=exit_code))
    told.s += lost_after_s
    told.tell(CoverageChanged(source="collector.docker_events", state="lost", why="the engine is gone"))
    assert tools_of(told)[0].ended_by == ended_by


def test_events_that_we_ourselves_gave_up_or_never_reached_did_not_break_off() -> None:
    told = passed(asked(("t0", "Bash", "d")))
    told.tell(CoverageChanged(source="collector.docker_events", state="off", why="not reached before the end"))
    told.tell(CoverageChanged(source="collector.docker_events", state="lost", why="nobody was watching any more"))
    assert tools_of(told)[0].ended_by == "process"


def test_upkeep_is_no_tool_whoever_says_so() -> None:
    told = asked()
    told.tell(ExecStarted(container_id=BOX, exec_id="exec-1", plumbing=False))
    passed(told, "exec-1", plumbing=True, text_digest="tmux")
    told.tell(ExecStarted(container_id=BOX, exec_id="exec-2", plumbing=True))
    passed(told, "exec-2", plumbing=False, text_digest="check")
    passed(told, "exec-3", plumbing=True, text_digest="tmux")
    passed(told, "exec-4")
    assert [tool.exec_id for tool in tools_of(told)] == ["exec-4"]


def test_what_ran_before_the_first_call_and_after_the_end_is_no_tool() -> None:
    told = Story().begin().box()
    passed(told, "set-up")
    told.attempt(turns=0)
    told.end()
    told.s += 0.1
    passed(told, "verifier")
    (step,) = assemble(told.observations, TRIAL).trial.steps
    assert step.tools == []


def test_the_verifiers_execs_are_no_tools() -> None:
    told = Story().begin().box()
    told.attempt(turns=0)
    verifier = ExecStarted(container_id=BOX, exec_id="verifier")
    told.collector.emit(verifier, wall_ns=told.wall(), mono_ns=1, phase=PhaseName.VERIFY)
    (step,) = assemble(told.end().observations, TRIAL).trial.steps
    assert step.tools == []


def test_an_exec_is_of_the_step_in_which_it_began() -> None:
    told = asked(("t0", "Bash", "other"), ("t1", "Bash", "third"))
    began = told.wall()
    told.s += 0.5
    told.attempt(turns=1, tool_result_ids=["t0", "t1"], tools=(("t2", "Bash", "d"),))
    passed(told, started_wall_ns=began, text_digest="third")
    assembly = assemble(told.end().observations, TRIAL)
    assert [tool.exec_id for tool in assembly.trial.steps[0].tools] == [None, "exec-0"]
    assert [tool.exec_id for tool in assembly.trial.steps[1].tools] == [None]


def ran(told: Story, *, exit_code: int | None = 4, attach: bool = True, digest: str = "r") -> Story:
    """`docker run` as the door sees it."""

    def say(action: str, status: int, **fields: object) -> None:
        told.tell(DoorContainer(action=action, container_id=RUN, status=status, **fields), source=told.door)  # type: ignore[arg-type]

    say("create", 201, text_digest=digest)
    say("start", 204, started_wall_ns=told.wall(), duration=0.3)
    told.s += 2.0
    if attach:
        say("attach", 101, stdin=0, stdout=20, stderr=1, raw=0, ended_by="process")
    say("wait", 200, exit_code=exit_code)
    return told


def test_a_run_is_a_tool_of_its_own_beside_the_call_that_started_it() -> None:
    """An agent whose shell is on the host calls `docker run`: the call's exit code is not the container's."""
    call, run = tools_of(ran(asked(("t0", "Bash", "docker run"))))
    assert (call.name, call.exit_code, call.container_id) == ("Bash", None, None)
    assert (run.name, run.exit_code, run.container_id, run.exec_id) == (None, 4, RUN, None)
    assert (run.bytes_out, run.bytes_err, run.ended_by, run.dispatch_delay) == (21, 1, "process", 0.3)
    assert run.exec_duration == pytest.approx(2.0)


def test_a_run_that_serves_a_tool_call_by_its_text_is_that_call() -> None:
    (tool,) = tools_of(ran(asked(("t0", "Bash", "r"))))
    assert (tool.name, tool.join, tool.exit_code, tool.container_id) == ("Bash", "text", 4, RUN)


def test_a_container_that_is_only_started_is_a_place_and_no_tool() -> None:
    (tool,) = tools_of(ran(asked(("t0", "Bash", "x")), exit_code=None, attach=False))
    assert tool.container_id is None


def test_a_run_without_a_stream_has_its_exit_code_from_wait() -> None:
    _, run = tools_of(ran(asked(("t0", "Bash", "x")), attach=False))
    assert (run.exit_code, run.bytes_out, run.ended_by) == (4, None, None)


def inside(container: str | None, *tools: tuple[str, str, str | None]) -> Story:
    """One reply to a client in this container."""
    told = Story().begin().box()
    told.attempt(turns=0, tools=tools, container=container)
    told.s += 0.1
    return told


@pytest.mark.parametrize("digest", ["d", "other"], ids=["same text", "beside the only call"])
def test_what_somebody_runs_in_the_agents_own_container_is_not_the_agents(digest: str) -> None:
    (tool,) = tools_of(passed(inside(BOX, ("t0", "Bash", digest))))
    assert (tool.name, tool.exec_id, tool.exec_via) == ("Bash", None, "inferred")


def test_behind_the_last_reply_of_an_agent_inside_there_are_no_tools() -> None:
    assert tools_of(passed(inside(BOX))) == []
    assert [tool.exec_id for tool in tools_of(passed(inside(None)))] == ["exec-0"], (
        "an agent outside types its commands"
    )


@pytest.mark.parametrize("digest, found", [("d", ("exec-0", "text")), ("other", (None, "inferred"))])
def test_an_agent_inside_one_container_runs_its_tools_in_another_by_the_same_text_alone(
    digest: str, found: tuple[str | None, str]
) -> None:
    """The only exec beside the only call may be another trial's set-up."""
    (tool,) = tools_of(passed(inside("e" * 64, ("t0", "Bash", digest))))
    assert (tool.exec_id, tool.join) == found


def test_what_a_harness_starts_beside_an_agent_inside_is_no_tool() -> None:
    assert tools_of(ran(passed(inside("e" * 64)))) == []
