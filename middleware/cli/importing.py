"""`fairtrial import HARNESS PATH`: what was read, how each trial was joined, and what could not be read.

In: a store, a harness's name, a path.  Out: text or JSON.  Exit status 0; 1 when no trial was found.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.harnesses.base import FileNote
from fairtrial.middleware.importing import Imported, ImportedTrial, import_results
from fairtrial.middleware.report.tables import table_lines
from fairtrial.middleware.report.words import plural, printable
from fairtrial.middleware.store.database import open_database
from fairtrial.middleware.store.writer import explain

SHOWN: Final = 40
"""So many trials, and so many files that were not read whole, are listed; the rest is counted."""


def import_path(
    store: Path, harness: str, path: Path, *, run: str | None, as_json: bool, width: int | None, thresholds: Thresholds
) -> int:
    """Import and print; the exit status.  A store that cannot be used is said."""
    try:
        result = _imported(store, harness, path, run=run, thresholds=thresholds)
    except (OSError, sqlite3.Error) as error:
        print(f"fairtrial: {explain(store, error)}", file=sys.stderr)
        return 1
    if as_json:
        print(json.dumps(_plain(harness, run, result), indent=2))
    else:
        print("\n".join(lines(result, width=width)), file=sys.stdout if result.trials else sys.stderr)
    return 0 if result.trials else 1


def _imported(store: Path, harness: str, path: Path, *, run: str | None, thresholds: Thresholds) -> Imported:
    database = open_database(store)
    try:
        with open(os.devnull, "w") as quiet:
            return import_results(database, harness, path, run=run, journal=Journal(quiet), thresholds=thresholds)
    finally:
        database.close()


def _plain(harness: str, run: str | None, result: Imported) -> dict[str, object]:
    return {
        "harness": harness,
        "run": run,
        "trials": [asdict(trial) for trial in result.trials],
        "files": [asdict(note) for note in result.notes],
    }


def lines(result: Imported, *, width: int | None) -> list[str]:
    """The whole answer for people."""
    told = [_headline(result)]
    if result.trials:
        shown = result.trials[:SHOWN]
        told += [f"  {line}" for line in table_lines([_cells(trial) for trial in shown], width=_less(width))]
        if len(result.trials) > SHOWN:
            told.append(f"  … and {len(result.trials) - SHOWN} more (--json lists all)")
    not_whole = [note for note in result.notes if note.said]
    if not_whole:
        told.append(f"{plural(len(not_whole), 'file')} of which there is something to say:")
        told += [f"  {_note(note)}" for note in not_whole[:SHOWN]]
        if len(not_whole) > SHOWN:
            told.append(f"  … and {len(not_whole) - SHOWN} more (--json lists all)")
    return told


def _less(width: int | None) -> int | None:
    return None if width is None else width - 2


def _headline(result: Imported) -> str:
    trials = result.trials
    whole = sum(1 for note in result.notes if note.state == "whole")
    if not trials:
        return "no trial was found"
    joined = sum(1 for t in trials if not t.alone and t.trial is not None)
    waiting = sum(1 for t in trials if t.trial is None)
    new = sum(1 for t in trials if t.new)
    parts = [f"{joined} joined", f"{len(trials) - joined - waiting} alone"]
    if waiting:
        parts.append(f"{waiting} whose trial still runs")
    changed = f"{new} new or changed" if new else "nothing new"
    return f"{plural(len(trials), 'trial')} in {plural(whole, 'whole file')}: {', '.join(parts)}; {changed}"


def _cells(trial: ImportedTrial) -> tuple[str, ...]:
    target = "waits" if trial.trial is None else f"{'+' if trial.new else '='} {trial.trial[-12:]}"
    return printable(trial.label), trial.outcome.value, target, printable(trial.said)


def _note(note: FileNote) -> str:
    return printable(f"{note.path} {note.said}")
