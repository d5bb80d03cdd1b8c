"""At the limit of descriptors nothing is lost that would have worked without us: it waits."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.middleware.relay.rig import DEADLINE_S, read_head
from tests.middleware.relay.running import Bench, json_of, until

LIMIT = 64
"""With some 20 of its own and 12 kept spare, a relay has room for about 16 connections."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A private home."""
    return Bench(tmp_path)


class Api:
    """A model API that answers each request as soon as it may."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.served = 0
        self.most = 0
        self._open = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with self._lock:
            self._open += 1
            self.most = max(self.most, self._open)
        with sock, contextlib.suppress(OSError, AssertionError):
            while True:
                read_head(sock)
                self.may_answer.wait(DEADLINE_S)
                sock.sendall(OK)
                with self._lock:
                    self.served += 1
        with self._lock:
            self._open -= 1


@pytest.fixture
def api() -> Iterator[Api]:
    """One for each test."""
    made = Api()
    yield made
    made.listener.close()


AGENT = f"""
import json, os, socket, sys
from urllib.parse import urlsplit
door = urlsplit(os.environ["ANTHROPIC_BASE_URL"])

def connect():
    sock = socket.create_connection((door.hostname, door.port), timeout=20)
    return sock

def ask(sock):
    sock.sendall(f"GET {{door.path}}/v1 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())

def answer(sock):
    got = b""
    try:
        while len(got) < {len(OK)}:
            data = sock.recv(100)
            if not data:
                return "fin"
            got += data
    except OSError as error:
        return type(error).__name__
    return "ok" if got == {OK!r} else repr(got)

def say(value):
    print(json.dumps(value), flush=True)
"""


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _none_left() -> Iterator[None]:
    yield
    while STARTED:
        with STARTED.pop() as run:
            run.kill()
            run.communicate()


def start(bench: Bench, api: Api, script: str) -> subprocess.Popen[str]:
    """A real `fairtrial run` under the hard limit; its command is an agent of this script."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

    bench.environ["ANTHROPIC_BASE_URL"] = api.url
    run = bench.start("--", sys.executable, "-S", "-c", AGENT + script, preexec_fn=limited)
    STARTED.append(run)
    return run


def ended(run: subprocess.Popen[str]) -> list[object]:
    """The values that the agent said, one on each line."""
    out, err = run.communicate(timeout=60)
    STARTED.remove(run)
    assert run.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_calls_beyond_the_limit_wait_and_none_is_reset(bench: Bench, api: Api) -> None:
    script = """
socks = [connect() for _ in range(40)]
for sock in socks: ask(sock)
said = []
for sock in socks:
    said.append(answer(sock))
    sock.close()
say(said)
"""
    assert ended(start(bench, api, script)) == [["ok"] * 40]
    assert api.served == 40
    assert api.most < 25
    assert bench.notes("descriptors.short")
    waited = bench.notes("descriptors.enough")
    assert waited
    assert all(float(str(note["waited_s"])) > 0 for note in waited)
    assert not [dial for dial in bench.of_kind("DIAL") if not dial["ok"]]


def test_who_waits_for_a_descriptor_costs_no_processor_time(bench: Bench, api: Api) -> None:
    api.may_answer.clear()
    script = """
socks = [connect() for _ in range(40)]
for sock in socks: ask(sock)
say("asked")
said = []
for sock in socks:
    said.append(answer(sock))
    sock.close()
say(said)
"""
    run = start(bench, api, script)
    assert run.stdout is not None
    assert json.loads(run.stdout.readline()) == "asked"
    until(lambda: bench.notes("descriptors.short"))
    before, began = processor_s(run.pid), time.monotonic()
    time.sleep(1.5)
    spent, passed = processor_s(run.pid) - before, time.monotonic() - began
    api.may_answer.set()
    assert ended(run) == [["ok"] * 40]
    assert spent < 0.3 * passed, (spent, passed)


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_connections_that_never_asked_make_room_first(bench: Bench, api: Api) -> None:
    script = """
import time
kept = connect(); ask(kept)
first = answer(kept)
mute = [connect() for _ in range(24)]
time.sleep(1.2)
calls = [connect() for _ in range(14)]
for sock in calls: ask(sock)
said = [answer(sock) for sock in calls]
ask(kept)
say([first, *said, answer(kept)])
"""
    (said,) = ended(start(bench, api, script))
    assert said == ["ok"] * 16
    assert closed_for_room(bench) > 0


def test_idle_connections_with_an_upstream_make_room_at_last(bench: Bench, api: Api) -> None:
    script = """
import time
kept = []
said = []
for _ in range(14):
    sock = connect(); ask(sock); said.append(answer(sock)); kept.append(sock)
time.sleep(1.2)
calls = [connect() for _ in range(10)]
for sock in calls: ask(sock)
said += [answer(sock) for sock in calls]
say(said)
"""
    (said,) = ended(start(bench, api, script))
    assert said == ["ok"] * 24
    assert closed_for_room(bench) > 0


def closed_for_room(bench: Bench) -> int:
    closes = [json_of(record) for record in bench.records() if record["kind"] == "CLOSE"]
    mine = [close for close in closes if "descriptors" in str(close["text"])]
    assert all((close["first"], close["how"]) == ("fairtrial", "fin") for close in mine)
    return len(mine)


# --- a dial that finds none all the same ------------------------------------------------------------------------------

DIALS = """
import asyncio, json, os, resource, socket, sys
from fairtrial.middleware.relay.dial import Dialler, DialFailed
from fairtrial.middleware.relay.ends import HangupWatch
from fairtrial.middleware.relay.settings import RelaySettings, Upstream

async def main(url, limit_s, free_after_s):
    loop = asyncio.get_running_loop()
    watch = HangupWatch(loop)
    dialler = Dialler(loop, watch, Upstream.parse("x", url), RelaySettings(connect_timeout_s=limit_s))
    if "localhost" in url:
        await loop.run_in_executor(None, socket.getaddrinfo, "localhost", 1)  # what it loads, it has loaded
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    if free_after_s is not None:
        loop.call_later(free_after_s, lambda: [os.close(held.pop()) for _ in range(8)])
    try:
        links = await asyncio.gather(*(dialler.dial() for _ in range(3)))
        reports = [report for _, report in links]
    except DialFailed as failed:
        reports = [failed.report]
        await asyncio.sleep(0.1)
    for fd in held:
        os.close(fd)
    print(json.dumps([report.as_json() for report in reports]))

resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]) if sys.argv[3] else None))
"""


def dials(url: str, limit_s: str, free_after_s: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-c", DIALS, url, limit_s, free_after_s],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    reports: list[dict[str, object]] = json.loads(done.stdout)
    return reports


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_dials_without_a_descriptor_wait_for_one(host: str, api: Api) -> None:
    reports = dials(api.url.replace("127.0.0.1", host), "20", "0.3")
    assert [report["ok"] for report in reports] == [True] * 3
    if host == "127.0.0.1":  # a name needs one before, to be looked up with
        assert all(float(str(report["descriptor_s"])) > 0.2 for report in reports), reports
        assert all(float(str(report["connect_s"])) < 0.2 for report in reports), reports


def test_a_dial_that_gets_none_within_its_budget_says_so(api: Api) -> None:
    (report,) = dials(api.url, "0.3", "")
    assert (report["ok"], report["stage"], report["errno"]) == (False, "connect", 24)
    assert "Too many open files" in str(report["error"])


def test_a_name_is_not_called_unknown_because_nothing_was_left_to_look_it_up_with(api: Api) -> None:
    (report,) = dials(api.url.replace("127.0.0.1", "localhost"), "0.3", "")
    assert (report["ok"], report["errno"]) == (False, 24), report


def test_an_inherited_descriptor_above_the_limit_does_not_keep_the_observer_from_starting(bench: Bench) -> None:
    def high() -> None:
        os.dup2(0, 200, inheritable=True)
        resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

    run = subprocess.Popen(
        bench.argv("--", "true"),
        env=bench.environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=bench.home,
        preexec_fn=high,
        close_fds=False,
    )
    with run:
        try:
            _, err = run.communicate(timeout=60)
        finally:
            run.send_signal(signal.SIGKILL)
    assert run.returncode == 0
    assert "unobserved" not in err
    assert bench.hello()
