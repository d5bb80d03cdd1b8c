"""A limit of tasks: the model's, the infrastructure's, and nobody's."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import (
    ContainerSeen,
    PidsHit,
)
from fairtrial.middleware.core.records import Blame
from tests.middleware.attribution.scene import Scene, ended, summary


def hit(
    told: Scene,
    exit_code: int | None = 1,
    *,
    limit: int = 64,
    tasks: int = 64,
    first: int | None = 60,
    last: int | None = 60,
) -> Scene:
    """A command of the present step ran into the limit of tasks."""
    told.also["pids_limit"] = limit
    hits = told.also.get("pids_max_hits") or 0
    assert isinstance(hits, int)
    told.also["pids_max_hits"] = hits + 7
    told.read("change", pids_current=tasks)
    told.tell(
        PidsHit(
            container_id=told.container,
            hits=hits + 7,
            limit=limit,
            tasks=tasks,
            since_first_reply=first,
            since_last_reply=last,
        )
    )
    return told.ran(exit_code)


def begun() -> Scene:
    told = Scene()
    told.also["pids_max_hits"] = 0
    return told.read("baseline").call()


def test_a_fork_bomb_of_the_model_is_the_models_and_the_fact_stays() -> None:
    verdict = hit(begun()).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", "container.pids_limit", 1)
    assert ended(verdict) == ("container.pids_limit", "proved", 1)
    assert "60 of the 64 tasks" in verdict.sentence


def test_a_bomb_beside_a_large_harness_is_the_models_all_the_same() -> None:
    """Growth from one command that the model started, however little room the others had left."""
    verdict = hit(begun(), first=20, last=20).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", "container.pids_limit", 1)


def test_a_limit_that_harness_and_services_alone_had_reached_is_infra() -> None:
    told = Scene()
    told.also |= {"pids_max_hits": 3, "pids_limit": 8}
    told.read("change", pids_current=8)
    told.s += 1.0
    verdict = hit(told.call(), limit=8, tasks=8, first=1, last=1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.pids_limit", 1)
    assert "before any reply of the model had arrived" in verdict.sentence


def test_a_bomb_after_harness_and_services_had_once_reached_the_limit_is_the_models_all_the_same() -> None:
    told = Scene()
    told.also |= {"pids_max_hits": 3, "pids_limit": 64}
    told.read("change")
    told.s += 1.0
    verdict = hit(told.call(), first=40, last=40).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", "container.pids_limit", 1)


def test_tasks_that_mostly_others_had_started_are_infra_only_if_no_single_step_brought_the_rest() -> None:
    verdict = hit(begun(), first=20, last=2).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.pids_limit", 1)


@pytest.mark.parametrize(
    "tasks, first, last", [(64, None, None), (64, 40, 10), (3, 1, 1)], ids=["unmeasured", "between", "gone"]
)
def test_what_was_not_measured_or_lies_between_blames_nobody(tasks: int, first: int | None, last: int | None) -> None:
    verdict = hit(begun(), tasks=tasks, first=first, last=last).call(tools=0).end(1).verdict()
    assert summary(verdict)[0] == "indeterminate"
    assert ended(verdict) == ("container.pids_limit", "proved", 1)


def test_refused_forks_of_a_command_that_ended_well_are_present() -> None:
    verdict = hit(begun(), exit_code=0).call(tools=0).end(1).verdict()
    assert verdict.blame is Blame.MODEL
    assert verdict.cause is None
    assert ended(verdict) is None
    assert [(row.cause, row.step) for row in verdict.present] == [("container.pids_limit", 1)]


def test_refused_forks_before_a_later_step_that_ended_well_are_present() -> None:
    verdict = hit(begun()).call().ran(0).call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.cause) == (Blame.MODEL, None)
    assert "step 2 ended normally" in verdict.present[0].why


def test_printed_words_about_forks_move_no_counter() -> None:
    verdict = begun().ran(1).call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.cause, verdict.present) == (Blame.MODEL, None, [])


def test_a_passed_trial_is_not_taken_from_the_model_by_its_own_bomb() -> None:
    verdict = hit(begun()).call(tools=0).end(0).verdict()
    assert verdict.blame is Blame.NONE


def test_a_limit_that_was_lowered_while_the_trial_ran_blames_nobody() -> None:
    """`docker update --pids-limit`: what was there before fills it."""
    told = begun()
    seen = ContainerSeen(container_id=told.container, pids_limit=512, started_wall_ns=told.wall(0.0))
    first = next(n for n, one in enumerate(told.observations) if one.kind == ContainerSeen.kind)
    told.observations[first] = told.events.emit(seen, wall_ns=told.wall(0.0), mono_ns=0)
    told.observations.pop()
    verdict = hit(told, first=2, last=2).call(tools=0).end(1).verdict()
    assert verdict.blame is Blame.INDETERMINATE
    assert "lowered since" in verdict.sentence
