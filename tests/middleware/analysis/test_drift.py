"""The golden simulation: months of a daily pattern without a false alarm, and drifts that are found soon."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from fairtrial.middleware.analysis.drift import LEAST_CALLS, SLOT_S, Drift, Signal, judge, usual
from fairtrial.middleware.analysis.loghist import LogHistogram

DAY = 24 * 3600 // SLOT_S
MONDAY = 4 * DAY
"""The epoch was a Thursday."""
CALLS = 20


def pattern(slot: int) -> float:
    """Seconds: twice as slow in the afternoon, quicker at weekends."""
    hour = slot % DAY / 6
    weekend = (slot - MONDAY) // DAY % 7 >= 5
    return 1.2 * (1 + 1.0 * math.exp(-((hour - 15) ** 2) / 8)) * (0.8 if weekend else 1.0)


def world(
    days: int,
    seed: int,
    *,
    factor: float = 1.0,
    since: int = 0,
    calls: int = CALLS,
    shape: Callable[[int], float] = pattern,
) -> dict[int, LogHistogram]:
    """Slots of `days` days from a Monday on; `factor` from slot `since` on."""
    chance = random.Random(seed)
    slots: dict[int, LogHistogram] = {}
    for slot in range(MONDAY, MONDAY + days * DAY):
        middle = shape(slot) * (factor if factor != 1.0 and slot >= since else 1.0)
        wobble = chance.gauss(0, 0.05)
        slots[slot] = LogHistogram.of(middle * math.exp(chance.gauss(0, 0.3) + wobble) for _ in range(calls))
    return slots


def judged(slots: dict[int, LogHistogram], since: int, until: int, signal: Signal = "ttft") -> Drift:
    return judge("p", "m", signal, slots, since=since, until=until)


def test_two_hundred_days_of_a_daily_and_weekly_pattern_wake_nobody() -> None:
    for seed in range(5):
        slots = world(42, seed)
        begin, end = MONDAY + 7 * DAY, MONDAY + 42 * DAY
        found = judged(slots, begin, end)
        assert found.state == "steady", (seed, found.since, found.ratio)


def test_without_the_hour_the_same_pattern_would_wake_somebody_each_afternoon() -> None:
    """The guard is needed: against one line for all hours the daily peak is drift."""
    flat = {slot: LogHistogram.of([1.2] * CALLS) for slot in range(MONDAY, MONDAY + 8 * DAY)}
    peak = world(9, 1)
    mixed = flat | {slot: histogram for slot, histogram in peak.items() if slot >= MONDAY + 8 * DAY}
    assert judged(mixed, MONDAY + 8 * DAY, MONDAY + 9 * DAY).state != "steady"


@pytest.mark.parametrize("factor, most", [(1.2, 36), (1.3, 15), (1.5, 8), (2.0, 5)])
def test_a_drift_is_found_soon_and_its_begin_and_size_are_told(factor: float, most: int) -> None:
    for seed in range(4):
        since = MONDAY + 35 * DAY + 60
        slots = world(37, 100 + seed, factor=factor, since=since)
        first = next(
            until for until in range(since + 1, since + 100) if judged(slots, since - 12, until).state == "drifting"
        )
        assert first - since <= most
        found = judged(slots, since - 12, since + 60)
        assert found.since is not None
        assert abs(found.since - since) <= 12
        assert found.ratio == pytest.approx(factor, rel=0.1)
        assert found.by == "hour of the week"


def test_a_drift_that_is_over_is_told_as_over() -> None:
    since = MONDAY + 35 * DAY
    slots = world(36, 5, factor=2.0, since=since) | {
        slot: histogram for slot, histogram in world(37, 6).items() if slot >= since + 12
    }
    found = judged(slots, since, since + DAY)
    assert found.state == "was drifting"
    assert found.until is not None
    assert found.until > since + 12


def test_an_alarm_is_over_two_hours_after_the_drift_and_keeps_its_size() -> None:
    since = MONDAY + 35 * DAY
    slots = world(36, 5, factor=1.5, since=since) | {
        slot: histogram for slot, histogram in world(37, 6).items() if slot >= since + 18
    }
    assert judged(slots, since, since + 18).state == "drifting"
    found = judged(slots, since, since + 18 + 15)
    assert found.state == "was drifting"
    assert found.ratio == pytest.approx(1.5, rel=0.1)


def test_fewer_tokens_per_second_are_worse_and_more_are_not() -> None:
    since = MONDAY + 30 * DAY
    slower = world(31, 7, factor=0.6, since=since)
    faster = world(31, 7, factor=1.7, since=since)
    assert judged(slower, since, since + DAY, "token_rate").state == "drifting"
    assert judged(faster, since, since + DAY, "token_rate").state == "steady"
    assert judged(slower, since, since + DAY, "ttft").state == "steady"


def test_one_bad_slot_of_ten_minutes_wakes_nobody() -> None:
    since = MONDAY + 30 * DAY
    slots = world(31, 8)
    slots[since + 20] = LogHistogram.of([60.0] * CALLS)
    assert judged(slots, since, since + DAY).state == "steady"


def test_without_history_and_without_calls_it_says_so() -> None:
    young = world(3, 9)
    assert judged(young, MONDAY + 2 * DAY, MONDAY + 3 * DAY).state == "no history"
    quiet = world(31, 9, calls=LEAST_CALLS - 1)
    assert judged(quiet, MONDAY + 30 * DAY, MONDAY + 31 * DAY).state == "too few calls"
    assert judged({}, MONDAY, MONDAY + 5).state == "too few calls"


def test_a_weekly_pattern_is_told_from_a_daily_one_once_four_weeks_exist() -> None:
    slots = world(30, 10, shape=pattern)
    saturday = MONDAY + 26 * DAY + 60
    assert usual(slots, saturday) is not None
    early = usual({slot: h for slot, h in slots.items() if slot >= MONDAY + 19 * DAY}, saturday)
    late = usual(slots, saturday + 2 * DAY)
    assert early is not None
    assert late is not None
    assert (early.by, late.by) == ("hour of the day", "hour of the week")
