"""A box that stays full of what an earlier step wrote: one verdict, for the step that wrote."""

from __future__ import annotations

from tests.middleware.attribution.scene import MIB, Scene, ended, full_tmpfs, summary


def test_a_box_filled_by_step_1_gives_one_verdict_for_step_1_and_names_the_steps_it_spoiled() -> None:
    verdict = full_tmpfs(4).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 1)
    assert ended(verdict) == ("container.oom_kill", "proved", 1)
    assert "steps 2-4 ran in a box without memory" in verdict.sentence
    assert "Whose demand it was is open" in verdict.sentence
    assert "exit code 0" in verdict.sentence
    assert verdict.ended_as == "unknown"


def test_a_box_filled_without_a_kill_makes_the_later_kill_a_residual_of_the_step_that_wrote() -> None:
    told = Scene().call()
    told.ran(0).shmem = 60 * MIB
    verdict = told.call().ran(137, oom=True).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_residual", 2)
    assert "60 MiB that step 1 had written" in verdict.sentence


def test_a_box_that_is_only_half_full_makes_no_residual() -> None:
    told = Scene().call()
    told.ran(0).shmem = 30 * MIB
    verdict = told.call().ran(137, oom=True).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
