"""Steps come out of observations whatever their order, and out of nothing but what was observed."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import (
    ContainerGone,
    CoverageChanged,
    ExecEnded,
    GapSeen,
    HostCounters,
    MutationSeen,
    Note,
    Observation,
    ReplyFacts,
)
from fairtrial.middleware.core.records import Outcome, PhaseName, Trust
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.steps.story import BOX, TRIAL, Story


def three_steps() -> Story:
    """Three turns with one exec each, an OOM kill in the second, and a `docker stop` at the end."""
    told = Story().begin().box()
    for turn in range(3):
        results = [f"toolu_{turn - 1}"] if turn else []
        told.attempt(turns=turn, tools=((f"toolu_{turn}", "Bash", f"cmd-{turn}"),), tool_result_ids=results)
        told.read("call_ended", oom_kill=int(turn > 1))
        told.s += 0.01
        told.ran(f"exec-{turn}", digest=f"cmd-{turn}", exit_code=137 if turn == 1 else 0)
        if turn == 1:
            told.killed(comm="python3")
        told.s += 0.05
    told.s += 0.1
    told.event("kill", signal=15)
    told.s += 10
    told.event("die", exit_code=137)
    return told.end()


def plain(assembly: Assembly) -> bytes:
    return msgspec.json.encode((assembly.trial, [(p.id, p.step, p.phase) for p in assembly.placed]))


def test_each_completed_main_call_is_a_step() -> None:
    trial = assemble(three_steps().observations, TRIAL).trial
    assert [step.index for step in trial.steps] == [1, 2, 3]
    assert [step.calls[0].outcome for step in trial.steps] == ["ok", "ok", "ok"]
    assert trial.steps[0].ended == trial.steps[1].started
    assert trial.side_calls == []


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), copies=st.integers(0, 30))
def test_any_order_and_any_repeats_give_the_same_assembly(seed: int, copies: int) -> None:
    observations = three_steps().observations
    expected = plain(assemble(observations, TRIAL))
    shuffled = random.Random(seed)
    delivered = observations + shuffled.choices(observations, k=copies)
    shuffled.shuffle(delivered)
    assert plain(assemble(delivered, TRIAL)) == expected


def test_the_kill_is_counted_in_its_own_step_only() -> None:
    trial = assemble(three_steps().observations, TRIAL).trial
    uses = [step.containers[0] for step in trial.steps]
    assert [use.oom_kills for use in uses] == [0, 1, 0]
    assert [victim.comm for victim in uses[1].oom_victims] == ["python3"]
    assert uses[1].oom_victims[0].role == "tool child"
    assert uses[1].memory_limit == 64 << 20


def test_a_tool_is_joined_to_its_exec_by_the_digest_of_its_text() -> None:
    tool = assemble(three_steps().observations, TRIAL).trial.steps[1].tools[0]
    assert (tool.name, tool.call_id, tool.exec_id, tool.exec_via, tool.join) == (
        "Bash",
        "toolu_1",
        "exec-1",
        "docker",
        "text",
    )
    assert tool.exit_code == 137
    assert tool.dispatch_delay == pytest.approx(0.01)
    assert tool.ended is not None


def test_one_exec_beside_one_tool_call_is_joined_by_time() -> None:
    told = Story().begin().box()
    told.attempt(turns=0, tools=(("toolu_0", "Bash", "other"),))
    told.ran("exec-0")
    tool = assemble(told.end().observations, TRIAL).trial.steps[0].tools[0]
    assert (tool.exec_id, tool.join) == ("exec-0", "time")


def test_a_tool_whose_result_never_went_up_ends_when_its_exec_ended() -> None:
    """The trial's last tool call: no later request carries its result."""
    told = Story().begin().box()
    told.attempt(turns=0, tools=(("toolu_0", "Bash", "other"),))
    told.ran("exec-0")
    assembly = assemble(told.end().observations, TRIAL)
    end = next(p for p in assembly.placed if isinstance(p.value, ExecEnded))
    assert assembly.trial.steps[0].tools[0].ended == rfc3339(end.at_ns)


def test_a_tool_without_an_exec_is_inferred_and_has_no_exit_code() -> None:
    told = Story().begin()
    told.attempt(turns=0, tools=(("toolu_0", "Bash", "d"),))
    told.s += 2
    told.attempt(turns=1, tool_result_ids=["toolu_0"])
    tool = assemble(told.end().observations, TRIAL).trial.steps[0].tools[0]
    assert (tool.exec_via, tool.exec_id, tool.exit_code) == ("inferred", None, None)
    assert tool.started is not None
    assert tool.ended is not None


