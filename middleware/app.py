"""The observer process of `fairtrial run`: its composition root, which joins parts from every room.

In: the feed of the run process on an inherited socket.  Out: observations in the store, and at the end the
verdict's lines back over the same socket.  Order of start: feed, store, tracker, collectors; of end: tracker,
collectors, verdict, store, `--json`, answer, and only then the exporters, so that no exporter delays anybody.
Here is the order; the parts with a state of their own are in `observer/run/`.

Observing fails open: an exception in one record or collector is counted and the run goes on.  If the feed ends
without a BYE the run process was killed, and the trial is closed as incomplete.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Final, Literal

import msgspec

from fairtrial.middleware.closing import gate_answer, recover_orphans
from fairtrial.middleware.core import clock, config
from fairtrial.middleware.core.config import Thresholds
from fairtrial.middleware.core.hello import Hello, parse_hello
from fairtrial.middleware.core.observations import MutationSeen, TrialEnded
from fairtrial.middleware.core.records import Outcome, Trial
from fairtrial.middleware.core.selfevents import Journal, RecordIgnored, StoreFailed
from fairtrial.middleware.core.sink import this_host
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.observer.feeding import open_link, read_feed, send
from fairtrial.middleware.observer.log import TrialLog
from fairtrial.middleware.observer.many import FinishedRun
from fairtrial.middleware.observer.run.beginning import begin
from fairtrial.middleware.observer.run.complaints import STDOUT, complaints, write_record
from fairtrial.middleware.observer.run.doors import RunDoors
from fairtrial.middleware.observer.run.inside import RunControl
from fairtrial.middleware.observer.run.notes import RelayNotes
from fairtrial.middleware.observer.run.parting import TellingApart
from fairtrial.middleware.observer.run.watching import Watching
from fairtrial.middleware.observer.traces import Traces, traces_asked_for
from fairtrial.middleware.report.text import ending_lines
from fairtrial.middleware.steps.parting import Parting
from fairtrial.middleware.store.writer import StoreWriter
from fairtrial.middleware.wire import feed

FLUSH_S: Final = 0.5
LEFT_AFTER_S: Final = 3.0
"""How long after the start the traces that earlier processes left are sent."""
KEPT_OBSERVATIONS: Final = 1500
"""Observations held in memory (3.5 KB each); what is older is read back from the store at the end."""


class Observer:
    """Reads one feed and hands its records to the trial."""

    def __init__(self, link: socket.socket, journal: Journal, control: socket.socket | None = None) -> None:
        self._link = link
        self._journal = journal
        self._control = control
        self._trial: ObservedTrial | None = None

    async def run(self) -> None:
        """Read to the BYE, or to the end of a feed whose run process was killed."""
        said_bye = await read_feed(self._link, self._journal, self._take)
        if self._trial is not None:
            if not said_bye:
                await self._trial.finish("incomplete")
            await self._trial.after_the_answer()

    async def _take(self, record: feed.Record) -> bool:
        if self._trial is None:
            if record.kind == feed.Kind.HELLO:
                self._trial = ObservedTrial(parse_hello(record.payload), self._link, self._journal, self._control)
                await self._trial.start()
            return False
        if record.kind == feed.Kind.BYE:
            self._trial.take_exit(record)
            try:
                await self._trial.finish("normal")
            except Exception as error:  # noqa: BLE001 - the feed is over whatever became of its end
                self._journal.note(RecordIgnored(label="BYE", detail=repr(error)))
            return True
        self._trial.take(record)
        return False


class ObservedTrial:
    """The rooms, wired for one trial; its record is an `observer/book.py`."""

    def __init__(
        self, hello: Hello, link: socket.socket, journal: Journal, control: socket.socket | None = None
    ) -> None:
        self._hello = hello
        self._link = link
        self._journal = journal
        self._exit = TrialEnded()
        self._exit_mono_ns: int | None = None
        self._record: Trial | None = None
        self._no_traces: str | None = None
        self._probe: asyncio.Task[None] | None = None
        self._host = this_host()
        self._writer = StoreWriter(Path(hello.store), journal, trial=hello.trial)
        self._many: FinishedRun | None = None
        self._apart = TellingApart(hello, journal, host=self._host)
        begun = clock.Instant(hello.wall_ns, hello.mono_ns)
        self._book = TrialBook(
            hello.trial,
            writer=self._writer,
            journal=journal,
            host=self._host,
            begun=begun,
            keep=KEPT_OBSERVATIONS,
            sealed=True,
            also=self._apart.look,
        )
        self._source = self._book.source
        self._watching = Watching(hello, self._book, journal, host=self._host, tell=self._tell_link)
        self._doors = RunDoors(
            hello,
            self._book,
            journal,
            host=self._host,
            on_call_edge=self._watching.edge,
            on_created=self._watching.created,
        )
        self._notes = RelayNotes(self._book)
        self._control = RunControl(hello, self._book, journal, host=self._host, listener=control)
        self._traces: Traces | None = None
        settings = config.load(hello.config, {}, {}).export
        self._log = TrialLog(settings.log, store=Path(hello.store), journal=journal)
        if traces_asked_for():
            self._traces = Traces(Path(hello.store), journal, host=self._host.name, config=settings)

    # --- start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Say what the trial is, start to watch, answer READY."""
        hello = self._hello
        resumed_wall_ns = begin(hello, self._book, host=self._host)
        if not hello.close_only:
            await self._watching.start(resumed_wall_ns)
        if self._traces is not None:
            self._traces.want(self._writer, hello.trial, hello.root_span_id, hello.parent_span_id)
            probe = self._probe_traces(self._traces)
            self._probe = asyncio.get_running_loop().create_task(probe, name="traces-probe")
        await send(self._link, self._journal, feed.Kind.READY, {"pid": os.getpid()})
        self._control.open()

    # --- while it runs ------------------------------------------------------------------------------------------------

    def take(self, record: feed.Record) -> None:
        """Handle one record of the feed that is neither HELLO nor BYE."""
        if self._doors.take(record):
            return
        match record.kind:
            case feed.Kind.CHILD:
                self.take_exit(record)
                self._watching.child(record.json())
            case feed.Kind.MUTATION:
                self._source.emit(msgspec.convert(record.json(), MutationSeen, strict=False))
            case feed.Kind.NOTE:
                self._notes.take(record)
            case _:
                self._doors.take_model(record)

    def take_exit(self, record: feed.Record) -> None:
        """Keep how the command ended, from CHILD or BYE; the first that knows wins."""
        facts = record.json()
        if self._exit_mono_ns is None and ("exit_code" in facts or "signal" in facts):
            self._exit = msgspec.convert(facts | {"why": facts.get("error")}, TrialEnded, strict=False)
            self._exit_mono_ns = record.t_ns

    # --- end ----------------------------------------------------------------------------------------------------------

    async def finish(self, closed: Literal["normal", "incomplete"]) -> None:
        """Close the books: late evidence, verdict, store, `--json`, answer."""
        self._control.shut()
        self._doors.close()
        if (forecast := self._apart.parted()) is not None:
            self._tell_link({"trials": len(forecast.parts)})
        await self._watching.finish()
        ended_mono_ns = clock.mono_ns() if self._exit_mono_ns is None else self._exit_mono_ns
        incomplete = closed == "incomplete" or self._hello.close_only
        ended = msgspec.structs.replace(self._exit, closed="incomplete" if incomplete else "normal")
        self._book.end(ended, mono_ns=ended_mono_ns)
        written = self._book.mark()
        parting = self._apart.parted()
        if await asyncio.to_thread(self._writer.flush, FLUSH_S):
            await asyncio.to_thread(self._book.verify, written, keep=parting is None)
        thresholds = config.load(self._hello.config, {}, {}).verdict
        if parting is not None and self._writer.failed is None:
            await self._finish_many(parting, thresholds, ended)
            return
        self._record = self._book.judge(thresholds)
        await asyncio.to_thread(self._writer.flush, FLUSH_S)
        if closed == "normal":
            lines = ending_lines(self._record, verbose=self._hello.verbose, stored=self._writer.failed is None)
            if self._hello.quiet and self._record.outcome is Outcome.PASSED and len(lines) == 1:
                lines = []
            record = msgspec.json.format(msgspec.json.encode(self._record))
            lines += self._complaints(record)
            answer: dict[str, object] = {"lines": lines, "gate": gate_answer(self._record)}
            if self._hello.json == STDOUT:
                answer["record"] = record.decode()
            await send(self._link, self._journal, feed.Kind.VERDICT, answer)

    async def _finish_many(self, parting: Parting, thresholds: Thresholds, ended: TrialEnded) -> None:
        """Each trial its record; then what a person wants to read after many."""
        hello = self._hello
        self._many = many = self._apart.finished(parting, self._book, self._writer, thresholds=thresholds, ended=ended)
        await asyncio.to_thread(many.judge_all, self._traces)
        if ended.closed != "normal":
            return
        lines = many.lines(run=hello.run, ended=ended, verbose=hello.verbose)
        record = many.record(run=hello.run, command=hello.command, exit_code=ended.exit_code)
        lines += self._complaints(record)
        answer: dict[str, object] = {"lines": lines, "gate": many.gate}
        if hello.json == STDOUT and record is not None:
            answer["record"] = record.decode()
        await send(self._link, self._journal, feed.Kind.VERDICT, answer)

    def _tell_link(self, facts: dict[str, object]) -> None:
        try:
            self._link.send(feed.encode_json(feed.Kind.WATCHED, facts))
        except OSError:
            # The run process is gone or busy: it then waits the shorter time, nothing else changes.
            return

    async def _probe_traces(self, traces: Traces) -> None:
        """Whether anybody takes traces, asked while the command runs: the export itself comes after the last word."""
        self._no_traces = await traces.unreachable()
        if self._no_traces is None:
            # A short command's end is not to wait for the packages that this loads; its own trace brings them later.
            await asyncio.sleep(LEFT_AFTER_S)
            await asyncio.to_thread(traces.send_what_was_left)

    def _complaints(self, record: bytes | None) -> list[str]:
        """What did not go as it should, for the end of the run; `record` is written to the file of `--json`."""
        lines = complaints(
            self._hello,
            book=self._book,
            writer=self._writer,
            too_many=self._apart.too_many,
            at_the_end=self._notes.at_the_end,
            keeper=self._watching.keeper,
            traces=self._traces,
            no_traces=self._no_traces,
        )
        return lines + write_record(self._hello.json, record)

    async def after_the_answer(self) -> None:
        """What nobody waits for: traces, orphans of dead runs, the end of the store's thread."""
        if self._many is not None:
            await asyncio.to_thread(self._many.hand_on, self._log.write, self._traces)
        if self._record is not None:
            await asyncio.to_thread(self._log.write, self._record)
        if self._record is not None and self._traces is not None:
            root, parent = self._hello.root_span_id, self._hello.parent_span_id
            await asyncio.to_thread(self._traces.put, self._record, root_span_id=root, parent_span_id=parent)
        try:
            if await asyncio.to_thread(recover_orphans, Path(self._hello.store), self._writer, self._journal):
                await asyncio.to_thread(self._writer.flush, FLUSH_S)
        except (OSError, sqlite3.Error) as error:
            self._journal.note(StoreFailed(label="recover", detail=str(error)))
        await self._control.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
        await self._watching.close()
        await asyncio.to_thread(self._writer.close)


def main(arguments: list[str] | None = None) -> int:
    """`python -m fairtrial.middleware.app --feed-fd N`."""
    parser = argparse.ArgumentParser(
        prog="fairtrial-observer", description="Started by `fairtrial run`; not for people."
    )
    parser.add_argument("--feed-fd", type=int, required=True)
    parser.add_argument("--control-fd", type=int)
    options = parser.parse_args(arguments)
    control = None if options.control_fd is None else socket.socket(fileno=options.control_fd)
    asyncio.run(Observer(open_link(options.feed_fd), Journal(sys.stderr), control).run())
    return 0


if __name__ == "__main__":
    sys.exit(main())
