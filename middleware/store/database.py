"""Opening the store and the statements that read and write it.

In: a path, records.  Out: rows, records.  Synchronous SQLite in WAL mode; `writer.py` runs the writes in a
thread of its own, readers open their own connection.  Two runs share one store (busy timeout 5 s).
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.store.packing import Packer, Unpacker
from fairtrial.middleware.store.schema import SAMPLE_BYTES, SCHEMA_VERSION, STATEMENTS, pack, unpack

_OBSERVATION = msgspec.json.Decoder(Observation)
_TRIAL = msgspec.json.Decoder(Trial)


class StoreVersion(sqlite3.DatabaseError):
    """The store was written by a newer schema version than this program knows."""


def open_database(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open, and unless `read_only` create, the store; its folder is made with mode 0700, the file with 0600.

    Raises `OSError` or `sqlite3.Error` (also for a file that is not a database, or a newer version).
    """
    if path.exists() and not path.is_file():
        # Opening a pipe would wait for its other end, for ever.
        raise OSError(f"{path} is no regular file")
    if read_only:
        if not path.exists():
            raise FileNotFoundError(f"there is no store at {path}")
        database = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=5.0)
    else:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            path.touch(mode=0o600)
        database = sqlite3.connect(path, timeout=5.0)
    try:
        if not read_only:
            _use_wal(database)
            database.execute("PRAGMA synchronous=NORMAL")
            with database:
                database.execute("BEGIN IMMEDIATE")
                for statement in STATEMENTS:
                    database.execute(statement)
                database.execute("INSERT OR IGNORE INTO meta VALUES ('schema', ?)", (str(SCHEMA_VERSION),))
                # Older programs cannot read what is written from now on; all that they wrote stays readable.
                database.execute(
                    "UPDATE meta SET value = ? WHERE key = 'schema' AND CAST(value AS INTEGER) < ?",
                    (str(SCHEMA_VERSION), SCHEMA_VERSION),
                )
        row = database.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        if row is None or int(row[0]) > SCHEMA_VERSION:
            raise StoreVersion(f"store version {row[0] if row else '?'} is newer than {SCHEMA_VERSION}")
    except BaseException:
        database.close()
        raise
    return database


def _use_wal(database: sqlite3.Connection, within_s: float = 5.0) -> None:
    """Two that make a store at the same moment: SQLite's own busy timeout does not cover the change of the mode."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            database.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def insert_observation(
    database: sqlite3.Connection,
    observation: Observation,
    *,
    seen_in: str | None = None,
    replace: bool = False,
    packer: Packer | None = None,
) -> None:
    """Append one, kept under its trial, else under the trial that it was `seen_in`.

    A second delivery of the same (source_id, seq) changes nothing, or is to `replace` a forgery.  With a `packer` the
    row is packed against the one before it.
    """
    body = msgspec.json.encode(observation)
    source, sample = _source(database, observation.source_id)
    if sample is None and SAMPLE_BYTES[0] <= len(body) <= SAMPLE_BYTES[1]:
        # From the next row on: this one is packed without it, like all before.
        database.execute("UPDATE sources SET sample = ? WHERE id = ? AND sample IS NULL", (pack(body), source))
    trial = _key(database, "trial_keys", "trial", observation.subject.trial or seen_in or "")
    base = None if packer is None else packer.base(source, trial, observation)
    if base is None:
        sampled, packed = int(sample is not None), pack(body, sample or b"")
    else:
        sampled, packed = 1 + observation.seq - base.seq, pack(body, base.body)
    how = "REPLACE" if replace else "IGNORE"
    cursor = database.execute(
        f"INSERT OR {how} INTO observations (source, seq, trial, wall_ns, sampled, body) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608 - one of two words
        (source, observation.seq, trial, observation.wall_ns, sampled, packed),
    )
    if packer is not None and cursor.rowcount == 1:
        packer.stored(source, trial, observation, body, base)


def _source(database: sqlite3.Connection, source_id: str) -> tuple[int, bytes | None]:
    number = _key(database, "sources", "source_id", source_id)
    packed = database.execute("SELECT sample FROM sources WHERE id = ?", (number,)).fetchone()[0]
    return number, None if packed is None else unpack(packed)


def _key(database: sqlite3.Connection, table: str, column: str, text: str) -> int:
    """The number that stands for a text; made when it is new."""
    found = database.execute(f"SELECT id FROM {table} WHERE {column} = ?", (text,)).fetchone()  # noqa: S608 - constants
    if found is None:
        cursor = database.execute(f"INSERT INTO {table} ({column}) VALUES (?)", (text,))  # noqa: S608 - constants
        return int(cursor.lastrowid or 0)
    return int(found[0])


def open_trial_row(
    database: sqlite3.Connection, trial: Trial, pid: int, boot_id: str | None, start_ticks: int | None
) -> None:
    """The row of a trial that just began; `closed` stays NULL until it ends."""
    database.execute(
        """INSERT OR IGNORE INTO trials
           (trial, run, name, task, started_ns, trace_id, owner_pid, owner_boot, owner_start)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (*_beginning(trial), pid, boot_id, start_ticks),
    )


