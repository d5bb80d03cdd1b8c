"""What a run that still goes on holds so far: its trials told apart, and a provisional verdict of those that are over.

In: an open store, read only.  Out: `SoFar`.  It tells as `app.py` will at the end, from the rows that the observer has
stored by now (they are at most half a second old), in the process of whoever asks: the run process and its observer do
nothing for it, and nothing is written.  What this module does not do: part for good.  A trial's number may change
while the run goes on, and its verdict until the harness's results are known.

Bounds: `MAX_ROWS` of rows and `WITHIN_S` of time for telling apart, as much again for judging.  A run beyond them is
told apart at its end only, and that is said.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from fairtrial.middleware.closing import judged, owner_alive
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.config import Thresholds
from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Blame, Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import this_host
from fairtrial.middleware.parted import PART_OF, Child, PartedRun
from fairtrial.middleware.steps.parting import Parting, part
from fairtrial.middleware.steps.run_facts import RunFacts
from fairtrial.middleware.store.database import count_of, observations_at, observations_in_store_order, of_trial
from fairtrial.middleware.store.parted_runs import PartedRow
from fairtrial.middleware.store.queries import TrialRow, list_open_rows
from fairtrial.middleware.store.writer import Owner

MAX_ROWS: Final = 200_000
"""Of one run; reading one back and noting what it says takes some 50 µs."""
WITHIN_S: Final = 10.0
_LOOK_EVERY: Final = 256


@dataclass(slots=True, kw_only=True, eq=False)
class PartSoFar:
    """One trial of a run that goes on.  `id`: the run's own id, a dot and a number; good while the run goes on."""

    id: str
    name: str | None
    started_ns: int
    heard_ns: int
    calls: int
    over: bool
    """Its containers are all gone."""
    rows: Sequence[tuple[str, int]]
    made: Sequence[Observation]


@dataclass(slots=True, kw_only=True, eq=False)
class SoFar:
    """A run while it goes on.  `parts` is empty where it is one trial so far, or `why` it is not known."""

    run: TrialRow
    command: list[str] = field(default_factory=list[str])
    parts: list[PartSoFar] = field(default_factory=list[PartSoFar])
    unassigned: Mapping[str, int] = field(default_factory=dict[str, int])
    why: str | None = None


class _Nowhere:
    """What is told of a trial for its verdict stays in memory."""

    def put(self, observation: Observation) -> None:
        """Not written."""

    def open_trial(self, trial: Trial, owner: Owner) -> None:
        """Not written."""

    def assign(self, run: PartedRow, rows: Mapping[str, Sequence[tuple[str, int]]]) -> None:
        """Not written."""


def runs_under_way(database: sqlite3.Connection, *, run: str | None = None) -> list[TrialRow]:
    """The open rows whose run process lives, the newest first; `run`: only those of this run."""
    rows = [row for row, owner in list_open_rows(database) if run in {None, row.run} and owner_alive(owner)]
    return rows[::-1]


def so_far(
    database: sqlite3.Connection, row: TrialRow, *, within_s: float = WITHIN_S, max_rows: int = MAX_ROWS
) -> SoFar:
    """Tell the trials of an open run apart.  Raises `sqlite3.Error`."""
    found = SoFar(run=row)
    rows = count_of(database, row.trial)
    if rows > max_rows:
        found.why = f"{rows} rows are too many to be told apart while it runs"
        return found
    facts = RunFacts(row.trial)
    late = _deadline(within_s)
    for number, observation in enumerate(observations_in_store_order(database, row.trial)):
        if number % _LOOK_EVERY == 0 and late():
            found.why = f"its {rows} rows could not be read in {within_s:g} s"
            return found
        facts.take(observation)
    if facts.started is None or PART_OF in facts.started[1].options or not facts.started[1].command:
        return found  # a part that is being closed, or a trial of `serve`
    found.command = facts.started[1].command
    parting = part(facts, named=facts.named)
    if parting is not None:
        _tell(found, facts, parting)
    return found


def _tell(found: SoFar, facts: RunFacts, parting: Parting) -> None:
    numbers = count(1)
    parted = PartedRun(
        facts,
        parting,
        writer=_Nowhere(),
        host=this_host(),
        owner=Owner(os.getpid(), None, None),
        closed="incomplete",
        new_id=lambda: f"{facts.root}.{next(numbers)}",
    )
    parted.open()
    rows = parted.rows
    found.unassigned = parted.unassigned
    found.parts = [_so_far(child, facts, rows[child.trial]) for child in parted.children]


def _so_far(child: Child, facts: RunFacts, rows: Sequence[tuple[str, int]]) -> PartSoFar:
    containers = child.part.containers
    return PartSoFar(
        id=child.trial,
        name=child.part.name,
        started_ns=child.part.started_ns,
        heard_ns=child.part.ended_ns,
        calls=sum(facts.calls[attempt].chat for attempt in child.part.calls),
        over=bool(containers) and all(facts.over_ns(container) is not None for container in containers),
        rows=rows,
        made=child.made,
    )


def provisional(
    database: sqlite3.Connection, one: PartSoFar, thresholds: Thresholds, *, store: Path | None = None
) -> Trial:
    """The trial, judged by what is known of it now.  Raises `sqlite3.Error`."""
    kept = [*one.made, *(of_trial(row, one.id) for row in observations_at(database, one.rows))]
    record = judged(kept, one.id, Journal(), thresholds=thresholds, store=store)
    return record if one.over else as_running(record)


def as_running(record: Trial) -> Trial:
    """The same, of a trial that goes on: it has no end yet, and that none was recorded is no sign of anything."""
    verdict = record.verdict
    if verdict is not None and verdict.blame is Blame.INDETERMINATE:
        said = "The trial still runs, so how it ends is not known yet."
        if (struck := verdict.terminated_by) is not None:
            said += f" What struck it last: {struck.cause}{'' if struck.step is None else f' in step {struck.step}'}."
        verdict = msgspec.structs.replace(verdict, sentence=said)
    return msgspec.structs.replace(record, ended=None, verdict=verdict)


def provisional_of_those_over(
    database: sqlite3.Connection, parts: Sequence[PartSoFar], thresholds: Thresholds, *, within_s: float = WITHIN_S
) -> dict[str, Trial]:
    """Id → record of the trials that are over, the newest first, as many as the time allows."""
    late, records = _deadline(within_s), dict[str, Trial]()
    for one in sorted(parts, key=lambda each: each.heard_ns, reverse=True):
        if one.over and not late():
            records[one.id] = provisional(database, one, thresholds)
    return records


def _deadline(within_s: float) -> Callable[[], bool]:
    until_ns = clock.mono_ns() + round(within_s * 1e9)
    return lambda: clock.mono_ns() >= until_ns
