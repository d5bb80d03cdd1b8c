"""Traces on their way out: one thread that lays trials out, keeps them in the store, sends each span at most once.

In: finished trials (`put`, never blocks), and what earlier processes left in the store.  Out: requests at the
collector, and exact counts.  Used by `run` after its last word and by the long-lived `serve`; nobody waits for it.

The order of things: a trial becomes batches in the store (`store/exports.py`), a batch is claimed, sent once, settled.
So a collector that is away costs disk, bounded by `pending_limit_bytes`, not memory, and who starts next goes on where
a killed process stopped.  Where there is no store, an outbox in memory of `MEMORY_BYTES` stands in for it; never for a
trial that the store knows, since the next start would send that one again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from fairtrial.exporters.delivery import Delivery
from fairtrial.exporters.encoding import Resources, batches
from fairtrial.exporters.revision import added_spans
from fairtrial.exporters.settings import ExportSettings, is_sampled
from fairtrial.exporters.spans import Span
from fairtrial.exporters.trace_layout import spans_of
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import ExportFailed, Journal
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.database import open_database, record_at
from fairtrial.middleware.store.exports import Counts, Wanted
from fairtrial.middleware.store.schema import STATEMENTS

MEMORY_BYTES: Final = 16 << 20
FIRST_WAIT_S: Final = 1.0
SHORTEST_SEND_S: Final = 0.2
"""With less time than this left before the end, no further batch is begun."""


@dataclass(frozen=True, slots=True)
class _Put:
    trial: Trial
    root: str | None
    parent: str | None


class TracePipeline:
    """Start it once, put trials, close it."""

    def __init__(
        self,
        store: Path,
        settings: ExportSettings,
        journal: Journal,
        *,
        version: str,
        host: str | None,
        memory_bytes: int = MEMORY_BYTES,
        first_wait_s: float = FIRST_WAIT_S,
    ) -> None:
        self._store = store
        self._settings = settings
        self._journal = journal
        self._memory_bytes = memory_bytes
        self._resources = Resources(
            version=version, host=host, schema_url=settings.profile.schema_url, extra=settings.resource
        )
        self._waiting: deque[_Put] = deque()
        self._waiting_spans = 0
        self._refused: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._close_at: float | None = None
        self._idle = threading.Event()
        self._thread = threading.Thread(target=self._work, name="trace-pipeline", daemon=True)
        self._disk: sqlite3.Connection | None = None
        self._memory: sqlite3.Connection | None = None
        self._delivery = Delivery(settings, journal, self._outboxes, version=version, first_wait_s=first_wait_s)
        self._look_at = 0.0
        self._count_at = 0.0
        self._stuck = False
        self._poison: set[str] = set()
        self._counts = Counts()
        self._lost_early = Counts()

    # --- for everybody, from any thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to work; what other processes left in the store goes first."""
        for sentence in self._settings.complaints:
            self._journal.note(ExportFailed(label="settings", detail=sentence))
        self._thread.start()

    def put(self, trial: Trial, *, root_span_id: str | None = None, parent_span_id: str | None = None) -> None:
        """Hand over a trial that was closed or judged anew; only what was not sent of it will be.

        More than `queue_spans` of them at once are not kept in memory: the store is asked for those, and only where
        it does not know them they are lost, and counted.
        """
        spans = _estimate(trial)
        with self._lock:
            if self._waiting and self._waiting_spans + spans > self._settings.queue_spans:
                self._refused[trial.trial] = (spans, time.monotonic())
            else:
                self._waiting.append(_Put(trial, root_span_id, parent_span_id))
                self._waiting_spans += spans
        self._look_at = 0.0
        self._idle.clear()
        self._wake.set()

    def look(self) -> None:
        """Look into the store for closed trials now, not at the next turn."""
        self._look_at = 0.0
        self._idle.clear()
        self._wake.set()

    def counts(self) -> Counts:
        """Spans of this store, and of this process's memory, as of the last turn of the thread."""
        return self._counts

    @property
    def trouble(self) -> str | None:
        """Why nothing arrives, in a sentence, while that is so."""
        return self._delivery.trouble

    def settled(self, within_s: float) -> bool:
        """Wait until there is nothing more to do for now: all sent, or the collector is waited for."""
        return self._idle.wait(within_s)

    def close(self, within_s: float) -> Counts:
        """Send what can be sent in this time, leave the rest in the store, end the thread.

        A collector that fails is not tried again here, unless it named a time that comes before the end.
        """
        self._delivery.hurry()
        self._look_at = 0.0
        self._close_at = time.monotonic() + within_s
        self._wake.set()
        self._thread.join(within_s + 1.0)
        return self._counts

    # --- the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._open()
            while True:
                self._wake.clear()
                self._guard("lay out", self._lay_out)
                busy = self._guard("send", self._send, pause_s=FIRST_WAIT_S)
                self._count(now=not busy)
                if busy and not self._over():
                    continue
                if self._close_at is not None and self._may_end():
                    break
                if not self._wake.is_set():
                    self._idle.set()
                self._wake.wait(self._pause_s())
        finally:
            self._end()

    def _guard(self, label: str, turn: Callable[[], bool], *, pause_s: float = 0.0) -> bool:
        """A fault of ours, or a store that fails, costs this turn; never the thread."""
        try:
            return turn()
        except (OSError, sqlite3.Error) as error:
            self._journal.note(ExportFailed(label="store", detail=f"{label}: {error}"))
            self._reopen()
        except Exception as error:  # noqa: BLE001 - the thread's outermost frame
            self._journal.note(ExportFailed(label="bug", detail=f"{label}: {error!r}"))
        self._delivery.pause(pause_s)
        return False

    def _send(self) -> bool:
        if self._over():
            return False
        return self._delivery.send_one(None if self._close_at is None else self._close_at - time.monotonic())

    def _over(self) -> bool:
        return self._close_at is not None and time.monotonic() >= self._close_at - SHORTEST_SEND_S

    def _may_end(self) -> bool:
        """At closing: over time, or nothing is left that could go before it is."""
        assert self._close_at is not None
        if self._over():
            return True
        with self._lock:
            if self._waiting and not self._stuck:
                return False
        return not self._delivery.worth_waiting_for(self._close_at)

    def _pause_s(self) -> float:
        now = time.monotonic()
        pause = self._settings.delay_s
        if self._delivery.not_before > now:
            pause = min(pause, self._delivery.not_before - now)
        if self._close_at is not None:
            pause = min(pause, self._close_at - now, 0.2)
        return max(0.01, pause)

    def _open(self) -> None:
        with contextlib.suppress(OSError, sqlite3.Error):
            self._disk = open_database(self._store)
        # Kept open for the thread's life: what the store does not take waits here, in the very same form.
        self._memory = sqlite3.connect(":memory:")
        for statement in STATEMENTS:
            self._memory.execute(statement)

    def _reopen(self) -> None:
        if self._disk is not None:
            with contextlib.suppress(sqlite3.Error):
                self._disk.close()
        self._disk = None
        with contextlib.suppress(OSError, sqlite3.Error):
            self._disk = open_database(self._store)

    def _outboxes(self) -> Iterator[sqlite3.Connection]:
        for database in (self._disk, self._memory):
            if database is not None:
                yield database

    # --- laying out -------------------------------------------------------------------------------------------------

    def _lay_out(self) -> bool:
        self._stuck = False
        while not self._stuck:
            with self._lock:
                put = self._waiting[0] if self._waiting else None
            if put is None:
                break
            try:
                self._stuck = not self._produce(put)
            except Exception as error:  # noqa: BLE001 - one trial that cannot be laid out keeps no other from it
                self._poisoned(put.trial.trial, error)
                spans = _estimate(put.trial)
                self._lost_early += Counts(produced=spans, dropped={"bug": spans})
            if not self._stuck:
                with self._lock:
                    self._waiting.popleft()
                    self._waiting_spans -= _estimate(put.trial)
        if time.monotonic() >= self._look_at:
            told = not self._look_at
            self._look_at = time.monotonic() + self._settings.delay_s
            if self._disk is None:
                self._reopen()
            self._adopt(revised=told)
            self._give_up_refused()
        return True

    def _produce(self, put: _Put) -> bool:
        """Put a trial into the store's outbox, else into that in memory; False: neither may have it at the moment."""
        if self._disk is None:
            self._reopen()
        try:
            if self._disk is not None:
                self._put_into(self._disk, put, self._settings.pending_limit_bytes)
                return True
        except (OSError, sqlite3.Error) as error:
            self._journal.note(ExportFailed(label="store", detail=f"keep: {error}"))
            if self._store_knows(put.trial.trial):
                return False
        assert self._memory is not None
        self._put_into(self._memory, put, self._memory_bytes)
        return True

    def _store_knows(self, trial: str) -> bool:
        """Whether a store that takes no rows can be read and has this trial: then the next start sends it."""
        try:
            database = open_database(self._store, read_only=True)
            try:
                return exports.laid_out(database, trial) is not None
            finally:
                database.close()
        except (OSError, sqlite3.Error):
            return False

    def _put_into(self, database: sqlite3.Connection, put: _Put, limit_bytes: int) -> None:
        """Lay out what is new of a trial and put it into an outbox."""
        trial = put.trial
        known = exports.laid_out(database, trial.trial) or Wanted(
            trial=trial.trial, root=put.root, parent=put.parent, revision=0, newest=0
        )
        newest = trial.verdict.revision if trial.verdict else 1
        if newest <= known.revision:
            return
        known = replace(known, root=known.root or put.root, parent=known.parent or put.parent, newest=newest)
        used = frozenset(raw.hex() for raw in exports.used_ids(database, trial.trial))
        spans = self._spans(trial, known, used, database)
        made = list(batches(spans, self._resources, self._settings.bounds, most=self._settings.batch_spans))
        exports.add(database, known, made, now_ns=clock.now().wall_ns, limit_bytes=limit_bytes)

    def _spans(self, trial: Trial, known: Wanted, used: frozenset[str], database: sqlite3.Connection) -> list[Span]:
        if trial.trace_id is None or not is_sampled(trial.trace_id, self._settings.sampled):
            return []
        profile = self._settings.profile
        elsewhere = database is self._memory and known.newest > 1
        if not used and not elsewhere:
            return spans_of(trial, root_span_id=known.root, parent_span_id=known.parent, profile=profile)
        before = record_at(database, trial.trial, known.revision)
        added = added_spans(trial, before, used, root_span_id=known.root, parent_span_id=known.parent, profile=profile)
        # What a store that is gone had sent nobody knows here: only the verdict's own span is surely new.
        return added if used else added[:1]

    def _adopt(self, *, revised: bool) -> None:
        """Trials that were closed by whoever, and whose trace was asked for: killed ones, and those from `_refused`."""
        if self._disk is None:
            return
        exports.expire(self._disk, clock.now().wall_ns)
        for one in exports.wanted(self._disk, revised=revised):
            record = record_at(self._disk, one.trial, one.newest)
            if record is None or one.trial in self._poison:
                continue
            try:
                self._put_into(self._disk, _Put(record, one.root, one.parent), self._settings.pending_limit_bytes)
            except (OSError, sqlite3.Error):
                raise
            except Exception as error:  # noqa: BLE001 - as above; another version of fairtrial may be able to
                self._poisoned(one.trial, error)

    def _poisoned(self, trial: str, error: Exception) -> None:
        self._poison.add(trial)
        self._journal.note(ExportFailed(label="bug", detail=f"{trial} cannot be laid out: {error!r}"))

    def _give_up_refused(self) -> None:
        """What `put` did not keep, and the store does not know after some time, is lost."""
        with self._lock:
            refused = list(self._refused.items())
        for trial, (spans, since) in refused:
            known = exports.laid_out(self._disk, trial) if self._disk is not None else None
            found = known is not None and known.revision > 0
            if not found and time.monotonic() - since < self._settings.delay_s and self._close_at is None:
                continue
            with self._lock:
                self._refused.pop(trial, None)
            if not found:
                self._lost_early += Counts(produced=spans, dropped={"queue": spans})

    # --- the end ----------------------------------------------------------------------------------------------------

    def _count(self, *, now: bool = True) -> None:
        if not now and time.monotonic() < self._count_at:
            return
        self._count_at = time.monotonic() + 1.0
        total = self._lost_early
        try:
            for outbox in self._outboxes():
                total += exports.counts(outbox)
        except sqlite3.Error:
            return
        self._counts = total

    def _end(self) -> None:
        if self._memory is not None:
            # Nobody will find these: the store did not take them.
            with contextlib.suppress(sqlite3.Error):
                exports.drop_all(self._memory, "store_failed")
        self._count()
        for database in self._outboxes():
            with contextlib.suppress(sqlite3.Error):
                database.close()
        self._delivery.close()


def _estimate(trial: Trial) -> int:
    """About how many spans a trial makes."""
    calls = [call for step in trial.steps for call in step.calls] + list(trial.side_calls)
    tools = sum(len(step.tools) for step in trial.steps)
    return 2 + len(trial.steps) + sum(1 + len(call.attempts) for call in calls) + 2 * tools
