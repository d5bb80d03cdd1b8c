"""`fairtrial drift`: which model APIs are slower than they usually are at this hour.

In: a store and the window.  Out: text with a plot, or JSON.  Exit status 0; with `alarm` 1 when something drifts now.
"""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Final

from fairtrial.middleware.analysis.drift import SIGNALS, SLOT_S, Drift, judge
from fairtrial.middleware.analysis.paces import read_series
from fairtrial.middleware.core import clock
from fairtrial.middleware.report.drift import Row, drift_lines
from fairtrial.middleware.store.database import open_database

_HISTORY_S: Final = 29 * 24 * 3600


def show_drift(
    store: Path, *, hours: float, model: str | None, alarm: bool, as_json: bool, width: int, now_s: int | None = None
) -> int:
    """Print it; the exit status.  Raises `OSError` or `sqlite3.Error` for a store that cannot be read."""
    until = (clock.now().wall_ns // 10**9 if now_s is None else now_s) // SLOT_S + 1
    since = until - round(hours * 3600 / SLOT_S)
    drifts = _judged(store, since, until, model)
    if as_json:
        print(json.dumps([_plain(drift) for drift in drifts], indent=2))
    elif drifts:
        rows = [_row(drift) for drift in drifts]
        print("\n".join(drift_lines(rows, width=width, hours=hours)))
    else:
        print("no call of a closed trial lies in this window; `fairtrial trials` lists what there is")
    return int(alarm and any(drift.state == "drifting" for drift in drifts))


def _judged(store: Path, since: int, until: int, model: str | None) -> list[Drift]:
    writable = store.exists() and os.access(store, os.W_OK) and os.access(store.parent, os.W_OK)
    try:
        database = open_database(store, read_only=not writable)
    except sqlite3.OperationalError:
        database = open_database(store, read_only=True)
    try:
        series = read_series(database, since - _HISTORY_S // SLOT_S, writable=writable)
    finally:
        database.close()
    return [
        judge(provider, name, signal, slots, since=since, until=until)
        for (provider, name, signal), slots in sorted(
            series.items(), key=lambda item: (*item[0][:2], list(SIGNALS).index(item[0][2]))
        )
        if model in (None, name) and any(since <= slot < until for slot in slots)
    ]


def _row(drift: Drift) -> Row:
    return Row(
        provider=drift.provider,
        model=drift.model,
        signal=drift.signal,
        state=drift.state,
        since=None if drift.since is None else drift.since * SLOT_S,
        ratio=drift.ratio,
        by=drift.by,
        calls=sum(point.calls for point in drift.points),
        points=[(point.median, point.usual) for point in drift.points],
    )


def _plain(drift: Drift) -> dict[str, object]:
    """As `--json` prints it: slots become seconds of the epoch."""
    plain = asdict(drift)
    for name in ("since", "until"):
        if plain[name] is not None:
            plain[name] *= SLOT_S
    for point in plain["points"]:
        point["at"] = point.pop("slot") * SLOT_S
    return plain
