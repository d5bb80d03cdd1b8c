"""What a long trial costs at its end and on disk: the verdict on 1 000 steps, and bytes per step in the store.

`python -m tests.bench books`.  One agent makes 1 000 calls through a real run, one after the other, each with its
history; its observations are then read from the store that the run wrote, and judged again.
"""

from __future__ import annotations

import asyncio
import io
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import uvloop

from fairtrial.middleware.closing import judged
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store.database import observations_of, open_database
from tests.bench.agents import Agent
from tests.bench.observed import Upstreams
from tests.bench.processes import OTHER_CORES, raise_file_limit
from tests.bench.rows import Row, spread

STEPS: Final = 1000
REPEATS: Final = 7


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budgets of DESIGN section 7 that are cheap to look at."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    yield from uvloop.run(_measured(STEPS // 20 if quick else STEPS))


async def _measured(steps: int) -> list[Row]:
    async with Upstreams() as ups:
        with ups.run() as run:
            run.ready()
            loop = asyncio.get_running_loop()
            _, agent = await loop.create_connection(
                lambda: Agent(run.door, 1, steps, 0.0, "fast"), "127.0.0.1", run.door.port
            )
            await asyncio.wait_for(agent.done, 120)
            began_s = time.monotonic()
            record = await asyncio.to_thread(run.finish, 60.0)
            finish_s = time.monotonic() - began_s
            with closing(sqlite3.connect(run.store)) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            stored = run.store.stat().st_size
            with closing(open_database(run.store, read_only=True)) as database:
                kept = list(observations_of(database, str(record["trial"])))
    taken_s: list[float] = []
    count = 0
    for _ in range(REPEATS):
        began_s = time.process_time()
        trial = judged(kept, str(record["trial"]), Journal(io.StringIO()))
        taken_s.append(time.process_time() - began_s)
        count = len(trial.steps)
    value, noise = spread(taken_s)
    return [
        Row(what="steps in the record", value=count, unit="", budget=steps, sense="at least", how=f"of {steps} calls"),
        Row(
            what=f"verdict on a trial of {count} steps", value=value, noise=noise, unit="s", budget=0.2,
            how=f"CPU of assembling and judging {len(kept)} observations, {REPEATS} times",
        ),
        Row(
            what="end of its command to the end of both processes", value=finish_s, unit="s",
            how="record written, trace exported",
        ),
        Row(what="store, bytes per step", value=stored / max(1, count), unit="B", budget=2048, how=f"{count} steps"),
    ]  # fmt: skip
