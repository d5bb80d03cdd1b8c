"""Starts real `fairtrial run` processes with the stand-in observer, and reads what that one was fed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DRIVER = ROOT / "tests" / "fakes" / "observed_run.py"
DEADLINE_S = 20.0


def until(claim: Callable[[], object], *, deadline_s: float = DEADLINE_S) -> None:
    """Poll until `claim` is true; fails the test after the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        value = claim()
        if value:
            return
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {claim}")
        time.sleep(0.01)


@dataclass
class Bench:
    """A private home for one test's runs."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seen = self.home / "seen"
        self.seen.mkdir()
        self.environ = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "PYTHONPATH": str(ROOT),
            "FAKE_OBSERVER_DIR": str(self.seen),
            "LANG": "C.UTF-8",
        }

    def plan(self, **plan: object) -> None:
        """What the stand-in shall do."""
        self.environ["FAKE_OBSERVER"] = json.dumps(plan)

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, str(DRIVER), *arguments]

    def run(self, *arguments: str, stdin: str = "", pass_fds: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
        """One run to its end."""
        return subprocess.run(
            self.argv(*arguments),
            input=stdin,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.home,
            check=False,
            pass_fds=pass_fds,
        )

    def start(self, *arguments: str, preexec_fn: Callable[[], None] | None = None) -> subprocess.Popen[str]:
        """One run that goes on."""
        return subprocess.Popen(
            self.argv(*arguments),
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.home,
            preexec_fn=preexec_fn,
        )

    def records(self, number: int = 1) -> list[dict[str, object]]:
        """What the `number`-th observer process has written so far; [] before it exists."""
        try:
            text = (self.seen / f"{number}.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def of_kind(self, kind: str, number: int = 1) -> list[dict[str, object]]:
        """The JSON payloads of one kind of record."""
        return [json_of(record) for record in self.records(number) if record["kind"] == kind]

    def hello(self, number: int = 1) -> dict[str, object]:
        return self.of_kind("HELLO", number)[0]

    def notes(self, event: str, number: int = 1) -> list[dict[str, object]]:
        return [note for note in self.of_kind("NOTE", number) if note["event"] == event]

    def observer_pid(self, number: int = 1) -> int:
        """The pid of the `number`-th observer, once it has had its HELLO."""
        until(lambda: self.of_kind("HELLO", number))
        pid = self.records(number)[0]["pid"]
        assert isinstance(pid, int)
        return pid


def json_of(record: dict[str, object]) -> dict[str, object]:
    value = record.get("json", {})
    assert isinstance(value, dict)
    return value


def python(code: str) -> Sequence[str]:
    """A command that runs this Python text."""
    return ["--", sys.executable, "-S", "-c", code]


def kill_quietly(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
