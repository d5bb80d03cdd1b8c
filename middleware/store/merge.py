"""Bringing rows back: spill files, and other stores, into this store.

In: a JSON-lines spill file or another store's database.  Out: counts.  Idempotent: a row that is there already
(same source and sequence number) changes nothing.  A damaged line is counted, not fatal.
"""

from __future__ import annotations

import sqlite3
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Record, Trial
from fairtrial.middleware.store.database import (
    all_observations,
    insert_observation,
    insert_trial,
    open_database,
    open_trial_row,
)
from fairtrial.middleware.store.packing import Packer
from fairtrial.middleware.store.parted_runs import all_parted, remember
from fairtrial.middleware.store.schema import unpack


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge found and added."""

    read: int
    added: int
    damaged: int
    trials: int
    late: tuple[str, ...] = ()
    """Trials that this store knew, for which observations came that it did not have."""


class _SpilledTrial(Record, frozen=True, kw_only=True):
    trial_record: Trial


def merge_file(database: sqlite3.Connection, source: Path) -> Merged:
    """Merge a spill file or a store, told apart by its first bytes.  Raises `OSError`, `sqlite3.Error`."""
    with source.open("rb") as file:
        magic = file.read(16)
    return _merge_store(database, source) if magic.startswith(b"SQLite format 3") else _merge_spill(database, source)


def _merge_spill(database: sqlite3.Connection, source: Path) -> Merged:
    read = damaged = 0
    packer = Packer()
    trials: set[str] = set()
    before = _rows(database)
    held = _held(database)
    with source.open("rb") as file, database:
        for line in file:
            try:
                if line.startswith(b'{"trial_record"'):
                    trial = msgspec.json.decode(line, type=_SpilledTrial).trial_record
                    insert_trial_whole(database, trial)
                    trials.add(trial.trial)
                else:
                    insert_observation(database, msgspec.json.decode(line, type=Observation), packer=packer)
                    read += 1
            except (msgspec.DecodeError, msgspec.ValidationError):
                damaged += 1
    return Merged(read, _rows(database) - before, damaged, len(trials), _late(database, held))


def _merge_store(database: sqlite3.Connection, source: Path) -> Merged:
    read = damaged = 0
    packer = Packer()
    trials: set[str] = set()
    before = _rows(database)
    held = _held(database)
    other = open_database(source, read_only=True)
    try:
        with database:
            for observation in all_observations(other):
                insert_observation(database, observation, packer=packer)
                read += 1
            damaged = int(other.execute("SELECT count(*) FROM observations").fetchone()[0]) - read
            for parted in all_parted(other):
                remember(database, parted)
            for (body,) in other.execute("SELECT body FROM verdicts ORDER BY trial, revision"):
                try:
                    trial = msgspec.json.decode(unpack(body), type=Trial)
                    insert_trial_whole(database, trial)
                    trials.add(trial.trial)
                except (zlib.error, msgspec.DecodeError, msgspec.ValidationError):
                    damaged += 1
    finally:
        other.close()
    return Merged(read, _rows(database) - before, damaged, len(trials), _late(database, held))


def _held(database: sqlite3.Connection) -> dict[str, int]:
    """How many observations of each closed trial there are."""
    query = """SELECT t.trial, count(o.seq) FROM trials t JOIN trial_keys k ON k.trial = t.trial
        LEFT JOIN observations o ON o.trial = k.id WHERE t.closed IS NOT NULL GROUP BY t.trial"""
    return dict(database.execute(query).fetchall())


def _late(database: sqlite3.Connection, before: dict[str, int]) -> tuple[str, ...]:
    after = _held(database)
    return tuple(sorted(trial for trial, count in before.items() if after.get(trial, 0) > count))


def _rows(database: sqlite3.Connection) -> int:
    query = (
        "SELECT (SELECT count(*) FROM observations) + (SELECT count(*) FROM verdicts) + (SELECT count(*) FROM trials)"
    )
    return int(database.execute(query).fetchone()[0])


def insert_trial_whole(database: sqlite3.Connection, trial: Trial) -> None:
    """A trial record from elsewhere: its row, and its end where it has one."""
    if trial.verdict is None and trial.ended is None:
        open_trial_row(database, trial, 0, None, None)
    else:
        insert_trial(database, trial)
