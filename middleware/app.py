"""The observer process of `fairtrial run`: its composition root, the file that knows every room.

In: the feed of the run process on an inherited socket.  Out: observations in the store, and at the end the
verdict's lines back over the same socket.  Order of start: feed, store, tracker, collectors; of end: tracker,
collectors, verdict, store, `--json`, answer, and only then the exporters, so that no exporter delays anybody.

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
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from fairtrial.collectors.docker_adapter import DockerUpstream
from fairtrial.collectors.facade import Collectors
from fairtrial.middleware.closing import gate_answer, recover_orphans
from fairtrial.middleware.core import clock, config
from fairtrial.middleware.core.config import Thresholds
from fairtrial.middleware.core.hello import DockerInfo, Hello, parse_hello
from fairtrial.middleware.core.observations import (
    CoverageChanged,
    DoorState,
    GapSeen,
    MutationSeen,
    Note,
    Observation,
    TrialEnded,
    TrialStarted,
)
from fairtrial.middleware.core.records import FAMILIES, Outcome, Trial
from fairtrial.middleware.core.selfevents import (
    CollectorFailed,
    Journal,
    RecordIgnored,
    StoreFailed,
)
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.observer.feeding import open_link, read_feed, send
from fairtrial.middleware.observer.log import TrialLog
from fairtrial.middleware.observer.machine import start_ticks, write_whole
from fairtrial.middleware.observer.many import FinishedRun
from fairtrial.middleware.observer.traces import Traces, traces_asked_for
from fairtrial.middleware.parted import PartedRun
from fairtrial.middleware.report.text import PREFIX, ending_lines
from fairtrial.middleware.report.words import plural
from fairtrial.middleware.steps.parting import Parting, part
from fairtrial.middleware.steps.run_facts import RunFacts
from fairtrial.middleware.store.secret import secret_of
from fairtrial.middleware.store.writer import UNCOMMITTED_S, Owner, StoreWriter
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.docker import DOOR as DOCKER_DOOR
from fairtrial.middleware.wire.docker import DockerTracker
from fairtrial.middleware.wire.exchange import ExchangeTracker
from fairtrial.middleware.wire.opaque import DOOR as CONNECT_DOOR
from fairtrial.middleware.wire.opaque import OpaqueTracker
from fairtrial.middleware.wire.session import KeyDigest

if TYPE_CHECKING:
    from fairtrial.middleware.harnesses.keep import Keeper
    from fairtrial.middleware.observer.control import ControlPage

FINISH_PLAIN_S: Final = 0.05
FINISH_STRUCK_S: Final = 0.6
"""The same where the node counted a kill that has no place yet: its container may have to be asked for first."""
FINISH_WATCHED_S: Final = 1.0
"""How long late evidence of watched containers is waited for: an oom event may come after the exec's end."""
FLUSH_S: Final = 0.5
LEFT_AFTER_S: Final = 3.0
"""How long after the start the traces that earlier processes left are sent."""
KEPT_OBSERVATIONS: Final = 1500
"""Observations held in memory (3.5 KB each); what is older is read back from the store at the end."""
OUT_OF_REACH: Final = "bridge.out_of_reach"
SAID_AT_THE_END: Final = frozenset({OUT_OF_REACH, "bridge.no_network", "bridge.proxy"})
"""Notes of the relay that nobody could be told of while the command ran."""
_MOST_SAID_AT_THE_END: Final = 3
STDOUT: Final = "-"
"""`--json -`: the run process prints the record, since its standard output is not ours."""


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
        self._listener = control
        self._control: ControlPage | None = None
        self._opening: asyncio.Task[None] | None = None
        self._link = link
        self._journal = journal
        self._exit = TrialEnded()
        self._exit_mono_ns: int | None = None
        self._watched = 0
        self._resumed_wall_ns: int | None = None
        self._record: Trial | None = None
        self._no_traces: str | None = None
        self._probe: asyncio.Task[None] | None = None
        self._host = this_host()
        self._writer = StoreWriter(Path(hello.store), journal, trial=hello.trial)
        self._many: FinishedRun | None = None
        self._facts = RunFacts(hello.trial)
        begun = clock.Instant(hello.wall_ns, hello.mono_ns)
        self._book = TrialBook(
            hello.trial,
            writer=self._writer,
            journal=journal,
            host=self._host,
            begun=begun,
            keep=KEPT_OBSERVATIONS,
            sealed=True,
            also=self._look,
        )
        self._source = self._book.source
        secret = secret_of(Path(hello.store))
        self._tracker = ExchangeTracker(
            Source("door.model", self._book.take, host=self._host, trial=hello.trial),
            trial_of_token=hello.tokens,
            on_call_edge=self._on_call_edge,
            keys=None if secret is None else KeyDigest(secret),
            at=begun,
        )
        self._engine_tracker = DockerTracker(
            Source("door.docker", self._book.take, host=self._host, trial=hello.trial),
            trial=hello.trial,
            at=begun,
            on_created=self._on_created,
            keep_text=config.load(hello.config, {}, {}).privacy.content,
        )
        self._opaque_tracker = OpaqueTracker(
            Source("door.egress", self._book.take, host=self._host, trial=hello.trial), trial=hello.trial, at=begun
        )
        self._at_the_end: list[str] = []
        """What the relay noted while the command ran, and the user should know."""
        self._engine_conns: set[int] = set()
        """Connections through the Docker door."""
        self._opaque_conns: set[int] = set()
        """Connections through the connect door."""
        self._collectors: Collectors | None = None
        self._traces: Traces | None = None
        settings = config.load(hello.config, {}, {}).export
        self._keeper: Keeper | None = None
        self._log = TrialLog(settings.log, store=Path(hello.store), journal=journal)
        if traces_asked_for():
            self._traces = Traces(Path(hello.store), journal, host=self._host.name, config=settings)

    def _on_created(self, container_id: str) -> None:
        if self._collectors is not None:
            self._collectors.created_here(container_id)

    def _on_call_edge(self, edge: Literal["call_started", "call_ended"]) -> None:
        if self._collectors is not None:
            self._collectors.edge(edge)

    # --- start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Say what the trial is, start to watch, answer READY."""
        hello = self._hello
        if hello.resumed or hello.close_only:
            self._take_over()
        else:
            owner = Owner(hello.pid, self._host.boot_id, start_ticks(hello.pid))
            self._book.open(self._started(), owner, hello.doors)
        if not hello.close_only:
            self._keeper = keeper_of(hello, self._journal)
            await self._start_collectors()
        if self._traces is not None:
            self._traces.want(self._writer, hello.trial, hello.root_span_id, hello.parent_span_id)
            probe = self._probe_traces(self._traces)
            self._probe = asyncio.get_running_loop().create_task(probe, name="traces-probe")
        await send(self._link, self._journal, feed.Kind.READY, {"pid": os.getpid()})
        if hello.control is not None and not hello.close_only and self._listener is not None:
            opening = self._open_control(hello.control, self._listener)
            self._opening = asyncio.get_running_loop().create_task(opening, name="control")

    async def _open_control(self, token: str, listener: socket.socket) -> None:
        """Whoever asked before this waits in the socket's queue."""
        # Late: most runs have no control API, and the packages that it needs cost a moment.
        from fairtrial.middleware.observer.control import SOURCE, ControlPage

        trial = self._hello.trial
        try:
            source = Source(SOURCE, self._book.take, host=self._host, trial=trial)
            self._control = ControlPage(trial, token, source, begun_ns=self._hello.wall_ns)
            await self._control.open(listener)
        except Exception as error:  # noqa: BLE001 - nothing else depends on it
            self._journal.note(CollectorFailed(label="control", detail=repr(error)))
            listener.close()

    def _started(self) -> TrialStarted:
        hello = self._hello
        return TrialStarted(
            command=hello.command,
            name=hello.name,
            run=hello.run,
            task=hello.task,
            try_=hello.try_,
            trace_id=hello.trace_id,
            root_span_id=hello.root_span_id,
            parent_span_id=hello.parent_span_id,
            options=hello.options,
        )

    def _take_over(self) -> None:
        """Read what a predecessor stored, and say since when nobody looked."""
        hello = self._hello
        if not any(o.kind == TrialStarted.kind for o in self._book.resume()):
            self._book.say_started(self._started(), hello.doors)
        now = clock.now()
        if hello.gap_since_ns is not None:
            self._resumed_wall_ns = now.wall_at(hello.gap_since_ns)
        self._source.emit(
            GapSeen(
                source="observer",
                families=list(FAMILIES),
                since_ns=None if self._resumed_wall_ns is None else self._resumed_wall_ns - round(UNCOMMITTED_S * 1e9),
                until_ns=now.wall_ns,
                why="the observer process was killed or crashed",
            )
        )

    async def _start_collectors(self) -> None:
        hello = self._hello
        try:
            self._collectors = Collectors(
                sink=self._book.take,
                host=self._host,
                trial_id=hello.trial,
                docker=docker_upstream(hello.docker),
                started_wall_ns=hello.wall_ns,
                on_mutation=self._on_mutation,
                on_container_count=self._on_container_count,
                resumed_wall_ns=self._resumed_wall_ns,
                others_at_start=hello.others_at_start,
                oom_kill_at_start=None if hello.resumed else hello.oom_kill_at_start,
            )
            await self._collectors.start()
        except Exception as error:  # noqa: BLE001 - no collector may keep the others, or the run, from going on
            self._lose_collectors(error)

    def _lose_collectors(self, error: Exception) -> None:
        self._journal.note(CollectorFailed(label="start", detail=repr(error)))
        self._source.emit(
            CoverageChanged(
                source="collectors",
                families=["memory", "cpu", "disk", "network", "node"],
                state="lost",
                why=repr(error),
            )
        )

    def _on_mutation(self, mutation: MutationSeen) -> None:
        self._source.emit(mutation)

    def _on_container_count(self, count: int) -> None:
        self._watched = max(self._watched, count)
        self._tell_link({"containers": count})

    # --- while it runs ------------------------------------------------------------------------------------------------

    def take(self, record: feed.Record) -> None:
        """Handle one record of the feed that is neither HELLO nor BYE."""
        if record.kind == feed.Kind.OPEN:
            door = str(record.json().get("door"))
            if door.startswith(DOCKER_DOOR):
                self._engine_conns.add(record.conn)
            elif door == CONNECT_DOOR:
                self._opaque_conns.add(record.conn)
        if record.conn in self._opaque_conns:
            self._opaque_tracker.take(record)
            if record.kind == feed.Kind.CLOSE:
                self._opaque_conns.discard(record.conn)
            return
        if record.conn in self._engine_conns:
            self._engine_tracker.take(record)
            if record.kind == feed.Kind.CLOSE:
                self._engine_conns.discard(record.conn)
            return
        match record.kind:
            case feed.Kind.CHILD:
                self.take_exit(record)
                facts = record.json()
                if facts.get("event") == "started" and self._collectors is not None:
                    self._collectors.child_started(int(str(facts.get("pid", 0))))
                if isinstance(facts.get("cgroup"), str) and self._collectors is not None:
                    self._collectors.child_seen_in(str(facts["cgroup"]))
            case feed.Kind.MUTATION:
                self._source.emit(msgspec.convert(record.json(), MutationSeen, strict=False))
            case feed.Kind.NOTE:
                facts = record.json()
                event, text = str(facts.pop("event", "")), facts.pop("text", None)
                if event == "swallowed":  # a fault of ours beside the traffic: the bytes passed, their copy did not
                    at_ns = self._book.begun.wall_at(record.t_ns)
                    why = f"fairtrial itself failed while it looked ({facts.get('error')})"
                    families = ["model_api"]
                    self._source.emit(
                        GapSeen(source="relay", families=families, since_ns=at_ns, until_ns=at_ns, why=why)
                    )
                if event in SAID_AT_THE_END and text is not None:
                    self._at_the_end.append(str(text))
                if event == OUT_OF_REACH:  # of a door that was promised: calls from there fail, and are not seen
                    self._source.emit(DoorState(name="bridge", ok=False, why=str(text)))
                self._source.emit(Note(event=event, text=None if text is None else str(text), fields=facts))
            case _:
                self._tracker.take(record)

    def take_exit(self, record: feed.Record) -> None:
        """Keep how the command ended, from CHILD or BYE; the first that knows wins."""
        facts = record.json()
        if self._exit_mono_ns is None and ("exit_code" in facts or "signal" in facts):
            self._exit = msgspec.convert(facts | {"why": facts.get("error")}, TrialEnded, strict=False)
            self._exit_mono_ns = record.t_ns

    # --- end ----------------------------------------------------------------------------------------------------------

    async def finish(self, closed: Literal["normal", "incomplete"]) -> None:
        """Close the books: late evidence, verdict, store, `--json`, answer."""
        if self._control is not None:
            self._control.shut()
        trackers = (
            ("door.model", self._tracker),
            ("door.docker", self._engine_tracker),
            ("door.egress", self._opaque_tracker),
        )
        for door, tracker in trackers:
            try:
                tracker.close()
            except Exception as error:  # noqa: BLE001 - the verdict is due whatever a tracker does
                self._journal.note(RecordIgnored(label=door, detail=repr(error)))
            if tracker.faults:
                detail = f"{tracker.faults} of them, the last: {tracker.last_fault}"
                self._journal.note(RecordIgnored(label=door, detail=detail))
        if (forecast := self._parted()) is not None:
            self._tell_link({"trials": len(forecast.parts)})
        if self._collectors is not None:
            try:
                late_s = FINISH_STRUCK_S if self._collectors.struck else FINISH_PLAIN_S
                await self._collectors.finish(FINISH_WATCHED_S if self._watched else late_s)
            except Exception as error:  # noqa: BLE001 - the verdict is due whatever a collector does
                self._journal.note(CollectorFailed(label="finish", detail=repr(error)))
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.close)
            for kept in self._keeper.kept:
                self._source.emit(
                    Note(
                        event="attempt_kept",
                        text=f"the files of attempt {kept.attempt} of {kept.name}, which the harness deleted",
                        fields={"name": kept.name, "attempt": kept.attempt, "files": kept.files, "missed": kept.missed},
                    )
                )
        ended_mono_ns = clock.mono_ns() if self._exit_mono_ns is None else self._exit_mono_ns
        incomplete = closed == "incomplete" or self._hello.close_only
        ended = msgspec.structs.replace(self._exit, closed="incomplete" if incomplete else "normal")
        self._book.end(ended, mono_ns=ended_mono_ns)
        written = self._book.mark()
        parting = self._parted()
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

    def _look(self, observation: Observation) -> None:
        """What may tell trials apart; a fault in it leaves the run one trial."""
        try:
            self._facts.take(observation)
        except Exception as error:  # noqa: BLE001 - nothing may keep an observation from its book
            self._facts.too_many = True
            self._journal.note(RecordIgnored(label="facts", detail=repr(error)))

    def _parted(self) -> Parting | None:
        """Whether the command ran several trials, as far as can be told now."""
        try:
            return part(self._facts, named=self._facts.named)
        except Exception as error:  # noqa: BLE001 - what cannot be parted stays one trial
            self._journal.note(RecordIgnored(label="parting", detail=repr(error)))
            return None

    async def _finish_many(self, parting: Parting, thresholds: Thresholds, ended: TrialEnded) -> None:
        """Each trial its record; then what a person wants to read after many."""
        hello = self._hello
        owner = Owner(hello.pid, self._host.boot_id, start_ticks(hello.pid))
        parted = PartedRun(
            self._facts,
            parting,
            writer=self._writer,
            host=self._host,
            owner=owner,
            closed=ended.closed,
            ended=ended,
        )
        self._many = many = FinishedRun(
            parted, self._book, self._writer, self._journal, thresholds=thresholds, whole=hello.json is not None
        )
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

    def _unwatched_engine(self) -> str | None:
        """Why an engine that the user named was not watched, and what to do; None when it was, or none was named."""
        if self._hello.docker.source in (None, "default socket", "rootless socket"):
            return None
        said = [
            o for o in self._book.held() if o.source == "collector.docker_events" and o.kind == CoverageChanged.kind
        ]
        if not said or said[-1].value.get("state", "on") == "on":
            return None
        why = said[-1].value.get("why") or "it does not answer"
        if said[-1].value.get("containers_missed"):
            return f"{why}."  # a command of a moment: nothing is wrong with the engine
        return f"{why}. Start the engine, or correct {self._hello.docker.source}."

    def _complaints(self, record: bytes | None) -> list[str]:
        """What did not go as it should, for the end of the run; `record` is written to the file of `--json`."""
        lines: list[str] = []
        if self._facts.too_many and self._facts.named:
            lines.append(f"{PREFIX}the run is too large for its trials to be told apart.")
            lines.append("  It stands as one trial. Run its tasks in several parts under one --run name.")
        engine = self._unwatched_engine()
        if engine is not None:
            lines.append(f"{PREFIX}containers were not watched: {engine}")
        lines += [f"{PREFIX}{text}" for text in self._at_the_end[:_MOST_SAID_AT_THE_END]]
        if self._keeper is not None and self._keeper.kept:
            count = plural(len(self._keeper.kept), "attempt")
            lines.append(f"{PREFIX}kept the files of {count} that the harness deleted; bring them in with:")
            lines.append(f"  fairtrial import harbor {self._keeper.target}")
        if self._no_traces is not None:
            lines.append(f"{PREFIX}the trace is not sent yet: {self._no_traces}. Check OTEL_EXPORTER_OTLP_ENDPOINT.")
            lines.append("  It waits in the store for the next run, or for: fairtrial export --pending")
        if self._traces is not None:
            lines += [f"{PREFIX}{sentence}." for sentence in self._traces.complaints]
        if self._writer.failed is not None:
            spills = [str(path) for path in self._writer.spills if path.stat().st_size]
            kept = f"the rows are in {' and '.join(spills)}, bring them back with:" if spills else ""
            lost = f"{self._writer.kept_in_memory} row(s) are lost" if self._writer.kept_in_memory else ""
            lines.append(f"{PREFIX}{self._writer.failed}")
            lines += [f"  {text}" for text in (kept, *(f"  fairtrial import store {p}" for p in spills), lost) if text]
        if self._hello.json not in (None, STDOUT) and record is not None:
            try:
                write_whole(Path(self._hello.json), record + b"\n")
            except OSError as error:
                lines.append(f"{PREFIX}--json {self._hello.json} could not be written: {error.strerror or error}")
        return lines

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
        if self._opening is not None:
            await self._opening
        if self._control is not None:
            await self._control.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)
        if self._collectors is not None:
            await self._collectors.close()
        await asyncio.to_thread(self._writer.close)