def test_what_the_agent_can_write_moves_no_step_and_no_tool_and_is_kept_as_a_note() -> None:
    told = three_steps()
    forged = [
        msgspec.structs.replace(o, id=f"{o.id}-forged", source_id="agent", trust=Trust.INSIDE, wall_ns=o.wall_ns + 1)
        for o in three_steps().observations
    ]
    whole = assemble(told.observations, TRIAL)
    assert plain(assemble([*told.observations, *forged], TRIAL)) == plain(whole)
    said = Source("agent", told.observations.append, host=told.observations[0].host, trial=TRIAL)
    said.emit(Note(event="agent.wrote"), wall_ns=told.wall(), mono_ns=1, trust=Trust.INSIDE)
    kept = assemble(told.observations, TRIAL).placed
    assert [p.observation.trust for p in kept if p.observation.source == "agent"] == [Trust.INSIDE]


def test_an_exec_that_no_tool_call_asked_for_is_a_tool_without_a_name() -> None:
    told = Story().begin().box()
    told.attempt(turns=0, has_tools=False)
    told.ran("exec-0", exit_code=3)
    tools = assemble(told.end().observations, TRIAL).trial.steps[0].tools
    assert [(t.name, t.exec_id, t.exit_code) for t in tools] == [(None, "exec-0", 3)]


def test_a_call_that_never_completed_opens_the_step_it_would_have_become() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    told.s += 1
    told.attempt(turns=1, outcome="truncated")
    trial = assemble(told.end(1).observations, TRIAL).trial
    assert [step.calls[0].outcome for step in trial.steps] == ["ok", "truncated"]


def test_a_call_whose_end_was_never_seen_has_no_outcome_and_opens_a_step() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    told.attempt(turns=1, started_only=True)
    trial = assemble(told.observations, TRIAL).trial
    assert [step.calls[0].outcome for step in trial.steps] == ["ok", None]
    assert trial.closed == "incomplete"
    assert trial.outcome is Outcome.UNKNOWN


def test_a_changed_request_for_a_turn_that_failed_stays_in_its_step() -> None:
    told = Story().begin()
    told.attempt(turns=0, outcome="error")
    told.s += 1000
    told.attempt(turns=0, body_digest="other", message_digests=["changed"])
    told.s += 1
    told.attempt(turns=1)
    trial = assemble(told.end().observations, TRIAL).trial
    assert [len(step.calls) for step in trial.steps] == [2, 1]


def test_a_truncated_reply_that_the_client_accepted_keeps_its_own_step() -> None:
    told = Story().begin()
    told.attempt(turns=0, outcome="truncated")
    told.s += 1
    told.attempt(turns=1)
    trial = assemble(told.end().observations, TRIAL).trial
    assert [step.calls[0].outcome for step in trial.steps] == ["truncated", "ok"]


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


def test_a_step_in_which_no_counter_was_read_has_no_count_of_kills() -> None:
    told = Story().begin().box()
    told.s += 1
    told.attempt(turns=0)
    assert assemble(told.end().observations, TRIAL).trial.steps[0].containers[0].oom_kills is None


def test_what_happens_before_the_first_call_is_setup_and_in_no_step() -> None:
    told = Story().begin().box().killed()
    told.s += 1
    told.attempt(turns=0)
    told.read("call_ended", oom_kill=1)
    assembly = assemble(told.end().observations, TRIAL)
    kill = next(p for p in assembly.placed if p.observation.kind == "cgroup.oom_kill")
    assert (kill.step, kill.phase) == (None, PhaseName.SETUP)
    assert assembly.trial.steps[0].containers[0].oom_kills == 0


def test_attempts_without_a_token_are_counted_and_never_become_steps() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    told.attempt(turns=1, trial=None)
    told.attempt(turns=1, trial="another")
    trial = assemble(told.end().observations, TRIAL).trial
    assert len(trial.steps) == 1
    assert trial.unassigned == {"attempts": 1}


def test_facts_of_the_whole_host_are_part_of_every_trial() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    host = Source("collector.vmstat", told.observations.append, host=told.observations[0].host)
    host.emit(HostCounters(oom_kill=3), wall_ns=told.wall(), mono_ns=1)
    assembly = assemble(told.end().observations, TRIAL)
    assert any(p.observation.kind == "host.counters" for p in assembly.placed)


@pytest.mark.parametrize(
    "exit_code, signal, outcome",
    [(0, None, Outcome.PASSED), (2, None, Outcome.FAILED), (None, 9, Outcome.FAILED), (None, None, Outcome.UNKNOWN)],
)
def test_the_outcome_is_what_the_exit_status_says(exit_code: int | None, signal: int | None, outcome: Outcome) -> None:
    trial = assemble(Story().begin().end(exit_code, signal).observations, TRIAL).trial
    assert trial.outcome is outcome
    assert trial.outcome_source == (None if outcome is Outcome.UNKNOWN else "exit_code")


