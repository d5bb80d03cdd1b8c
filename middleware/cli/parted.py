"""A run that holds several trials, parted already or under way: for `show`, `trials`, `report`, `export`, `summary`.

In: an open store, what a person typed.  Out: rows, lines, JSON.  What this module does not do: tell trials apart
(`underway.py`, `parted.py`), or write.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.config import Thresholds
from fairtrial.middleware.core.records import Run, Trial
from fairtrial.middleware.report.many import counts_of, coverage_of, line_of
from fairtrial.middleware.report.words import plural, printable, seconds, wrapped
from fairtrial.middleware.store.database import latest_record
from fairtrial.middleware.store.parted_runs import PartedRow, find_parted, trials_of
from fairtrial.middleware.store.queries import TrialRow, find_trial, list_trials
from fairtrial.middleware.underway import (
    PartSoFar,
    SoFar,
    provisional,
    provisional_of_those_over,
    runs_under_way,
    so_far,
)

_MOST_RUNS: Final = 3
"""Runs under way that one command tells apart, the newest."""
PROVISIONAL: Final = "provisional: "


@dataclass(slots=True, kw_only=True)
class Held:
    """A run and its trials; `live`: it still runs, and what stands here is as of now."""

    id: str
    name: str | None = None
    run: str | None = None
    command: Sequence[str] = ()
    started_ns: int | None = None
    how: str
    rows: list[TrialRow]
    unassigned: dict[str, int]
    records: Callable[[], list[Trial]]
    exit_code: int | None = None
    live: bool = False


# --- runs that were parted ------------------------------------------------------------------------------------------


def held_before(database: sqlite3.Connection, wanted: str) -> Held | None:
    """The run that `wanted` means: by its own id or name where it was parted, or by the name of `--run`."""
    found = find_parted(database, wanted)
    if found:
        return _parted(database, found[0])
    rows = list_trials(database, run=wanted, limit=-1)[::-1]
    if not rows:
        return None
    return Held(
        id=wanted,
        run=wanted,
        started_ns=rows[0].started_ns,
        how=f"holds {plural(len(rows), 'trial')}",
        rows=rows,
        unassigned={},
        records=lambda: _records(database, rows),
    )


def _parted(database: sqlite3.Connection, row: PartedRow) -> Held:
    rows = trials_of(database, row)
    ended = f"signal {row.signal}" if row.signal else f"exit {'?' if row.exit_code is None else row.exit_code}"
    gone = len(row.trials) - len(rows)
    lost = f", {gone} of which are not in this store" if gone else ""
    return Held(
        id=row.id,
        name=row.name,
        run=row.run,
        command=row.command,
        started_ns=row.started_ns,
        how=f"{ended}; held {plural(len(row.trials), 'trial')}{lost}",
        rows=rows,
        unassigned=row.unassigned,
        records=lambda: _records(database, rows),
        exit_code=row.exit_code,
    )


def _records(database: sqlite3.Connection, rows: Sequence[TrialRow]) -> list[Trial]:
    return [record for row in rows if (record := latest_record(database, row.trial)) is not None]


def trials_of_parted(database: sqlite3.Connection, wanted: str) -> tuple[str, list[TrialRow]] | None:
    """A name for people, and the trials of a run that was parted, by its own id or name; None where there is none."""
    found = find_parted(database, wanted)
    return (found[0].run or found[0].name or found[0].id, trials_of(database, found[0])) if found else None


# --- runs under way -------------------------------------------------------------------------------------------------


class Live:
    """The runs under way, each told apart once, when somebody asks."""

    def __init__(self, database: sqlite3.Connection, *, run: str | None = None) -> None:
        self._database = database
        self._rows = {row.trial: row for row in runs_under_way(database, run=run)[:_MOST_RUNS]}
        self._found: dict[str, SoFar] = {}

    def of(self, run: str) -> SoFar | None:
        """By the run's own id; None: it does not run, or too many do."""
        if run not in self._found and run in self._rows:
            self._found[run] = so_far(self._database, self._rows[run])
        return self._found.get(run)

    def all(self) -> list[SoFar]:
        """The newest first."""
        return [found for run in self._rows if (found := self.of(run)) is not None]


def with_parts(
    database: sqlite3.Connection, rows: Sequence[TrialRow], thresholds: Thresholds, *, most: int
) -> list[TrialRow]:
    """The rows, behind each run under way its trials so far, the newest first and at most `most`."""
    live, told = Live(database), list[TrialRow]()
    for row in rows:
        found = live.of(row.trial)
        told.append(row if found is None else replace(row, sentence=_in_short(found)))
        if found is not None and found.parts:
            records = provisional_of_those_over(database, found.parts, thresholds)
            told += [_row(found, one, records.get(one.id)) for one in found.parts[::-1][:most]]
    return told


def live_counts(database: sqlite3.Connection, run: str) -> tuple[int, int]:
    """Of the runs under way of this name: trials that were told apart so far, and how many of them are over."""
    parts = [one for found in Live(database, run=run).all() for one in found.parts]
    return len(parts), sum(one.over for one in parts)


