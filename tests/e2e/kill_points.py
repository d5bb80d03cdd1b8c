"""SIGKILL at random moments: what the store still holds afterwards.

`python -m tests.e2e.kill_points [POINTS] [SEED]` prints the figures of docs/measurements.md; `test_kill_points.py` does
a few.  Each point is a real `fairtrial run` whose agent calls without a pause of more than 20 ms; the observer, the run
process or both are killed at a moment of the first two seconds, start-up included.  All points share one store.  The
truth is the upstream's: which answer it had written, and when.  Each answer bears its number as `msg_N`.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Literal

from fairtrial.middleware.closing import STILL_CLOSING_S
from fairtrial.middleware.core.observations import AttemptEnded, GapSeen, decode
from fairtrial.middleware.store.database import observations_of, open_database
from tests.e2e.clients import clean_environment
from tests.e2e.under import NO_DOCKER, run_command

ROOT: Final = Path(__file__).resolve().parents[2]
LATEST_S: Final = 2.0
"""Kills come within so many seconds of the start."""
PROMISE_S: Final = 0.5
AFTER_S: Final = 1.0
"""How long an agent goes on whose observer was killed."""
DEADLINE_S: Final = 30.0
Victim = Literal["observer", "run", "both"]
VICTIMS: Final[tuple[Victim, ...]] = ("observer", "run", "both")

AGENT: Final = """
import http.client, os, sys, time
from urllib.parse import urlsplit
door = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
end = time.monotonic() + float(sys.argv[1])
body = '{"model": "claude-x", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}'
wire = http.client.HTTPConnection(door.hostname, door.port, timeout=30)
while time.monotonic() < end:
    try:
        wire.request("POST", door.path + "/v1/messages", body, {"content-type": "application/json"})
        assert b"msg_" in wire.getresponse().read()
    except (OSError, http.client.HTTPException):
        sys.exit(9)
    time.sleep(0.02)