def test_environment_limits_and_mutations_are_taken_from_what_was_seen() -> None:
    told = Story().begin(["claude", "-p", "x"]).box()
    change = MutationSeen(what="env ANTHROPIC_BASE_URL", old=None, new="http://127.0.0.1:1/t/x")
    told.tell(change)
    told.tell(change)
    trial = assemble(told.end().observations, TRIAL).trial
    assert trial.command == ["claude", "-p", "x"]
    assert trial.environment.runtime == "docker"
    assert trial.environment.container_ids == [BOX]
    assert trial.environment.hour_of_week is not None
    assert trial.limits.memory.ceiling == 64 << 20
    assert trial.limits.enforced_by == "docker"
    assert [m.what for m in trial.mutations] == ["env ANTHROPIC_BASE_URL"]


def test_an_unknown_kind_of_a_newer_writer_is_skipped() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    newer = msgspec.structs.replace(told.observations[-1], kind="container.teleported", seq=10_000)
    observations: list[Observation] = [*told.end().observations, newer]
    assert len(assemble(observations, TRIAL).trial.steps) == 1


def test_no_observations_are_an_incomplete_trial_and_no_error() -> None:
    trial = assemble([], TRIAL).trial
    assert (trial.closed, trial.steps, trial.outcome) == ("incomplete", [], Outcome.UNKNOWN)
    assert {family.level for family in trial.coverage.families.values()} == {"none"}


def test_attempts_are_mapped_to_the_call_they_were_folded_into() -> None:
    told = Story().begin()
    first = told.attempt(turns=0, outcome="error")
    second = told.attempt(turns=0)
    assembly = assemble(told.end().observations, TRIAL)
    assert assembly.attempt_call == {first: first, second: first}
    call = assembly.trial.steps[0].calls[0]
    assert [a.outcome for a in call.attempts] == ["error", "ok"]
    assert (call.outcome, call.attempts[1].wait_before) == ("ok", 0.0)


def test_coverage_and_gaps_reach_the_trial() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    told.tell(GapSeen(source="feed", families=["model_api"], why="feed overrun", lost_records=4))
    told.tell(CoverageChanged(source="collector.kernel_log", families=["memory"], state="lost", why="EPERM"))
    coverage = assemble(told.end().observations, TRIAL).trial.coverage
    assert coverage.families["model_api"].level == "partial"
    assert coverage.families["memory"].level == "full"
    assert coverage.dropped == 4
    assert coverage.collectors["kernel_log"] == "lost: EPERM"


def test_an_error_reply_keeps_its_type_in_the_attempt() -> None:
    told = Story().begin()
    told.attempt(turns=0, outcome="error", reply=ReplyFacts(status=529, error_type="overloaded_error", retry_after=2.0))
    attempt = assemble(told.end(1).observations, TRIAL).trial.steps[0].calls[0].attempts[0]
    assert (attempt.status, attempt.error_type, attempt.retry_after) == (529, "overloaded_error", 2.0)


def test_a_hedged_twin_is_in_its_twins_step_and_only_the_reply_that_was_taken_has_tools() -> None:
    told = Story().begin()
    told.attempt(turns=0, seconds=5.0, advance=False, tools=(("toolu_a", "Bash", None),))
    told.s += 1
    told.attempt(turns=0, tools=(("toolu_b", "Bash", None),))
    told.s += 5
    told.attempt(turns=1, tool_result_ids=["toolu_b"])
    trial = assemble(told.end().observations, TRIAL).trial
    assert [len(step.calls) for step in trial.steps] == [2, 1]
    assert [tool.call_id for tool in trial.steps[0].tools] == ["toolu_b"]
    assert trial.steps[0].calls[1].concurrent_duplicate == trial.steps[0].calls[0].id


def test_a_model_changed_after_errors_is_said_whether_or_not_the_turn_was_given_up() -> None:
    told = Story().begin()
    told.attempt(turns=1, outcome="error")
    # Another model, and a history that was changed for it: no retry, but the same step.
    told.attempt(turns=1, outcome="error", model="claude-small", message_digests=["m0", "x", "m2"], body_digest="b")
    # The client takes its own error text for the answer and goes on with a third one.
    told.attempt(turns=2, model="claude-tiny", max_tokens=1000)
    told.attempt(turns=3, model="claude-tiny")
    trial = assemble(told.end().observations, TRIAL).trial
    assert [[call.fell_back for call in step.calls] for step in trial.steps] == [[None, "model"], ["model"], [None]]
