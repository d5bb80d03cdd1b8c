"""The store's writer: takes observations and records without ever blocking, writes them in one thread.

In: `put`, `put_trial` from the observer's loop.  Out: rows in SQLite, committed at least every 0.2 s, so a
kill -9 loses nothing older than half a second.  When the database cannot be opened or written (not writable,
full, damaged, locked) the rows go to a *spill file* of JSON lines in the first folder that takes them, and
`fairtrial import store FILE` brings them back; only when no folder takes them are they kept in memory alone, counted.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal, StoreFailed
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.database import (
    assign,
    forget_trial_row,
    insert_observation,
    insert_trial,
    open_database,
    open_trial_row,
)
from fairtrial.middleware.store.packing import Packer
from fairtrial.middleware.store.parted_runs import PartedRow, remember

COMMIT_EVERY_S: Final = 0.2
UNCOMMITTED_S: Final = 0.5
"""Of a process that was killed, what it had seen for less than so long may stand in no row."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that an open trial belongs to; a dead owner's trial may be closed by anyone."""

    pid: int
    boot_id: str | None
    start_ticks: int | None


@dataclass(frozen=True, slots=True)
class _Open:
    trial: Trial
    owner: Owner


@dataclass(frozen=True, slots=True)
class _Close:
    trial: Trial


@dataclass(frozen=True, slots=True)
class _Want:
    trial: str
    root: str | None
    parent: str | None


@dataclass(frozen=True, slots=True)
class _Restore:
    observations: tuple[Observation, ...]


@dataclass(frozen=True, slots=True)
class _Barrier:
    reached: threading.Event


@dataclass(frozen=True, slots=True)
class _Assign:
    run: PartedRow
    rows: Mapping[str, Sequence[tuple[str, int]]]


_Row = Observation | _Open | _Close | _Want | _Restore | _Assign
_Item = _Row | _Barrier | None


def spill_folders(store: Path) -> list[Path]:
    """Where rows go when the store does not take them: beside it, else among the temporary files.

    Not into folders of the system, where a mistyped `--store /tmp` or `--store /dev/full` would leave them.
    """
    beside = Path(os.path.realpath(store)).parent
    of_the_system = beside == beside.parent or beside.parts[1] in {"dev", "proc", "sys"}
    folders = [] if of_the_system else [beside]
    try:
        folders.append(Path(tempfile.gettempdir()) / f"fairtrial-spill-{os.getuid()}")
    except FileNotFoundError:  # a container whose root is read-only and that has no other place
        return folders
    return folders