def insert_trial(database: sqlite3.Connection, trial: Trial) -> None:
    """The summary of a trial that ended, and its verdict as a revision of its own (never overwritten)."""
    verdict = trial.verdict
    database.execute(
        """INSERT INTO trials (trial, run, name, task, started_ns, trace_id) VALUES (?, ?, ?, ?, ?, ?)
           ON CONFLICT (trial) DO NOTHING""",
        _beginning(trial),
    )
    database.execute(
        """UPDATE trials SET run = ?, name = ?, task = ?, ended_ns = ?, closed = ?, outcome = ?, exit_code = ?,
           signal = ?, steps = ?, trace_id = ? WHERE trial = ?""",
        (
            trial.run,
            trial.name,
            trial.task,
            wall_ns_of(trial.ended),
            trial.closed,
            trial.outcome,
            trial.exit_code,
            trial.signal,
            len(trial.steps),
            trial.trace_id,
            trial.trial,
        ),
    )
    if verdict is None:
        return
    terminated_by = verdict.terminated_by.cause if verdict.terminated_by else None
    database.execute(
        "UPDATE trials SET blame = ?, grade = ?, cause = ?, terminated_by = ?, step = ?, sentence = ? WHERE trial = ?",
        (verdict.blame, verdict.grade, verdict.cause, terminated_by, verdict.step, verdict.sentence, trial.trial),
    )
    database.execute(
        "INSERT OR IGNORE INTO verdicts (trial, revision, ruleset, made_ns, body) VALUES (?, ?, ?, ?, ?)",
        (trial.trial, verdict.revision, trial.ruleset, time.time_ns(), pack(msgspec.json.encode(trial))),
    )


def _beginning(trial: Trial) -> tuple[object, ...]:
    started_ns = wall_ns_of(trial.started) or time.time_ns()
    return trial.trial, trial.run, trial.name, trial.task, started_ns, trial.trace_id


def observations_of(database: sqlite3.Connection, trial: str) -> Iterator[Observation]:
    """All observations of one trial in order of wall time; a damaged row is skipped."""
    query = f"{_ROWS} WHERE k.trial = ? ORDER BY o.wall_ns, o.source, o.seq"
    return _read(database, query, trial)


def observations_in_store_order(database: sqlite3.Connection, trial: str) -> Iterator[Observation]:
    """The same, source by source: nothing is sorted, so the first come at once and none is held."""
    return _read(database, f"{_ROWS} WHERE k.trial = ? ORDER BY o.source, o.seq", trial)


def observations_at(database: sqlite3.Connection, rows: Iterable[tuple[str, int]]) -> Iterator[Observation]:
    """Single rows by (source id, number); one that is not there, or damaged, is skipped."""
    query = f"{_ROWS} JOIN sources s ON s.id = o.source WHERE s.source_id = ? AND o.seq = ?"
    unpacker = Unpacker(database)
    for key in sorted(rows):
        yield from _read(database, query, *key, unpacker=unpacker)


