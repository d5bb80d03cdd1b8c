"""Traces from the store: as OTLP JSON lines without loss, and to a collector, what waits there or what it never got.

In: a store and trials' ids.  Out: lines on a stream, or counts of spans.  What `fairtrial export` calls; live sending
is `pipeline.py`, which does the work here too.  A trial that was exported is not sent again unless that is asked for:
the spans have the same ids, and a collector that has them may show them twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from fairtrial.exporters.bounds import LOSSLESS
from fairtrial.exporters.encoding import Resources, batches
from fairtrial.exporters.otlp_json import to_json
from fairtrial.exporters.pipeline import TracePipeline
from fairtrial.exporters.settings import ExportSettings
from fairtrial.exporters.trace_layout import spans_of
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import TrialStarted
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.database import latest_record, observations_of, open_database
from fairtrial.middleware.store.exports import Counts

LINE_SPANS: Final = 512


@dataclass(frozen=True, slots=True)
class Asked:
    """Which trials will be laid out, and which not: they were already, or they are still open."""

    new: list[str]
    known: list[str]
    open: list[str]


@dataclass(frozen=True, slots=True)
class Sent:
    """Spans: what this call changed.  `waits`: what is left in the store; `trouble`: why, where there is a reason."""

    exported: int
    dropped: dict[str, int]
    waits: int
    trouble: str | None


def write_lines(
    database: sqlite3.Connection,
    trials: Iterable[str],
    out: BinaryIO,
    settings: ExportSettings,
    *,
    version: str,
    host: str | None,
) -> tuple[int, int]:
    """One OTLP request a line, nothing cut; how many trials and spans.  Open trials have no record yet: left out."""
    resources = Resources(version=version, host=host, schema_url=settings.profile.schema_url, extra=settings.resource)
    written = spans_written = 0
    for trial in trials:
        record = latest_record(database, trial)
        if record is None:
            continue
        root, parent = _place(database, trial)
        spans = spans_of(record, root_span_id=root, parent_span_id=parent, profile=settings.profile)
        for batch in batches(spans, resources, LOSSLESS, most=LINE_SPANS):
            out.write(to_json(batch.body) + b"\n")
            spans_written += batch.spans
        written += 1
    return written, spans_written


def ask(database: sqlite3.Connection, trials: Iterable[str], *, again: bool = False) -> Asked:
    """Note that these trials' traces are wanted; `again`: also those that were sent, with the ids that they had."""
    asked = Asked([], [], [])
    for trial in trials:
        known = exports.laid_out(database, trial)
        if latest_record(database, trial) is None:
            asked.open.append(trial)
        elif known is not None and known.revision and not (again and exports.forget(database, trial)):
            asked.known.append(trial)
        else:
            root, parent = _place(database, trial)
            with database:
                exports.want(database, trial, root, parent, clock.now().wall_ns)
            asked.new.append(trial)
    return asked


def send(
    store: Path, settings: ExportSettings, journal: Journal, *, version: str, host: str | None, within_s: float
) -> Sent:
    """Send all that the store has for the collector, for at most `within_s`."""
    before, pipeline = _counted(store), TracePipeline(store, settings, journal, version=version, host=host)
    pipeline.start()
    pipeline.close(within_s)
    after = _counted(store)
    dropped = {
        why: spans - before.dropped.get(why, 0)
        for why, spans in after.dropped.items()
        if spans > before.dropped.get(why, 0)
    }
    return Sent(after.exported - before.exported, dropped, after.pending, pipeline.trouble)


def _counted(store: Path) -> Counts:
    database = open_database(store)
    try:
        return exports.counts(database)
    finally:
        database.close()


def _place(database: sqlite3.Connection, trial: str) -> tuple[str | None, str | None]:
    """The trial's own span id and its parent's, as the command was told them."""
    known = exports.laid_out(database, trial)
    if known is not None:
        return known.root, known.parent
    for observation in observations_of(database, trial):
        if observation.kind == TrialStarted.kind:
            root, parent = observation.value.get("root_span_id"), observation.value.get("parent_span_id")
            return root if isinstance(root, str) else None, parent if isinstance(parent, str) else None
    return None, None
