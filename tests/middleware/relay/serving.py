"""Starts real `fairtrial serve` processes, with their real observer, and speaks to their doors and health pages."""

from __future__ import annotations

import contextlib
import http.client
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.relay.serve import STARTUP_S
from fairtrial.middleware.store.database import latest_record, observations_of, open_database
from fairtrial.middleware.store.queries import TrialRow, list_trials

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 3 * STARTUP_S
REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "done"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
ASK = {"model": "claude-x", "max_tokens": 99, "messages": [{"role": "user", "content": "hello"}]}

# As systemd does it: sockets from descriptor 3 on, and the pid of the very process that is to take them.
AS_SYSTEMD = """
import os, sys
count = int(sys.argv[1])
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()), str(count)
os.environ["LISTEN_FDNAMES"] = sys.argv[2]
held = [os.dup2(int(number), 100 + at) for at, number in enumerate(sys.argv[3].split(","))]
for at, number in enumerate(held):
    os.dup2(number, 3 + at, inheritable=True)
    os.close(number)
os.execv(sys.executable, [sys.executable, *sys.argv[4:]])
"""


def until(claim: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Polls until the claim is true; fails with `what` after the deadline."""
    end = time.monotonic() + deadline_s
    while not claim():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    heads: ClassVar[list[tuple[str, dict[str, str]]]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.server.heads.append((self.path, dict(self.headers.items())))  # type: ignore[attr-defined]
        body = json.dumps(REPLY).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


class AnsweringUpstream:
    """A model API that answers each call at once; `heads`: path and headers of what came."""

    def __init__(self) -> None:
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
        self.server.daemon_threads = True
        self.heads: list[tuple[str, dict[str, str]]] = []
        self.server.heads = self.heads  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@dataclass
class Serve:
    """A private home for one test's serves; `start` them, and all that still live are killed at the end."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)
    processes: list[Running] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "PYTHONPATH": str(ROOT),
            "LANG": "C.UTF-8",
            "FAIRTRIAL_SERVE__METRICS": "off",
        }
        self.store = self.home / "state" / "fairtrial" / "store.db"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "fairtrial", "serve", *arguments]

    def fails(self, *arguments: str, environ: Mapping[str, str] | None = None) -> tuple[int, str]:
        """Exit status and stderr of one that cannot start."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environ | dict(environ or {}),
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.home,
            check=False,
        )
        return done.returncode, done.stderr

    def start(
        self,
        upstreams: Mapping[str, str],
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        sockets: Sequence[tuple[str, socket.socket]] = (),
        health: str = "127.0.0.1:0",
        program: str | None = None,
    ) -> Running:
        """One that is up: its doors are open.

        `sockets`: inherited ones with their names, as systemd gives them.  `program`: Python that calls `serve.main`.
        """
        words = [word for name, url in upstreams.items() for word in ("--upstream", f"{name}={url}")]
        options = ["serve", *words, *arguments]
        if not any("--listen" in word for word in arguments) and not sockets:
            options += ["--listen", "127.0.0.1:0"]
        health_port = free_port() if health.endswith(":0") else int(health.rpartition(":")[2])
        options += ["--health", f"127.0.0.1:{health_port}"]
        command = [sys.executable, "-m", "fairtrial", *options]
        if program is not None:
            command = [sys.executable, "-c", program, *options[1:]]
        numbers = [sock.fileno() for _, sock in sockets]
        if sockets:
            names = ":".join(name for name, _ in sockets)
            listed = ",".join(str(number) for number in numbers)
            command = [sys.executable, "-c", AS_SYSTEMD, str(len(sockets)), names, listed, *command[1:]]
        process = subprocess.Popen(
            command,
            env=self.environ | dict(environ or {}),
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
            pass_fds=numbers,
        )
        running = Running(self, process, health_port)
        self.processes.append(running)
        running.wait_for_doors(len(upstreams))
        return running

    def rows(self) -> list[TrialRow]:
        """What the store lists, the newest first; [] while there is no store."""
        try:
            with contextlib.closing(open_database(self.store, read_only=True)) as database:
                return list_trials(database, limit=5000)
        except (FileNotFoundError, sqlite3.OperationalError):  # its tables are being made
            return []

    def closed(self, name: str) -> str | None:
        """How the newest trial of this name was closed; None while it is open, or not there."""
        return next((row.closed for row in self.rows() if row.name == name), None)

    def calls(self, name: str) -> int:
        """How many attempts of the trials of this name have ended."""
        trials = [row.trial for row in self.rows() if row.name == name]
        return sum(o.kind == "attempt.ended" for trial in trials for o in self.observations(trial))

    def row(self, name: str) -> TrialRow:
        found = [row for row in self.rows() if row.name == name]
        assert len(found) == 1, f"{len(found)} trials are named {name}"
        return found[0]

    def record(self, trial: str) -> Trial:
        with contextlib.closing(open_database(self.store, read_only=True)) as database:
            record = latest_record(database, trial)
        assert record is not None, f"{trial} has no verdict"
        return record

    def observations(self, trial: str) -> list[Observation]:
        with contextlib.closing(open_database(self.store, read_only=True)) as database:
            return list(observations_of(database, trial))

    def close(self) -> None:
        for running in self.processes:
            running.kill()
        for sock in self.sockets:
            sock.close()


class Running:
    """One `fairtrial serve` process."""

    def __init__(self, serve: Serve, process: subprocess.Popen[str], health_port: int) -> None:
        self.serve = serve
        self.process = process
        self.health_port = health_port
        self.said: list[str] = []
        self.doors: dict[str, int] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))
            words = line.split()
            if "->" in words:
                port = words[2].rpartition(":")[2]
                self.doors[words[1].rstrip(":")] = int(port) if port.isdecimal() else 0

    def wait_for_doors(self, count: int) -> None:
        def open_or_dead() -> bool:
            assert self.process.poll() is None, f"it ended: {self.said}"
            return len(self.doors) >= count

        until(open_or_dead, "the doors are open")

    def wait_for_observer(self) -> None:
        until(lambda: self.report("healthz")[1]["observer"]["state"] == "up", "the observer is up")

    def observer_pid(self) -> int:
        """The observer is our child's child."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        until(lambda: Path(path).read_text().split(), "there is an observer")
        return int(Path(path).read_text().split()[0])

    def report(self, page: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> tuple[int, Any]:
        """Status and JSON of a health page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.health_port, timeout=DEADLINE_S)
        try:
            connection.request(method, f"/{page}", headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()

    def call(
        self, door: str, path: str, headers: Mapping[str, str] | None = None, body: object = ASK
    ) -> tuple[int, bytes]:
        """One POST on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.doors[door], timeout=DEADLINE_S)
        try:
            connection.request(
                "POST",
                path,
                json.dumps(body),
                {"content-type": "application/json", "x-api-key": "k", **(headers or {})},
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def connect(self, door: str) -> socket.socket:
        """A connection that says nothing; closed at the end of the test."""
        sock = socket.create_connection(("127.0.0.1", self.doors[door]), timeout=DEADLINE_S)
        self.serve.sockets.append(sock)
        return sock

    def begin(self, door: str, path: str) -> socket.socket:
        """The request of a streamed call, sent; the caller reads what comes."""
        sock = self.connect(door)
        body = json.dumps(ASK | {"stream": True}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: door\r\nContent-Length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        return sock

    def tell(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Told to stop; its exit status."""
        self.tell(number)
        status = self.process.wait(DEADLINE_S)
        self._listener.join(DEADLINE_S)
        return status

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        self._listener.join(DEADLINE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(kind: str, **facts: object) -> bytes:
    """One server-sent event of Anthropic's API as a chunk."""
    text = f"event: {kind}\ndata: {json.dumps({'type': kind, **facts})}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(text), text)


def opening() -> bytes:
    """Head and first events of a streamed reply."""
    return (
        STREAM_HEAD
        + event("message_start", message=REPLY | {"content": [], "stop_reason": None})
        + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"})
    )


def ending() -> bytes:
    """The rest of it."""
    return (
        event("content_block_stop", index=0)
        + event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
        + event("message_stop")
        + b"0\r\n\r\n"
    )


@contextlib.contextmanager
def served(home: Path) -> Iterator[Serve]:
    """A home whose serves are gone at the end."""
    serve = Serve(home)
    try:
        yield serve
    finally:
        serve.close()
