"""The observer process of `fairtrial serve`: its composition root, beside `app.py`, which is that of `run`.

In: the feed of a relay that lives for weeks, on an inherited socket.  Out: trials in the store, traces, and now and
then a STATUS back: {open_trials, opened, closed, unassigned, store, metrics, faults}.

A trial is opened by its first call and closed when it is idle, when an operator says so, and at the end; then it is
judged, stored, exported, and leaves the memory.  Closing is done one by one beside the reading, verdicts in a thread.
What ended without a BYE was killed: open trials are closed as incomplete.  A successor (HELLO `resumed`) goes on
with the trials that requests name in their paths and closes the others as incomplete.  Containers are not watched:
`serve` does not know which are whose.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairtrial import __version__
from fairtrial.middleware.closing import recover_orphans
from fairtrial.middleware.core import clock, config
from fairtrial.middleware.core.hello import Hello, ServeInfo, parse_hello
from fairtrial.middleware.core.observations import GapSeen, Observation, decode
from fairtrial.middleware.core.selfevents import ExportFailed, Journal, RecordIgnored, StoreFailed
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.observer.feeding import open_link, read_feed, send
from fairtrial.middleware.observer.log import TrialLog
from fairtrial.middleware.observer.traces import Traces, traces_asked_for
from fairtrial.middleware.observer.trials import NamedBy, OpenedTrial, OpenTrials
from fairtrial.middleware.steps.trials import TrialResolver
from fairtrial.middleware.store.database import open_database
from fairtrial.middleware.store.exports import Counts
from fairtrial.middleware.store.queries import list_open_rows
from fairtrial.middleware.store.writer import StoreWriter
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.exchange import ExchangeTracker
from fairtrial.middleware.wire.session import KeyDigest

if TYPE_CHECKING:
    from fairtrial.exporters.prometheus import Metrics
    from fairtrial.middleware.observer.page import MetricsPage

TICK_S: Final = 1.0
MAX_CLOSING: Final = 500
"""Trials that are over and wait for their verdict."""
STATUS_S: Final = 5.0
RECOVER_S: Final = 15.0
"""How often trials of dead processes are looked for; the first time at the start."""
WHY_NO_BYE: Final = "the relay process was killed"
WHY_DRAINED: Final = "fairtrial serve was stopped"


class ServeObserver:
    """Reads one feed and keeps its trials."""

    def __init__(self, link: socket.socket, journal: Journal) -> None:
        self._link = link
        self._journal = journal
        self._many: ManyTrials | None = None

    async def run(self) -> None:
        """Read to the BYE, or to the end of a feed whose relay was killed."""
        said_bye = await read_feed(self._link, self._journal, self._take)
        if self._many is not None:
            await self._many.finish(WHY_DRAINED if said_bye else WHY_NO_BYE)

    async def _take(self, record: feed.Record) -> bool:
        if self._many is None:
            if record.kind == feed.Kind.HELLO:
                self._many = ManyTrials(parse_hello(record.payload), self._link, self._journal)
                await self._many.start()
            return False
        self._many.take(record)
        await self._many.breathe()
        return record.kind == feed.Kind.BYE


class ManyTrials:
    """The rooms, wired for the trials of one relay."""

    def __init__(self, hello: Hello, link: socket.socket, journal: Journal) -> None:
        self._hello = hello
        self._link = link
        self._journal = journal
        self._serve = serve = hello.serve or ServeInfo()
        host = this_host()
        settings = config.load(hello.config, {}, {})
        self._writer = StoreWriter(Path(hello.store), journal)
        self._log = TrialLog(settings.export.log, store=Path(hello.store), journal=journal)
        self._traces: Traces | None = None
        if traces_asked_for():
            self._traces = Traces(Path(hello.store), journal, host=host.name, config=settings.export)
        self._lost_records = 0
        self._lost_before: int | None = None
        """Spans that this store's traces had lost before our time."""
        self._metrics: Metrics | None = None
        if serve.metrics is not None:
            from fairtrial.exporters.prometheus import Metrics  # late: only who is scraped pays for it

            self._metrics = Metrics(version=__version__, stall_s=settings.verdict.stall_s)
        self._page: MetricsPage | None = None
        self._trials = OpenTrials(
            hello, self._writer, journal, host, thresholds=settings.verdict, on_opened=self._on_opened
        )
        keys = KeyDigest(os.urandom(32))
        self._resolver = TrialResolver(
            tokens=self._trials,
            aliases=NamedBy(self._trials, {keys.of(key): name for key, name in serve.keys.items()}),
            peers=NamedBy(self._trials, serve.peers),
            implicit=True,
            idle_s=serve.idle_s,
            max_implicit=serve.max_trials,
            on_opened=self._trials.open,
        )
        self._tracker = ExchangeTracker(
            Source("door.model", self._sink, host=host),
            trial_of_token=self._trials,
            assigns=self._resolver,
            keys=keys,
            at=clock.Instant(hello.wall_ns, hello.mono_ns),
        )
        self._closing: asyncio.Queue[tuple[OpenedTrial, bool, str] | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._closed = 0
        self._tasks: list[asyncio.Task[None]] = []

    def _sink(self, observation: Observation) -> None:
        if self._metrics is not None:
            self._metrics.take(observation)
        if observation.kind == GapSeen.kind:
            gap = decode(observation)
            self._lost_records += (gap.lost_records or 0) if isinstance(gap, GapSeen) else 0
        self._trials.take(observation)

    def _on_opened(self, trial: str, root_span_id: str, trace_id: str | None) -> None:
        if self._metrics is not None:
            self._metrics.opened(trial, trace_id)
        if self._traces is not None:
            self._traces.want(self._writer, trial, root_span_id, None)

    async def start(self) -> None:
        """Go on where a predecessor was, answer READY, begin to close what is idle."""
        if self._hello.resumed:
            self._take_over()
        if self._metrics is not None and self._serve.metrics is not None:
            from fairtrial.middleware.observer.page import MetricsPage

            self._page = MetricsPage(self._metrics, self._refresh_metrics, hosts=self._serve.hosts)
            await self._page.open(*self._serve.metrics)
        if self._traces is not None:
            for sentence in self._traces.complaints:
                self._journal.note(ExportFailed(label="settings", detail=sentence))
            await asyncio.to_thread(self._traces.send_what_was_left)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._close_one_by_one(), name="closing"),
            loop.create_task(self._tick(), name="ticking"),
        ]
        await send(self._link, self._journal, feed.Kind.READY, {"pid": os.getpid()})

    def take(self, record: feed.Record) -> None:
        """Handle one record of the feed that is no HELLO."""
        self._trials.now(record.t_ns)
        if record.kind == feed.Kind.NOTE:
            self._note(record.json())
            return
        self._tracker.take(record)
        while self._trials.evicted:
            evicted = self._trials.evicted.popleft()
            self._judge_soon(evicted, whole=False, why="there were more open trials than serve.max_trials")

    def _note(self, facts: dict[str, object]) -> None:
        """What the relay says about itself is counted; an operator's word that a trial is over is obeyed."""
        event = str(facts.get("event", ""))
        if event == "trial.over":
            trial = self._trials.named(str(facts.get("trial", "")))
            if trial is not None:
                self._close_soon(trial, why="said to be over")
        elif event in {"refused", "swallowed"}:
            self._journal.note(RecordIgnored(label=event, detail=str(facts.get("reason") or facts.get("error"))))

    def _take_over(self) -> None:
        try:
            database = open_database(Path(self._hello.store), read_only=True)
            try:
                rows = [row for row, owner in list_open_rows(database) if self._trials.is_ours(owner)]
            finally:
                database.close()
        except (OSError, sqlite3.Error) as error:
            self._journal.note(StoreFailed(label="resume", detail=str(error)))
            return
        for row in rows:
            if not self._trials.take_over(row, since_ns=self._hello.gap_since_ns):
                self._close_soon(row.trial, whole=False, why="its calls cannot be told from others any more")

    # --- ends -----------------------------------------------------------------------------------------------------

    def _close_soon(self, trial: str, *, whole: bool = True, why: str) -> None:
        opened = self._trials.take_out(trial)
        if opened is not None:
            self._judge_soon(opened, whole=whole, why=why)

    def _judge_soon(self, opened: OpenedTrial, *, whole: bool, why: str) -> None:
        self._resolver.forget(opened.book.trial)
        self._closing.put_nowait((opened, whole, why))

    async def breathe(self) -> None:
        """Wait while more trials are over than can be judged; the feed is bounded and counts what it must drop."""
        if self._closing.qsize() > MAX_CLOSING:
            self._room.clear()
            await self._room.wait()

    async def _close_one_by_one(self) -> None:
        while (item := await self._closing.get()) is not None:
            opened, whole, why = item
            try:
                await self._close(opened, whole=whole, why=why)
            except Exception as error:  # noqa: BLE001 - one trial's end must not keep the others open
                self._journal.note(RecordIgnored(label="closing", detail=repr(error)))
            self._closed += 1
            if self._closing.qsize() <= MAX_CLOSING:
                self._room.set()

    async def _close(self, opened: OpenedTrial, *, whole: bool, why: str) -> None:
        closed = await asyncio.to_thread(self._trials.judge, opened, whole=whole, why=why)
        if self._metrics is not None:
            self._metrics.closed(closed.record)
        await asyncio.to_thread(self._log.write, closed.record)
        if self._traces is not None:
            await asyncio.to_thread(self._traces.put, closed.record, root_span_id=closed.root_span_id)

    async def _tick(self) -> None:
        next_status = next_recovery = 0.0
        loop = asyncio.get_running_loop()
        while True:
            now_ns = clock.mono_ns()
            for closed in self._resolver.sweep(now_ns):
                self._close_soon(closed.trial, whole=closed.why != "evicted", why=closed.why)
            for trial in self._trials.idle(now_ns):
                self._close_soon(trial, why="idle")
            if loop.time() >= next_status:
                next_status = loop.time() + STATUS_S
                await send(self._link, self._journal, feed.Kind.STATUS, self._status())
            if loop.time() >= next_recovery:
                next_recovery = loop.time() + RECOVER_S
                await self._recover()
            await asyncio.sleep(TICK_S)

    def _status(self) -> dict[str, object]:
        return {
            "open_trials": len(self._trials.open_ids),
            "opened": self._trials.opened,
            "closed": self._closed,
            "unassigned": sum(self._resolver.unassigned.values()),
            "store": self._writer.failed,
            "metrics": None if self._page is None else self._page.trouble,
            "faults": self._tracker.faults,
        }

    def _refresh_metrics(self) -> None:
        """Our own counters, as a scrape wants them."""
        if self._metrics is None:
            return
        spans = Counts() if self._traces is None else self._traces.counts()
        if self._lost_before is None:
            self._lost_before = spans.lost
        errors: Counter[str] = Counter({"tracker": self._tracker.faults})
        for (event, _label), times in self._journal.counts.items():
            errors[event] += times
        self._metrics.own(
            dropped={
                "records": self._lost_records,
                "rows": self._writer.kept_in_memory,
                "spans": spans.lost - self._lost_before,
            },
            errors=errors,
            unassigned=self._resolver.unassigned,
            spans={"produced": spans.produced, "exported": spans.exported, "pending": spans.pending},
        )

    async def _recover(self) -> None:
        try:
            await asyncio.to_thread(recover_orphans, Path(self._hello.store), self._writer, self._journal)
        except (OSError, sqlite3.Error) as error:
            self._journal.note(StoreFailed(label="recover", detail=str(error)))

    async def finish(self, why: str) -> None:
        """Nothing comes any more: close all, export, and let the store's thread end."""
        self._tracker.close()
        for trial in self._trials.open_ids:
            self._close_soon(trial, whole=False, why=why)
        self._closing.put_nowait(None)
        closing, ticking = self._tasks
        ticking.cancel()
        if self._page is not None:
            await self._page.close()
        await closing
        await asyncio.to_thread(self._writer.flush, 5.0)
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
        await asyncio.to_thread(self._writer.close)


def main(arguments: list[str] | None = None) -> int:
    """`python -m fairtrial.middleware.sidecar --feed-fd N`."""
    parser = argparse.ArgumentParser(
        prog="fairtrial-observer", description="Started by `fairtrial serve`; not for people."
    )
    parser.add_argument("--feed-fd", type=int, required=True)
    options = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Meant for the service as a whole: the relay drains first, and its BYE, or its death, ends this process.
        signal.signal(number, signal.SIG_IGN)
    asyncio.run(ServeObserver(open_link(options.feed_fd), Journal(sys.stderr)).run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
