"""Commands that bring records in: `import HARNESS PATH`, `import store`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from fairtrial.middleware.cli.base import (
    JsonOption,
    TargetOption,
    close_orphans,
    import_app,
    leave,
    path_of_store,
    terminal_width,
    thresholds_set,
)
from fairtrial.middleware.closing import revise
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.report.words import headline, plural
from fairtrial.middleware.store.database import open_database
from fairtrial.middleware.store.merge import merge_file
from fairtrial.middleware.store.writer import StoreWriter, explain

HARNESSES: Final[dict[str, str]] = {
    "harbor": "Results of Harbor: a job's folder, a trial's folder, or a result.json.",
    "swe-bench": "Results of SWE-bench: a run report, an instance's logs, or a folder above them.",
    "mini-swe-agent": "mini-swe-agent's trajectories and exit_statuses, or a folder with them.",
    "inspect": "Inspect's logs, .eval or .json, or a folder of them.",
    "claude-code": "Claude Code's transcripts, or what --output-format stream-json or json wrote.",
    "junit": "JUnit XML: one trial per test case.",
    "exit-code": "A file with an exit code, or lines of NAME CODE.",
}
"""As `middleware/harnesses` has them; that room is loaded only when one is called."""


RunOption = Annotated[
    str | None, typer.Option("--run", help="Only trials of this run are candidates, and new ones belong to it.")
]


def _importer(harness: str) -> Callable[..., int]:
    def import_harness(
        path: Annotated[Path, typer.Argument(help="The file or folder that the harness wrote.")],
        run: RunOption = None,
        store: TargetOption = None,
        as_json: JsonOption = False,
    ) -> int:
        from fairtrial.middleware.cli.importing import import_path

        target = path_of_store(store)
        close_orphans(target)
        return import_path(
            target, harness, path, run=run, as_json=as_json, width=terminal_width(), thresholds=thresholds_set([])
        )

    import_harness.__doc__ = f"{HARNESSES[harness]} Doing it twice changes nothing."
    return import_harness


for _harness in HARNESSES:
    import_app.command(_harness)(_importer(_harness))


@import_app.command("store")
def import_store(
    path: Annotated[Path, typer.Argument(help="A spill file (.jsonl) or another store (.db).")],
    store: TargetOption = None,
) -> None:
    """Bring the rows of a spill file, or of another store, into the store. Doing it twice changes nothing."""
    target = path_of_store(store)
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        leave(f"{path} could not be read: {error.strerror}")
    try:
        database = open_database(target)
    except (OSError, sqlite3.Error) as error:
        leave(explain(target, error))
    try:
        merged = merge_file(database, path)
    except (OSError, sqlite3.Error) as error:
        leave(f"{path} could not be read: {error}")
    finally:
        database.close()
    if merged.damaged and not (merged.read or merged.trials):
        leave(f"{path} is no spill file and no store: none of its {merged.damaged} lines could be read")
    damaged = f", {merged.damaged} damaged lines skipped" if merged.damaged else ""
    told = f"{plural(merged.read, 'observation')} and {plural(merged.trials, 'trial')} read"
    print(f"{told}, {plural(merged.added, 'row')} new{damaged}")
    for line in _revised(target, merged.late):
        print(line)


def _revised(store: Path, late: Sequence[str]) -> list[str]:
    """Trials that were closed before this evidence came are judged again; what that changes is a new revision."""
    if not late:
        return []
    with open(os.devnull, "w") as nowhere:
        quiet = Journal(nowhere)
        writer = StoreWriter(store, quiet)
        try:
            trials = revise(store, writer, quiet, late)
        finally:
            writer.close()
    return [
        f"{trial.trial[-12:]}: revision {trial.verdict.revision}, {headline(trial.verdict)}"
        for trial in trials
        if trial.verdict is not None
    ]
