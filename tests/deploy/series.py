"""Synthetic series for promtool: histograms whose distribution follows the hour of the day.

What a real API does over weeks cannot be had in a test; what these series show is that the rules say what they mean.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

STEP_MIN = 10
PER_DAY = 24 * 60 // STEP_MIN
_NORMAL = statistics.NormalDist()


def at(day: int, hour: float) -> int:
    """The step of a moment."""
    return round((day * 24 + hour) * 60 / STEP_MIN)


def when(day: int, hour: float) -> str:
    """The same for promtool."""
    return f"{round((day * 24 + hour) * 60)}m"


def histogram(
    name: str,
    labels: Mapping[str, str],
    bounds: Sequence[float],
    steps: int,
    calls: int,
    centre: Callable[[int], float],
    when: Callable[[int], bool] | None = None,
) -> list[dict[str, str]]:
    """Input series of a classic histogram: `calls` observations per step, log-normal around `centre(step)`.

    `when`: in which steps there are calls at all.
    """
    spread = [math.exp(0.35 * _NORMAL.inv_cdf((n + 0.5) / calls)) for n in range(calls)]
    counts = [0] * (len(bounds) + 1)
    columns: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
    for step in range(steps):
        middle = centre(step)
        for factor in spread if when is None or when(step) else ():
            counts[bisect_left(bounds, middle * factor)] += 1
        total = 0
        for n, count in enumerate(counts):
            total += count
            columns[n].append(total)
    written = ",".join(f'{key}="{value}"' for key, value in labels.items())
    comma = "," if written else ""
    limits = [*(f"{bound:.12g}" if bound % 1 else f"{bound:.1f}" for bound in bounds), "+Inf"]
    series = [
        {"series": f'{name}_bucket{{{written}{comma}le="{limit}"}}', "values": " ".join(map(str, column))}
        for limit, column in zip(limits, columns, strict=True)
    ]
    return [*series, {"series": f"{name}_count{{{written}}}", "values": " ".join(map(str, columns[-1]))}]


def hour_of(step: int) -> float:
    """Hour of the day."""
    return step % PER_DAY * STEP_MIN / 60


def day_of(step: int) -> int:
    """Day, from 0."""
    return step // PER_DAY


def daily(base: float, *, peak: float = 2.2, jitter: float = 0.02) -> Callable[[int], float]:
    """The same peak from 13 to 17 h on each day, and a little that changes from day to day."""

    def centre(step: int) -> float:
        wobble = 1 + jitter * math.sin(1.7 * day_of(step))
        return base * wobble * (peak if 13 <= hour_of(step) < 17 else 1.0)

    return centre


def changed(
    centre: Callable[[int], float], factor: float, day: int, since_h: float, until_h: float
) -> Callable[[int], float]:
    """The same, but for a few hours of one day."""

    def other(step: int) -> float:
        hit = day_of(step) == day and since_h <= hour_of(step) < until_h
        return centre(step) * (factor if hit else 1.0)

    return other


def restarted(series: list[dict[str, str]], steps: Sequence[int]) -> list[dict[str, str]]:
    """The same counters of a process that was started anew at these steps."""

    def again(values: str) -> str:
        counts = [int(value) for value in values.split()]
        return " ".join(str(c - counts[max((s for s in steps if s <= n), default=0)]) for n, c in enumerate(counts))

    return [{**one, "values": again(one["values"])} for one in series]


def unseen(series: list[dict[str, str]], steps: Sequence[int]) -> list[dict[str, str]]:
    """The same where Prometheus was away in these steps."""
    away = frozenset(steps)
    return [
        {**one, "values": " ".join("_" if n in away else value for n, value in enumerate(one["values"].split()))}
        for one in series
    ]
