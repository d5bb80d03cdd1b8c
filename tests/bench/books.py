"""What a long trial costs at its end and on disk: the verdict on 1 000 steps, and bytes per step in the store.

`python -m tests.bench books`.  One agent makes 1 000 calls through a real run, one after the other, each with its
history; its observations are read from the store that the run wrote, and judged again.  Beside it two short agents
make a call each 0.12 s, so that all readings of counters come that a step of seconds would have (a storm of calls is
thinned to 20 a second): what the longer store has more, by the steps that it has more.  That store is then filled with
copies of its trial until they have a million steps, and `fairtrial trials` lists it.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from fairtrial.middleware.closing import judged
from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store.database import observations_of, open_database
from tests.bench.agents import Agent
from tests.bench.observed import ROOT, Upstreams
from tests.bench.processes import OTHER_CORES, raise_file_limit
from tests.bench.rows import Row, spread

STEPS: Final = 1000
SHORT, LONG = 20, 120
STEP_S: Final = 0.12
REPEATS: Final = 7
MANY: Final = 1_000_000
"""Steps in a store that is listed."""


@dataclass(frozen=True, slots=True)
class Book:
    """What a run wrote."""

    trial: str
    observations: list[Observation]
    stored_bytes: int
    finish_s: float
    """From the end of its command to the end of both processes."""


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budgets of DESIGN section 7 that are cheap to look at."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    steps, short, long = (STEPS // 20, 2, 6) if quick else (STEPS, SHORT, LONG)
    with tempfile.TemporaryDirectory(prefix="ft-b-") as folder:
        store = Path(folder) / "store.db"
        whole, first, second = uvloop.run(_written(steps, short, long, store))
        listing = _listed(store, second.trial, (MANY // 100 if quick else MANY) // long)
    taken_s: list[float] = []
    count = 0
    for _ in range(REPEATS):
        began_s = time.process_time()
        trial = judged(whole.observations, whole.trial, Journal(io.StringIO()))
        taken_s.append(time.process_time() - began_s)
        count = len(trial.steps)
    value, noise = spread(taken_s)
    yield Row(what="steps in the record", value=count, unit="", budget=steps, sense="at least", how=f"of {steps} calls")
    yield Row(
        what=f"verdict on a trial of {count} steps", value=value, noise=noise, unit="s", budget=0.2,
        how=f"CPU of assembling and judging {len(whole.observations)} observations, {REPEATS} times",
    )  # fmt: skip
    yield Row(
        what="end of its command to the end of both processes", value=whole.finish_s, unit="s",
        how="record written, trace exported",
    )  # fmt: skip
    more = len(second.observations) - len(first.observations)
    yield Row(
        what="store, bytes per step", value=(second.stored_bytes - first.stored_bytes) / (long - short), unit="B",
        budget=2048, how=f"{long - short} steps more, {more / (long - short):.1f} observations each",
    )  # fmt: skip
    yield listing


def _listed(store: Path, trial: str, copies: int) -> Row:
    """How long `fairtrial trials` takes, its start included."""
    with closing(sqlite3.connect(store)) as database, database:
        for table in ("trials", "verdicts"):
            columns = [str(column[1]) for column in database.execute(f"PRAGMA table_info({table})")]
            made = {"trial": "printf('%s-%d', trial, i)", "started_ns": "started_ns + i"}
            database.execute(
                f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {copies:d})"
                f" INSERT INTO {table} SELECT {', '.join(made.get(name, name) for name in columns)}"
                f" FROM {table}, n WHERE trial = ?",
                (trial,),
            )
    spent_s: list[float] = []
    for _ in range(3):
        began_s = time.monotonic()
        command = [sys.executable, "-m", "fairtrial", "trials", "--store", str(store)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        spent_s.append(time.monotonic() - began_s)
    value, noise = spread(spent_s)
    return Row(
        what="`trials` with 1 M steps in the store", value=value, noise=noise, unit="s", budget=1,
        how=f"{copies + 1} trials with their records; observations, which it does not read, are those of one",
    )  # fmt: skip


async def _written(steps: int, short: int, long: int, keep: Path) -> tuple[Book, Book, Book]:
    async with Upstreams() as ups:
        return await asyncio.gather(
            _book(ups, steps, 0.0), _book(ups, short, STEP_S), _book(ups, long, STEP_S, keep)
        )  # fmt: skip


async def _book(ups: Upstreams, steps: int, pause_s: float, keep: Path | None = None) -> Book:
    """One agent through one run, to the end of both processes."""
    with ups.run() as run:
        await asyncio.to_thread(run.ready)
        agent = Agent(run.door, 1, steps, pause_s, "fast", prompt_bytes=4000)
        await asyncio.get_running_loop().create_connection(lambda: agent, "127.0.0.1", run.door.port)
        await asyncio.wait_for(agent.done, 180)
        began_s = time.monotonic()
        record = await asyncio.to_thread(run.finish, 60.0)
        finish_s = time.monotonic() - began_s
        with closing(sqlite3.connect(run.store)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        stored = run.store.stat().st_size
        if keep is not None:
            shutil.copyfile(run.store, keep)
        trial = str(record["trial"])
        with closing(open_database(run.store, read_only=True)) as database:
            return Book(trial, list(observations_of(database, trial)), stored, finish_s)