sys.exit(3)
"""
"""Ends with 3 when its time is over, with 9 when its door was gone."""


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    lock: ClassVar[threading.Lock] = threading.Lock()
    answered: ClassVar[list[float]] = []
    """When answer N was written whole, CLOCK_MONOTONIC."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        with self.lock:
            number = len(self.answered)
            self.answered.append(float("inf"))
        body = json.dumps(
            {
                "id": f"msg_{number}",
                "type": "message",
                "role": "assistant",
                "model": "claude-x",
                "content": [{"type": "text", "text": "done"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 3, "output_tokens": 2},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)
            self.answered[number] = time.monotonic()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


@contextlib.contextmanager
def upstream() -> Iterator[tuple[str, list[float]]]:
    """A model API that answers at once: its URL, and when each answer was out."""
    answered: list[float] = []
    handler = type("Answer", (_Answer,), {"answered": answered, "lock": threading.Lock()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.handle_error = lambda request, client_address: None  # type: ignore[method-assign]  # killed peers are the point
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", answered
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One kill.  Ages are seconds before the kill at which an answer was out that no row tells of."""

    number: int
    victim: Victim
    at_s: float
    exit_code: int
    answered: int
    stored: int
    oldest_lost_s: float | None
    lost_before: int
    lost_after: int
    """Answered after the kill (of an observer) and in no row."""
    unsaid: int
    """Calls lost of a trial that went on, outside every gap that its record admits."""
    twice: int
    integrity: str
    spilled: int


@dataclass(slots=True)
class Result:
    """All points of one run, and what the next start made of them."""

    points: list[Point] = field(default_factory=list[Point])
    closed: Counter[str] = field(default_factory=Counter[str])
    integrity: str = ""

    def broken(self) -> list[str]:
        """What is against the promise, point by point."""
        wrong: list[str] = []
        for p in self.points:
            who = f"point {p.number} ({p.victim} at {p.at_s:.3f} s)"
            if p.integrity != "ok":
                wrong.append(f"{who}: integrity_check says {p.integrity}")
            if p.oldest_lost_s is not None and p.oldest_lost_s > PROMISE_S:
                wrong.append(f"{who}: a call {p.oldest_lost_s:.3f} s before the kill is lost")
            if p.twice:
                wrong.append(f"{who}: {p.twice} calls stand there twice")
            if p.spilled:
                wrong.append(f"{who}: {p.spilled} spill files")
            if p.victim == "observer" and p.exit_code != 3:
                wrong.append(f"{who}: the command's status 3 became {p.exit_code}")
            if p.unsaid:
                wrong.append(f"{who}: {p.unsaid} calls are lost outside every gap that the record admits")
        if self.integrity != "ok":
            wrong.append(f"after the next start integrity_check says {self.integrity}")
        if self.closed["open"]:
            wrong.append(f"the next start left {self.closed['open']} trials open")
        return wrong

    def table(self) -> list[str]:
        """Rows of a Markdown table, a victim each."""
        rows = ["| killed | points | calls answered | lost | oldest lost, before the kill | runs with a loss |"]
        rows.append("|---|---|---|---|---|---|")
        for victim in VICTIMS:
            mine = [p for p in self.points if p.victim == victim]
            ages = [p.oldest_lost_s for p in mine if p.oldest_lost_s is not None]
            lost = sum(p.lost_before + p.lost_after for p in mine)
            oldest = f"{max(ages):.3f} s" if ages else "none"
            rows.append(
                f"| {victim} | {len(mine)} | {sum(p.answered for p in mine)} | {lost} | {oldest} "
                f"| {sum(1 for p in mine if p.lost_before or p.lost_after)} |"
            )
        return rows


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def observer_of(run: int) -> int | None:
    """The observer's pid, once it is there."""
    for pid in children(run):
        with contextlib.suppress(OSError):
            if b"--feed-fd" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


def wait_gone(pid: int | None) -> None:
    """Until a process is dead, or a zombie whose parent is dead too."""
    end = time.monotonic() + DEADLINE_S
    while pid is not None and time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                return
        except OSError:
            return
        time.sleep(0.02)
    assert pid is None, f"process {pid} does not end"


def kill_points(points: int, seed: int, folder: Path) -> Result:
    """Do `points` kills on one new store in `folder`."""
    dice = random.Random(seed)
    result = Result()
    store = folder / "store.db"
    home = folder / "home"
    home.mkdir()
    with upstream() as (url, answered):
        environment = clean_environment(home, PYTHONPATH=str(ROOT), ANTHROPIC_BASE_URL=url, **NO_DOCKER)
        for number in range(points):
            victim = VICTIMS[number % len(VICTIMS)]
            at_s = dice.uniform(0.05, LATEST_S)
            result.points.append(_one(number, victim, at_s, store, environment, answered))
        # What died within the last ten seconds may still have an observer at work, so the next start leaves it alone.
        time.sleep(STILL_CLOSING_S + 0.5)
        last = subprocess.run(
            run_command(["true"], store, None, ("--name", "next")), env=environment, check=False, capture_output=True
        )
        assert last.returncode == 0, last.stderr
        _until_none_is_open(store)
    database = open_database(store, read_only=True)
    try:
        result.integrity = str(database.execute("PRAGMA integrity_check").fetchone()[0])
        for (closed,) in database.execute("SELECT coalesce(closed, 'open') FROM trials WHERE name != 'next'"):
            result.closed[str(closed)] += 1
    finally:
        database.close()
    return result


def _until_none_is_open(store: Path) -> None:
    """Orphans are closed after the run's last word, so that nobody waits for them."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        database = open_database(store, read_only=True)
        try:
            if not database.execute("SELECT count(*) FROM trials WHERE closed IS NULL").fetchone()[0]:
                return
        finally:
            database.close()
        time.sleep(0.1)


def _one(
    number: int, victim: Victim, at_s: float, store: Path, environment: dict[str, str], answered: list[float]
) -> Point:
    first = len(answered)
    lasts_s = at_s + AFTER_S if victim == "observer" else DEADLINE_S
    command = run_command([sys.executable, "-S", "-c", AGENT, str(lasts_s)], store, None, ("--name", f"point-{number}"))
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=store.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    began = time.monotonic()
    observer: int | None = None
    while (left := began + at_s - time.monotonic()) > 0 or observer is None:
        observer = observer or observer_of(process.pid)
        assert time.monotonic() < began + DEADLINE_S, "no observer"
        time.sleep(max(0.001, min(left, 0.01)))
    assert observer is not None
    killed = time.monotonic()
    for pid in {"observer": (observer,), "run": (process.pid,), "both": (process.pid, observer)}[victim]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    exit_code = process.wait(DEADLINE_S)
    wait_gone(observer)
    time.sleep(0.05)  # the upstream notes the last answer
    due = {f"msg_{n}": answered[n] for n in range(first, len(answered)) if answered[n] != float("inf")}
    found, gaps, integrity = _look(store, f"point-{number}")
    lost = {name: at for name, at in due.items() if name not in found}
    ages = [killed - at for at in lost.values() if at <= killed]
    return Point(
        number=number,
        victim=victim,
        at_s=killed - began,
        exit_code=exit_code,
        answered=len(due),
        stored=sum(1 for name in due if name in found),
        oldest_lost_s=max(ages, default=None),
        lost_before=len(ages),
        lost_after=len(lost) - len(ages),
        unsaid=sum(1 for at in lost.values() if not _within(at, gaps)) if victim == "observer" else 0,
        twice=sum(1 for count in found.values() if count > 1),
        integrity=integrity,
        spilled=len(list(store.parent.glob("spill-*"))),
    )


def _within(at: float, gaps: list[GapSeen]) -> bool:
    wall_ns = time.time_ns() - round((time.monotonic() - at) * 1e9)
    return any((gap.since_ns or 0) <= wall_ns <= (gap.until_ns or wall_ns) for gap in gaps)


def _look(store: Path, name: str) -> tuple[Counter[str], list[GapSeen], str]:
    """How often each answer stands in the store, the gaps that are said, and what SQLite says of the file."""
    try:
        database = open_database(store, read_only=True)
    except FileNotFoundError:
        return Counter(), [], "ok"  # killed before there was a store
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return Counter(), [], "ok"  # killed while it was being made
        return Counter(), [], str(error)
    try:
        integrity = str(database.execute("PRAGMA integrity_check").fetchone()[0])
        row = database.execute("SELECT trial FROM trials WHERE name = ?", (name,)).fetchone()
        kept = [] if row is None else list(observations_of(database, str(row[0])))
    finally:
        database.close()
    found: Counter[str] = Counter()
    gaps: list[GapSeen] = []
    for each in kept:
        value = decode(each)
        if isinstance(value, AttemptEnded) and value.reply is not None and value.reply.response_id is not None:
            found[value.reply.response_id] += 1
        elif isinstance(value, GapSeen):
            gaps.append(value)
    return found, gaps, integrity


def main(arguments: list[str]) -> int:
    """`kill_points [POINTS] [SEED]`."""
    points = int(arguments[0]) if arguments else 200
    seed = int(arguments[1]) if len(arguments) > 1 else 5
    with tempfile.TemporaryDirectory(prefix="ft-kill-") as folder:
        began = time.monotonic()
        result = kill_points(points, seed, Path(folder))
        took_s = time.monotonic() - began
    print("\n".join(result.table()))
    print(f"\n{points} points, seed {seed}, {took_s:.0f} s. The next start: {dict(result.closed)}.")
    broken = result.broken()
    print("\n".join(broken) or "Nothing is against the promise.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
