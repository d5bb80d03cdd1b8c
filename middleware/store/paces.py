"""How fast model APIs were: one histogram per provider, model, signal and ten minutes, and which trials are in them.

In: counts as JSON objects (bucket -> count); what a bucket means is `analysis/loghist.py`'s to know.  Out: the same.
Each trial is counted once: its id is written in the same transaction as its counts.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping

Key = tuple[str, str, str, int]
"""Provider, model, signal, slot."""
Counts = dict[str, int]


def uncounted(database: sqlite3.Connection) -> list[str]:
    """Closed trials that are in no histogram yet, the oldest first."""
    rows = database.execute(
        "SELECT trial FROM trials WHERE closed IS NOT NULL AND trial NOT IN (SELECT trial FROM paced)"
        " ORDER BY started_ns"
    )
    return [trial for (trial,) in rows]


def add(
    database: sqlite3.Connection,
    trials: Iterable[str],
    counts: Mapping[Key, Counts],
    merge: Callable[[Counts, Counts], Counts],
) -> None:
    """Add these counts, which are of these trials; a trial that another process has counted meanwhile undoes all.

    Raises `sqlite3.Error`; `sqlite3.IntegrityError` when one of the trials is in already.
    """
    with database:
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO paced VALUES (?)", [(trial,) for trial in trials])
        for key, more in counts.items():
            row = database.execute(
                "SELECT counts FROM paces WHERE provider = ? AND model = ? AND signal = ? AND slot = ?", key
            ).fetchone()
            whole = more if row is None else merge(json.loads(row[0]), more)
            database.execute("INSERT OR REPLACE INTO paces VALUES (?, ?, ?, ?, ?)", (*key, json.dumps(whole)))


def stored(database: sqlite3.Connection, since: int) -> Iterator[tuple[Key, Counts]]:
    """All histograms from slot `since` on."""
    for *key, counts in database.execute(
        "SELECT provider, model, signal, slot, counts FROM paces WHERE slot >= ?", (since,)
    ):
        provider, model, signal, slot = key
        yield (str(provider), str(model), str(signal), int(slot)), json.loads(counts)


def has_table(database: sqlite3.Connection) -> bool:
    """Whether the store knows of histograms: one that an older version wrote, and that is read only, does not."""
    found = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'paced'").fetchone()
    return found is not None
