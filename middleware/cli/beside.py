"""`fairtrial export --into PATH`: verdicts put beside the scores in a harness's own files.

In: an open store, a path, the trials that are meant.  Out: lines or JSON, and an exit status: 0 when a verdict stands
in every file that could have one, 1 when some trial was left out or none was found.
A trial is the one that `fairtrial import` tied the harness's record to; nothing is joined here.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Final

import msgspec

from fairtrial import __version__
from fairtrial.middleware.core.observations import HarnessOutcome
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.harnesses.base import FileNote
from fairtrial.middleware.harnesses.beside import Put, put_beside
from fairtrial.middleware.harnesses.known import imported_before
from fairtrial.middleware.report.words import plural, printable
from fairtrial.middleware.store.database import latest_record

SCHEMA: Final = "fairtrial.beside/1"
_SHOWN: Final = 40


def write_beside(database: sqlite3.Connection, path: Path, chosen: frozenset[str] | None, *, as_json: bool) -> int:
    """Write and print; the exit status.  `chosen` None: every trial of the store."""

    def verdict_of(outcome: HarnessOutcome) -> dict[str, object] | str:
        record = _record(database, outcome)
        if record is None:
            return f"is tied to no closed trial yet; first: fairtrial import {outcome.harness} {path}"
        if chosen is not None and record.trial not in chosen:
            return "is none of the chosen trials"
        return beside(record) or "has no verdict yet"

    puts, notes = put_beside(path, verdict_of)
    if as_json:
        print(json.dumps({"puts": [asdict(put) for put in puts], "files": [asdict(note) for note in notes]}, indent=2))
    else:
        print("\n".join(_lines(puts, notes)), file=sys.stdout if puts else sys.stderr)
    return 0 if puts and all(put.state != "left" for put in puts) else 1


def beside(record: Trial) -> dict[str, object] | None:
    """What stands beside a score (`fairtrial.beside/1`): the judgement, without the evidence; None: none was made."""
    verdict = record.verdict
    if verdict is None:
        return None
    plain = msgspec.to_builtins(verdict)
    ended = plain["terminated_by"]
    kept = ("blame", "grade", "cause", "step", "phase", "sentence", "ended_as", "answers", "revision")
    return {
        "schema": SCHEMA,
        "trial": record.trial,
        "run": record.run,
        **{name: plain[name] for name in kept},
        "terminated_by": None if ended is None else {name: ended[name] for name in ("cause", "grade")},
        "ruleset": record.ruleset,
        "written_by": f"fairtrial {__version__}",
    }


def _record(database: sqlite3.Connection, outcome: HarnessOutcome) -> Trial | None:
    """The trial that the record was tied to; one that was observed before one that was only imported."""
    found = [
        record
        for trial in imported_before(database, outcome.harness, outcome.identity).trials
        if (record := latest_record(database, trial)) is not None
    ]
    return max(found, key=lambda record: (bool(record.command), record.trial), default=None)


def _lines(puts: list[Put], notes: list[FileNote]) -> list[str]:
    states = Counter(put.state for put in puts)
    lines = [
        f"{plural(states['written'], 'verdict')} written, {states['same']} stood there already, "
        f"{states['left']} left out"
        if puts
        else "no trial of Harbor's or Inspect's was found"
    ]
    left = [f"{put.file or put.label} {put.said}" for put in puts if put.state == "left"]
    left += [f"{note.path} {note.said}" for note in notes]
    lines += [f"  {printable(text)}" for text in left[:_SHOWN]]
    if len(left) > _SHOWN:
        lines.append(f"  … and {len(left) - _SHOWN} more (--json lists all)")
    return lines
