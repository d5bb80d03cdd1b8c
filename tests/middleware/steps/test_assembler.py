"""Steps come out of observations whatever their order, and out of nothing but what was observed."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import (
    CoverageChanged,
    ExecEnded,
    GapSeen,
    Note,
    ReplyFacts,
)
from fairtrial.middleware.core.records import Trust
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.steps.story import TRIAL, Story, three_steps


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


def test_a_step_in_which_no_counter_was_read_has_no_count_of_kills() -> None:
    told = Story().begin().box()
    told.s += 1
    told.attempt(turns=0)
    assert assemble(told.end().observations, TRIAL).trial.steps[0].containers[0].oom_kills is None


def test_attempts_without_a_token_are_counted_and_never_become_steps() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    told.attempt(turns=1, trial=None)
    told.attempt(turns=1, trial="another")
    trial = assemble(told.end().observations, TRIAL).trial
    assert len(trial.steps) == 1
    assert trial.unassigned == {"attempts": 1}


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
