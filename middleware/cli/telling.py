"""Commands that tell what happened: `trials`, `show`, `summary`, `drift`.

In: a store, which is only read, but for trials of dead runs that are closed first.  Out: text, or JSON.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from fairtrial.middleware.cli.base import (
    READ,
    JsonOption,
    StoreOption,
    app,
    close_orphans,
    leave,
    nothing_listed,
    one,
    path_of_store,
    reading,
    terminal_width,
    thresholds_set,
)
from fairtrial.middleware.closing import judged
from fairtrial.middleware.core.errors import UsageError
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.report.tables import table_lines
from fairtrial.middleware.report.text import WIDTH, show_lines
from fairtrial.middleware.report.words import printable, seconds, verdict_phrase, wrapped
from fairtrial.middleware.store.database import latest_record, observations_of
from fairtrial.middleware.store.queries import TrialRow, find_trial, list_runs, list_trials
from fairtrial.middleware.store.writer import explain


@app.command(rich_help_panel=READ)
def trials(
    run: Annotated[str | None, typer.Option("--run", help="Only trials of this run.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, the newest first.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only trials that did not pass.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List trials, the newest first."""
    close_orphans(path_of_store(store))
    from fairtrial.middleware.cli.parted import trials_of_parted, with_parts

    with reading(store) as database:
        rows = list_trials(database, run=run, limit=limit, failed_only=failed)
        if not rows and run is not None and (held := trials_of_parted(database, run)) is not None:
            rows = [row for row in held[1] if not failed or row.outcome != "passed"][::-1][:limit]
        together = [] if as_json or run is None or not rows else _together(database, run)
        others = not rows and bool(list_trials(database, limit=1))
        if any(row.closed is None for row in rows):
            rows = with_parts(database, rows, thresholds_set([]), most=limit)
    if as_json:
        print(json.dumps([asdict(row) | {"provisional": "." in row.trial} for row in rows], indent=2))
        return
    if not rows:
        leave(nothing_listed(run, failed=failed, others=others))
    print("\n".join([*_trials_table(rows, terminal_width()), *(["", *together] if together else [])]))


def _together(database: sqlite3.Connection, run: str) -> list[str]:
    from fairtrial.middleware.cli.together import below_list

    return below_list(database, run, width=terminal_width() or WIDTH)


def _trials_table(rows: list[TrialRow], width: int | None) -> list[str]:
    """One line a trial where the terminal is wide enough for a good part of the sentence, else a few."""
    header = ("trial", f"started ({datetime.now().astimezone():%Z})", "took", "task or name", "booked")
    verdicts = ("ended by", "verdict", "sentence")
    cells = [_cells(row) for row in rows]
    table = [(*header, *verdicts), *((*left, *right) for left, right in cells)]
    if width is None or table_lines(table, width=None)[0].index("sentence") + 40 <= width:
        return table_lines(table, width=width)
    head, *left = table_lines([header, *(left for left, _ in cells)], width=width)
    folded = [head]
    for line, (_, (_, verdict, sentence)) in zip(left, cells, strict=True):
        folded += [line, *wrapped(f"{verdict}: {sentence}" if sentence else verdict, width, indent="    ")]
    return folded


def _short(trial: str) -> str:
    """The end of an id; of a trial of a running command (`ID.NUMBER`) with its run's end whole, to be known again."""
    run, dot, number = trial.partition(".")
    return f"{run[-12:]}{dot}{number}"


def _cells(row: TrialRow) -> tuple[tuple[str, ...], tuple[str, str, str]]:
    started = datetime.fromtimestamp(row.started_ns / 1e9).astimezone().strftime("%m-%d %H:%M:%S")
    took = "running" if row.closed is None else "-"
    if row.ended_ns is not None:
        took = seconds((row.ended_ns - row.started_ns) / 1e9)
    booked = row.outcome or "open"
    if row.signal:
        booked += f" (signal {row.signal})"
    elif row.exit_code:
        booked += f" (exit {row.exit_code})"
    verdict = verdict_phrase(row.blame, row.grade, row.cause, row.step) if row.blame else "-"
    left = (_short(row.trial), started, took, printable(row.task or row.name or "-"), booked)
    return left, (printable(row.terminated_by or "-"), printable(verdict), printable(row.sentence or ""))


