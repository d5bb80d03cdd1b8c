"""Whose doing: asked for at the door, still in use, gone with the engine, done where the model's commands run."""

from __future__ import annotations

import pytest

from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.attribution.doings import (
    asked_for,
    engine_losses,
    heir_of,
    in_time,
    running_at,
    struck_step,
    there_before,
    used_after,
    went_on,
    with_engine,
    works_inside,
)
from tests.middleware.attribution.boxes import COMPOSE, asked, engine, event, gone, inside, seen
from tests.middleware.attribution.scene import BOX, EPOCH_NS, Scene

OTHER = "07" * 32


def case(told: Scene) -> Case:
    return Case(told.assembly())


@pytest.mark.parametrize(
    "facts, is_own",
    [
        ({}, True),
        ({"status": None}, True),
        ({"container_id": None, "container_named": "task-1"}, True),
        ({"container_id": None, "container_named": BOX[:12]}, True),
        ({"status": 404}, False),
        ({"container_id": OTHER}, False),
        ({"started_wall_ns": EPOCH_NS - 60 * 10**9}, False),
    ],
)
def test_a_stop_is_the_trials_own_if_its_client_asked_for_it_then_and_there(
    facts: dict[str, object], is_own: bool
) -> None:
    told = seen(Scene()).call()
    asked(told, "kill", **facts)  # type: ignore[arg-type]
    at = told.wall()
    it = case(told.end(1))
    assert asked_for(it, it.containers[BOX], at) is is_own
    assert not asked_for(it, it.containers[BOX], at, {"pause"})


def test_a_command_that_died_a_moment_before_its_container_was_struck_in_its_own_step() -> None:
    told = inside(inside(seen(Scene()), exit_code=0), exit_code=137)
    told.s -= 0.09
    told.call()
    told.s -= 1.0
    gone(told)
    it = case(told.waited(3).end(1))
    box = it.containers[BOX]
    assert box.gone is not None
    assert [one.exit_code for one in running_at(box, box.gone[0].at_ns)] == [137]
    assert struck_step(box, box.gone[0]) == 2


def test_a_trial_went_on_if_its_model_was_asked_again_or_a_reply_under_way_asked_for_a_tool() -> None:
    told = inside(seen(Scene()))
    at = told.wall()
    assert not used_after(case(told), at)
    told.waited(0.1).call()
    assert went_on(case(told), at)
    during = told.wall() - 10**8
    assert not went_on(case(told), during)
    assert used_after(case(told), during), "its reply came later and waits for a tool"
    assert not used_after(case(inside(seen(Scene())).call(tools=0)), during + 10**10)


def test_an_engine_went_when_it_was_lost_and_did_not_come_back_as_itself() -> None:
    told = engine(engine(inside(seen(Scene())), "lost"), "back", restarted=False)
    assert engine_losses(case(told)) == []
    lost_at = told.wall()
    engine(told, "lost")
    ((lost, back),) = engine_losses(case(told))
    assert (lost.at_ns, back) == (lost_at, None)
    assert with_engine(case(told), lost_at + 10**12), "it is away still"
    engine(told.waited(), "back", restarted=True)
    assert len(engine_losses(case(told))) == 1
    assert not with_engine(case(told), told.wall() + 60 * 10**9)
    assert not with_engine(case(told), lost_at - 60 * 10**9)


def test_the_models_commands_run_inside_if_the_engine_ran_the_models_own_words() -> None:
    assert works_inside(case(inside(inside(seen(Scene())))), 2)
    assert not works_inside(case(inside(seen(Scene())).call().waited().call(tools=0)), 2), "nothing ran of step 2's"
    assert not works_inside(case(seen(Scene()).call().ran(0)), 1), "another text ran"
    assert not works_inside(case(seen(Scene()).call(tools=0)), 1)


def test_a_containers_place_is_taken_by_one_of_the_same_compose_service_only() -> None:
    told = inside(seen(Scene(), labels=COMPOSE))
    at = told.wall()
    event(gone(told), "destroy")
    seen(told.waited(), OTHER, labels=COMPOSE)
    it = case(told)
    heir = heir_of(it, it.containers[BOX], at)
    assert heir is not None
    assert heir[1].id == OTHER
    assert heir_of(it, it.containers[OTHER], at) is None


def test_what_comes_after_the_commands_end_is_out_of_its_time() -> None:
    told = inside(seen(Scene())).call(tools=0).end(1)
    event(told.waited(5), "kill", signal=9)
    it = case(told)
    (placed, _) = it.containers[BOX].events[-1]
    assert not in_time(it, placed)


def test_an_engine_whose_process_cannot_be_told_went_if_its_events_have_a_hole_from_then_on() -> None:
    told = inside(seen(Scene()))
    lost_s = told.s
    engine(engine(told, "lost").waited(), "back")
    assert engine_losses(case(told)) == []
    told.gap(since=lost_s, until=told.s, source="collector.docker_events", families=["memory", "node"])
    assert len(engine_losses(case(told))) == 1


def test_what_was_there_before_the_models_first_word_no_command_of_its_own_has_made() -> None:
    told = seen(seen(Scene()).call().waited(), OTHER)
    it = case(told)
    assert there_before(it, it.containers[BOX])
    assert not there_before(it, it.containers[OTHER])