def held_now(database: sqlite3.Connection, live: Live, wanted: str, thresholds: Thresholds) -> Held | None:
    """The run under way that `wanted` means, if it holds several trials so far."""
    rows = find_trial(database, wanted)[:1] or list_trials(database, run=wanted, limit=1)
    found = live.of(rows[0].trial) if rows else None
    if found is None or not found.parts:
        return None
    records = provisional_of_those_over(database, found.parts, thresholds)
    return Held(
        id=found.run.trial,
        name=found.run.name,
        run=found.run.run,
        command=found.command,
        started_ns=found.run.started_ns,
        how=f"still runs; {_in_short(found)}",
        rows=[_row(found, one, records.get(one.id)) for one in found.parts],
        unassigned=dict(found.unassigned),
        records=lambda: list(records.values()),
        live=True,
    )


def part_now(
    database: sqlite3.Connection, live: Live, wanted: str, thresholds: Thresholds, store: Path
) -> tuple[Trial, str] | None:
    """A trial of a run under way, by its name or by its run's id and number, judged as of now; and how it stands."""
    for parts in (found.parts for found in live.all()):
        meant = [one for one in parts if wanted in {one.name, one.id}]
        meant = meant or [one for one in parts if "." in wanted and one.id.endswith(wanted)]
        if len(meant) == 1:
            record = provisional(database, meant[0], thresholds, store=store)
            return record, "over, its run goes on" if meant[0].over else still_runs(meant[0].started_ns)
    return None


def still_runs(started_ns: int) -> str:
    """How a trial stands that has not ended."""
    return f"still runs, {seconds(max(0, clock.now().wall_ns - started_ns) / 1e9)} so far"


def print_json(record: Trial | Run, *, live: bool) -> None:
    """A record; one of what still runs says so, since its `closed` and its verdict are not the last word."""
    shown = msgspec.to_builtins(record) | {"provisional": True} if live else record
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(shown)) + b"\n")


def _in_short(found: SoFar) -> str | None:
    if found.why is not None:
        return f"its trials are told apart when it has ended: {found.why}"
    if not found.parts:
        return found.run.sentence
    over = sum(one.over for one in found.parts)
    return f"holds {plural(len(found.parts), 'trial')} so far, {over} over; told while it runs, not stored yet"


def _row(found: SoFar, one: PartSoFar, record: Trial | None) -> TrialRow:
    run, verdict = found.run, record.verdict if record is not None else None
    if verdict is not None:
        sentence = f"{PROVISIONAL}{verdict.sentence}"
    else:
        quiet = seconds(max(0, clock.now().wall_ns - one.heard_ns) / 1e9)
        state = "over" if one.over else "goes on"
        sentence = f"{PROVISIONAL}{state}; {plural(one.calls, 'model call')}, last heard of {quiet} ago"
    ended = verdict.terminated_by if verdict is not None else None
    return TrialRow(
        trial=one.id,
        run=run.run,
        name=one.name,
        task=run.task,
        started_ns=one.started_ns,
        ended_ns=one.heard_ns if one.over else None,
        closed=None,
        outcome=None,
        exit_code=None,
        signal=None,
        blame=verdict.blame.value if verdict is not None else None,
        grade=verdict.grade.value if verdict is not None and verdict.grade is not None else None,
        cause=verdict.cause if verdict is not None else None,
        terminated_by=ended.cause if ended is not None else None,
        step=verdict.step if verdict is not None else None,
        steps=len(record.steps) if record is not None else None,
        sentence=sentence,
        trace_id=None,
    )


# --- shown ----------------------------------------------------------------------------------------------------------


def show_held(held: Held, *, table: Callable[[list[TrialRow]], list[str]], as_json: bool, width: int) -> None:
    """Print it as text, or as `fairtrial.run/1`."""
    if as_json:
        records = held.records()
        lines = [line_of(record, index=index) for index, record in enumerate(records)]
        whole = Run(
            run=held.run,
            command=list(held.command),
            exit_code=held.exit_code,
            counts=counts_of(lines),
            coverage=coverage_of(lines),
            trials=records,
            unassigned=held.unassigned,
        )
        print_json(whole, live=held.live)
        return
    print("\n".join(_lines(held, table, width)))


def _lines(held: Held, table: Callable[[list[TrialRow]], list[str]], width: int) -> list[str]:
    name = f" · {printable(held.name)}" if held.name else ""
    lines = [f"RUN  {printable(held.id)}{name}"]
    if held.run and held.run != held.id:
        lines.append(f"  run: {printable(held.run)}")
    if held.command:
        lines += wrapped(f"command: {printable(' '.join(held.command))[:160]}", width, hang=" " * 6)
    if held.started_ns is not None:
        lines.append(f"  started: {datetime.fromtimestamp(held.started_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}Z")
    lines += wrapped(held.how, width)
    if held.unassigned:
        counts = ", ".join(f"{printable(each)} {count}" for each, count in sorted(held.unassigned.items()))
        lines += wrapped(f"of none of them: {counts}", width)
    lines += ["", *table(held.rows), ""] if held.rows else [""]
    of_run = f" · fairtrial summary --run {printable(held.run)}" if held.run else ""
    return [*lines, f"  more: fairtrial show TRIAL{of_run}"]
