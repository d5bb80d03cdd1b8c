"""`fairtrial export`: stored traces to a collector, or as OTLP JSON lines.

In: a store and what was chosen on the command line.  Out: lines, or one sentence of counts (`--json`: the counts).
Exit status 0 when everything chosen is out, 1 when something waits or was lost, 2 for a choice that makes no sense.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from fairtrial import __version__
from fairtrial.exporters.resend import Sent, ask, send, write_lines
from fairtrial.exporters.settings import ExportSettings, asked_for, settings_of
from fairtrial.middleware.core.config import read
from fairtrial.middleware.core.errors import HostError, UsageError
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import this_host
from fairtrial.middleware.store.database import open_database
from fairtrial.middleware.store.writer import explain


@dataclass(frozen=True, slots=True)
class Choice:
    """What the command line says; `trials` are whole ids."""

    trials: list[str]
    pending: bool = False
    again: bool = False
    jsonl: bool = False
    output: Path | None = None
    wait_s: float = 30.0
    as_json: bool = False


def export_traces(store: Path, choice: Choice) -> int:
    """Do it; the exit status.  Raises `UsageError`, `HostError`, `ConfigError`."""
    if not choice.trials and not (choice.pending and not choice.jsonl):
        raise UsageError("Nothing is chosen to export.", remedy="Name trials, or say --run NAME, or --pending.")
    if choice.output is not None and not choice.jsonl:
        raise UsageError("--output is for --jsonl.", remedy="Add --jsonl, or leave --output away.")
    settings = settings_of(os.environ, read(os.environ, {}).export)
    for complaint in settings.complaints:
        print(f"fairtrial: {complaint}", file=sys.stderr)
    return _write(store, choice, settings) if choice.jsonl else _send(store, choice, settings)


def _write(store: Path, choice: Choice, settings: ExportSettings) -> int:
    database = open_database(store, read_only=True)
    try:
        # Beside a file first: a reader never sees half of the lines.
        part = None if choice.output is None else choice.output.with_name(f".{choice.output.name}.{os.getpid()}")
        with nullcontext(sys.stdout.buffer) if part is None else part.open("wb") as out:
            trials, spans = write_lines(
                database, choice.trials, out, settings, version=__version__, host=this_host().name
            )
        if part is not None and choice.output is not None:
            part.replace(choice.output)
    except OSError as error:
        raise HostError(f"The lines could not be written ({error}).", remedy="Name another --output.") from error
    finally:
        database.close()
    left_out = len(choice.trials) - trials
    still_open = f"; {left_out} still open, left out" if left_out else ""
    print(f"fairtrial: {spans} spans of {trials} trial(s) written{still_open}", file=sys.stderr)
    return 0 if trials else 1


def _send(store: Path, choice: Choice, settings: ExportSettings) -> int:
    if not asked_for(os.environ):
        raise UsageError(
            "No collector is named.",
            remedy="Set OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318, or write lines with --jsonl.",
        )
    try:
        database = open_database(store)
    except (OSError, sqlite3.Error) as error:
        raise HostError(explain(store, error), remedy="") from error
    try:
        asked = ask(database, choice.trials, again=choice.again)
    finally:
        database.close()
    with open(os.devnull, "w") as quiet:
        sent = send(store, settings, Journal(quiet), version=__version__, host=this_host().name, within_s=choice.wait_s)
    if choice.as_json:
        print(json.dumps(asdict(sent) | {"already": asked.known, "open": asked.open}))
    else:
        for line in _lines(sent, len(asked.known), len(asked.open)):
            print(line)
    return 1 if sent.waits or sent.dropped or asked.open else 0


def _lines(sent: Sent, already: int, still_open: int) -> list[str]:
    lines = [f"{sent.exported} spans exported, {sent.waits} waiting, {sum(sent.dropped.values())} dropped"]
    if sent.dropped:
        lines.append("dropped: " + ", ".join(f"{spans} {why}" for why, spans in sorted(sent.dropped.items())))
    if sent.waits and sent.trouble:
        lines.append(f"waiting: {sent.trouble}")
    if already:
        lines.append(
            f"{already} trial(s) were handed over before; --again sends them once more, with the same span ids"
        )
    if still_open:
        lines.append(f"{still_open} trial(s) are still open")
    return lines
