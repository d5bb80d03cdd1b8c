"""The parts of the observer of `run`, each by itself; the whole of them is in `tests/middleware/test_app.py`."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.hello import DockerInfo, Hello
from fairtrial.middleware.core.observations import CoverageChanged, DoorState, GapSeen, Note, TrialStarted
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.observer.run.beginning import begin
from fairtrial.middleware.observer.run.complaints import STDOUT, complaints, write_record
from fairtrial.middleware.observer.run.doors import RunDoors
from fairtrial.middleware.observer.run.inside import RunControl
from fairtrial.middleware.observer.run.notes import RelayNotes
from fairtrial.middleware.observer.run.parting import TellingApart
from fairtrial.middleware.store.writer import StoreWriter
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.docker import DOOR as DOCKER_DOOR
from fairtrial.middleware.wire.feed import Kind
from fairtrial.middleware.wire.opaque import DOOR as CONNECT_DOOR

TRIAL = "01930000-0000-7000-8000-00000000000c"


class Parts:
    """A book on a real store, as the parts get it."""

    def __init__(self, store: Path) -> None:
        self.journal = Journal(io.StringIO())
        self.host = this_host()
        self.writer = StoreWriter(store, self.journal, trial=TRIAL)
        self.begun = clock.now()
        self.book = TrialBook(TRIAL, writer=self.writer, journal=self.journal, host=self.host, begun=self.begun)
        self.hello = Hello(trial=TRIAL, store=str(store), command=["agent"])

    def kinds(self) -> list[str]:
        return [o.kind for o in self.book.held()]

    def complaints(self, hello: Hello, at_the_end: list[str]) -> list[str]:
        return complaints(
            hello,
            book=self.book,
            writer=self.writer,
            too_many=False,
            at_the_end=at_the_end,
            keeper=None,
            traces=None,
            no_traces=None,
        )


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = Parts(tmp_path / "s.db")
    yield made
    made.writer.close()


def record(kind: Kind, value: dict[str, object], *, conn: int = 0) -> feed.Record:
    return feed.Record(kind, 0, conn, 0, clock.mono_ns(), feed.json_bytes(value))


@pytest.mark.parametrize("door, taken", [(DOCKER_DOOR, True), (CONNECT_DOOR, True), ("anthropic", False)])
def test_a_connection_is_its_doors_until_it_is_closed(parts: Parts, door: str, taken: bool) -> None:
    doors = RunDoors(
        parts.hello,
        parts.book,
        parts.journal,
        host=parts.host,
        on_call_edge=lambda _: None,
        on_created=lambda _: None,
    )
    for kind in (Kind.OPEN, Kind.CLOSE):
        assert doors.take(record(kind, {"door": door}, conn=7)) is taken
        assert doors.take(record(kind, {}, conn=8)) is False
    assert doors.take(record(Kind.CLOSE, {}, conn=7)) is False
    doors.close()


def test_a_note_is_kept_and_what_it_means_beside_it(parts: Parts) -> None:
    notes = RelayNotes(parts.book)
    notes.take(record(Kind.NOTE, {"event": "plain", "text": "nothing for the end"}))
    assert parts.kinds() == [Note.kind]
    notes.take(record(Kind.NOTE, {"event": "swallowed", "error": "KeyError"}))
    notes.take(record(Kind.NOTE, {"event": "bridge.out_of_reach", "text": "nobody gets there"}))
    assert parts.kinds() == [Note.kind, GapSeen.kind, Note.kind, DoorState.kind, Note.kind]
    assert notes.at_the_end == ["nobody gets there"]


def test_a_trial_begins_once_and_a_takeover_says_since_when_nobody_looked(parts: Parts, tmp_path: Path) -> None:
    assert begin(parts.hello, parts.book, host=parts.host) is None
    assert parts.kinds() == [TrialStarted.kind]
    assert parts.writer.flush(10)
    successor = Parts(tmp_path / "s.db")
    died = clock.mono_ns()
    resumed = Hello(trial=TRIAL, store=parts.hello.store, command=["agent"], resumed=True, gap_since_ns=died)
    since = begin(resumed, successor.book, host=successor.host)
    assert successor.kinds() == [TrialStarted.kind, GapSeen.kind]
    assert since is not None and abs(since - clock.now().wall_at(died)) < 1e9
    successor.writer.close()


def test_a_run_that_named_no_trials_is_one(parts: Parts) -> None:
    apart = TellingApart(parts.hello, parts.journal, host=parts.host)
    Source("observer", apart.look, host=parts.host, trial=TRIAL).emit(TrialStarted(command=["agent"]))
    assert apart.parted() is None
    assert apart.too_many is False


def test_complaints_name_the_engine_that_was_not_watched_and_few_of_many_notes(parts: Parts) -> None:
    assert parts.complaints(parts.hello, []) == []
    engine = Source("collector.docker_events", parts.book.take, host=parts.host, trial=TRIAL)
    engine.emit(CoverageChanged(source="docker", families=["memory"], state="lost", why="it is gone"))
    named = Hello(trial=TRIAL, store=parts.hello.store, docker=DockerInfo(source="DOCKER_HOST"))
    lines = parts.complaints(named, [f"note {number}" for number in range(9)])
    assert "it is gone. Start the engine, or correct DOCKER_HOST." in lines[0]
    assert [line.partition("note ")[2] for line in lines[1:]] == ["0", "1", "2"]


def test_the_record_is_written_where_json_names_a_file_and_a_failure_is_a_line(tmp_path: Path) -> None:
    assert write_record(None, b"{}") == write_record(STDOUT, b"{}") == write_record(str(tmp_path / "n"), None) == []
    assert write_record(str(tmp_path / "r.json"), b"{}") == []
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("r.json", b"{}\n")]
    (line,) = write_record(str(tmp_path / "no" / "r.json"), b"{}")
    assert "could not be written" in line


@pytest.mark.parametrize("close_only", [False, True])
async def test_the_control_api_is_opened_where_it_was_asked_for_and_let_go(
    parts: Parts, tmp_path: Path, close_only: bool
) -> None:
    unasked = RunControl(parts.hello, parts.book, parts.journal, host=parts.host, listener=None)
    unasked.open()
    unasked.shut()
    await unasked.close()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "c.sock"))
    listener.listen()
    hello = Hello(trial=TRIAL, store=parts.hello.store, control="token", close_only=close_only)
    control = RunControl(hello, parts.book, parts.journal, host=parts.host, listener=listener)
    control.open()
    await control.close()
    assert (listener.fileno() == -1) is not close_only
    listener.close()