def keeper_of(hello: Hello, journal: Journal) -> Keeper | None:
    """Saves what the harness deletes when it tries again, beside the store; None where there is nothing to save."""
    limit = config.load(hello.config, {}, {}).store.keep_limit_bytes
    if limit <= 0 or not any("harbor" in word or word == "hb" for word in hello.command):
        return None
    # Late: most commands start no harness that deletes anything, and a start counts in milliseconds.
    from fairtrial.middleware.harnesses.keep import Keeper, jobs_folder

    try:
        jobs = jobs_folder(hello.command, Path(os.readlink(f"/proc/{hello.pid}/cwd")))
        if jobs is None:
            return None
        return Keeper(jobs, Path(hello.store).parent / "keep" / hello.trial, limit_bytes=limit)
    except OSError as error:
        journal.note(CollectorFailed(label="keep", detail=str(error)))
        return None


def docker_upstream(info: DockerInfo) -> DockerUpstream | None:
    """The engine to watch, or None with the reason in `info.skipped`."""
    if info.url is None:
        return None
    if info.tls_dir is None:
        return DockerUpstream(url=info.url)
    pem = {name: str(Path(info.tls_dir) / f"{name}.pem") for name in ("ca", "cert", "key")}
    return DockerUpstream(
        url=info.url, tls_ca=pem["ca"], tls_cert=pem["cert"], tls_key=pem["key"], tls_verify=info.tls_verify
    )


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