class StoreWriter:
    """One thread, one queue; `failed` says in a sentence what went wrong, or is None."""

    def __init__(
        self,
        path: Path,
        journal: Journal,
        *,
        trial: str | None = None,
        page_limit: int | None = None,
        spill_to: Sequence[Path] | None = None,
    ) -> None:
        """`trial`: the trial under which rows that belong to none are kept, because they were seen during it.
        `page_limit`: the most pages that the database may grow to; then it is full, as on a full disk.
        `spill_to`: folders for spill files instead of `spill_folders`."""
        self.path = path
        self.failed: str | None = None
        self.spills: list[Path] = []
        """Files that hold what the store did not take, in order; usually one."""
        self.kept_in_memory = 0
        self._journal = journal
        self._trial = trial
        self._page_limit = page_limit
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._spill_folders = list(spill_folders(path) if spill_to is None else spill_to)
        self._spill_file: int | None = None
        self._database: sqlite3.Connection | None = None
        self._packer = Packer()
        self._thread = threading.Thread(target=self._work, name="store-writer", daemon=True)
        self._thread.start()

    def put(self, observation: Observation) -> None:
        """Append one observation; returns at once."""
        self._queue.put(observation)

    def open_trial(self, trial: Trial, owner: Owner) -> None:
        """Write the row of a trial that begins."""
        self._queue.put(_Open(trial, owner))

    def close_trial(self, trial: Trial) -> None:
        """Write the summary row and the verdict's revision of a trial that ended."""
        self._queue.put(_Close(trial))

    def want_trace(self, trial: str, root_span_id: str | None, parent_span_id: str | None) -> None:
        """Note that this trial's trace was asked for; who starts next sends it if we are killed."""
        self._queue.put(_Want(trial, root_span_id, parent_span_id))

    def restore(self, observations: list[Observation]) -> None:
        """Put back rows that somebody else changed or removed; a database file that was removed is made anew."""
        self._queue.put(_Restore(tuple(observations)))

    def assign(self, run: PartedRow, rows: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        """A run turned out to be several trials: trial → its rows (source id, number).  The run's own row goes, and
        what it was is kept beside."""
        self._queue.put(_Assign(run, rows))

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything put before is committed or spilled; False when that took longer."""
        barrier = _Barrier(threading.Event())
        self._queue.put(barrier)
        return barrier.reached.wait(timeout_s)

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is queued and end the thread."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._database = open_database(self.path)
            if self._page_limit is not None:
                self._database.execute(f"PRAGMA max_page_count={self._page_limit:d}")
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the thread: rows go to the spill file
            self._fail("open", error)
        waiting: list[_Row] = []
        barriers: list[_Barrier] = []
        deadline: float | None = None
        while True:
            try:
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
                item = self._queue.get(timeout=timeout)
            except queue.Empty:
                item = _Barrier(threading.Event())
            if isinstance(item, _Barrier):
                barriers.append(item)
            elif item is not None:
                waiting.append(item)
                deadline = deadline if deadline is not None else time.monotonic() + COMMIT_EVERY_S
            if item is None or barriers or len(waiting) >= 512:
                self._write(waiting)
                waiting.clear()
                deadline = None
                for barrier in barriers:
                    barrier.reached.set()
                barriers.clear()
            if item is None:
                break
        if self._database is not None:
            self._database.close()
        self._close_spill()

    def _close_spill(self) -> None:
        if self._spill_file is not None:
            os.close(self._spill_file)
            self._spill_file = None

    def _write(self, rows: list[_Row]) -> None:
        if not rows:
            return
        if self._database is not None:
            try:
                if any(isinstance(row, _Restore) for row in rows):
                    # The open connection may belong to a file that has no name any more.
                    self._database.close()
                    self._database = open_database(self.path)
                    self._packer = Packer()
                with self._database:
                    for row in rows:
                        _insert(self._database, row, self._trial, self._packer)
                return
            except Exception as error:  # noqa: BLE001 - same
                self._fail("write", error)
        self._spill_rows(rows)

    def _fail(self, label: str, error: Exception) -> None:
        database, self._database = self._database, None
        if database is not None:
            try:
                database.close()
            except sqlite3.Error as again:
                self._journal.note(StoreFailed(label="close", detail=str(again)))
        self.failed = explain(self.path, error)
        self._journal.note(StoreFailed(label=label, detail=str(error)))

    def _spill_rows(self, rows: list[_Row]) -> None:
        text = b"".join(self._as_lines(row) for row in rows)
        while self._spill_file is not None or self._open_spill():
            if self._append(text):
                return
            # The folder takes no more (often the same full disk as the store's): on to the next one.
            self._close_spill()
        self.kept_in_memory += len(rows)

    def _as_lines(self, row: _Row) -> bytes:
        try:
            return b"".join(line + b"\n" for line in _lines(row))
        except Exception as error:  # noqa: BLE001 - a row that cannot be written at all takes no other with it
            self.kept_in_memory += 1
            self._journal.note(StoreFailed(label="row", detail=repr(error)))
            return b""

    def _append(self, text: bytes) -> bool:
        """Write all of it, or leave the file as it was."""
        assert self._spill_file is not None
        before = os.fstat(self._spill_file).st_size
        try:
            done = 0
            while done < len(text):
                done += os.write(self._spill_file, text[done:])
        except OSError as error:
            self._journal.note(StoreFailed(label="spill", detail=str(error)))
            with contextlib.suppress(OSError):
                os.ftruncate(self._spill_file, before)
                os.lseek(self._spill_file, before, os.SEEK_SET)
            return False
        return True

    def _open_spill(self) -> bool:
        """Open a file in the next folder that takes one; False when there is none left."""
        while self._spill_folders:
            folder = self._spill_folders.pop(0)
            target = folder / f"spill-{os.getpid()}-{time.time_ns()}.jsonl"
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._spill_file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except OSError as error:
                self._journal.note(StoreFailed(label="spill_open", detail=str(error)))
                continue
            self.spills.append(target)
            return True
        return False


def _insert(database: sqlite3.Connection, row: _Row, trial: str | None, packer: Packer) -> None:
    if isinstance(row, Observation):
        insert_observation(database, row, seen_in=trial, packer=packer)
    elif isinstance(row, _Restore):
        for observation in row.observations:
            insert_observation(database, observation, seen_in=trial, replace=True)
    elif isinstance(row, _Open):
        owner = row.owner
        open_trial_row(database, row.trial, owner.pid, owner.boot_id, owner.start_ticks)
    elif isinstance(row, _Assign):
        assign(database, row.rows)
        forget_trial_row(database, row.run.id)
        remember(database, row.run)
    elif isinstance(row, _Want):
        exports.want(database, row.trial, row.root, row.parent, time.time_ns())
    else:
        insert_trial(database, row.trial)


def _lines(row: _Row) -> list[bytes]:
    if isinstance(row, Observation):
        return [msgspec.json.encode(row)]
    if isinstance(row, _Restore):
        return [msgspec.json.encode(observation) for observation in row.observations]
    if isinstance(row, _Want | _Assign):
        return []  # a spilled run's rows stay together; a spilled trial's trace is sent from memory, or not
    return [msgspec.json.encode({"trial_record": row.trial})]


def explain(path: Path, error: Exception, *, reading: bool = False) -> str:
    """What is wrong with the store, in one sentence with a remedy."""
    text = str(error)
    if "readonly" in text or isinstance(error, PermissionError) or "unable to open" in text:
        remedy = "name another one with --store PATH or $FAIRTRIAL_STORE"
    elif "is newer than" in text:
        remedy = "use the newer fairtrial that wrote it, or name another store with --store PATH"
    elif "malformed" in text or "not a database" in text:
        remedy = f"move it away (mv {path} {path}.damaged) and the next run starts a new one"
    elif "full" in text or "No space" in text:
        remedy = "free some space, or name another disk with --store PATH"
    else:
        remedy = "see the spill file, or name another store with --store PATH"
    return f"the store {path} {'cannot be read' if reading else 'does not take rows'} ({text}); {remedy}"
