"""10 000 streams through one run: memory stays flat, and nothing is left of them in either process.

`python -m tests.bench soak`.  TLS upstream, four streams per connection, a fifth as many that the client cuts in the
middle.  Counted are sockets, descriptors and threads (from /proc), tasks and objects of ours (by `probe/`, inside the
processes, after a full collection), connections at the upstream, and attempts in the record and at the collector.  At
last the observer stands still for a while: what the relay keeps for it must be gone again when it has caught up.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop

from tests.bench.agents import outcomes
from tests.bench.observed import Run, Upstreams, probed
from tests.bench.processes import OTHER_CORES, Process, raise_file_limit, settle
from tests.bench.relay_load import hold, streams
from tests.bench.rows import Row

STREAMS: Final = 10_000
CONNECTIONS: Final = 50
EACH: Final = 4
CUT_EACH: Final = 5
"""After so many batches one of cut streams."""
WARM: Final = 0.2
STALLED: Final = 0.3
"""So much of the soak again while the observer stands still: less than the feed keeps before it drops."""
FLAT_MB: Final = 4.0
"""What may come from the allocator alone."""
GROWN: Final = 150
"""Objects of one class: what is just being looked at, not what is kept."""
LAZY: Final = 6
"""Threads and descriptors that a pool, or a second connection to the store, may take late."""
_TASKS: Final = ("_asyncio.Task", "asyncio.tasks.Task")


@dataclass(frozen=True, slots=True)
class Census:
    """What lives in a process."""

    rss_mb: float
    sockets: int
    descriptors: int
    threads: int
    objects: dict[str, int]
    free_mb: float | None
    """Of `rss_mb` at most: what the C library did not give back."""

    @property
    def resident(self) -> str:
        """For people."""
        free = "" if self.free_mb is None else f" ({self.free_mb:.1f} of it free)"
        return f"{self.rss_mb:.1f}{free}"

    @property
    def tasks(self) -> int:
        """Of asyncio."""
        return sum(self.objects.get(name, 0) for name in _TASKS)


def census(process: Process, probes: Path) -> Census:
    """Counts, and the objects by the probe within."""
    rss_mb = process.rss_mb()
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(60)
        asking.connect(str(probes / str(process.pid)))
        said = b""
        while piece := asking.recv(1 << 20):
            said += piece
    found = json.loads(said)
    free_bytes = found["free_bytes"]
    free_mb = None if free_bytes is None else free_bytes / (1 << 20)
    return Census(rss_mb, process.sockets(), len(process.descriptors()), process.threads(), found["objects"], free_mb)


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Flat memory, and nothing that leaks."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    yield from uvloop.run(_measured(STREAMS // 20 if quick else STREAMS))


async def _soak(run: Run, count: int) -> Counter[str]:
    """That many whole streams and the cut ones beside them; how many were to end how."""
    done: Counter[str] = Counter()
    for batch in range(count // (CONNECTIONS * EACH)):
        await streams(run.door, "short", CONNECTIONS, EACH)
        done["ok"] += CONNECTIONS * EACH
        if batch % CUT_EACH == CUT_EACH - 1:
            for transport in await hold(run.door, CONNECTIONS, "flow"):
                transport.abort()
            done["client_disconnect"] += CONNECTIONS
    return done


async def _stalled(run: Run, count: int) -> tuple[Counter[str], float]:
    """So many streams while the observer is stopped; the megabytes of the relay at its end."""
    os.kill(run.observer.pid, signal.SIGSTOP)
    try:
        done = await _soak(run, count)
        return done, run.relay.rss_mb()
    finally:
        os.kill(run.observer.pid, signal.SIGCONT)


async def _measured(count: int) -> list[Row]:
    async with Upstreams() as ups:
        probes = ups.folder / "probes"
        with ups.run(tls=True, environ=probed(probes)) as run:
            run.ready()
            settle(run.processes)
            before = [census(process, probes) for process in run.processes]
            done = await _soak(run, max(int(count * WARM), CONNECTIONS * EACH))
            await _quiet(run, before)
            warm = [census(process, probes) for process in run.processes]
            soaked = await _soak(run, count - int(count * WARM))
            await _quiet(run, before)
            after = [census(process, probes) for process in run.processes]
            stalled, highest_mb = await _stalled(run, int(count * STALLED))
            caught_up_mb = await _caught_up(run, before, after[0].rss_mb)
            left = ups.behind(tls=True).open
            record = await asyncio.to_thread(run.finish, 120.0)
            spans = ups.collector.ask()
    found = left_behind(before, warm, after, f"the last {soaked.total()} streams")
    wanted, ended = done + soaked + stalled, outcomes(record)
    total = wanted.total()
    found += [
        Row(
            what=f"relay: memory left of {stalled.total()} streams for which the observer stood still", unit="MB",
            value=caught_up_mb - after[0].rss_mb, budget=FLAT_MB,
            how=f"{after[0].rss_mb:.1f} before, {highest_mb:.1f} when it went on, {caught_up_mb:.1f} after",
        ),
        Row(what="connections left at the upstream", value=left, unit="", budget=0),
        Row(
            what="attempts in the record that ended as they did", value=(wanted & ended).total(), unit="", budget=total,
            sense="at least", how=f"wanted {dict(wanted)}, recorded {dict(ended)}",
        ),
        Row(
            what="spans of attempts at the collector", value=spans["client_spans"], unit="", budget=total,
            sense="at least", how=f"{spans['spans']} spans in {spans['posts']} posts, {spans['bytes']} bytes",
        ),
        Row(what="spans without an end, or sent twice", value=spans["without_end"] + spans["twice"], unit="", budget=0),
    ]  # fmt: skip
    return found


def left_behind(before: list[Census], warm: list[Census], after: list[Census], over: str) -> list[Row]:
    """Rows on both processes: `before` anything passed, `warm`, and `after` it; `over`: what passed since `warm`."""
    found: list[Row] = []
    for name, first, then, last in zip(("relay", "observer"), before, warm, after, strict=True):
        base = first if name == "relay" else then  # the observer keeps a connection to the collector
        grown = {key: last.objects[key] - then.objects.get(key, 0) for key in last.objects}
        worst = sorted(((size, key) for key, size in grown.items() if size > 5), reverse=True)[:3]
        found += [
            Row(
                what=f"{name}: memory grown over {over}", unit="MB", value=last.rss_mb - then.rss_mb, budget=FLAT_MB,
                how=f"{first.resident} at first, {then.resident} warm, {last.resident} at the end",
            ),
            Row(what=f"{name}: sockets left", value=last.sockets - base.sockets, unit="", budget=0),
            Row(
                what=f"{name}: descriptors more", value=last.descriptors - then.descriptors, unit="", budget=LAZY,
                how="since it was warm; a pool may still grow",
            ),
            Row(what=f"{name}: threads more", value=last.threads - then.threads, unit="", budget=LAZY),
            Row(what=f"{name}: tasks more", value=last.tasks - then.tasks, unit="", budget=0),
            Row(
                what=f"{name}: objects grown over {over}, of any one class", unit="objects", budget=GROWN,
                value=max(grown.values(), default=0), how=", ".join(f"{size} {key}" for size, key in worst),
            ),
        ]  # fmt: skip
    return found


async def _caught_up(run: Run, before: list[Census], least_mb: float) -> float:
    """The megabytes of the relay when nothing waits in it any more, or after 20 s.

    On a busy machine an observer that gets no core for a moment looks as if it had nothing left to do.
    """
    end_s = time.monotonic() + 20.0
    while True:
        await _quiet(run, before)
        relay_mb = run.relay.rss_mb()
        if relay_mb - least_mb < FLAT_MB / 2 or time.monotonic() > end_s:
            return relay_mb
        await asyncio.sleep(0.1)


async def _quiet(run: Run, before: list[Census]) -> None:
    """Until our processes have closed what the clients closed, and looked at all that passed."""
    for _ in range(100):
        if run.relay.sockets() <= before[0].sockets:
            break
        await asyncio.sleep(0.05)
    await asyncio.to_thread(settle, run.processes)
