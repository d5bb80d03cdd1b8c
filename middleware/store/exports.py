"""What was sent to a trace collector, what waits and what is lost: the ledger and the outbox in one table.

In: batches of encoded spans of a trial.  Out: one batch at a time to whoever sends, and exact counts.  Every span that
was ever laid out stands in exactly one state, so that produced = exported + pending + dropped by construction::

    pending ──claim──► sending ──answer──► exported (minus what the collector said it rejected) | dropped
       ▲                  │
       └── surely unsent ─┘      no answer, or the sender was killed: dropped as "unconfirmed", a span goes out once

A batch is claimed in a committed transaction before its first byte leaves, so two processes never send the same one
and a killed sender's batch is never sent again.  Bodies (deflated OTLP protobuf) leave with the answer; the ids stay,
and no later production uses one twice.  Times are wall-clock ns.  Nothing here opens a connection or sends.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

ID_BYTES: Final = 8
FAR_NS: Final = 3_600_000_000_000
"""Nothing waits longer than an hour for its turn: a farther time is a collector's mistake or a clock's jump."""

UNCONFIRMED: Final = "unconfirmed"
REJECTED: Final = "rejected"
STORE_LIMIT: Final = "store_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Encoded spans on their way: `ids` are their span ids, 8 bytes each, `body` one OTLP request as protobuf."""

    ids: bytes
    body: bytes

    @property
    def spans(self) -> int:
        """How many."""
        return len(self.ids) // ID_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A batch that is this process's to send."""

    row: int
    trial: str
    revision: int
    batch: Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A closed trial whose newest verdict (`newest`) was not laid out; `revision` is the last one that was, 0 none."""

    trial: str
    root: str | None
    parent: str | None
    revision: int
    newest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Spans.  `pending` includes those under way; `dropped` by reason."""

    produced: int = 0
    exported: int = 0
    pending: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def lost(self) -> int:
        """All that were dropped."""
        return sum(self.dropped.values())

    def __add__(self, other: Counts) -> Counts:
        dropped = dict(self.dropped)
        for why, spans in other.dropped.items():
            dropped[why] = dropped.get(why, 0) + spans
        return Counts(
            produced=self.produced + other.produced,
            exported=self.exported + other.exported,
            pending=self.pending + other.pending,
            dropped=dropped,
        )


def want(database: sqlite3.Connection, trial: str, root: str | None, parent: str | None, now_ns: int) -> None:
    """Note that a trial's trace was asked for, so that whoever starts next can send it if we are killed."""
    database.execute("INSERT OR IGNORE INTO exports VALUES (?, ?, ?, ?, 0)", (trial, root, parent, now_ns))


def wanted(database: sqlite3.Connection, *, revised: bool = True) -> list[Wanted]:
    """Closed trials whose trace was asked for and whose newest verdict is not laid out yet, oldest first.

    `revised`: also those of which an earlier verdict was; that takes a look at every trial, which is much for an idle
    turn.
    """
    only = "" if revised else "AND e.revision = 0"
    rows = database.execute(
        f"""SELECT e.trial, e.root, e.parent, e.revision,
           (SELECT max(revision) FROM verdicts v WHERE v.trial = e.trial) n
           FROM exports e JOIN trials t ON t.trial = e.trial
           WHERE t.closed IS NOT NULL AND n > e.revision {only} ORDER BY e.wanted_ns"""  # noqa: S608 - a constant
    )
    return [Wanted(trial=t, root=root, parent=parent, revision=r, newest=n) for t, root, parent, r, n in rows]


def laid_out(database: sqlite3.Connection, trial: str) -> Wanted | None:
    """How far the trace of this trial was produced, or None when it never was asked for."""
    row = database.execute("SELECT root, parent, revision FROM exports WHERE trial = ?", (trial,)).fetchone()
    return None if row is None else Wanted(trial=trial, root=row[0], parent=row[1], revision=row[2], newest=row[2])


