"""The observer of a serve as a process of its own, fed over a real socket."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairtrial import __version__
from fairtrial.middleware.sidecar import STATUS_S
from fairtrial.middleware.store.database import open_database
from fairtrial.middleware.store.queries import TrialRow, list_trials
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.feed import Kind

ASK = {"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
REPLY = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn", "usage": {}}


class Fed:
    """The relay's side of the feed."""

    def __init__(self, store: Path, link: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.store = store
        self.link = link
        self.process = process
        self._decoder = feed.Decoder()
        self._conn = 0

    def hello(self, **more: object) -> None:
        said: dict[str, object] = {
            "protocol": 1,
            "pid": os.getpid(),
            "wall_ns": time.time_ns(),
            "mono_ns": time.monotonic_ns(),
            "store": str(self.store),
            "serve": {"idle_s": 600.0},
        }
        self.say(Kind.HELLO, said | more)
        self.hear(Kind.READY)

    def say(self, kind: Kind, value: dict[str, object]) -> None:
        self.link.sendall(feed.encode_json(kind, value, conn=self._conn, t_ns=time.monotonic_ns()))

    def call(self, path: str, *lines: str) -> None:
        """One call on a connection of its own."""
        self._conn += 1
        self.say(Kind.OPEN, {"door": "model:anthropic", "upstream": "https://api.anthropic.com", "peer": "127.0.0.1:9"})
        head = "\r\n".join((f"POST {path} HTTP/1.1", "host: a", "content-type: application/json", *lines, "", ""))
        for kind, payload in (
            (Kind.REQUEST_HEAD, head.encode()),
            (Kind.REQUEST_DATA, json.dumps(ASK).encode()),
            (Kind.REQUEST_END, b'{"wire_bytes":1,"complete":true}'),
            (Kind.RESPONSE_HEAD, b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"),
            (Kind.RESPONSE_DATA, json.dumps(REPLY).encode()),
            (Kind.RESPONSE_END, b'{"wire_bytes":1,"complete":true,"how":"framed"}'),
        ):
            self.link.sendall(feed.encode(kind, payload, conn=self._conn, msg=1, t_ns=time.monotonic_ns()))

    def hear(self, kind: Kind) -> dict[str, object]:
        """The next record of this kind; fails at the end of the stream."""
        while True:
            chunk = self.link.recv(65536)
            assert chunk, f"the observer left without a {kind.name}"
            for record in self._decoder.feed(chunk):
                if record.kind == kind:
                    return record.json()

    def rows(self) -> list[TrialRow]:
        with closing(open_database(self.store, read_only=True)) as database:
            return list_trials(database, limit=100)


@pytest.fixture
def fed(tmp_path: Path, repo_root: Path) -> Iterator[Fed]:
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "fairtrial.middleware.sidecar", "--feed-fd", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        cwd=tmp_path,
        env=environ | {"PYTHONPATH": str(repo_root)},
    )
    theirs.close()
    with ours:
        yield Fed(tmp_path / "store.db", ours, process)
        process.kill()
        process.wait(30)


def test_bye_closes_every_trial_as_not_seen_to_its_end(fed: Fed) -> None:
    fed.hello(run="nightly")
    fed.call("/t/one/v1/messages")
    fed.call("/t/two/v1/messages")
    fed.call("/v1/messages", "x-claude-code-session-id: s")
    fed.say(Kind.BYE, {"why": "SIGTERM"})
    assert fed.process.wait(30) == 0
    rows = fed.rows()
    assert sorted((row.name or "-", row.closed, row.run, row.steps) for row in rows) == [
        ("-", "incomplete", "nightly", 1),
        ("one", "incomplete", "nightly", 1),
        ("two", "incomplete", "nightly", 1),
    ]


def test_the_end_of_the_feed_without_bye_does_the_same(fed: Fed) -> None:
    fed.hello()
    fed.call("/t/one/v1/messages")
    fed.link.shutdown(socket.SHUT_WR)
    assert fed.process.wait(30) == 0
    assert [(row.name, row.closed) for row in fed.rows()] == [("one", "incomplete")]


def test_a_signal_to_the_whole_service_does_not_end_it_before_its_relay(fed: Fed) -> None:
    fed.hello()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        fed.process.send_signal(number)
    fed.call("/t/one/v1/messages")
    fed.say(Kind.BYE, {})
    assert fed.process.wait(30) == 0
    assert [row.name for row in fed.rows()] == ["one"]


def test_a_word_that_a_trial_is_over_closes_that_one_only(fed: Fed) -> None:
    fed.hello()
    fed.call("/t/one/v1/messages")
    fed.call("/t/two/v1/messages")
    fed.say(Kind.NOTE, {"event": "trial.over", "trial": "one"})
    fed.say(Kind.NOTE, {"event": "trial.over", "trial": "nobody"})
    fed.call("/t/one/v1/messages")
    fed.say(Kind.BYE, {})
    assert fed.process.wait(30) == 0
    closed = sorted((row.name, row.closed) for row in fed.rows())
    assert closed == [("one", "incomplete"), ("one", "normal"), ("two", "incomplete")]


def test_more_trials_than_may_be_open_close_the_oldest(fed: Fed) -> None:
    fed.hello(serve={"idle_s": 600.0, "max_trials": 2})
    for name in ("one", "two", "three", "four"):
        fed.call(f"/t/{name}/v1/messages")
    until_ns = time.monotonic_ns() + 30_000_000_000
    while (status := fed.hear(Kind.STATUS))["closed"] != 2:
        assert time.monotonic_ns() < until_ns, status
    assert (status["open_trials"], status["opened"], status["unassigned"]) == (2, 4, 0)
    assert STATUS_S < 30
    fed.say(Kind.BYE, {})
    assert fed.process.wait(30) == 0


def test_prometheus_finds_what_passed_and_strangers_find_nothing(fed: Fed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    fed.hello(serve={"idle_s": 600.0, "metrics": ["127.0.0.1", port], "hosts": ["sidecar.internal"]})
    fed.call("/t/one/v1/messages")
    fed.call("/t/two/v1/messages")
    fed.say(Kind.NOTE, {"event": "trial.over", "trial": "one"})

    def scraped() -> dict[str, float]:
        status, page = get(port, {"Host": "sidecar.internal"})
        assert status == 200
        lines = [line.rpartition(" ") for line in page.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    until_ns = time.monotonic_ns() + 30_000_000_000
    while (seen := scraped()).get("fairtrial_open_trials") != 1.0 or not any("fairtrial_trials" in n for n in seen):
        assert time.monotonic_ns() < until_ns, seen
        time.sleep(0.05)
    attempts = {name: value for name, value in seen.items() if name.startswith("fairtrial_api_attempts_total{")}
    assert sum(attempts.values()) == 2 and 'provider="anthropic"' in next(iter(attempts))
    assert seen['fairtrial_build{version="' + __version__ + '"}'] == 1
    assert get(port, {"Host": "evil.example"})[0] == 403
    assert get(port, {"Host": "localhost", "Origin": "http://evil.example"})[0] == 403
    fed.say(Kind.BYE, {})
    assert fed.process.wait(30) == 0


def test_a_metrics_port_that_is_taken_is_said_and_costs_nothing_else(fed: Fed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fed.hello(serve={"metrics": ["127.0.0.1", port]})
        trouble = fed.hear(Kind.STATUS)["metrics"]
        assert f"127.0.0.1:{port}" in str(trouble) and "serve.metrics" in str(trouble)
        fed.call("/t/one/v1/messages")
        fed.say(Kind.BYE, {})
        assert fed.process.wait(30) == 0
    assert [row.name for row in fed.rows()] == ["one"]


def get(port: int, headers: dict[str, str]) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_records_that_make_no_sense_do_not_end_it(fed: Fed) -> None:
    fed.hello(config={"verdict": {"stall_s": 5.0}})
    fed.link.sendall(feed.encode(Kind.OPEN, b"no json", conn=7))
    fed.link.sendall(feed.encode(Kind.REQUEST_HEAD, b"\x00\xff", conn=7, msg=1))
    fed.link.sendall(feed.encode(200, b"from the future"))
    fed.call("/t/one/v1/messages")
    fed.say(Kind.BYE, {})
    assert fed.process.wait(30) == 0
    assert [row.steps for row in fed.rows() if row.name == "one"] == [1]
