"""Late readings, stops and kills are placed where they happened."""

from fairtrial.middleware.core.observations import (
    ContainerGone,
)
from fairtrial.middleware.core.records import PhaseName
from fairtrial.middleware.steps.assembler import assemble
from tests.middleware.steps.story import BOX, TRIAL, Story, three_steps


def test_a_kill_read_just_after_the_next_call_began_belongs_to_the_step_before() -> None:
    told = Story().begin().box()
    told.attempt(turns=0, tools=(("t0", "Bash", None),))
    told.s += 0.5
    kill_seen = told.s + 0.01
    told.attempt(turns=1)
    told.killed(s=kill_seen)
    told.read("end", oom_kill=1)
    trial = assemble(told.end().observations, TRIAL).trial
    assert [step.containers[0].oom_kills for step in trial.steps] == [1, 0]


def test_a_kill_read_late_is_placed_by_its_uncertainty() -> None:
    told = Story().begin().box()
    told.attempt(turns=0, tools=(("t0", "Bash", None),))
    told.s += 0.5
    told.attempt(turns=1, seconds=1.0)
    told.killed(s=told.s - 0.5, u=0.6)
    told.read("end", oom_kill=1)
    trial = assemble(told.end().observations, TRIAL).trial
    assert [step.containers[0].oom_kills for step in trial.steps] == [1, 0]


def test_a_kill_that_may_have_been_before_or_in_the_first_step_was_in_it() -> None:
    """A kill before any reply can prove whose demand it was: what is not surely there is not put there."""
    told = Story().begin().box()
    first = told.s
    told.attempt(turns=0, tools=(("t0", "Bash", None),), seconds=0.01)
    told.s += 0.02
    told.killed(s=told.s, u=told.s - first + 0.02)
    told.attempt(turns=1)
    told.read("end", oom_kill=1)
    trial = assemble(told.end().observations, TRIAL).trial
    assert [step.containers[0].oom_kills for step in trial.steps] == [1, 0]


def test_a_kill_read_just_after_the_end_of_the_command_is_the_agents() -> None:
    told = Story().begin().box()
    told.attempt(turns=0, tools=(("t0", "Bash", None),))
    told.s += 0.5
    told.end(137)
    told.killed(s=told.s + 0.3)
    assembly = assemble(told.observations, TRIAL)
    kill = next(p for p in assembly.placed if p.observation.kind == "cgroup.oom_kill")
    assert (kill.step, kill.phase) == (1, PhaseName.AGENT)
    assert assembly.trial.steps[0].containers[0].oom_kills == 1


def test_a_docker_stop_after_the_last_tool_is_teardown() -> None:
    assembly = assemble(three_steps().observations, TRIAL)
    events = [p for p in assembly.placed if p.observation.kind == "container.event"]
    assert {(p.step, p.phase) for p in events} == {(None, PhaseName.TEARDOWN)}
    assert assembly.trial.steps[-1].containers[0].exit_code is None
    assert [phase.name for phase in assembly.trial.phases] == [PhaseName.SETUP, PhaseName.AGENT, PhaseName.TEARDOWN]


def test_a_kill_through_the_runtime_while_an_exec_runs_is_no_teardown() -> None:
    told = Story().begin().box()
    told.attempt(turns=0, tools=(("t0", "Bash", "d"),))
    told.ran("exec-0", digest="d")
    told.observations.pop()  # the exec's end was never seen: it was still running
    told.event("kill", signal=9)
    told.event("die", exit_code=137)
    told.tell(ContainerGone(container_id=BOX, exit_code=137, ended_by="runtime_kill:9"))
    told.s += 1
    assembly = assemble(told.end(1).observations, TRIAL)
    events = [p for p in assembly.placed if p.observation.kind in {"container.event", "container.gone"}]
    assert [p.phase for p in events] == [PhaseName.AGENT] * 3
    use = assembly.trial.steps[0].containers[0]
    assert (use.exit_code, use.ended_by) == (137, "runtime_kill:9")


def test_a_signal_that_ends_nothing_is_no_teardown() -> None:
    told = Story().begin().box()
    told.attempt(turns=0)
    told.event("kill", signal=1)
    assembly = assemble(told.end().observations, TRIAL)
    event = next(p for p in assembly.placed if p.observation.kind == "container.event")
    assert (event.step, event.phase) == (1, PhaseName.AGENT)


def test_what_happens_before_the_first_call_is_setup_and_in_no_step() -> None:
    told = Story().begin().box().killed()
    told.s += 1
    told.attempt(turns=0)
    told.read("call_ended", oom_kill=1)
    assembly = assemble(told.end().observations, TRIAL)
    kill = next(p for p in assembly.placed if p.observation.kind == "cgroup.oom_kill")
    assert (kill.step, kill.phase) == (None, PhaseName.SETUP)
    assert assembly.trial.steps[0].containers[0].oom_kills == 0