def forget(database: sqlite3.Connection, trial: str) -> bool:
    """Let a trial's spans be laid out and sent once more, with the same ids; False while some of them still wait."""
    with _immediate(database):
        waiting = database.execute(
            "SELECT 1 FROM export_batches WHERE trial = ? AND state IN ('pending', 'sending') LIMIT 1", (trial,)
        ).fetchone()
        if waiting is None:
            database.execute("DELETE FROM export_batches WHERE trial = ?", (trial,))
            database.execute("UPDATE exports SET revision = 0 WHERE trial = ?", (trial,))
        return waiting is None


def used_ids(database: sqlite3.Connection, trial: str) -> frozenset[bytes]:
    """Span ids of this trial that were ever handed to a batch."""
    rows = database.execute("SELECT ids FROM export_batches WHERE trial = ?", (trial,))
    return frozenset(ids[at : at + ID_BYTES] for (ids,) in rows for at in range(0, len(ids), ID_BYTES))


def add(
    database: sqlite3.Connection,
    trial: Wanted,
    batches: Sequence[Batch],
    *,
    now_ns: int,
    limit_bytes: int,
) -> bool:
    """Put a production into the outbox; False when another process was faster and nothing was added.

    `trial.newest` becomes the revision that is laid out.  When the waiting bodies exceed `limit_bytes`, the oldest are
    dropped, and counted.
    """
    with _immediate(database):
        want(database, trial.trial, trial.root, trial.parent, now_ns)
        changed = database.execute(
            "UPDATE exports SET revision = ? WHERE trial = ? AND revision = ?",
            (trial.newest, trial.trial, trial.revision),
        )
        if not changed.rowcount:
            return False
        due_ns = database.execute("SELECT max(due_ns) FROM export_batches WHERE state = 'pending'").fetchone()[0] or 0
        for batch in batches:
            _insert(database, trial.trial, trial.newest, batch, due_ns)
        _enforce(database, limit_bytes)
    return True


def _insert(database: sqlite3.Connection, trial: str, revision: int, batch: Batch, due_ns: int) -> None:
    body = zlib.compress(batch.body)
    database.execute(
        """INSERT INTO export_batches (trial, revision, state, spans, due_ns, bytes, ids, body)
           VALUES (?, ?, 'pending', ?, ?, ?, ?, ?)""",
        (trial, revision, batch.spans, due_ns, len(body), batch.ids, body),
    )


def _enforce(database: sqlite3.Connection, limit_bytes: int) -> None:
    waiting = database.execute("SELECT sum(bytes) FROM export_batches WHERE state = 'pending'").fetchone()[0] or 0
    while waiting > limit_bytes:
        row, size = database.execute(
            "SELECT id, bytes FROM export_batches WHERE state = 'pending' ORDER BY id LIMIT 1"
        ).fetchone()
        _end(database, row, "dropped", why=STORE_LIMIT)
        waiting -= size


_DUE: Final = """SELECT id, trial, revision, ids, body FROM export_batches
    WHERE state = 'pending' AND (due_ns <= ? OR due_ns > ?)"""


def claim(database: sqlite3.Connection, *, now_ns: int, lease_ns: int) -> Claimed | None:
    """Take the oldest batch that is due; from here on it is sent by us, once, or by nobody.

    Who does not settle it within `lease_ns` is taken for dead, and the batch for sent without an answer.
    """
    with _immediate(database):
        _expire(database, now_ns)
        row = database.execute(f"{_DUE} ORDER BY id LIMIT 1", (now_ns, now_ns + FAR_NS)).fetchone()
        if row is None:
            return None
        number, trial, revision, ids, body = row
        database.execute(
            "UPDATE export_batches SET state = 'sending', due_ns = ? WHERE id = ?", (now_ns + lease_ns, number)
        )
    try:
        plain = zlib.decompress(body)
    except zlib.error:
        drop(database, number, "damaged")
        return claim(database, now_ns=now_ns, lease_ns=lease_ns)
    return Claimed(row=number, trial=trial, revision=revision, batch=Batch(ids=ids, body=plain))


