"""Holes in the engine's events: none where the last known event came again, one where it cannot have."""

from __future__ import annotations

import time

import pytest

from fairtrial.collectors.docker_continuity import NOT_REPLAYED, RESTARTED, Continuity
from fairtrial.collectors.parse.docker import EventFacts


def event(at_ns: int, action: str = "start") -> EventFacts:
    return EventFacts(container_id="a", action=action, at_ns=at_ns)


class Told:
    """A continuity and the holes that it told."""

    def __init__(self) -> None:
        self.holes: list[tuple[int | None, str]] = []
        self.it = Continuity(lambda since_ns, why: self.holes.append((since_ns, why)))


@pytest.fixture
def told() -> Told:
    it = Told()
    for at_ns in (1, 2, 3):
        assert it.it.is_new(event(at_ns))
    it.it.lost()
    return it


def test_a_repeat_is_not_new_and_two_actions_of_one_moment_are_two(told: Told) -> None:
    assert not told.it.is_new(event(2))
    assert told.it.is_new(event(2, "die"))


@pytest.mark.parametrize("restarted", [False, None])
def test_the_last_known_event_again_closes_the_hole(told: Told, restarted: bool | None) -> None:
    told.it.back(restarted=restarted)
    assert [told.it.is_new(event(at_ns)) for at_ns in (2, 3, 4)] == [False, False, True]
    assert (told.it.open, told.holes) == (False, [])


def test_a_later_event_before_the_last_known_one_is_a_hole_from_the_loss_on(told: Told) -> None:
    told.it.back(restarted=None)
    assert told.it.is_new(event(4))
    ((since_ns, why),) = told.holes
    assert why == NOT_REPLAYED
    assert since_ns == told.it.last_loss_ns
    assert since_ns is not None
    assert since_ns <= time.time_ns()


def test_another_process_is_a_hole_at_once(told: Told) -> None:
    told.it.back(restarted=True)
    assert [why for _, why in told.holes] == [RESTARTED]
    assert told.it.is_new(event(4))
    assert len(told.holes) == 1


def test_an_engine_that_repeats_nothing_in_time_has_a_hole_told_once(told: Told) -> None:
    told.it.back(restarted=None)
    told.it.give_up()
    told.it.give_up()
    assert [why for _, why in told.holes] == [NOT_REPLAYED]


def test_a_second_loss_before_the_first_was_decided_keeps_the_firsts_time(told: Told) -> None:
    first = told.it.last_loss_ns
    told.it.back(restarted=None)
    told.it.lost()
    told.it.back(restarted=None)
    told.it.give_up()
    assert [since for since, _ in told.holes] == [first]


def test_an_engine_that_had_told_nothing_yet_loses_nothing_while_it_is_the_same() -> None:
    for restarted, holes in ((False, 0), (None, 1), (True, 1)):
        told = Told()
        told.it.lost()
        told.it.back(restarted=restarted)
        told.it.give_up()
        assert len(told.holes) == holes
