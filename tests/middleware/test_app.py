"""The observer as a process of its own, fed over a real socket: what it answers, stores, and survives."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fairtrial.middleware.app import KEPT_OBSERVATIONS
from fairtrial.middleware.closing import judged
from fairtrial.middleware.core.observations import Observation, Subject
from fairtrial.middleware.core.records import Blame, Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.observer.machine import cpu_model, start_ticks, write_whole
from fairtrial.middleware.observer.traces import traces_asked_for
from fairtrial.middleware.store.database import insert_observation, latest_record, observations_of, open_database
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.feed import Kind
from tests.fakes.collector import http_collector

TRIAL = "01930000-0000-7000-8000-00000000000a"


class Fed:
    """The run process's side of the feed."""

    def __init__(self, link: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.link = link
        self.process = process
        self._decoder = feed.Decoder()
        self._waiting: list[feed.Record] = []

    def say(self, kind: Kind, value: dict[str, object], *, conn: int = 0) -> None:
        self.link.sendall(feed.encode_json(kind, value, conn=conn, t_ns=time.monotonic_ns()))

    def hear(self, kind: Kind) -> dict[str, object]:
        """The next record of this kind; fails at the end of the stream."""
        while True:
            for index, record in enumerate(self._waiting):
                if record.kind == kind:
                    del self._waiting[: index + 1]
                    return record.json()
            chunk = self.link.recv(65536)
            assert chunk, f"the observer left without a {kind.name}"
            self._waiting += self._decoder.feed(chunk)

    def bye(self, **facts: object) -> dict[str, object]:
        self.say(Kind.BYE, facts)
        return self.hear(Kind.VERDICT)

    def gone(self) -> int:
        self.link.close()
        return self.process.wait(30)


@contextmanager
def observer(tmp_path: Path, **more: object) -> Iterator[Fed]:
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    command = [sys.executable, "-m", "fairtrial.middleware.app", "--feed-fd", str(theirs.fileno())]
    with (tmp_path / "log").open("ab") as log:
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stderr=log, start_new_session=True)
    theirs.close()
    hello: dict[str, object] = {
        "protocol": 1,
        "pid": os.getpid(),
        "wall_ns": time.time_ns(),
        "mono_ns": time.monotonic_ns(),
        "trial": TRIAL,
        "name": "one",
        "command": ["agent"],
        "store": str(tmp_path / "state" / "store.db"),
        "trace_id": "ab" * 16,
        "doors": [{"name": "anthropic", "scheme": "https", "host": "api.anthropic.com", "port": 443, "door_port": 1}],
    }
    fed = Fed(ours, process)
    try:
        fed.say(Kind.HELLO, hello | more)
        fed.hear(Kind.READY)
        yield fed
    finally:
        ours.close()
        try:
            process.wait(30)
        finally:
            process.kill()


def stored(tmp_path: Path) -> Trial | None:
    database = open_database(tmp_path / "state" / "store.db", read_only=True)
    try:
        return latest_record(database, TRIAL)
    finally:
        database.close()


def test_a_run_without_a_model_call_is_indeterminate_and_stored(tmp_path: Path) -> None:
    with observer(tmp_path) as fed:
        said = fed.bye(exit_code=1)
        record = stored(tmp_path)
        assert record is not None, "what `show` needs is there before the run process exits"
        assert fed.gone() == 0
    assert record.verdict is not None
    assert record.verdict.blame is Blame.INDETERMINATE
    assert (record.exit_code, record.closed, record.command, record.trace_id) == (1, "normal", ["agent"], "ab" * 16)
    assert said["gate"] is None
    lines = said["lines"]
    assert isinstance(lines, list)
    assert "failed (exit 1) → indeterminate" in lines[0]


