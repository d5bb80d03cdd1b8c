"""What people ask the store: which trials are there, which one is meant, who died in the middle.

In: an open connection.  Out: small records.  Nothing here computes a verdict.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

_COLUMNS: Final = (
    "trial, run, name, task, started_ns, ended_ns, closed, outcome, exit_code, signal, blame, grade, cause, "
    "terminated_by, step, steps, sentence, trace_id"
)


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One line of `fairtrial trials`; None is not known (yet)."""

    trial: str
    run: str | None
    name: str | None
    task: str | None
    started_ns: int
    ended_ns: int | None
    closed: str | None
    outcome: str | None
    exit_code: int | None
    signal: int | None
    blame: str | None
    grade: str | None
    cause: str | None
    terminated_by: str | None
    step: int | None
    steps: int | None
    sentence: str | None
    trace_id: str | None


@dataclass(frozen=True, slots=True)
class OpenTrial:
    """A trial without an end, and the process that owned it."""

    trial: str
    pid: int | None
    boot_id: str | None
    start_ticks: int | None


def list_trials(
    database: sqlite3.Connection, *, run: str | None = None, limit: int = 20, failed_only: bool = False
) -> list[TrialRow]:
    """The newest trials first."""
    where, values = ["1"], list[object]()
    if run is not None:
        where.append("run = ?")
        values.append(run)
    if failed_only:
        where.append("(outcome IS NULL OR outcome != 'passed')")
    # The column list and the conditions are constants of this module; only values come from outside.
    query = f"SELECT {_COLUMNS} FROM trials WHERE {' AND '.join(where)} ORDER BY started_ns DESC LIMIT ?"  # noqa: S608
    return [TrialRow(*row) for row in database.execute(query, (*values, limit))]


def list_runs(database: sqlite3.Connection, *, limit: int = 5) -> list[str]:
    """Names of runs, that with the newest trial first."""
    query = "SELECT run FROM trials WHERE run IS NOT NULL GROUP BY run ORDER BY max(started_ns) DESC LIMIT ?"
    return [row[0] for row in database.execute(query, (limit,))]


def find_trial(database: sqlite3.Connection, wanted: str) -> list[TrialRow]:
    """Trials that `wanted` may mean: `last`, a whole id, the end or begin of an id, a name or a task (newest first)."""
    if wanted == "last":
        return list_trials(database, limit=1)
    # S608: the column list is a constant of this module.
    query = f"""SELECT {_COLUMNS} FROM trials
        WHERE trial = ? OR trial LIKE ? ESCAPE '\\' OR trial LIKE ? ESCAPE '\\' OR ? IN (name, task)
        ORDER BY started_ns DESC LIMIT 20"""  # noqa: S608
    escaped = wanted.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    rows = [TrialRow(*r) for r in database.execute(query, (wanted, f"{escaped}%", f"%{escaped}", wanted))]
    exact = [row for row in rows if row.trial == wanted]
    return exact or rows


def trials_by_id(database: sqlite3.Connection, ids: Iterable[str]) -> list[TrialRow]:
    """The trials with these ids, in any order; an id that is not there is left out."""
    # S608: the column list is a constant of this module.
    query = f"SELECT {_COLUMNS} FROM trials WHERE trial = ?"  # noqa: S608
    found = (database.execute(query, (trial,)).fetchone() for trial in ids)
    return [TrialRow(*row) for row in found if row is not None]


def open_trials(database: sqlite3.Connection) -> list[OpenTrial]:
    """Trials that nobody closed."""
    query = "SELECT trial, owner_pid, owner_boot, owner_start FROM trials WHERE closed IS NULL"
    return [OpenTrial(*row) for row in database.execute(query)]


def orphans(database: sqlite3.Connection, alive: Callable[[OpenTrial], bool]) -> list[str]:
    """Ids of open trials whose owner is dead; `alive` asks the system."""
    return [trial.trial for trial in open_trials(database) if not alive(trial)]


def list_open_rows(database: sqlite3.Connection) -> list[tuple[TrialRow, OpenTrial]]:
    """Trials that nobody closed, each with its owner."""
    # S608: the column list is a constant of this module.
    query = f"""SELECT {_COLUMNS}, owner_pid, owner_boot, owner_start FROM trials
        WHERE closed IS NULL ORDER BY started_ns"""  # noqa: S608
    return [(TrialRow(*row[:-3]), OpenTrial(row[0], *row[-3:])) for row in database.execute(query)]
