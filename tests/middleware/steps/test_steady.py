"""A wall clock that somebody sets while a trial runs: every event stays in its step."""

from __future__ import annotations

import pytest
from msgspec import structs

from fairtrial.middleware.core.observations import ContainerSeen, HarnessOutcome, Host, Observation, Value, decode
from fairtrial.middleware.core.records import Trust
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.run_facts import RunFacts
from fairtrial.middleware.steps.steady import Clock
from tests.middleware.attribution.scene import EPOCH_NS, TRIAL, Scene, ended, summary

STEPS_S = (-3600.0, -8.0, 8.0, 3600.0)


class Set(Scene):
    """`late_s`: how far the wall clock was set; the doors carry their times over from the beginning and do not see
    it."""

    late_s = 0.0

    def tell(self, value: Value, source: Source | None = None, *, trust: Trust = Trust.HOST) -> Observation:
        source, at = source or self.cgroup, self.wall()
        told = at if source in (self.door, self.runner) else at + round(self.late_s * 1e9)
        return source.emit(value, wall_ns=told, mono_ns=at - EPOCH_NS, trust=trust)

    def set(self, late_s: float) -> Set:
        self.late_s = late_s
        return self


def struck() -> Set:
    return Set().call(seconds=10)  # type: ignore[return-value]


@pytest.mark.parametrize("late_s", STEPS_S)
def test_a_kill_behind_the_step_of_the_clock_strikes_the_step_that_it_struck(late_s: float) -> None:
    verdict = struck().set(late_s).ran(137, oom=True).waited().call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 1)
    assert ended(verdict) == ("container.oom_kill", "proved", 1)
    assert "No reply" not in verdict.sentence


@pytest.mark.parametrize("late_s", STEPS_S)
def test_a_kill_that_the_trial_recovered_from_stays_without_weight(late_s: float) -> None:
    told = struck()
    told.ran(137, oom=True).waited().call()
    verdict = told.set(late_s).ran(0).call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert [row.cause for row in verdict.present] == ["container.oom_kill"]


@pytest.mark.parametrize("late_s", STEPS_S)
def test_an_end_from_outside_behind_it_is_still_seen(late_s: float) -> None:
    told = struck()
    told.ran(0).call()
    verdict = told.set(late_s).runtime("kill", signal=9).gone(137).waited().call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.killed", 2)


@pytest.mark.parametrize("late_s", STEPS_S)
def test_an_error_that_the_next_call_mended_is_mended_whatever_the_observers_clock_did(late_s: float) -> None:
    """Doors of an observer that was started again go by its own beginning."""
    told = Scene().call().ran(0).refused(529, times=3)
    before = len(told.observations)
    told.waited(5).call().ran(0).call().ran(1).call(tools=0).end(1)
    moved = round(late_s * 1e9)
    for n, one in enumerate(told.observations[before:], before):
        inside = {
            name: at + moved for name, at in one.value.items() if name == "started_wall_ns" and isinstance(at, int)
        }
        told.observations[n] = structs.replace(one, wall_ns=one.wall_ns + moved, value={**one.value, **inside})
    verdict = told.verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert [row.cause for row in verdict.present] == ["model_api.overloaded"]


def test_a_run_of_several_trials_goes_by_the_same_clock() -> None:
    told = struck().set(-3600)
    seen = told.tell(ContainerSeen(container_id="c" * 64, started_wall_ns=told.wall() - 3_600_000_000_000), told.events)
    facts = RunFacts(TRIAL)
    for one in told.observations:
        facts.take(one)
    assert facts.boxes["c" * 64].since_ns == seen.wall_ns + 3_600_000_000_000


def test_what_was_told_by_the_same_clock_or_by_another_machine_is_left_as_it_is() -> None:
    told = Scene().call().ran(0).call(tools=0).end(0)
    clock = Clock.of(told.observations, TRIAL)
    assert clock is not None
    assert [clock.steadied(one) for one in told.observations] == told.observations
    last = told.observations[-1]
    other = structs.replace(last, host=Host(name="node-2", boot_id="other"), wall_ns=7)
    assert clock.steadied(other) is other
    booked = structs.replace(last, kind=HarnessOutcome.kind, wall_ns=7)
    assert clock.steadied(booked) is booked


def test_a_trial_whose_beginning_was_not_seen_goes_by_the_wall_clock() -> None:
    told = Scene().call(tools=0).end(1).observations[1:]
    assert Clock.of(told, TRIAL) is None
    assert [placed.at_ns for placed in assemble(told, TRIAL).placed] == sorted(one.wall_ns for one in told)


def test_a_time_inside_a_value_goes_with_it_unless_it_lies_behind_it() -> None:
    told = Scene()
    clock = Clock.of(told.observations, TRIAL)
    assert clock is not None
    for started, moved in ((0, 1), (-1, 1), (60, 0)):
        at = told.wall() - 5_000_000_000
        began = at + started * 1_000_000_000
        box = ContainerSeen(container_id="c", started_wall_ns=began)
        one = told.events.emit(box, wall_ns=at, mono_ns=told.wall() - EPOCH_NS)
        value = decode(clock.steadied(one))
        assert isinstance(value, ContainerSeen)
        assert value.started_wall_ns == began + moved * 5_000_000_000