def count_of(database: sqlite3.Connection, trial: str) -> int:
    """How many observations of one trial there are."""
    query = "SELECT count(*) FROM observations o JOIN trial_keys k ON k.id = o.trial WHERE k.trial = ?"
    return int(database.execute(query, (trial,)).fetchone()[0])


def assign(database: sqlite3.Connection, rows: Mapping[str, Sequence[tuple[str, int]]]) -> None:
    """Say whose rows are, now that a run was parted: trial → its (source id, number).

    What a row says is never changed; whose it is stands beside it, and is what a reader gets as its subject.
    """
    sources: dict[str, int] = {}
    for trial, keys in rows.items():
        number = _key(database, "trial_keys", "trial", trial)
        for source_id, _ in keys:
            if source_id not in sources:
                sources[source_id] = _key(database, "sources", "source_id", source_id)
        database.executemany(
            "UPDATE observations SET trial = ? WHERE source = ? AND seq = ?",
            ((number, sources[source_id], seq) for source_id, seq in keys),
        )


def forget_trial_row(database: sqlite3.Connection, trial: str) -> None:
    """The run was no trial: its row goes, and the wish for its trace; what was observed stays."""
    database.execute("DELETE FROM trials WHERE trial = ?", (trial,))
    database.execute("DELETE FROM exports WHERE trial = ? AND revision = 0", (trial,))


def all_observations(database: sqlite3.Connection) -> Iterator[Observation]:
    """Every observation, source by source; a damaged row is skipped."""
    return _read(database, f"{_ROWS} ORDER BY o.source, o.seq")


def of_trial(observation: Observation, trial: str) -> Observation:
    """The same fact, told of this trial."""
    subject = msgspec.structs.replace(observation.subject, trial=trial)
    return msgspec.structs.replace(observation, subject=subject)


_ROWS: Final = (
    "SELECT o.source, o.seq, o.sampled, o.body, k.trial FROM observations o JOIN trial_keys k ON k.id = o.trial"
)


def _read(
    database: sqlite3.Connection, query: str, *values: str | int, unpacker: Unpacker | None = None
) -> Iterator[Observation]:
    unpacker = unpacker or Unpacker(database)
    for *row, trial in database.execute(query, values):
        try:
            observation = _OBSERVATION.decode(unpacker.body(*row))
            if observation.subject.trial not in {None, trial}:
                observation = of_trial(observation, trial)
            yield observation
        except (zlib.error, msgspec.DecodeError, msgspec.ValidationError):
            continue


def record_at(database: sqlite3.Connection, trial: str, revision: int) -> Trial | None:
    """The trial as it was computed with this revision of its verdict; None when there is none that can be read."""
    row = database.execute("SELECT body FROM verdicts WHERE trial = ? AND revision = ?", (trial, revision)).fetchone()
    try:
        return None if row is None else _TRIAL.decode(unpack(row[0]))
    except (zlib.error, msgspec.DecodeError, msgspec.ValidationError):
        return None


def latest_record(database: sqlite3.Connection, trial: str) -> Trial | None:
    """The trial with its newest verdict as it was computed, or None while it is open."""
    row = database.execute(
        "SELECT body FROM verdicts WHERE trial = ? ORDER BY revision DESC LIMIT 1", (trial,)
    ).fetchone()
    return None if row is None else _TRIAL.decode(unpack(row[0]))


def latest_records(database: sqlite3.Connection, run: str) -> Iterator[Trial]:
    """The closed trials of a run, each with its newest verdict; a damaged record is skipped."""
    query = """SELECT v.body FROM trials t JOIN verdicts v ON v.trial = t.trial
        WHERE t.run = ? AND t.closed IS NOT NULL
        AND v.revision = (SELECT max(revision) FROM verdicts w WHERE w.trial = t.trial) ORDER BY t.started_ns"""
    for (body,) in database.execute(query, (run,)):
        try:
            yield _TRIAL.decode(unpack(body))
        except (zlib.error, msgspec.DecodeError, msgspec.ValidationError):
            continue
