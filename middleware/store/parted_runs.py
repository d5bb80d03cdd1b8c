"""Runs that were parted into several trials: what is left of the run itself, once its own row is gone.

In: an open connection.  Out: `PartedRow` records.  Rows are written once and never changed; a store that is older than
this table has none.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec

from fairtrial.middleware.core.records import Record
from fairtrial.middleware.store.queries import TrialRow, trials_by_id
from fairtrial.middleware.store.schema import pack, unpack

_MOST: Final = 20


class PartedRow(Record, frozen=True, kw_only=True):
    """One command that ran several trials; `id`: the run's own id, `trials`: those of its trials, the first first."""

    id: str
    name: str | None = None
    run: str | None = None
    task: str | None = None
    command: list[str] = []
    started_ns: int
    exit_code: int | None = None
    signal: int | None = None
    closed: str | None = None
    trials: list[str] = []
    unassigned: dict[str, int] = {}


_ROW: Final = msgspec.json.Decoder(PartedRow)


def remember(database: sqlite3.Connection, row: PartedRow) -> None:
    """Write it; the first that wrote of a run is right."""
    database.execute(
        "INSERT OR IGNORE INTO parted (id, name, started_ns, body) VALUES (?, ?, ?, ?)",
        (row.id, row.name, row.started_ns, pack(msgspec.json.encode(row))),
    )


def find_parted(database: sqlite3.Connection, wanted: str) -> list[PartedRow]:
    """Runs that `wanted` may mean: a whole id, the begin or end of one, a name; the newest first."""
    escaped = wanted.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    query = """SELECT body FROM parted WHERE id = ? OR id LIKE ? ESCAPE '\\' OR id LIKE ? ESCAPE '\\' OR name = ?
        ORDER BY started_ns DESC LIMIT ?"""
    rows = list(_read(database, query, (wanted, f"{escaped}%", f"%{escaped}", wanted, _MOST)))
    return [row for row in rows if row.id == wanted] or rows


def all_parted(database: sqlite3.Connection) -> Iterator[PartedRow]:
    """Every one of the store; a damaged row is skipped."""
    return _read(database, "SELECT body FROM parted ORDER BY id", ())


def trials_of(database: sqlite3.Connection, row: PartedRow) -> list[TrialRow]:
    """The run's trials as the store lists them, the first first."""
    found = {each.trial: each for each in trials_by_id(database, row.trials)}
    return [found[trial] for trial in row.trials if trial in found]


def _read(database: sqlite3.Connection, query: str, values: tuple[object, ...]) -> Iterator[PartedRow]:
    if database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'parted'").fetchone() is None:
        return
    for (body,) in database.execute(query, values):
        try:
            yield _ROW.decode(unpack(body))
        except (zlib.error, TypeError, msgspec.DecodeError):
            continue