@app.command(rich_help_panel=READ)
def show(
    trial: Annotated[
        str, typer.Argument(help="A trial's id, its beginning or end, its name or task, or `last`.")
    ] = "last",
    replay: Annotated[bool, typer.Option("--replay", help="Compute the verdict anew from what is stored.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="THRESHOLD=VALUE", help="With --replay: another threshold.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one trial: the verdict, its evidence, each step, what was watched."""
    if settings and not replay:
        leave("--set changes a verdict that is computed anew: add --replay", 2)
    from fairtrial.middleware.cli.parted import print_json, still_runs
    from fairtrial.middleware.underway import as_running, runs_under_way

    with reading(store) as database:
        if _shown_as_run(database, trial, replay=replay, store=store, as_json=as_json):
            return
        row = one(database, trial)
        runs = row.closed is None and any(row.trial == each.trial for each in runs_under_way(database))
        if row.closed is None and not runs:
            close_orphans(path_of_store(store))  # whoever looks next closes it
            if not find_trial(database, row.trial):  # it held several trials, which stand in its place now
                if _shown_as_run(database, trial, replay=replay, store=store, as_json=as_json):
                    return
                row = one(database, trial)
        stored = latest_record(database, row.trial)
        kept = list(observations_of(database, row.trial)) if replay or stored is None else []
    if replay or stored is None:
        thresholds = thresholds_set(settings or [])
        revision = (stored.verdict.revision if stored and stored.verdict else 0) + 1
        record = judged(
            kept, row.trial, Journal(), thresholds=thresholds, revision=revision, store=path_of_store(store)
        )
    else:
        record = stored
    standing = still_runs(row.started_ns) if stored is None and runs else None
    if standing is not None:
        record = as_running(record)
        print(
            "fairtrial: this trial still runs. What follows is judged as of now, and stored nowhere.", file=sys.stderr
        )
    elif stored is None:
        print(
            "fairtrial: this trial was never closed: fairtrial was stopped in its middle. It is judged as of now.",
            file=sys.stderr,
        )
    if as_json:
        print_json(record, live=standing is not None)
        return
    width = terminal_width()
    if record.run is not None:
        from fairtrial.middleware.cli.together import beside_one

        with reading(store) as database:
            beside = beside_one(database, record, thresholds_set(settings or []), width=width or WIDTH)
    else:
        beside = []
    print("\n".join(show_lines(record, width=width or WIDTH, cut_tables=width is not None, standing=standing)))
    if beside:
        print("\n" + "\n".join(beside))
    if replay and stored is not None:
        from fairtrial.middleware.cli.replay import replayed

        now = thresholds_set(settings or [])
        said = replayed(stored, record, kept, thresholds=now, store=path_of_store(store), width=width or WIDTH)
        print("\n" + "\n".join(said))


def _shown_as_run(
    database: sqlite3.Connection, wanted: str, *, replay: bool, store: Path | None, as_json: bool
) -> bool:
    """Whether `wanted` was a run of several trials, or a trial of one that still runs; then it was shown."""
    from fairtrial.middleware.cli.parted import Live, held_before, held_now, part_now, print_json, show_held

    live, thresholds, width = Live(database), thresholds_set([]), terminal_width()
    known = find_trial(database, wanted)
    held = held_now(database, live, wanted, thresholds)
    by_id = wanted == "last" or any(row.trial.startswith(wanted) or row.trial.endswith(wanted) for row in known)
    if held is None and not by_id:
        found = part_now(database, live, wanted, thresholds, path_of_store(store))
        if found is not None:
            part, standing = found
            print("fairtrial: its run goes on. What follows is judged as of now, and stored nowhere.", file=sys.stderr)
            if as_json:
                print_json(part, live=True)
            else:
                cut = width is not None
                print("\n".join(show_lines(part, width=width or WIDTH, cut_tables=cut, standing=standing)))
            return True
    if held is None and not known:
        held = held_before(database, wanted)
    if held is None:
        return False
    if replay:
        leave(f"{wanted!r} is a run of several trials; --replay is for one of them", 2)
    show_held(held, table=lambda rows: _trials_table(rows, width), as_json=as_json, width=width or WIDTH)
    return True


@app.command(rich_help_panel=READ)
def summary(
    run: Annotated[str | None, typer.Option("--run", help="The run to sum up.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> int:
    """Sum up a run: what was booked, what was true, and which trials to look at first."""
    from fairtrial.middleware.cli.summary import show_summary

    close_orphans(path_of_store(store))
    with reading(store) as database:
        if run is None:
            there = _runs_there(database)
            raise UsageError("There is no run to sum up: --run NAME says which.", remedy=there[0].upper() + there[1:])
        if not show_summary(database, run, as_json=as_json, width=terminal_width() or WIDTH):
            leave(f"no trial of run {run!r}; {_runs_there(database)}")
    return 0


def _runs_there(database: sqlite3.Connection) -> str:
    names = [printable(name) for name in list_runs(database)]
    if not names:
        return "no trial here is of a named run; `fairtrial run --run NAME -- COMMAND` names one"
    return f"the newest {'run' if len(names) == 1 else 'runs'} here: {', '.join(names)}"


@app.command(rich_help_panel=READ)
def drift(
    hours: Annotated[float, typer.Option("--hours", min=1, max=24 * 14, help="How far back to look.")] = 24.0,
    model: Annotated[str | None, typer.Option("--model", help="Only this model.")] = None,
    alarm: Annotated[bool, typer.Option("--alarm", help="Exit status 1 when something drifts now (for cron).")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> int:
    """Which model APIs are slower than this hour usually is, from the trials of this store."""
    from fairtrial.middleware.cli.drift import show_drift

    path = path_of_store(store)
    try:
        return show_drift(path, hours=hours, model=model, alarm=alarm, as_json=as_json, width=terminal_width() or WIDTH)
    except FileNotFoundError:
        leave(f"there is no store at {path} yet; `fairtrial run -- COMMAND` makes one")
    except (OSError, sqlite3.Error) as error:
        leave(explain(path, error, reading=True))
