"""600 trials through one `fairtrial serve`, 64 open at a time: memory, and nothing left of those that are over.

`python -m tests.bench serve`.  Each trial has a name in its path and five streams over TLS; ten run at once.  Beyond 64
open trials the one that was idle longest is closed, judged and exported (`serve.max_trials`).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import uvloop

from tests.bench.observed import Serve, Upstreams, probed
from tests.bench.processes import OTHER_CORES, raise_file_limit, settle
from tests.bench.relay_load import Door, streams
from tests.bench.rows import Row
from tests.bench.soak import Census, census, left_behind

TRIALS: Final = 600
WARM: Final = 200
OPEN: Final = 64
AT_ONCE: Final = 10
STREAMS: Final = 5
HASTE: Final = 100
"""Trials in a row, before those that are over must be closed."""
PATIENCE_S: Final = 60.0
_BOOK: Final = "fairtrial.middleware.observer.book.TrialBook"
_PUT: Final = "fairtrial.exporters.pipeline._Put"


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Flat memory, and every trial judged and exported."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    yield from uvloop.run(_measured(*((40, 20, 16) if quick else (TRIALS, WARM, OPEN))))


async def _trials(served: Serve, begin: int, end: int, most: int, probes: Path) -> list[Census]:
    """Trials with these numbers; what lives once all but the open ones are closed, judged and exported."""
    taken: list[Census] = []
    for first in range(begin, end, AT_ONCE):
        doors = [Door(served.port, f"/t/trial-{number}") for number in range(first, first + AT_ONCE)]
        await asyncio.gather(*(streams(door, "short", 1, STREAMS) for door in doors))
        if (first + AT_ONCE - begin) % HASTE == 0 or first + AT_ONCE >= end:
            taken = await _closed(served, most, probes)
    return taken


async def _closed(served: Serve, most: int, probes: Path) -> list[Census]:
    """Trials begin here far faster than they do in life, and closing waits for quiet moments: let it come after."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        await asyncio.to_thread(settle, served.processes)
        taken = [await asyncio.to_thread(census, process, probes) for process in served.processes]
        waiting = taken[1].objects.get(_PUT, 0)
        if (taken[1].objects.get(_BOOK, 0) <= most + 1 and not waiting) or time.monotonic() > deadline_s:
            return taken
        await asyncio.sleep(0.2)


async def _measured(trials: int, warm: int, most: int) -> list[Row]:
    async with Upstreams() as ups:
        probes = ups.folder / "probes"
        environ = {"FAIRTRIAL_SERVE__MAX_TRIALS": str(most), "FAIRTRIAL_SERVE__METRICS": "off"}
        with ups.serve(environ | probed(probes)) as served:
            settle(served.processes)
            taken: list[list[Census]] = [[census(process, probes) for process in served.processes]]
            for begin, end in ((0, warm), (warm, trials)):
                taken.append(await _trials(served, begin, end, most, probes))
            await asyncio.to_thread(served.drain)
            with closing(sqlite3.connect(served.store)) as database:
                judged, steps = database.execute(
                    "SELECT count(*), sum(steps) FROM trials WHERE blame IS NOT NULL"
                ).fetchone()
            spans = ups.collector.ask()
    both_mb = sum(one.rss_mb for one in taken[2])
    relay_mb, observer_mb = (one.rss_mb for one in taken[2])
    calls = trials * STREAMS
    return [
        Row(
            what=f"serve: resident memory, {most} open trials, {trials} in all, both", value=both_mb, unit="MB",
            budget=200, how=f"relay {relay_mb:.1f}, observer {observer_mb:.1f}, after {calls} streams",
        ),
        *left_behind(taken[0], taken[1], taken[2], f"the last {trials - warm} trials"),
        Row(what="serve: trials judged", value=judged, unit="", budget=trials, sense="at least", how=f"{steps} steps"),
        Row(
            what="serve: spans of attempts at the collector", value=spans["client_spans"], unit="", budget=calls,
            sense="at least", how=f"of {calls}; {spans['spans']} spans in {spans['posts']} posts",
        ),
        Row(
            what="serve: spans without an end, or sent twice", value=spans["without_end"] + spans["twice"], unit="",
            budget=0,
        ),
    ]  # fmt: skip
