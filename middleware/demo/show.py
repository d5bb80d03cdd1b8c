"""Runs the demo's trials under `fairtrial run` and shows what was booked beside what was true.

In: the list of trials.  Out: progress on stderr while it runs, one table (or JSON) at the end, exit status 0 when each
trial that could run here was judged as it was written down beforehand, else 1.  The trials' records go to a store of
their own in the state folder, so that `fairtrial show` can open them; the user's store is left alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from fairtrial.middleware.core.places import state_folder
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.demo.box import Ceiling, memory_ceiling
from fairtrial.middleware.demo.standin import running_standin
from fairtrial.middleware.demo.trials import TRIALS, DemoTrial
from fairtrial.middleware.report.words import headline, wrapped

TABLE_WIDTH: Final = 120
"""Narrower terminals get a block of lines for each trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; `skipped` says why a trial could not run here."""

    name: str
    what: str
    booked: str
    ended_by: str
    verdict: str
    sentence: str
    as_expected: bool
    skipped: str | None = None


def run_demo(*, only: str | None = None, as_json: bool = False) -> int:
    """Run all six trials, or one by name."""
    chosen = [trial for trial in TRIALS if only in (None, trial.name)]
    if not chosen:
        names = ", ".join(trial.name for trial in TRIALS)
        print(f"fairtrial: no demo trial is called {only!r}; there are: {names}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="fairtrial-demo-") as folder, memory_ceiling() as ceiling:
        store = _store(Path(folder))
        if any(trial.needs_ceiling for trial in chosen):
            where = ceiling.where if isinstance(ceiling, Ceiling) else f"not run here: {ceiling}"
            print(f"memory limits: {where}", file=sys.stderr)
        for number, trial in enumerate(chosen, 1):
            print(f"[{number}/{len(chosen)}] {trial.name}: {trial.what} …", file=sys.stderr, flush=True)
            rows.append(_run_one(trial, Path(folder), store, ceiling))
            print(f"      → {rows[-1].skipped or rows[-1].verdict}", file=sys.stderr, flush=True)
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        _print_rows(rows)
        if store.exists():
            last = next((row.name for row in rows if not row.skipped), "last")
            print(f"\nLook closer:   {_ourselves()} show {last} --store {store}")
            print(f"Now your own:  {_ourselves()} run -- YOUR-AGENT …")
    return 0 if all(row.as_expected or row.skipped for row in rows) else 1


def _ourselves() -> str:
    """What to type: the bare name where PATH has it, else the program beside this Python (after `make demo`)."""
    beside = Path(sys.executable).with_name("fairtrial")
    return "fairtrial" if shutil.which("fairtrial") or not beside.exists() else str(beside)


def _store(otherwise: Path) -> Path:
    """`demo.db` beside the usual store; in the folder `otherwise` where that cannot be written.

    What earlier demos left stays: another demo may be running, and a name means its newest trial.
    """
    store = Path(state_folder(os.environ)) / "demo.db"
    try:
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        store.touch(mode=0o600)
    except OSError:
        return otherwise / store.name
    return store


def _run_one(trial: DemoTrial, folder: Path, store: Path, ceiling: Ceiling | str) -> Row:
    empty = Row(
        name=trial.name, what=trial.what, booked="-", ended_by="-", verdict="-", sentence="-", as_expected=False
    )
    if trial.needs_ceiling and isinstance(ceiling, str):
        return _skipped(empty, f"not run: {ceiling}")
    limits = ceiling if trial.needs_ceiling and isinstance(ceiling, Ceiling) else Ceiling(kind="none")
    record = folder / f"{trial.name}.json"
    with running_standin(trial.steps, trial.faults) as server:
        command = [sys.executable, "-m", "fairtrial", "run", "--quiet", "--run", "demo", "--name", trial.name]
        command += ["--store", str(store), "--json", str(record), "--"]
        command += [*limits.before, sys.executable, "-m", "fairtrial.middleware.demo.agent", *limits.options]
        done = subprocess.run(
            command,
            env=dict(os.environ) | {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "dummy"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    if not record.exists():
        return _skipped(empty, f"fairtrial wrote no record: {done.stderr.strip()[-300:]}")
    return _row(trial, msgspec.json.decode(record.read_bytes(), type=Trial))


def _skipped(row: Row, why: str) -> Row:
    return replace(row, skipped=why, as_expected=why.startswith("not run"))


def _row(trial: DemoTrial, record: Trial) -> Row:
    verdict = record.verdict
    if verdict is None:
        raise RuntimeError(f"trial {trial.name} has no verdict")
    ended = verdict.terminated_by
    got = (verdict.blame.value, verdict.grade.value if verdict.grade else None, verdict.cause)
    # A model failure has no cause of the table; only its blame was written down.
    as_expected = got == trial.expected if trial.expected[0] != "model" else got[0] == "model"
    if trial.name == "oom-harmless":
        as_expected = got[0] == "none" and any(p.cause == "container.oom_kill" for p in verdict.present)
    present = f" (present: {verdict.present[0].cause})" if verdict.present else ""
    return Row(
        name=trial.name,
        what=trial.what,
        booked=f"{record.outcome.value} (exit {record.exit_code})",
        ended_by=f"{ended.cause} ({ended.grade.value})" if ended else "no outside event",
        verdict=f"{headline(verdict)}{present}",
        sentence=verdict.sentence,
        as_expected=as_expected,
    )


def _print_rows(rows: list[Row]) -> None:
    """A table where there is room for it, else a block for each trial."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
    title = "What a harness would have booked, and what was true"
    if width < TABLE_WIDTH:
        print(f"\n{title}")
        for row in rows:
            print("\n".join(_block(row, width)))
        return
    table = Table(title=title, show_lines=True)
    for name, ratio in (("trial", 2), ("booked", 2), ("ended by", 3), ("verdict", 3), ("in a sentence", 7)):
        table.add_column(name, ratio=ratio, overflow="fold")
    for row in rows:
        table.add_row(row.name, row.booked, row.ended_by, row.verdict, _sentence(row))
    Console(width=width, highlight=False, markup=False).print(table)


def _block(row: Row, width: int) -> list[str]:
    lines = ["", row.name]
    if not row.skipped:
        for line in (f"booked:   {row.booked}", f"ended by: {row.ended_by}", f"verdict:  {row.verdict}"):
            lines += wrapped(line, max(40, width), hang=" " * 12)
    return [*lines, *wrapped(_sentence(row), max(40, width))]


def _sentence(row: Row) -> str:
    note = "" if row.as_expected or row.skipped else "  [NOT AS WRITTEN DOWN BEFOREHAND]"
    return f"{row.skipped or row.sentence}{note}"
