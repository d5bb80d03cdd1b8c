"""What a kill for memory did to its trial: ended it, or was recovered from."""

from __future__ import annotations

import msgspec

from fairtrial.middleware.core.observations import (
    CgroupReading,
    ContainerSeen,
    OomKill,
)
from fairtrial.middleware.core.records import PhaseName
from tests.middleware.attribution.scene import MIB, Scene, ended, oom_in_last_tool_step, summary


def test_a_kill_followed_by_a_tool_step_that_ended_normally_in_the_same_container_is_present() -> None:
    verdict = oom_in_last_tool_step().call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert ended(verdict) is None
    assert [(p.cause, p.step) for p in verdict.present] == [("container.oom_kill", 2)]


def test_a_later_command_that_was_killed_too_is_no_sign_of_recovery() -> None:
    verdict = oom_in_last_tool_step().call().ran(137).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)


def test_a_later_step_in_another_container_is_no_sign_of_recovery() -> None:
    told = oom_in_last_tool_step().call()
    told.container = "d" * 64
    told.tell(ContainerSeen(container_id=told.container, name="other", role="main"), told.events)
    verdict = told.ran(0).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)


def test_an_agent_whose_tools_run_without_the_runtime_recovers_when_a_result_comes_back() -> None:
    struck = Scene(box=False).call().waited().oom().waited()
    recovered = struck.call().waited().call(tools=0).end(1).verdict()
    assert summary(recovered)[0] == "model"
    assert [p.cause for p in recovered.present] == ["container.oom_kill"]


def test_a_passed_trial_with_a_harmless_kill_has_blame_none_and_the_kill_present() -> None:
    verdict = oom_in_last_tool_step().call().ran(0).call(tools=0).end(0).verdict()
    assert summary(verdict) == ("none", None, None, None)
    assert ended(verdict) is None
    assert verdict.answers.reward_valid == "yes"
    assert "step 3 ended normally" in verdict.present[0].why


def test_an_agent_that_finished_its_turn_after_the_kill_and_exited_0_was_not_ended_by_it() -> None:
    verdict = oom_in_last_tool_step().call(tools=0).end(0).verdict()
    assert summary(verdict) == ("none", None, None, None)
    assert ended(verdict) is None


def test_kills_in_several_steps_of_a_box_that_kept_nothing_begin_with_the_first_that_nothing_followed() -> None:
    told = Scene().call().ran(137, oom=True).call().ran(0).call().ran(137, oom=True).call().ran(137, oom=True)
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 3)
    assert [(p.cause, p.step) for p in verdict.present] == [("container.oom_kill", 1), ("container.oom_kill", 4)]


def test_a_greedy_command_that_a_leaner_one_followed_is_present() -> None:
    told = Scene(limit=256 * MIB, reservation=64 * MIB).call().ran(137, oom=True).call().ran(0).call(tools=0).end(1)
    assert [p.cause for p in told.verdict().present] == ["container.oom_kill"]


def test_a_kill_in_the_verifiers_time_is_told_and_does_not_end_the_agent() -> None:
    told = Scene().call().ran(0).call(tools=0)
    told.oom(told=False)
    told.observations[-1] = msgspec.structs.replace(told.observations[-1], phase=PhaseName.VERIFY)
    verdict = told.end(1).verdict()
    assert summary(verdict)[:3] == ("infra", "suspected", "container.oom_kill")
    assert verdict.phase == "verify"
    assert ended(verdict) is None


def test_a_kill_after_the_agents_last_word_struck_the_verifier_and_not_the_agent() -> None:
    verdict = Scene().call().ran(0).call(tools=0).ran(137, oom=True).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
    assert verdict.phase == "verify"
    assert ended(verdict) is None
    assert "said its last word" in verdict.sentence


def test_a_verifier_that_ended_well_after_the_last_word_is_no_recovery_of_the_agent() -> None:
    verdict = Scene().call().ran(137, oom=True).call(tools=0).ran(0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 1)


def second_container(*, after_the_reply: bool) -> Scene:
    """A second container, with a limit of its own, in which a process is killed in step 2."""
    told = Scene()
    if after_the_reply:
        told.call().ran(0).call().waited()
    second = ContainerSeen(container_id="c2" * 32, name="mine", memory_limit=12 * MIB, started_wall_ns=told.wall())
    told.tell(second, told.events)
    if not after_the_reply:
        told.call().ran(0).call().waited()
    told.kills += 1
    told.tell(OomKill(container_id="c2" * 32, delta=1, memory_limit=12 * MIB))
    told.kills -= 1
    told.node_kills += 1
    told.tell(CgroupReading(container_id="c2" * 32, oom_kill=1, edge="last"))
    return told.call(tools=0).end(1)


def test_a_kill_in_a_container_that_a_command_of_the_trial_started_is_nobodys_ceiling() -> None:
    verdict = second_container(after_the_reply=True).verdict()
    assert verdict.blame == "model"
    assert ended(verdict) is None
    assert [p.cause for p in verdict.present] == ["container.oom_kill"]


def test_a_kill_in_a_second_container_of_the_harness_is_suspected_as_ever() -> None:
    verdict = second_container(after_the_reply=False).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
