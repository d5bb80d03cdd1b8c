"""Whether a model API is slower than it usually is at this hour, from one store's own calls.

In: histograms of ten minutes each, by provider, model and signal.  Out: one `Drift` per series.  The logarithm of each
ten minutes' median is compared with the same hour of the week over four weeks where they exist, else with the same hour
of the day over seven days: their median, and their median absolute deviation (at least 0.05, about 5 %).  A one-sided
CUSUM adds up what is over one deviation and alarms past `ALARM`: a lasting ten percent wakes somebody, a single bad
ten minutes does not.

What it deliberately does not do: judge series without history (said as such), or average over models.  How it can be
wrong: a store that sees few calls has noisy medians, so ten minutes with fewer than `LEAST_CALLS` calls say nothing.
**Source:** reference/ecosystem.md 2.6 (the rule and its simulation, which is the golden test).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from fairtrial.middleware.analysis.loghist import LogHistogram

SLOT_S: Final = 600
"""Length of one slot, s; slots count from the Unix epoch."""
LEAST_CALLS: Final = 5
ALARM: Final = 10.0
OVER: Final = 5.0
"""An alarm ends when the sum has fallen to this."""
_HIGHEST: Final = 15.0
"""The sum rises no further, so that it falls soon when all is well again: a hundred minutes."""
_SLACK: Final = 1.0
_MOST: Final = 6.0
"""One slot counts for at most this many deviations, so that a single outage of ten minutes does not alarm alone."""
_LEAST_SPREAD: Final = 0.05
_HOUR: Final = 3600 // SLOT_S
_DAY: Final = 24 * _HOUR
_WEEK: Final = 7 * _DAY
_DAYS: Final = 7
_WEEKS: Final = 4
_LEAST_PERIODS: Final = 4

Signal = Literal["ttft", "duration", "token_rate"]
SIGNALS: Final[Mapping[Signal, int]] = {"ttft": 1, "duration": 1, "token_rate": -1}
"""Signal -> which direction is worse."""
State = Literal["steady", "drifting", "was drifting", "no history", "too few calls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """What this hour usually is: the median of the logarithms of medians, and their spread (log units)."""

    median: float
    spread: float
    by: Literal["hour of the week", "hour of the day"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One slot: median of its calls, what is usual, and the sum so far; None where it says nothing."""

    slot: int
    calls: int
    median: float | None
    usual: float | None
    sum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One series over the window.  `since`: the slot in which the present (or last) drift began; `ratio`: the median of
    its slots over what is usual, over 1 is a higher value."""

    provider: str
    model: str
    signal: Signal
    state: State
    since: int | None = None
    until: int | None = None
    ratio: float | None = None
    by: str | None = None
    points: tuple[Point, ...] = field(default=())


Slots = Mapping[int, LogHistogram]


def usual(slots: Slots, slot: int) -> Usual | None:
    """What is usual for the hour that this slot lies in, from what came before it; None without enough history."""
    hour = slot // _HOUR * _HOUR
    for periods, length, by in ((_WEEKS, _WEEK, "hour of the week"), (_DAYS, _DAY, "hour of the day")):
        values: list[float] = []
        counted = 0
        for period in range(1, periods + 1):
            found = [
                log
                for within in range(hour, hour + _HOUR)
                if (log := _log_median(slots.get(within - period * length))) is not None
            ]
            counted += bool(found)
            values += found
        if counted >= _LEAST_PERIODS:
            middle = statistics.median(values)
            spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
            return Usual(
                median=middle,
                spread=max(spread, _LEAST_SPREAD),
                by="hour of the week" if by == "hour of the week" else "hour of the day",
            )
    return None


def judge(provider: str, model: str, signal: Signal, slots: Slots, *, since: int, until: int) -> Drift:
    """One series, over the slots `since` to `until` (exclusive)."""
    worse = SIGNALS[signal]
    points: list[Point] = []
    total, began = 0.0, None
    alarms: list[tuple[int, int | None]] = []
    risen: list[float] = []
    """Of the slots since `began` that were worse than usual: their distance, log units."""
    drifted: list[float] = []
    """The same of the last alarm."""
    top, upto = 0.0, 0
    """Where the sum was highest last, and how many of `risen` led there: what comes later is no part of the drift."""
    by: str | None = None
    known: dict[int, Usual | None] = {}
    for slot in range(since, until):
        histogram = slots.get(slot)
        median = _log_median(histogram)
        hour = slot // _HOUR
        if median is not None and hour not in known:
            known[hour] = usual(slots, slot)
        base = known.get(hour) if median is not None else None
        if median is not None and base is not None:
            by = base.by
            is_open = bool(alarms) and alarms[-1][1] is None
            if not is_open and total == 0.0:
                began = slot
                risen.clear()
                top, upto = 0.0, 0
            step = min(worse * (median - base.median) / base.spread, _MOST) - _SLACK
            total = min(_HIGHEST, max(0.0, total + step))
            if step > 0:
                risen.append(median - base.median)
            if total >= top:
                top, upto = total, len(risen)
            if is_open or total > ALARM:
                drifted = risen[:upto]
            if total > ALARM and not is_open:
                alarms.append((began if began is not None else slot, None))
            elif is_open and total <= OVER:
                alarms[-1] = (alarms[-1][0], slot)
                total = 0.0
        points.append(
            Point(
                slot=slot,
                calls=0 if histogram is None else len(histogram),
                median=None if median is None else math.exp(median),
                usual=None if base is None else math.exp(base.median),
                sum=total,
            )
        )
    told = [point for point in points if point.median is not None]
    state: State = "too few calls"
    if alarms:
        state = "drifting" if alarms[-1][1] is None else "was drifting"
    elif told:
        state = "steady" if any(point.usual is not None for point in told) else "no history"
    began_at, ended_at = alarms[-1] if alarms else (None, None)
    return Drift(
        provider=provider,
        model=model,
        signal=signal,
        state=state,
        since=began_at,
        until=ended_at,
        ratio=math.exp(statistics.median(drifted)) if drifted else _ratio(points),
        by=by,
        points=tuple(points),
    )


def _ratio(points: Sequence[Point]) -> float | None:
    """Over the whole window."""
    logs = [math.log(point.median / point.usual) for point in points if point.median and point.usual]
    return math.exp(statistics.median(logs)) if logs else None


def _log_median(histogram: LogHistogram | None) -> float | None:
    if histogram is None or len(histogram) < LEAST_CALLS:
        return None
    middle = histogram.quantile(0.5)
    return None if middle is None else math.log(middle)
