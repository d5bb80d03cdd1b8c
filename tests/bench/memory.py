"""What both processes of ours keep in memory: idle, with open streams, with many trials under one run.

`python -m tests.bench memory`.  Each figure is of a real run of its own, read as resident pages from /proc once nothing
moves any more; pages that the two processes share are counted twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from typing import Final, cast

import uvloop

from tests.bench.agents import converse
from tests.bench.observed import Run, Upstreams
from tests.bench.processes import OTHER_CORES, raise_file_limit, settle
from tests.bench.relay_load import hold
from tests.bench.rows import Row

HELD: Final = 500
TRIALS: Final = 64
STEPS: Final = 20


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budgets of DESIGN section 7."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    yield from uvloop.run(_measured(HELD // 20, TRIALS // 16, 1) if quick else _measured(HELD, TRIALS, STEPS))


def _both(run: Run) -> tuple[float, str]:
    """Megabytes of both, and how they are made up."""
    relay_mb, observer_mb = run.relay.rss_mb(), run.observer.rss_mb()
    return relay_mb + observer_mb, f"relay {relay_mb:.1f}, observer {observer_mb:.1f}"


async def _measured(held: int, trials: int, steps: int) -> list[Row]:
    found: list[Row] = []
    async with Upstreams() as ups:
        with ups.run() as run:
            run.ready()
            settle(run.processes)
            both_mb, parts = _both(run)
            found += [
                Row(what="resident memory, idle, relay", value=run.relay.rss_mb(), unit="MB", budget=25),
                Row(what="resident memory, idle, both", value=both_mb, unit="MB", budget=80, how=parts),
            ]
        for tls, budget in ((False, None), (True, 160)):
            with ups.run(tls=tls) as run:
                run.ready()
                transports = await hold(run.door, held)
                await asyncio.sleep(0.3)
                settle(run.processes)
                both_mb, parts = _both(run)
                what = f"resident memory, {held} open streams{', TLS upstream' if tls else ''}, both"
                found.append(Row(what=what, value=both_mb, unit="MB", budget=budget, how=parts))
                for transport in transports:
                    transport.close()
        with ups.run(run="bench") as run:
            run.ready()
            await converse(run.door, trials, steps, pause_s=0.2)
            settle(run.processes)
            both_mb, parts = _both(run)
            ended_s = time.monotonic()
            record, highest_mb = await _ended(run)
            ended_s = time.monotonic() - ended_s
    counts = cast("dict[str, int]", record.get("counts") or {})
    calls = f"{steps} calls of 76 KB each"
    found += [
        Row(
            what=f"resident memory, {trials} trials under one run, both", value=both_mb, unit="MB", budget=200,
            how=f"{parts}; {calls}",
        ),
        Row(
            what="the same while each gets its verdict, highest", value=highest_mb, unit="MB", budget=200,
            how=f"{ended_s:.1f} s from the command's end to the observer's, traces and the record of all included",
        ),
        Row(
            what="trials told apart", value=counts.get("trials", 0), unit="", budget=trials, sense="at least",
            how=f"of {trials}, by their sessions",
        ),
    ]  # fmt: skip
    return found


async def _ended(run: Run) -> tuple[dict[str, object], float]:
    """The record, and the most that both had while it was made."""
    relay_mb, highest_mb = run.relay.rss_mb(), 0.0
    finishing = asyncio.get_running_loop().create_task(asyncio.to_thread(run.finish), name="finish")
    while not finishing.done():
        with contextlib.suppress(OSError, StopIteration):  # it is gone
            highest_mb = max(highest_mb, relay_mb + run.observer.rss_mb())
        await asyncio.sleep(0.01)
    return await finishing, highest_mb
