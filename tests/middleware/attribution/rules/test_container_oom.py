"""The OOM rule: happened, what it ended, and whose demand; each with a positive, a near-miss and an innocent case."""

import pytest

from fairtrial.middleware.core.observations import (
    ContainerEvent,
)
from fairtrial.middleware.core.records import Blame, Trust, Victim
from tests.middleware.attribution.scene import BOX, MIB, Scene, ended, oom_in_last_tool_step, summary


def test_a_kill_in_the_last_tool_step_is_what_ended_a_failed_trial_and_whose_demand_is_open() -> None:
    verdict = oom_in_last_tool_step().call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
    assert ended(verdict) == ("container.oom_kill", "proved", 2)
    assert verdict.questions.happened.answer == "yes"
    assert verdict.questions.outcome_differs.answer == "unknown"
    for words in (
        "python3 (pid 8433, resident 60 MiB)",
        "step 2",
        "limit of 64 MiB",
        "Whose demand it was is open",
        "192 MiB",
    ):
        assert words in verdict.sentence
    assert verdict.flips_if is not None
    assert "192 MiB" in verdict.flips_if


def test_the_main_process_killed_with_its_container_is_what_ended_the_trial() -> None:
    told = Scene().call().ran(0).call().waited()
    told.oom(victim=Victim(comm="sleep", pid=100, rss=MIB)).gone(137, ended_by="oom", flag=True)
    verdict = told.end(137).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
    assert "The container died with it." in verdict.sentence
    assert verdict.ended_as == "killed"


def test_exit_code_137_and_a_sticky_flag_without_a_moved_counter_are_no_kill_for_memory() -> None:
    verdict = Scene().call().ran(137).call(tools=0).end(1).gone(137, ended_by="runtime_kill:9", flag=True).verdict()
    assert verdict.blame == "model"
    assert ended(verdict) is None
    assert "a process of the trial killed it" in verdict.sentence


def test_a_kill_in_teardown_explains_nothing() -> None:
    told = Scene().call().ran(1).call(tools=0).end(1)
    told.waited(3).oom()
    assert summary(told.verdict()) == ("model", "proved", None, None)


def test_a_kill_that_only_the_agent_told_of_is_not_heard() -> None:
    told = Scene().call().ran(1)
    told.tell(ContainerEvent(container_id=BOX, action="oom"), told.events, trust=Trust.INSIDE)
    verdict = told.call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "proved", None, None)


@pytest.mark.parametrize("limit, blame", [(16 * MIB, Blame.INDETERMINATE), (63 * MIB, Blame.INFRA)])
def test_a_kill_at_a_limit_that_was_lowered_while_the_trial_ran_blames_nobody(limit: int, blame: Blame) -> None:
    """`docker update --memory 16m` by a command of the model's."""
    told = Scene(limit=64 * MIB).call()
    told.limit = limit
    verdict = told.ran(137, oom=True).call(tools=0).end(1).verdict()
    assert verdict.blame is blame
    assert ended(verdict) == ("container.oom_kill", "proved", 1)
    assert ("lowered since" in verdict.sentence) is (blame is Blame.INDETERMINATE)
