"""The export path: what a step costs in spans, a span in bytes and CPU, and what an outage of the collector costs.

`python -m tests.bench export`.  One agent with a tool call in each step goes through a real run; its trace is looked
at span by span.  Then copies of its record are put, one after the other, into the pipeline of a process of its own:
once with a collector that takes them, once with nobody at its address.  What waited is sent by a second process on the
same store, as the next start of fairtrial would.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self

import msgspec
import uvloop

from fairtrial.exporters.bounds import Bounds
from fairtrial.exporters.encoding import Resources, batches, small
from fairtrial.exporters.spans import Span
from fairtrial.exporters.trace_layout import spans_of
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.records import Trial
from tests.bench.agents import Agent
from tests.bench.observed import ROOT, Asked, Upstreams
from tests.bench.processes import OTHER_CORES, on, raise_file_limit
from tests.bench.rows import Row
from tests.bench.soak import FLAT_MB

STEPS: Final = 100
COPIES: Final = 240
"""About a hundred thousand spans."""
OUTAGE_MB: Final = 32.0
"""Sixteen for what no store takes, and as much for what is in hand; DESIGN only says bounded."""
BATCH: Final = 512


class Load:
    """`export_load` as a process; ask it to put copies."""

    def __init__(self, record: Path, store: Path, endpoint: str) -> None:
        words = [sys.executable, "-m", "tests.bench.export_load", str(record), str(store), endpoint]
        with on(OTHER_CORES):
            self.popen = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self._in, self._out = self.popen.stdin, self.popen.stdout
        self._out.readline()

    def put(self, copies: int) -> dict[str, float]:
        """What it tells once these are dealt with."""
        self._in.write(f"{copies}\n")
        self._in.flush()
        told: dict[str, float] = json.loads(self._out.readline())
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._in.close()
        try:
            self.popen.wait(30)
        finally:
            self.popen.kill()
            self.popen.wait()
            self._out.close()


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budgets of DESIGN section 6, and figures beside them."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    yield from uvloop.run(_measured(*((5, 4) if quick else (STEPS, COPIES))))


async def _measured(steps: int, copies: int) -> list[Row]:
    async with Upstreams() as ups:
        record = ups.folder / "record.json"
        trial = await _recorded(ups, steps, record)
        spans = spans_of(trial)
        taken = await asyncio.to_thread(_taken, record, ups, copies)
        lost = await asyncio.to_thread(_outage, record, ups, copies)
    return [*_sizes(trial, spans), *taken, *lost]


async def _recorded(ups: Upstreams, steps: int, keep: Path) -> Trial:
    """One agent through one run."""
    with ups.run() as run:
        await asyncio.to_thread(run.ready)
        agent = Agent(run.door, 1, steps, 0.02, "fast", prompt_bytes=4000)
        await asyncio.get_running_loop().create_connection(lambda: agent, "127.0.0.1", run.door.port)
        await asyncio.wait_for(agent.done, 180)
        await asyncio.to_thread(run.finish, 60.0)
        keep.write_bytes(run.record_file.read_bytes())
    return msgspec.json.decode(keep.read_bytes(), type=Trial)


def _sizes(trial: Trial, spans: list[Span]) -> Iterator[Row]:
    step_of: dict[str, str] = {}
    for span in spans:
        parent = step_of.get(span.parent_id or "")
        step_of[span.span_id] = span.span_id if span.name == semconv.SPAN_STEP else parent or ""
    per_step = [count for step, count in Counter(step_of.values()).items() if step]
    bounds = Bounds()
    sizes = [small(span, bounds).ByteSize() for span in spans]
    resources = Resources(version="0", host="h", schema_url="", extra={})
    began_s = time.process_time()
    made = list(batches(spans_of(trial), resources, bounds, most=BATCH))
    spent_s = time.process_time() - began_s
    names = ", ".join(sorted({span.name.split()[0] for span in spans}))
    yield Row(
        what="export: spans per step, median", value=statistics.median(per_step), unit="spans", budget=6,
        how=f"{len(per_step)} steps, a model call and a tool call each: {names}",
    )  # fmt: skip
    yield Row(
        what="export: bytes per span, the largest", value=max(sizes), unit="B", budget=1536,
        how=f"protobuf of {len(spans)} spans; median {statistics.median(sizes):.0f}",
    )  # fmt: skip
    deflated = sum(len(zlib.compress(batch.body)) for batch in made) / len(spans)
    yield Row(what="export: bytes per span, deflated", value=deflated, unit="B", how="as it waits in the store")
    yield Row(
        what="export: laying out and encoding", value=spent_s / len(spans) * 1e6, unit="µs/span", how="CPU, one thread"
    )


def _taken(record: Path, ups: Upstreams, copies: int) -> list[Row]:
    """With a collector that takes everything."""
    before = ups.collector.ask()
    with Load(record, ups.folder / "taken.db", f"http://127.0.0.1:{ups.collector.port}") as load:
        warm = load.put(1)
        began_s = time.monotonic()
        told = load.put(copies)
        spent_s = time.monotonic() - began_s
    arrived = ups.collector.ask()
    spans, cpu_s = told["produced"] - warm["produced"], told["cpu_s"] - warm["cpu_s"]
    return [
        Row(
            what="export: spans per second of CPU, to a collector", value=spans / cpu_s, unit="spans/s",
            how=f"{spans:.0f} spans of {copies} trials, store and sending too; {spans / spent_s:.0f}/s by the clock",
        ),
        Row(
            what="export: spans that arrived", value=arrived["spans"] - before["spans"], unit="",
            budget=told["produced"], sense="at least",
            how=f"of {told['produced']:.0f} in {arrived['posts'] - before['posts']} posts",
        ),
    ]  # fmt: skip


def _outage(record: Path, ups: Upstreams, copies: int) -> list[Row]:
    """With nobody there; then the next start, with a collector."""
    store = ups.folder / "outage.db"
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    with Load(record, store, gone) as load:
        warm = load.put(1)
        half = load.put(copies // 2)
        whole = load.put(copies - copies // 2)
    stored = sum(path.stat().st_size for path in store.parent.glob("outage.db*"))
    accounted = whole["exported"] + whole["pending"] + whole["dropped"]
    collector = Asked("tests.bench.otlp_collector")
    try:
        with Load(record, store, f"http://127.0.0.1:{collector.port}") as load:
            after = load.put(0)
            deadline_s = time.monotonic() + 60
            while after["pending"] and time.monotonic() < deadline_s:
                after = load.put(0)
        arrived = collector.ask()
    finally:
        collector.close()
    return [
        Row(
            what="export: memory that an outage takes", value=whole["rss_mb"] - warm["rss_mb"], unit="MB",
            budget=OUTAGE_MB, how=f"{whole['produced']:.0f} spans with nobody at the collector's address",
        ),
        Row(
            what="export: of it in the second half", value=whole["rss_mb"] - half["rss_mb"], unit="MB",
            budget=FLAT_MB, how="flat: what waits is in the store",
        ),
        Row(
            what="export: disk that an outage takes", value=stored / whole["produced"], unit="B/span",
            how=f"{stored / 1e6:.1f} MB of store; at most 256 MiB wait",
        ),
        Row(
            what="export: produced, and neither exported, pending nor dropped",
            value=abs(whole["produced"] - accounted), unit="", budget=0,
            how=f"{whole['pending']:.0f} pending, {whole['dropped']:.0f} dropped",
        ),
        Row(
            what="export: spans that the next start sent", value=arrived["spans"], unit="", budget=whole["pending"],
            sense="at least", how=f"of {whole['pending']:.0f} that waited",
        ),
        Row(what="export: spans sent twice, or without an end", value=arrived["twice"] + arrived["without_end"],
            unit="", budget=0),
    ]  # fmt: skip
