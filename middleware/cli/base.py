"""What the commands share: the applications, options, the store to read, and how a command is left with a sentence.

In: command lines' values.  Out: an open store, one trial that was meant, thresholds; `typer.Exit` with a sentence on
standard error where there is nothing to go on with.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.attribution.thresholds import load as load_thresholds
from fairtrial.middleware.closing import recover_orphans
from fairtrial.middleware.core.config import (
    read,
    store_file,
)
from fairtrial.middleware.core.errors import ConfigError, UsageError
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store.database import open_database
from fairtrial.middleware.store.queries import TrialRow, find_trial
from fairtrial.middleware.store.writer import StoreWriter, explain

app = typer.Typer(
    name="fairtrial",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Stands beside an agent and says, with evidence, whether a failure was the infrastructure's or the model's.",
    epilog="Start with: fairtrial demo. Then put `fairtrial run --` before your agent's command.",
)
import_app = typer.Typer(no_args_is_help=True, help="Bring records from elsewhere into the store.")
config_app = typer.Typer(no_args_is_help=True, help="The settings in force.")
RUN, READ, MACHINE = "Run an agent", "Read what happened", "This machine"
app.add_typer(import_app, name="import", rich_help_panel=READ)
app.add_typer(config_app, name="config", rich_help_panel=MACHINE)

StoreOption = Annotated[
    Path | None, typer.Option("--store", help="The store to read (default: $FAIRTRIAL_STORE, else the state folder).")
]

TargetOption = Annotated[
    Path | None, typer.Option("--store", help="The store to write (default: $FAIRTRIAL_STORE, else the state folder).")
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def path_of_store(chosen: Path | None) -> Path:
    return Path(store_file(os.environ, None if chosen is None else str(chosen)))


def _numbers(settings: list[str]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        try:
            numbers[name.strip()] = float(value)
        except ValueError:
            raise UsageError(f"--set {setting!r} is no NAME=NUMBER.", remedy="Such as: --set stall_s=60") from None
        if not equals:
            raise UsageError(f"--set {setting!r} has no `=`.", remedy="Such as: --set stall_s=60")
    return numbers


def thresholds_set(settings: list[str]) -> Thresholds:
    """Those of the settings, changed by `--set`.  Raises `UsageError` for a wrong `--set`."""
    base = read(os.environ, {}).verdict
    try:
        return load_thresholds(_numbers(settings), base=base)
    except ConfigError as error:
        raise UsageError(f"--set: {error.what}", remedy=error.remedy) from error


def leave(sentence: str, status: int = 1) -> NoReturn:
    print(f"fairtrial: {sentence}", file=sys.stderr)
    raise typer.Exit(status)


@contextmanager
def reading(store: Path | None) -> Iterator[sqlite3.Connection]:
    path = path_of_store(store)
    try:
        database = open_database(path, read_only=True)
    except FileNotFoundError:
        leave(f"there is no store at {path} yet; `fairtrial run -- COMMAND` makes one")
    except (OSError, sqlite3.Error) as error:
        leave(explain(path, error, reading=True))
    try:
        yield database
    finally:
        database.close()


def one(database: sqlite3.Connection, wanted: str) -> TrialRow:
    rows = find_trial(database, wanted)
    if not rows:
        leave(f"no trial matches {wanted!r}; `fairtrial trials` lists them, `last` is the newest")
    if len(rows) > 1 and len({row.name for row in rows}) > 1:
        shown = ", ".join(row.trial[-12:] for row in rows[:5])
        leave(f"{wanted!r} may be {len(rows)} trials: {shown}; type more of the id")
    if len(rows) > 1:
        print(
            f"fairtrial: the newest of {len(rows)} trials called {wanted!r}; `fairtrial trials` lists their ids",
            file=sys.stderr,
        )
    return rows[0]


def terminal_width() -> int | None:
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def nothing_listed(run: str | None, *, failed: bool, others: bool) -> str:
    if not others:
        return "there is no trial yet; `fairtrial run -- COMMAND` makes one"
    of_run = "" if run is None else f" of run {run!r}"
    options = " and ".join(name for name, given in (("--run", run), ("--failed", failed)) if given)
    return f"no trial{of_run}{' that did not pass' if failed else ''}; without {options} there are some"


def close_orphans(path: Path) -> None:
    """Trials whose run was killed are closed by whoever looks next; a store that cannot be written stays as it is."""
    if not path.exists() or not os.access(path, os.W_OK):
        return
    with open(os.devnull, "w") as nowhere:
        quiet = Journal(nowhere)
        writer = StoreWriter(path, quiet)
        try:
            recover_orphans(path, writer, quiet)
        except (OSError, sqlite3.Error):
            # The reader that follows meets the same fault and says it in a sentence.
            return
        finally:
            writer.close()