def test_json_is_written_before_the_answer_and_whole(tmp_path: Path) -> None:
    target = tmp_path / "trial.json"
    with observer(tmp_path, json=str(target)) as fed:
        fed.bye(exit_code=0)
        record = msgspec.json.decode(target.read_bytes(), type=Trial)
    assert record == stored(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_json_path_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with observer(tmp_path, json=str(tmp_path / "no" / "such" / "folder.json")) as fed:
        lines = fed.bye(exit_code=0)["lines"]
    assert isinstance(lines, list)
    assert any("--json" in line and "could not be written" in line for line in lines)


def test_a_feed_that_ends_without_a_bye_closes_the_trial_as_incomplete(tmp_path: Path) -> None:
    with observer(tmp_path) as fed:
        fed.say(Kind.CHILD, {"event": "started", "pid": os.getpid()})
        assert fed.gone() == 0
    record = stored(tmp_path)
    assert record is not None
    assert record.closed == "incomplete"
    assert record.verdict is not None
    assert record.verdict.blame is Blame.INDETERMINATE


def test_junk_in_records_and_in_the_stream_ends_nothing_but_itself(tmp_path: Path) -> None:
    with observer(tmp_path) as fed:
        for kind in Kind:
            if kind not in (Kind.HELLO, Kind.BYE):
                fed.link.sendall(feed.encode(kind, b"\xff{]", conn=7, msg=3))
        fed.say(Kind.MUTATION, {"what": "x", "old": 5})
        fed.say(Kind.OPEN, {"door": ["not a text"]}, conn=1)
        assert fed.bye(exit_code=3)["lines"]
    record = stored(tmp_path)
    assert record is not None
    assert record.exit_code == 3


def test_a_stream_that_is_no_feed_closes_the_trial(tmp_path: Path) -> None:
    with observer(tmp_path) as fed:
        fed.link.sendall(b"\xff" * 4096)
        assert fed.gone() == 0
    record = stored(tmp_path)
    assert record is not None
    assert record.closed == "incomplete"


def edit(database: sqlite3.Connection) -> None:
    database.execute("DELETE FROM observations WHERE seq % 2 = 0")


def forge(database: sqlite3.Connection) -> None:
    database.execute("UPDATE observations SET body = (SELECT body FROM observations LIMIT 1) WHERE seq = 3")


def add(database: sqlite3.Connection) -> None:
    forged = Observation(
        id="forged", source="door.model", source_id="mine/1", seq=1, subject=Subject(trial=TRIAL), wall_ns=1, mono_ns=1,
        kind="attempt.ended", value={"attempt": "a", "reply": {"status": 529}},
    )  # fmt: skip
    insert_observation(database, forged)


@pytest.mark.parametrize("how", ["edit", "forge", "remove", "add"])
def test_a_store_that_changed_under_it_is_indeterminate_and_loses_nothing(tmp_path: Path, how: str) -> None:
    path = tmp_path / "state" / "store.db"
    with observer(tmp_path) as fed:
        deadline = time.monotonic() + 10
        while not path.exists() or rows(path) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if how == "remove":
            for file in path.parent.glob("store.db*"):
                file.unlink()
        else:
            database = sqlite3.connect(path, timeout=10)
            with database:
                {"edit": edit, "forge": forge, "add": add}[how](database)
            database.close()
        lines = fed.bye(exit_code=1)["lines"]
    assert isinstance(lines, list)
    assert "indeterminate" in lines[0]
    record = stored(tmp_path)
    assert record is not None
    assert [gap.source for gap in record.coverage.gaps] == ["store"]
    database = open_database(path, read_only=True)
    kept = list(observations_of(database, TRIAL))
    kinds = [o.kind for o in kept]
    database.close()
    again = judged(kept, TRIAL, Journal()).verdict
    assert again is not None
    assert again.blame is Blame.INDETERMINATE, "a replay must not believe the forgery either"
    assert kinds.count("trial.started") == 1
    assert "trial.ended" in kinds


@pytest.mark.parametrize("tampered", [False, True])
def test_a_long_run_is_bounded_in_memory_and_still_finds_out_who_edits_its_store(
    tmp_path: Path, tampered: bool
) -> None:
    notes = KEPT_OBSERVATIONS * 2
    path = tmp_path / "state" / "store.db"
    with observer(tmp_path) as fed:
        for number in range(notes):
            fed.say(Kind.NOTE, {"event": "n", "number": number})
        deadline = time.monotonic() + 30
        while rows(path) < notes:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if tampered:
            with contextlib.closing(sqlite3.connect(path, timeout=10)) as database, database:
                database.execute("DELETE FROM observations WHERE seq = 20")
        lines = fed.bye(exit_code=1)["lines"]
    assert isinstance(lines, list)
    record = stored(tmp_path)
    assert record is not None
    assert record.command == ["agent"], "the beginning is part of the record"
    whys = [gap.why or "" for gap in record.coverage.gaps if gap.source == "store"]
    assert len(whys) == tampered
    assert all("of them are lost" in why for why in whys)
    assert record.verdict is not None and record.verdict.blame is Blame.INDETERMINATE


def rows(path: Path) -> int:
    try:
        database = open_database(path, read_only=True)
    except (OSError, sqlite3.Error):
        return 0
    try:
        return int(database.execute("SELECT count(*) FROM observations").fetchone()[0])
    finally:
        database.close()


def test_a_successor_takes_over_and_says_since_when_nobody_looked(tmp_path: Path) -> None:
    with observer(tmp_path) as fed:
        fed.say(Kind.NOTE, {"event": "before"})
        deadline = time.monotonic() + 10
        while rows(tmp_path / "state" / "store.db") < 5:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        fed.process.send_signal(signal.SIGKILL)
        fed.process.wait(10)
    with observer(tmp_path, resumed=True, gap_since_ns=time.monotonic_ns()) as fed:
        fed.bye(exit_code=1)
    record = stored(tmp_path)
    assert record is not None
    assert [gap.source for gap in record.coverage.gaps] == ["observer"]
    assert record.verdict is not None
    assert record.verdict.blame is Blame.INDETERMINATE
    assert record.command == ["agent"]


def test_one_that_only_closes_says_incomplete(tmp_path: Path) -> None:
    with observer(tmp_path, close_only=True) as fed:
        fed.bye(exit_code=0)
    record = stored(tmp_path)
    assert record is not None
    assert record.closed == "incomplete"


def test_a_store_that_takes_nothing_is_said_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "store.db").write_text("this is no database" * 100)
    with observer(tmp_path) as fed:
        lines = fed.bye(exit_code=1)["lines"]
    assert isinstance(lines, list)
    said = "\n".join(lines)
    assert "does not take rows" in said
    assert "fairtrial import store" in said
    assert "mv " in said
    assert len(list((tmp_path / "state").glob("spill-*.jsonl"))) == 1


