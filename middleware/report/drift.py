"""Drift for a person: one line a series, and for those that drift a plot of the window.

In: series as plain values (`Row`).  Out: lines.  The plot has one column per slot of the window, folded to the width:
the height is the median over what is usual, from half (bottom) to twice (top), on a logarithmic scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from fairtrial.middleware.report.words import plural, printable

_BARS: Final = "▁▂▃▄▅▆▇█"
_NOTHING: Final = "·"
_NAMES: Final = {"ttft": "first token", "duration": "duration", "token_rate": "tokens/s"}
_UNITS: Final = {"ttft": "s", "duration": "s", "token_rate": "/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One series; `points` are (median or None, usual or None) per slot, `since` seconds of the epoch."""

    provider: str
    model: str
    signal: str
    state: str
    since: int | None
    ratio: float | None
    by: str | None
    calls: int
    points: Sequence[tuple[float | None, float | None]]


def drift_lines(rows: Sequence[Row], *, width: int, hours: float) -> list[str]:
    """Those that drift first, each with its plot; then one line for each of the others."""
    lines: list[str] = []
    worst = sorted(
        rows, key=lambda row: (row.state != "drifting", row.state != "was drifting", row.provider, row.model)
    )
    for row in worst:
        lines.append(_line(row))
        if row.state in ("drifting", "was drifting"):
            lines.append(f"    {plot(row.points, width - 4)}")
    if any(row.state in ("drifting", "was drifting") for row in rows):
        lines.append(f"    ▁ half of what is usual … █ twice; the last {hours:g} hours, {_NOTHING} too few calls")
    return lines


def _line(row: Row) -> str:
    where = f"{printable(row.provider)} {printable(row.model)}"
    name = _NAMES.get(row.signal, row.signal)
    now, base = _last(row.points)
    figures = ""
    if now is not None and base is not None:
        unit = _UNITS.get(row.signal, "")
        figures = f" {now:.3g}{unit}, usually {base:.3g}{unit} ({row.by})"
    said = row.state
    if row.since is not None and row.ratio is not None:
        begun = datetime.fromtimestamp(row.since, UTC).strftime("%m-%d %H:%M UTC")
        said = (
            f"{row.state} since {begun}: {row.ratio:.2f} times what is usual"
            if row.state == "drifting"
            else (f"{row.state} from {begun} on: {row.ratio:.2f} times what is usual")
        )
    mark = "►" if row.state == "drifting" else " "
    return f"{mark} {where}  {name}: {said};{figures} {plural(row.calls, 'call')}".replace(";  ", "; ")


def _last(points: Sequence[tuple[float | None, float | None]]) -> tuple[float | None, float | None]:
    return next((point for point in reversed(points) if None not in point), (None, None))


def plot(points: Sequence[tuple[float | None, float | None]], width: int) -> str:
    """At most `width` columns; a column is the mean of the logarithms of what it folds."""
    fold = max(1, math.ceil(len(points) / max(1, width)))
    columns: list[str] = []
    for begin in range(0, len(points), fold):
        logs = [math.log2(now / base) for now, base in points[begin : begin + fold] if now and base]
        if not logs:
            columns.append(_NOTHING)
            continue
        height = (sum(logs) / len(logs) + 1) / 2
        columns.append(_BARS[min(len(_BARS) - 1, max(0, round(height * (len(_BARS) - 1))))])
    return "".join(columns)
