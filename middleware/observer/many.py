"""The end of a run that held several trials: judged one after another, so that one at a time is in memory.

In: a `PartedRun`, and the run's book.  Out: closed trials in the store, the lines for people, the `fairtrial.run/1`
record, what `--gate` makes of it; afterwards each record once more for the log and the traces.  What this module does
not do: tell trials apart, or talk to the run process (`app.py`).  Runs in a thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final

import msgspec

from fairtrial.middleware.closing import GATE_EXIT, gate_answer, judged
from fairtrial.middleware.core.config import Thresholds
from fairtrial.middleware.core.observations import GapSeen, Observation, TrialEnded
from fairtrial.middleware.core.records import FAMILIES, Blame, Outcome, Run, Trial
from fairtrial.middleware.core.selfevents import Journal, RecordIgnored, StoreFailed
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.observer.traces import Traces
from fairtrial.middleware.parted import Child, PartedRun
from fairtrial.middleware.report.many import Line, counts_of, coverage_of, line_of, run_lines
from fairtrial.middleware.report.text import ending_lines
from fairtrial.middleware.store.database import latest_record, open_database
from fairtrial.middleware.store.writer import StoreWriter

FLUSH_S: Final = 10.0
"""How long the rows of all trials may take to reach the store."""
_NO_TRIALS: Final = b'"trials":[]'


class FinishedRun:
    """See the module.  `whole`: somebody wants the records of all trials in one (`--json`)."""

    def __init__(
        self,
        parted: PartedRun,
        book: TrialBook,
        writer: StoreWriter,
        journal: Journal,
        *,
        thresholds: Thresholds,
        whole: bool,
    ) -> None:
        self._parted = parted
        self._book = book
        self._writer = writer
        self._journal = journal
        self._thresholds = thresholds
        self._whole = whole
        self._lines: list[Line] = []
        self._said: list[str] = []
        self._records: list[bytes] = []
        self._by_model = False
        self._worth_a_retry = False

    @property
    def gate(self) -> int | None:
        """75 when a trial failed by infra, proved, and none by the model."""
        return GATE_EXIT if self._worth_a_retry and not self._by_model else None

    def judge_all(self, traces: Traces | None) -> None:
        """Give each trial its rows, its verdict and its end."""
        self._parted.open()
        if traces is not None:
            for child in self._parted.children:
                traces.want(self._writer, child.trial, child.span, None)
        in_memory = self._parted.split(self._book.held()) if self._book.whole_in_memory else None
        if in_memory is None:
            self._writer.flush(FLUSH_S)
        for child in self._parted.children:
            rows = in_memory.pop(child.trial) if in_memory is not None else self._read(child)
            record = judged(rows, child.trial, self._journal, thresholds=self._thresholds, store=self._writer.path)
            self._writer.close_trial(record)
            self._note(record, child.index)
        self._writer.flush(FLUSH_S)

    def _read(self, child: Child) -> list[Observation]:
        """What the store holds of it, and what was told of it now; what is missing is said."""
        try:
            rows = self._book.stored_of(child.trial)
        except (OSError, sqlite3.Error) as error:
            self._journal.note(StoreFailed(label="read back", detail=str(error)))
            rows = []
        found = {(o.source_id, o.seq): o for o in (*rows, *child.made)}
        lost = self._parted.rows_of(child) + len(child.made) - len(found)
        if lost > 0:
            why = f"{lost} observations of this trial could not be read back from the store"
            source = Source("observer", self._writer.put, host=this_host(), trial=child.trial)
            said = source.emit(GapSeen(source="store", families=list(FAMILIES), why=why))
            found[said.source_id, said.seq] = said
        return list(found.values())

    def _note(self, record: Trial, index: int) -> None:
        self._lines.append(line_of(record, index=index))
        self._said += ending_lines(record, verbose=True)
        if self._whole:
            self._records.append(msgspec.json.encode(record))
        verdict = record.verdict
        failed_by_model = verdict is not None and verdict.blame is Blame.MODEL and record.outcome is not Outcome.PASSED
        self._by_model = self._by_model or failed_by_model
        self._worth_a_retry = self._worth_a_retry or gate_answer(record) is not None

    def lines(self, *, run: str | None, ended: TrialEnded, verbose: bool) -> list[str]:
        """For people, at the end of the run."""
        if ended.signal is not None:
            how = f"signal {ended.signal}"
        else:
            how = f"exit {'?' if ended.exit_code is None else ended.exit_code}"
        lines = run_lines(
            self._lines, run=run, ended=how, unassigned=self._parted.unassigned, stored=self._writer.failed is None
        )
        return lines + (self._said if verbose else [])

    def record(self, *, run: str | None, command: list[str], exit_code: int | None) -> bytes | None:
        """The `fairtrial.run/1`, a trial a line; None unless it is wanted."""
        if not self._whole:
            return None
        head = msgspec.json.encode(
            Run(
                run=run,
                command=command,
                exit_code=exit_code,
                counts=counts_of(self._lines),
                coverage=coverage_of(self._lines),
                unassigned=self._parted.unassigned,
            )
        )
        before, _, after = head.rpartition(_NO_TRIALS)
        return before + b'"trials":[\n' + b",\n".join(self._records) + b"\n]" + after

    def hand_on(self, log: Callable[[Trial], None], traces: Traces | None) -> None:
        """Give each record to the log and the traces, read from the store one by one."""
        try:
            database = open_database(self._writer.path, read_only=True)
        except (OSError, sqlite3.Error) as error:
            self._journal.note(StoreFailed(label="hand on", detail=str(error)))
            return
        try:
            for child in self._parted.children:
                record = latest_record(database, child.trial)
                if record is None:
                    self._journal.note(RecordIgnored(label="hand on", detail=f"no record of {child.trial}"))
                    continue
                log(record)
                if traces is not None:
                    traces.put(record, root_span_id=child.span)
        finally:
            database.close()
