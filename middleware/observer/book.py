"""The record of one trial while it is open: what was observed, how it began, how it ended, and the verdict.

In: observations and the facts of begin and end.  Out: rows for the store's writer, and at the end a judged `Trial`.
`app.py` (one trial, `fairtrial run`) and `sidecar.py` (`fairtrial serve`) share it.  It does not decide when a
trial begins or ends.

Memory: with `keep` set, a book that grew past it lets its observations go and reads them back from the store when it is
judged; a serve of weeks holds many open trials.
"""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterable
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
    Host,
    Observation,
    TrialEnded,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal, StoreFailed
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.observer.machine import cpu_model
from fairtrial.middleware.store.database import observations_of, open_database
from fairtrial.middleware.store.writer import Owner, StoreWriter

FLUSH_S: Final = 0.5


class TrialBook:
    """One open trial.  `begun`: when it began, on both clocks."""

    def __init__(
        self,
        trial: str,
        *,
        writer: StoreWriter,
        journal: Journal,
        host: Host,
        begun: clock.Instant,
        keep: int | None = None,
    ) -> None:
        self.trial = trial
        self.begun = begun
        self.observations: list[Observation] = []
        self.source = Source("observer", self.take, host=host, trial=trial)
        self._writer = writer
        self._journal = journal
        self._keep = keep
        self._let_go = False

    def take(self, observation: Observation) -> None:
        """The sink of everything that is seen of this trial."""
        self._writer.put(observation)
        if self._let_go:
            return
        self.observations.append(observation)
        if self._keep is not None and len(self.observations) > self._keep and self._writer.failed is None:
            self._let_go = True
            self.observations.clear()

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

    def read_back(self) -> list[Observation]:
        """What the store holds of this trial; empty, and noted, when it cannot be read."""
        try:
            database = open_database(self._writer.path, read_only=True)
            try:
                return list(observations_of(database, self.trial))
            finally:
                database.close()
        except (OSError, sqlite3.Error) as error:
            self._journal.note(StoreFailed(label="read back", detail=str(error)))
            return []

    # --- end ------------------------------------------------------------------------------------------------------

    def end(self, ended: TrialEnded, *, mono_ns: int) -> None:
        """Say how the trial ended; `mono_ns` is when."""
        self.source.emit(ended, wall_ns=self.begun.wall_at(mono_ns), mono_ns=mono_ns)

    def judge(self, thresholds: Thresholds) -> Trial:
        """Assemble, judge, and hand the record to the store's writer."""
        observations = self.observations
        if self._let_go:
            self._writer.flush(FLUSH_S)
            observations = self.read_back()
        record = judged(observations, self.trial, self._journal, thresholds=thresholds)
        self._writer.close_trial(record)
        return record