def test_quiet_says_nothing_about_a_pass_but_something_about_a_fault(tmp_path: Path) -> None:
    with observer(tmp_path, quiet=True) as fed:
        assert fed.bye(exit_code=0)["lines"] == []
    with observer(tmp_path, quiet=True, json="/nowhere/x.json", store=str(tmp_path / "other.db")) as fed:
        lines = fed.bye(exit_code=0)["lines"]
    assert isinstance(lines, list)
    assert len(lines) == 1
    assert "/nowhere/x.json" in lines[0]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"1")
    write_whole(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"2"
    with pytest.raises(OSError):
        write_whole(tmp_path / "none" / "a", b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_is_followed_and_a_device_or_a_pipe_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", b"1")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"1"
    (tmp_path / "null").symlink_to("/dev/null")
    write_whole(tmp_path / "null", b"1")
    assert (tmp_path / "null").is_symlink()
    assert Path("/dev/null").is_char_device()
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", b"2")
    assert os.read(reader, 10) == b"2"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_requests_without_a_token_are_kept_with_the_trial_and_are_no_tampering(tmp_path: Path) -> None:
    """Junk at the door belongs to no trial; its rows are stored all the same, so that a replay counts it as well."""
    head = b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"
    with observer(tmp_path, json="-", tokens={"known": TRIAL}) as fed:
        fed.say(Kind.OPEN, {"door": "model:anthropic", "upstream": "https://api.anthropic.com", "peer": "p"}, conn=1)
        now = time.monotonic_ns()
        fed.link.sendall(feed.encode(Kind.REQUEST_HEAD, head, conn=1, msg=1, t_ns=now))
        fed.link.sendall(
            feed.encode_json(Kind.REQUEST_END, {"wire_bytes": 40, "complete": True}, conn=1, msg=1, t_ns=now)
        )
        fed.say(Kind.CLOSE, {"first": "client", "how": "fin"}, conn=1)
        answer = fed.bye(exit_code=1)
    record = msgspec.json.decode(str(answer["record"]), type=Trial)
    assert record.coverage.gaps == []
    assert sum(record.unassigned.values()) > 0
    database = open_database(tmp_path / "state" / "store.db", read_only=True)
    again = judged(observations_of(database, TRIAL), TRIAL, Journal())
    database.close()
    assert again.unassigned == record.unassigned


def test_small_facts_of_the_machine(tmp_path: Path) -> None:
    assert start_ticks(os.getpid()) is not None
    assert start_ticks(os.getpid(), tmp_path) is None
    (tmp_path / "cpuinfo").write_text("processor: 0\nmodel name\t: A Chip\n")
    assert cpu_model(tmp_path / "cpuinfo") == "A Chip"
    assert cpu_model(tmp_path / "none") is None


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps the bodies of OTLP requests."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


def test_the_trace_is_exported_after_the_answer_under_the_id_that_the_child_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        with observer(tmp_path, root_span_id="cd" * 8) as fed:
            fed.bye(exit_code=1)
        server.shutdown()
    request = ExportTraceServiceRequest()
    request.ParseFromString(Receiver.bodies[-1])
    spans = [s for group in request.resource_spans for scope in group.scope_spans for s in scope.spans]
    assert {s.trace_id.hex() for s in spans} == {"ab" * 16}
    assert [s.span_id.hex() for s in spans if not s.parent_span_id] == ["cd" * 8]


def test_a_collector_that_never_answers_delays_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        with observer(tmp_path) as fed:
            assert fed.bye(exit_code=1)["lines"]
            assert fed.process.poll() is None, "the answer came while the exporter still waits"
            assert stored(tmp_path) is not None


def test_what_a_dead_collector_did_not_get_is_sent_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    with observer(tmp_path, root_span_id="cd" * 8) as fed:
        fed.bye(exit_code=1)
    with http_collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        for number in (1, 2):
            other = f"01930000-0000-7000-8000-00000000010{number}"
            with observer(tmp_path, trial=other, root_span_id=f"{number:016x}") as fed:
                fed.bye(exit_code=1)
    roots = [span for span in collector.seen if span in ("cd" * 8, f"{1:016x}", f"{2:016x}")]
    assert sorted(roots) == sorted(["cd" * 8, f"{1:016x}", f"{2:016x}"])
    assert len(collector.seen) == len(set(collector.seen))


def test_the_log_is_json_lines(tmp_path: Path) -> None:
    with observer(tmp_path) as fed:
        fed.link.sendall(b"\xff" * 4096)
        fed.gone()
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines
    assert all(json.loads(line)["event"] for line in lines)


@pytest.mark.parametrize(
    "environ, asked",
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
    ],
)
def test_traces_are_sent_only_where_the_user_named_an_endpoint(
    environ: dict[str, str], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert traces_asked_for() is asked


@pytest.mark.parametrize(
    "environ, sentence",
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, "127.0.0.1:1/v1/traces does not answer"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "pigeon"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'pigeon', but http/protobuf, http/json or grpc is expected",
        ),
    ],
)
def test_a_trace_that_cannot_arrive_is_said(
    environ: dict[str, str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with observer(tmp_path) as fed:
        deadline = time.monotonic() + 10
        while rows(tmp_path / "state" / "store.db") < 5:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        lines = fed.bye(exit_code=0)["lines"]
    assert isinstance(lines, list)
    assert any(sentence in line for line in lines)
    assert any("OTEL_EXPORTER_OTLP_ENDPOINT" in line for line in lines)
    assert any("fairtrial export --pending" in line for line in lines)


@pytest.mark.parametrize("source, said", [("DOCKER_HOST", True), ("default socket", False)])
def test_an_engine_that_the_user_named_and_that_does_not_answer_is_said(
    tmp_path: Path, source: str, said: bool
) -> None:
    with observer(tmp_path, docker={"url": f"unix://{tmp_path}/none.sock", "source": source}) as fed:
        lines = fed.bye(exit_code=0)["lines"]
    assert isinstance(lines, list)
    assert any("containers were not watched" in line and source in line for line in lines) is said


def test_a_command_that_was_over_before_its_engine_was_reached_is_no_reason_to_start_the_engine(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(tmp_path / "e.sock"))
        engine.listen()
        with observer(tmp_path, docker={"url": f"unix://{tmp_path}/e.sock", "source": "DOCKER_HOST"}) as fed:
            lines = fed.bye(exit_code=0)["lines"]
    assert isinstance(lines, list)
    told = [line for line in lines if "containers were not watched" in line]
    assert len(told) == 1 and "before the command ended" in told[0]
    assert "Start the engine" not in told[0]


def test_the_observer_starts_without_what_few_runs_need() -> None:
    """A command that is over at once waits for it: what is seldom used is loaded when it is used."""
    program = (
        "import sys, fairtrial.middleware.app; "
        "print(sorted({'opentelemetry', 'docker', 'wsproto', 'aiohttp', 'httpx', 'typer', 'rich'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize("event, blame", [("bridge.out_of_reach", "fairtrial"), ("bridge.no_network", "indeterminate")])
def test_a_container_that_no_door_reaches_is_said_at_the_end(tmp_path: Path, event: str, blame: str) -> None:
    """With a network but no way to us, the call would have come through without us."""
    text = "ANTHROPIC_BASE_URL leads nowhere in a container of this run: the engine is rootless."
    with observer(tmp_path) as fed:
        fed.say(Kind.NOTE, {"event": event, "text": text})
        lines = fed.bye(exit_code=1)["lines"]
    assert isinstance(lines, list)
    assert [line for line in lines if text in line][-1] == f"fairtrial: {text}", lines
    record = stored(tmp_path)
    assert record is not None
    assert record.verdict is not None
    assert record.verdict.blame == blame, record.verdict
