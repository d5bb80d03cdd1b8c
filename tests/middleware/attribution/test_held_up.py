"""What held a trial up outside its model calls, and whether it may be the trial's own doing."""

from __future__ import annotations

import pytest

from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.attribution.held_up import DISPATCH, PULL, THROTTLED, HeldUp, held_up
from tests.middleware.attribution.delays import boxed, dispatched, made, pulled, throttled
from tests.middleware.attribution.scene import Scene


def found(told: Scene) -> list[HeldUp]:
    return held_up(Case(told.end(1).assembly()))


def lengths(told: Scene) -> list[tuple[str, float, bool]]:
    return [(h.cause, round((h.until_ns - h.since_ns) / 1e9, 2), h.sure) for h in found(told)]


# --- exec dispatch ----------------------------------------------------------------------------------------------------


def test_a_start_that_the_engine_answered_late_about_an_idle_box_is_surely_outside() -> None:
    assert lengths(dispatched(boxed().call(), 9.0).call()) == [(DISPATCH, 8.0, True)]


def test_the_making_of_a_command_counts_as_its_start_does() -> None:
    told = boxed().call()
    asked = told.wall()
    told.waited(5.0)
    dispatched(told, 0.1, created_wall_ns=asked, create_delay=5.0).call()
    assert lengths(told) == [(DISPATCH, 4.0, True)]


def test_an_answer_within_a_second_is_ordinary() -> None:
    """Innocent."""
    assert lengths(dispatched(boxed().call(), 0.9).call()) == []


@pytest.mark.parametrize(
    "moved",
    [
        {"cpu_used": 8.0},
        {"cpu_throttled": 8.0},
        {"psi_cpu": 8.0},
        {"memory_max_hits": 400},
        {"cpu_used": None},
    ],
    ids=["at work", "at its limit", "under pressure", "out of memory", "not read"],
)
def test_a_late_answer_about_a_box_that_is_busy_itself_may_be_its_own_doing(moved: dict[str, object]) -> None:
    """Near-miss: the model's own processes fill the box, or nobody read whether they do."""
    told = dispatched(boxed().call(), 9.0)
    told.also |= moved
    assert (DISPATCH, 8.0, False) in lengths(told.call())


def test_a_late_answer_about_a_box_that_nobody_knows_is_not_sure() -> None:
    assert lengths(dispatched(boxed().call(), 9.0, container_id=None).call()) == [(DISPATCH, 8.0, False)]


# --- containers and images ------------------------------------------------------------------------------------------


def test_making_a_container_and_pulling_its_image_before_the_agent_are_outside() -> None:
    told = made(pulled(boxed(), 30.0), 5.0).call()
    assert sorted(lengths(told)) == sorted([(PULL, 30.0, True), (DISPATCH, 4.0, True)])


def test_what_the_model_may_have_asked_for_is_not() -> None:
    """Near-miss: the same after the agent's first question."""
    assert lengths(made(pulled(boxed().call(), 30.0), 5.0).call()) == []


@pytest.mark.parametrize("error, counts", [("rate_limited", True), ("unreachable", True), ("denied", False)])
def test_a_pull_that_was_refused_counts_when_the_registry_failed(error: str, counts: bool) -> None:
    told = pulled(boxed(), 30.0, error=error, status=500).call()
    assert bool(lengths(told)) is counts


# --- the CPU limit --------------------------------------------------------------------------------------------------


def test_throttling_is_an_interval_no_longer_than_what_was_counted_and_never_sure() -> None:
    assert lengths(throttled(boxed().call(), 20.0, counted=12.0, psi_cpu=15.0).call()) == [(THROTTLED, 12.0, False)]


def test_throttling_summed_over_cores_is_cut_to_the_pressure_and_to_the_tool_work() -> None:
    assert lengths(throttled(boxed().call(), 20.0, counted=90.0, psi_cpu=7.0).call()) == [(THROTTLED, 7.0, False)]
    told = boxed()
    told.also["psi_cpu"] = None
    assert lengths(throttled(told.call(), 20.0, counted=90.0).call()) == [(THROTTLED, 20.0, False)]


def test_throttling_while_the_model_is_being_asked_holds_nobody_up() -> None:
    """Innocent: a process in the background."""
    told = boxed().call().waited(2.0)
    told.read("change")
    told.also["cpu_throttled"] = 0.0
    told.read("call_started").attempt_begun(20.0)
    told.also |= {"cpu_throttled": 9.0, "psi_cpu": 9.0}
    assert sum(s for _, s, _ in lengths(told.read("call_ended"))) == 0


def test_an_unread_counter_is_no_throttling() -> None:
    told = Scene().call()
    assert lengths(told.waited(20.0).call()) == []