def _expire(database: sqlite3.Connection, now_ns: int) -> None:
    database.execute(
        "UPDATE export_batches SET state = 'dropped', why = ?, body = NULL WHERE state = 'sending' AND due_ns < ?",
        (UNCONFIRMED, now_ns),
    )


def settle(database: sqlite3.Connection, row: int, rejected: int) -> None:
    """The collector took the batch, but for `rejected` spans."""
    with _immediate(database):
        database.execute(
            """UPDATE export_batches SET state = 'exported', rejected = min(max(?, 0), spans), body = NULL
               WHERE id = ? AND state = 'sending'""",
            (rejected, row),
        )


def drop(database: sqlite3.Connection, row: int, why: str) -> None:
    """Count a claimed batch as lost; `why` is one bounded word."""
    with _immediate(database):
        _end(database, row, "dropped", why=why)


def _end(database: sqlite3.Connection, row: int, state: str, *, why: str) -> None:
    database.execute(
        "UPDATE export_batches SET state = ?, why = ?, body = NULL WHERE id = ? AND state IN ('pending', 'sending')",
        (state, why, row),
    )


def put_back(database: sqlite3.Connection, row: int) -> None:
    """Nobody took a claimed batch, for sure: it waits again."""
    with _immediate(database):
        database.execute(
            "UPDATE export_batches SET state = 'pending', due_ns = 0 WHERE id = ? AND state = 'sending'", (row,)
        )


def hold(database: sqlite3.Connection, due_ns: int) -> None:
    """Nothing that waits goes out before this time."""
    with _immediate(database):
        database.execute("UPDATE export_batches SET due_ns = ? WHERE state = 'pending'", (due_ns,))


def drop_all(database: sqlite3.Connection, why: str) -> None:
    """Count all that waits as lost."""
    with _immediate(database):
        database.execute(
            "UPDATE export_batches SET state = 'dropped', why = ?, body = NULL WHERE state = 'pending'", (why,)
        )


def split(database: sqlite3.Connection, claimed: Claimed, halves: Sequence[Batch]) -> None:
    """Replace a batch that was too large by smaller ones of the same spans."""
    with _immediate(database):
        gone = database.execute("DELETE FROM export_batches WHERE id = ? AND state = 'sending'", (claimed.row,))
        if gone.rowcount:
            for half in halves:
                _insert(database, claimed.trial, claimed.revision, half, 0)


def is_due(database: sqlite3.Connection, now_ns: int) -> bool:
    """Whether a batch waits that may be sent now."""
    return database.execute(f"{_DUE} LIMIT 1", (now_ns, now_ns + FAR_NS)).fetchone() is not None


def anything_left(database: sqlite3.Connection) -> bool:
    """Whether an earlier process left something to send: batches, or closed trials that were not laid out."""
    waiting = database.execute("SELECT 1 FROM export_batches WHERE state IN ('pending', 'sending') LIMIT 1").fetchone()
    return waiting is not None or bool(wanted(database))


def expire(database: sqlite3.Connection, now_ns: int) -> None:
    """Batches whose sender did not settle them in time were sent without an answer."""
    with _immediate(database):
        _expire(database, now_ns)


def counts(database: sqlite3.Connection, trials: Sequence[str] | None = None) -> Counts:
    """The ledger of the whole store, or of some trials."""
    query = "SELECT state, coalesce(why, ''), sum(spans), sum(rejected) FROM export_batches {} GROUP BY state, why"
    if trials is None:
        rows = list(database.execute(query.format("")))
    else:
        rows = [row for trial in trials for row in database.execute(query.format("WHERE trial = ?"), (trial,))]
    total = Counts()
    for state, why, spans, rejected in rows:
        if state == "exported":
            dropped = {REJECTED: rejected} if rejected else {}
            total += Counts(produced=spans, exported=spans - rejected, dropped=dropped)
        elif state == "dropped":
            total += Counts(produced=spans, dropped={why: spans})
        else:
            total += Counts(produced=spans, pending=spans)
    return total


@contextmanager
def _immediate(database: sqlite3.Connection) -> Iterator[None]:
    """One transaction that takes the write lock first, so that what was read in it still holds when it writes."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        yield
