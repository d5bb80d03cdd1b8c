"""Both clocks are read together, and dates have the form of the records."""

from __future__ import annotations

from fairtrial.middleware.core import clock


def test_an_instant_carries_other_monotonic_readings_to_the_wall() -> None:
    first = clock.Instant(wall_ns=1_000_000_000, mono_ns=500)
    assert first.wall_at(1_500) == 1_000_001_000


def test_durations_come_from_the_monotonic_clock_only() -> None:
    earlier = clock.Instant(wall_ns=9_000_000_000, mono_ns=1_000_000_000)
    later = clock.Instant(wall_ns=1, mono_ns=3_500_000_000)
    assert later.since_s(earlier) == 2.5


def test_now_never_runs_backwards_on_the_monotonic_clock() -> None:
    first, second = clock.now(), clock.now()
    assert second.mono_ns >= first.mono_ns


def test_the_suspend_gap_of_two_readings_in_a_row_is_nothing() -> None:
    assert abs(clock.suspended_ns() - clock.suspended_ns()) < 50_000_000


def test_a_date_is_rfc_3339_utc_with_microseconds() -> None:
    assert clock.rfc3339(0) == "1970-01-01T00:00:00.000000Z"
    assert clock.rfc3339(1_764_459_000_123_456_789) == "2025-11-29T23:30:00.123456Z"
