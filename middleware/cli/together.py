"""What the other trials of a run say, for `show` and `trials`: read from the store, looked at together, put into lines.

In: a store and a run.  Out: lines.  What this module does not do: change a stored verdict.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from fairtrial.middleware.attribution.across import Across, across
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, Thresholds
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.report.together import Moved, run_lines, trial_lines
from fairtrial.middleware.store.database import latest_record
from fairtrial.middleware.store.queries import list_trials

MOST: Final = 200
"""Trials of a run that are looked at together, the newest."""


def of_run(database: sqlite3.Connection, run: str, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> Across:
    """All closed trials of a run together.  Raises `sqlite3.Error` when the store cannot be read."""
    rows = [row for row in list_trials(database, run=run, limit=MOST) if row.closed is not None]
    records = [latest_record(database, row.trial) for row in rows]
    return across([record for record in records if record is not None], thresholds)


def beside_one(database: sqlite3.Connection, trial: Trial, thresholds: Thresholds, *, width: int) -> list[str]:
    """What the others of its run say about one trial; nothing for a trial of no run."""
    if trial.run is None:
        return []
    found = of_run(database, trial.run, thresholds)
    mine = next((m for m in _moved(found, [trial.trial])), None)
    shared = [f.what for f in found.findings if trial.trial in f.trials]
    return trial_lines(mine, shared, off=found.off, width=width)


def below_list(database: sqlite3.Connection, run: str, *, width: int) -> list[str]:
    """What the trials of a run say together."""
    found = of_run(database, run)
    return run_lines(
        _moved(found, sorted(found.adjusted)), [f.what for f in found.findings], off=found.off, width=width
    )


def _moved(found: Across, names: Sequence[str]) -> list[Moved]:
    told: list[Moved] = []
    for name in names:
        moved = found.adjusted.get(name)
        if moved is not None:
            grade = f", {moved.grade.value}" if moved.grade is not None else ""
            cause = f" ({moved.cause})" if moved.cause is not None else ""
            told.append((name[-12:], moved.was, f"{moved.blame.value}{grade}{cause}", moved.why))
    return told
