"""Whatever breaks in the observing, the agent does not notice, and what was lost is said.

In every case: the bytes that the agent got and the bytes that the model API got are, by hash, those of a direct run;
the command's exit status is kept; and the loss stands in a sentence on stderr, in a gap of the record or in a counted
line of the observer's log.
"""

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fairtrial.middleware.core.observations import AttemptEnded
from fairtrial.middleware.core.records import Blame, Trial
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.database import all_observations, open_database
from tests.e2e import clients
from tests.e2e.broken import AGENT, CALLS, Hashed, babbling, hashing_upstream, site
from tests.e2e.under import NO_DOCKER, fairtrial, read_record, run_command
from tests.fakes.collector import http_collector
from tests.middleware.relay.serving import free_port, until

STATUS = 5
HOUR_NS = 3600 * 10**9


@dataclass(kw_only=True)
class Rig:
    """One upstream, the hashes of a direct run, and a place for one run under fairtrial."""

    folder: Path
    upstream: Hashed
    printed: str
    seen: str

    @property
    def state(self) -> Path:
        return self.folder / "home" / "state" / "fairtrial"

    @property
    def store(self) -> Path:
        return self.state / "store.db"

    def until_stored(self) -> None:
        """Until the first half of the calls is committed."""

        def stored() -> bool:
            with (
                contextlib.suppress(OSError, sqlite3.Error),
                contextlib.closing(open_database(self.store, read_only=True)) as database,
            ):
                return int(database.execute("SELECT count(*) FROM observations").fetchone()[0]) >= CALLS
            return False

        until(stored, "the first half is stored")

    def stored_calls(self) -> int:
        """Attempts that stand in the store."""
        with contextlib.closing(open_database(self.store, read_only=True)) as database:
            return sum(each.kind == AttemptEnded.kind for each in all_observations(database))

    def environment(self, **more: str) -> dict[str, str]:
        return clients.clean_environment(
            self.folder / "home",
            XDG_STATE_HOME=str(self.folder / "home" / "state"),
            ANTHROPIC_BASE_URL=self.upstream.url,
            CANON_HOST=f"127.0.0.1:{self.upstream.port}",
            **{**NO_DOCKER, **more},
        )

    def run(self, *, store: Path | None = None, half: Callable[[], None] | None = None, **more: str) -> "Ran":
        """Run to the end; `half` is done while the agent waits in the middle."""
        record = self.folder / "trial.json"
        mark = self.folder / "half"
        words = [] if half is None else [str(mark)]
        command = run_command([sys.executable, "-S", "-c", AGENT, *words], store or self.store, record)
        process = subprocess.Popen(
            command,
            env=self.environment(**more),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            if half is not None:
                until(mark.exists, "the agent is half through")
                half()
                mark.with_suffix(".go").touch()
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == STATUS, err
        assert out.strip() == self.printed, "the agent got other bytes than without fairtrial"
        until(lambda: len(self.upstream.seen) == 2, "the model API has seen its end")
        assert self.upstream.seen[1] == self.seen, "the model API got other bytes than without fairtrial"
        return Ran(stderr=err, record=read_record(record), state=self.state)


@dataclass(kw_only=True)
class Ran:
    """What was said of a run."""

    stderr: str
    record: Trial | None
    state: Path

    def log(self) -> list[dict[str, object]]:
        """Lines of the observer's log: a counted event each."""
        path = self.state / "observer.log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith("{")]

    @property
    def trial(self) -> Trial:
        assert self.record is not None, self.stderr
        return self.record

    def calls(self) -> int:
        return sum(len(step.calls) for step in self.trial.steps) + len(self.trial.side_calls)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    (tmp_path / "home").mkdir()
    with hashing_upstream() as upstream:
        made = Rig(folder=tmp_path, upstream=upstream, printed="", seen="")
        done = subprocess.run(
            [sys.executable, "-S", "-c", AGENT],
            env=made.environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == STATUS, done.stderr
        until(lambda: upstream.seen, "the direct run is over")
        made.printed, made.seen = done.stdout.strip(), upstream.seen[0]
        yield made


def test_nothing_broken_says_nothing(rig: Rig) -> None:
    ran = rig.run()
    assert ran.calls() == CALLS
    assert not ran.log()
    assert not ran.trial.coverage.gaps
    assert not said(ran)


# --- the exporter -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def down() -> Generator[str, None, None]:
    yield f"http://127.0.0.1:{free_port()}"


@contextlib.contextmanager
def garbage() -> Generator[str, None, None]:
    with babbling() as port:
        yield f"http://127.0.0.1:{port}"


def collector(said: str, *, probe: str = "ok") -> Callable[[], contextlib.AbstractContextManager[str]]:
    @contextlib.contextmanager
    def made() -> Generator[str, None, None]:
        with http_collector(otherwise=said, probe=probe) as there:
            yield there.url

    return made


EXPORTERS: dict[str, Callable[[], contextlib.AbstractContextManager[str]]] = {
    "down": down,
    "hanging from the start": collector("hang", probe="hang"),
    "hanging with the spans": collector("hang"),
    "refusing": collector("400"),
    "unwilling": collector("503:1", probe="503"),
    "resetting": collector("reset", probe="reset"),
    "answering without end": collector("flood"),
    "answering garbage": garbage,
}


@pytest.mark.parametrize("how", EXPORTERS)
def test_an_exporter_that_fails_costs_nothing_but_its_spans_which_are_counted(rig: Rig, how: str) -> None:
    with EXPORTERS[how]() as url:
        ran = rig.run(OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_EXPORTER_OTLP_TIMEOUT="1000")
        assert ran.calls() == CALLS
        until(
            lambda: said_of_traces(ran) or how == "answering without end",
            f"what became of the trace is said: {ran.stderr}",
        )
        until(lambda: ledger(rig.store).produced, "the spans are laid out")
        until(lambda: settled(rig.store), "nothing is under way any more")
    counts = ledger(rig.store)
    assert counts.produced == counts.exported + counts.pending + counts.lost, counts
    if how == "answering without end":
        return  # its status was a yes, if it came in time; nobody reads on
    assert counts.exported == 0 and counts.pending + counts.lost > CALLS, counts


def said_of_traces(ran: Ran) -> bool:
    """On stderr when nobody listens, else in the log, once sending was given up: nobody waits for it."""
    return "the trace is not sent yet" in ran.stderr or any(line["event"] == "ExportFailed" for line in ran.log())


def ledger(store: Path) -> exports.Counts:
    database = open_database(store, read_only=True)
    try:
        return exports.counts(database)
    finally:
        database.close()


def settled(store: Path) -> bool:
    database = open_database(store, read_only=True)
    try:
        states = {str(row[0]) for row in database.execute("SELECT DISTINCT state FROM export_batches")}
    finally:
        database.close()
    return "sending" not in states and "claimed" not in states


# --- the store --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Generator[Path, None, None]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a full file system needs uid 0 and mount")
    place = folder / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        store = place / "store.db"
        open_database(store).close()
        subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)
        yield store
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("options", ["size=160k", "ro"])
def test_a_disk_that_takes_no_more_costs_no_row(rig: Rig, options: str) -> None:
    with small_disk(rig.folder, options) as store:
        ran = rig.run(store=store)
    check_spilled(rig, ran, store)


def test_a_corrupt_store_costs_no_row(rig: Rig) -> None:
    rig.state.mkdir(parents=True)
    rig.store.write_bytes(b"this is no database, " * 1000)
    check_spilled(rig, rig.run(), rig.store)


def check_spilled(rig: Rig, ran: Ran, store: Path) -> None:
    """The sentence names the store and the way back, and that way brings every call."""
    assert ran.calls() == CALLS
    assert f"the store {store} does not take rows" in ran.stderr
    assert any(line["event"] == "StoreFailed" for line in ran.log())
    spills = re.findall(r"fairtrial import store (\S+)", ran.stderr)
    assert spills, ran.stderr
    for spill in spills:
        if Path(spill).exists():  # a full disk that is gone took its part of the rows along
            done = fairtrial(
                "import", "store", spill, "--store", str(rig.folder / "saved.db"), environment={**os.environ}
            )
            assert done.returncode == 0, done.stderr
            Path(spill).unlink()


def test_a_store_that_is_replaced_while_it_is_written_is_a_gap(rig: Rig) -> None:
    other = rig.folder / "other.db"
    open_database(other).close()

    def replace() -> None:
        rig.until_stored()
        other.replace(rig.store)
        for beside in ("-wal", "-shm"):
            Path(f"{rig.store}{beside}").unlink(missing_ok=True)

    check_store_gap(rig.run(half=replace))


def test_a_store_that_is_removed_while_it_is_written_is_a_gap(rig: Rig) -> None:
    def remove() -> None:
        rig.until_stored()
        for path in rig.state.glob("store.db*"):
            path.unlink()

    check_store_gap(rig.run(half=remove))


def test_a_store_that_is_overwritten_with_junk_while_it_is_written_is_a_gap(rig: Rig) -> None:
    def junk() -> None:
        rig.until_stored()
        with rig.store.open("r+b") as file:
            file.write(os.urandom(rig.store.stat().st_size))

    ran = rig.run(half=junk)
    assert ran.calls() == CALLS
    told = [gap.source for gap in ran.trial.coverage.gaps] == ["store"] or "does not take rows" in ran.stderr
    # What was overwritten may stand in the write-ahead log, whole; then nothing is lost, and nothing is said.
    assert told or rig.stored_calls() == CALLS, ran.stderr


def check_store_gap(ran: Ran) -> None:
    assert ran.calls() == CALLS
    assert [gap.source for gap in ran.trial.coverage.gaps] == ["store"], ran.stderr
    assert ran.trial.verdict is not None
    assert ran.trial.verdict.blame is Blame.INDETERMINATE


# --- the clock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_ns", [-26 * HOUR_NS, 26 * HOUR_NS, 20 * 365 * 24 * HOUR_NS])
def test_a_wall_clock_that_jumps_changes_no_duration_and_loses_no_call(rig: Rig, jump_ns: int) -> None:
    """Python's wall clock, in every process of fairtrial's, is moved in the middle of the run."""
    jump = rig.folder / "jump"
    jump.write_text("0")
    began = time.monotonic()
    ran = rig.run(half=lambda: void(jump.write_text(str(jump_ns))), PYTHONPATH=site(rig.folder, jump=jump))
    took_s = time.monotonic() - began
    assert ran.calls() == CALLS
    attempts = [a for step in ran.trial.steps for each in step.calls for a in each.attempts]
    attempts += [a for each in ran.trial.side_calls for a in each.attempts]
    assert len(attempts) == CALLS
    assert all(a.duration is not None and 0 <= a.duration < took_s for a in attempts), attempts
    assert not [line for line in ran.log() if line["event"] != "ExportFailed"]
    assert (
        str(ran.trial.trial)
        in fairtrial("trials", "--json", "--store", str(rig.store), environment=rig.environment()).stdout
    )


def void(_: object) -> None:
    """Take a value and give none."""


# --- faults of ours ---------------------------------------------------------------------------------------------------

SEAMS = {
    "a record of the feed": "fairtrial.middleware.wire.exchange:ExchangeTracker.take",
    "the end of the feed": "fairtrial.middleware.wire.exchange:ExchangeTracker.close",
    "the sink": "fairtrial.middleware.observer.book:TrialBook.take",
    "the store's rows": "fairtrial.middleware.store.writer:_insert",
    "the store's opening": "fairtrial.middleware.store.writer:open_database",
    "the begin": "fairtrial.middleware.observer.book:TrialBook.open",
    "the collectors' start": "fairtrial.collectors.facade:Collectors.start",
    "a collector's edge": "fairtrial.collectors.facade:Collectors.edge",
    "the collectors' end": "fairtrial.collectors.facade:Collectors.finish",
    "the check of the store": "fairtrial.middleware.observer.book:TrialBook.verify",
    "steps": "fairtrial.middleware.closing:assemble",
    "the verdict": "fairtrial.middleware.closing:judge",
    "the last word": "fairtrial.middleware.report.text:ending_lines",
    "the observer's import": "fairtrial.middleware.wire.exchange:nothing.there",
    "the log": "fairtrial.exporters.jsonlog:JsonLog.write",
    "the trace": "fairtrial.exporters.trace_layout:spans_of",
    "the relay's account": "fairtrial.middleware.relay.account:Account.record",
    "the relay's feed": "fairtrial.middleware.relay.feed:FeedSender.record",
    "the relay's feed, whole": "fairtrial.middleware.relay.feed:FeedSender.record_whole",
    "the relay's lag": "fairtrial.middleware.relay.feed:LoopLag.look",
}


@pytest.mark.parametrize("seam", SEAMS)
def test_a_fault_of_ours_is_said_and_the_agent_does_not_notice(rig: Rig, seam: str) -> None:
    with http_collector() as there:
        ran = rig.run(
            PYTHONPATH=site(rig.folder, faults=[SEAMS[seam]]),
            OTEL_EXPORTER_OTLP_ENDPOINT=there.url,
            FAIRTRIAL_EXPORT__LOG="trials.log",
        )
        gaps = [] if ran.record is None else [gap.why for gap in ran.record.coverage.gaps]
        until(lambda: ran.log() or gaps or said(ran), deadline_s=8, what=f"the loss is said: {ran.stderr}")


def said(ran: Ran) -> bool:
    """A sentence that tells a person that fairtrial failed, not what the agent did."""
    return bool(re.search(r"fairtrial itself|observer|unobserved|does not take rows|not seen", ran.stderr))
