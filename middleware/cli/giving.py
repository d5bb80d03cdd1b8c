"""Commands that give what is stored to others: `report` to a CI server, `export` to a collector or a harness."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairtrial.middleware.cli.base import (
    READ,
    JsonOption,
    StoreOption,
    TargetOption,
    app,
    close_orphans,
    leave,
    nothing_listed,
    one,
    path_of_store,
    reading,
)
from fairtrial.middleware.cli.report import Format, names_a_file, recorded, write_report
from fairtrial.middleware.core.errors import UsageError
from fairtrial.middleware.report.words import plural
from fairtrial.middleware.store.database import latest_record
from fairtrial.middleware.store.queries import TrialRow, find_trial, list_trials


@app.command(rich_help_panel=READ)
def report(
    wanted: Annotated[
        str,
        typer.Argument(
            metavar="[TRIAL|RUN|FILE]", help="A trial as for `show`, the name of a run, or what `run --json` wrote."
        ),
    ] = "last",
    form: Annotated[
        Format, typer.Option("--format", help="markdown: a job summary. github: that, annotations, outputs.")
    ] = (Format.MARKDOWN),
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file, not the screen.")] = None,
    store: StoreOption = None,
) -> int:
    """A trial, or all trials of a run, for a CI server:  fairtrial report last --format junit -o junit.xml"""
    if names_a_file(wanted):
        run, records = recorded(Path(wanted))
        return write_report(records, run, form, output, os.environ)
    close_orphans(path_of_store(store))
    with reading(store) as database:
        run, rows = _trials_of(database, wanted)
        records = [record for row in rows if (record := latest_record(database, row.trial)) is not None]
    if left := len(rows) - len(records):
        print(f"fairtrial: {plural(left, 'trial')} still open, left out", file=sys.stderr)
    if not records:
        leave(f"no trial of {wanted!r} has ended yet")
    return write_report(records, run, form, output, os.environ)


def _trials_of(database: sqlite3.Connection, wanted: str) -> tuple[str | None, list[TrialRow]]:
    """One trial, or (its name and) the trials of a run, the oldest first.  A trial's id, name or task goes first."""
    if not find_trial(database, wanted):
        rows = list_trials(database, run=wanted, limit=-1)
        if rows:
            return wanted, rows[::-1]
        from fairtrial.middleware.cli.parted import trials_of_parted

        if (held := trials_of_parted(database, wanted)) is not None:
            return held
    return None, [one(database, wanted)]


@app.command(rich_help_panel=READ)
def export(
    trials: Annotated[list[str] | None, typer.Argument(help="Ids or names of trials, or `last`.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="All trials of this run.")] = None,
    pending: Annotated[bool, typer.Option("--pending", help="What waits in the store for the collector.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also what was sent already, with the same span ids.")] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Write OTLP JSON lines instead of sending.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="With --jsonl: a file, not the screen.")] = None,
    wait: Annotated[float, typer.Option("--wait", min=0.0, help="Send for at most this long, s.")] = 30.0,
    into: Annotated[
        Path | None,
        typer.Option("--into", help="Put verdicts beside the scores in Harbor's trajectories or Inspect's logs here."),
    ] = None,
    store: TargetOption = None,
    as_json: JsonOption = False,
) -> int:
    """Send stored traces to OTEL_EXPORTER_OTLP_ENDPOINT, or write them:  fairtrial export last --jsonl > t.jsonl"""
    from fairtrial.middleware.cli.export import Choice, export_traces

    if into is not None and (pending or again or jsonl or output is not None):
        raise UsageError("--into writes verdicts, not traces.", remedy="Give it alone, or with trials or --run.")

    with reading(store) as database:
        chosen = [row.trial for wanted in trials or [] for row in _meant(database, wanted)]
        if run is not None:
            of_run = list_trials(database, run=run, limit=-1) or _of_parted(database, run)
            chosen += [row.trial for row in of_run]
            if not chosen:
                leave(nothing_listed(run, failed=False, others=True))
        if into is not None:
            from fairtrial.middleware.cli.beside import write_beside

            every = not trials and run is None
            return write_beside(database, into, None if every else frozenset(chosen), as_json=as_json)
    choice = Choice(chosen, pending=pending, again=again, jsonl=jsonl, output=output, wait_s=wait, as_json=as_json)
    return export_traces(path_of_store(store), choice)


def _meant(database: sqlite3.Connection, wanted: str) -> list[TrialRow]:
    """One trial; or those of a run that was parted, by its own id or name."""
    held = [] if find_trial(database, wanted) else _of_parted(database, wanted)
    return held or [one(database, wanted)]


def _of_parted(database: sqlite3.Connection, wanted: str) -> list[TrialRow]:
    from fairtrial.middleware.cli.parted import trials_of_parted

    held = trials_of_parted(database, wanted)
    return [] if held is None else held[1]
