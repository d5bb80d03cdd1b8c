"""The record of one trial while it is open: what was observed, how it began, how it ended, and the verdict.

In: observations and the facts of begin and end.  Out: rows for the store's writer, and at the end a judged `Trial`.
`app.py` (one trial, `fairtrial run`) and `sidecar.py` (`fairtrial serve`) share it.  It does not decide when a
trial begins or ends.

Memory: a book that grew past `keep` lets its oldest observations go and reads them back from the store when it is
judged.  What then cannot be read back is a gap in the record, never a verdict without it.
"""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from fairtrial import __version__
from fairtrial.middleware.closing import judged
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.config import Thresholds
from fairtrial.middleware.core.hello import DoorInfo
from fairtrial.middleware.core.observations import (
    CoverageChanged,
    DoorState,
    GapSeen,
    Host,
    MutationSeen,
    Observation,
    TrialEnded,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import FAMILIES, Trial
from fairtrial.middleware.core.selfevents import Journal, StoreFailed
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.observer.machine import cpu_model
from fairtrial.middleware.observer.seals import Seals
from fairtrial.middleware.store.database import observations_of, of_trial, open_database
from fairtrial.middleware.store.writer import Owner, StoreWriter

FLUSH_S: Final = 0.5
_AT_ONCE: Final = 64
"""So many are let go together."""
_LASTING: Final = frozenset(
    value.kind for value in (TrialStarted, TrialEnded, DoorState, CoverageChanged, GapSeen, MutationSeen)
)
"""Few in a trial, and without them nobody could tell what it was, or what was not seen: kept whatever comes."""
_MOST_LASTING: Final = 256


class TrialBook:
    """One open trial.  `begun`: when it began, on both clocks.

    `keep`: observations held in memory; None: all.  `sealed`: it can `verify` that the store still holds what it wrote.
    `also` is shown each observation, a predecessor's as well.
    """

    def __init__(
        self,
        trial: str,
        *,
        writer: StoreWriter,
        journal: Journal,
        host: Host,
        begun: clock.Instant,
        keep: int | None = None,
        sealed: bool = False,
        also: Callable[[Observation], None] | None = None,
    ) -> None:
        self.trial = trial
        self.begun = begun
        self.source = Source("observer", self.take, host=host, trial=trial)
        self._writer = writer
        self._journal = journal
        self._keep = keep
        self._seals = Seals() if sealed else None
        self._also = also
        self._recent: list[Observation] = []
        self._lasting: list[Observation] = []
        self._taken = 0
        self._let_go = 0
        self._lost = 0
        """Of those, what a gap was said of."""
        self._read: list[Observation] | None = None
        """What `verify` found to be as it was written."""

    def take(self, observation: Observation) -> None:
        """The sink of everything that is seen of this trial."""
        self._writer.put(observation)
        self._hold(observation)

    def _hold(self, observation: Observation) -> None:
        self._taken += 1
        if self._seals is not None:
            self._seals.add(observation)
        if self._also is not None:
            self._also(observation)
        self._recent.append(observation)
        # A store that takes no rows gives none back: then all that is left to come stays here.
        if self._keep is not None and len(self._recent) >= self._keep + _AT_ONCE and self._writer.failed is None:
            oldest = self._recent[:_AT_ONCE]
            del self._recent[:_AT_ONCE]
            lasting = [o for o in oldest if o.kind in _LASTING][: _MOST_LASTING - len(self._lasting)]
            self._lasting += lasting
            self._let_go += len(oldest) - len(lasting)

    def held(self) -> Iterator[Observation]:
        """What is in memory, the oldest first."""
        yield from self._lasting
        yield from self._recent

    # --- begin ----------------------------------------------------------------------------------------------------

    def open(self, started: TrialStarted, owner: Owner, doors: Iterable[DoorInfo]) -> None:
        """Write the row of a trial that begins, and what is known of it."""
        self._writer.open_trial(
            Trial(
                trial=self.trial,
                name=started.name,
                run=started.run,
                task=started.task,
                trace_id=started.trace_id,
                started=clock.rfc3339(self.begun.wall_ns),
            ),
            owner,
        )
        self.say_started(started, doors)

    def say_started(self, started: TrialStarted, doors: Iterable[DoorInfo]) -> None:
        """The first observations: the trial, and the doors that it can go through."""
        machine = msgspec.structs.replace(
            started,
            fairtrial_version=__version__,
            kernel=platform.release(),
            cores=os.cpu_count(),
            cpu_model=cpu_model(),
        )
        self._emit_at_begin(machine)
        for door in doors:
            if door.scheme == "tcp":  # what passes there nobody reads, so it watches no family
                self._emit_at_begin(DoorState(door="egress", name=door.name, port=door.door_port))
                continue
            self._emit_at_begin(
                DoorState(
                    name=door.name,
                    upstream_host=door.host,
                    upstream_port=door.port,
                    scheme=door.scheme,
                    port=door.door_port,
                )
            )
            # The door was bound, and its traffic stamped, before this process was up.
            self._emit_at_begin(CoverageChanged(source=f"door.model.{door.name}", families=["model_api"]))

    def _emit_at_begin(self, value: Value) -> None:
        self.source.emit(value, wall_ns=self.begun.wall_ns, mono_ns=self.begun.mono_ns)

    def resume(self) -> list[Observation]:
        """Go on with what a predecessor has stored; gives it."""
        stored = self._read_back()
        for observation in stored:
            self._hold(observation)
        return stored

    def _read_back(self) -> list[Observation]:
        """What the store holds of this trial; empty, and noted, when it cannot be read."""
        try:
            return list(self._stored())
        except (OSError, sqlite3.Error) as error:
            self._journal.note(StoreFailed(label="read back", detail=str(error)))
            return []

    def _stored(self, trial: str | None = None) -> Iterator[Observation]:
        database = open_database(self._writer.path, read_only=True)
        try:
            yield from observations_of(database, self.trial if trial is None else trial)
        finally:
            database.close()

    @property
    def whole_in_memory(self) -> bool:
        """Nothing was let go."""
        return not self._let_go

    def stored_of(self, trial: str) -> list[Observation]:
        """What the store holds of one trial that this run was parted into, forged rows left out."""
        found: list[Observation] = []
        for observation in self._stored(trial):
            ours = observation if observation.subject.trial is None else of_trial(observation, self.trial)
            if self._seals is None or self._seals.holds(ours):
                found.append(observation)
        return found

    # --- end ------------------------------------------------------------------------------------------------------

    def end(self, ended: TrialEnded, *, mono_ns: int) -> None:
        """Say how the trial ended; `mono_ns` is when."""
        self.source.emit(ended, wall_ns=self.begun.wall_at(mono_ns), mono_ns=mono_ns)

    def mark(self) -> Mapping[str, int]:
        """What has been put into the store by now, for `verify` after a flush of the writer."""
        return {} if self._seals is None else self._seals.mark()

    def verify(self, upto: Mapping[str, int], *, keep: bool = True) -> None:
        """Whether the rows that we wrote are still there: under `run` the agent has our uid and could edit them.

        If not, what is in memory is put back and a gap is said.  Rows that were let go cannot be put back: the record
        is then judged without them, and without what took their place.  Rows after `upto` may be under way.
        Without `keep` what was read is not kept for `judge`: the run was parted, and each trial is read by itself.
        """
        if self._seals is None or self._writer.failed is not None:
            return
        try:
            compared = self._seals.compare(self._stored(), upto, keep=keep)
        except (OSError, sqlite3.Error) as error:
            self._read = []
            self._lost = self._let_go
            why = f"the store vanished or was damaged while the command ran ({error})"
        else:
            self._read = compared.genuine if keep else None
            if not compared.changed and not compared.added:
                return
            if keep:
                self._lost = self._taken - len({(o.source_id, o.seq) for o in (*self.held(), *compared.genuine)})
            total = sum(upto.values())
            why = f"someone else changed or removed {compared.changed} of {total} stored rows, "
            why += f"and added {compared.added}"
        if self._lost:
            why += f"; {self._lost} of them are lost"
        self._writer.restore(list(self.held()))
        self._say_gap(why)

    def judge(self, thresholds: Thresholds) -> Trial:
        """Assemble, judge, and hand the record to the store's writer."""
        record = judged(self._whole(), self.trial, self._journal, thresholds=thresholds, store=self._writer.path)
        self._writer.close_trial(record)
        return record

    def _whole(self) -> list[Observation]:
        """All that was observed; where some of it is lost, with the gap that says so."""
        if not self._let_go:
            return list(self.held())
        if self._read is None:
            self._writer.flush(FLUSH_S)
            self._read = self._read_back()
        rows = {(o.source_id, o.seq): o for o in (*self._read, *self.held())}
        lost = self._taken - len(rows)
        if lost > self._lost:
            said = self._say_gap(f"{lost} of {self._taken} observations could not be read back from the store")
            rows[said.source_id, said.seq] = said
        return list(rows.values())

    def _say_gap(self, why: str) -> Observation:
        return self.source.emit(GapSeen(source="store", families=list(FAMILIES), why=why))
