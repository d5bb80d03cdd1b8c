"""The demo's agent under fairtrial, for tests that break what is around it: its script, environment, record."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Blame, Trial
from fairtrial.middleware.demo.faults import FOREVER, Fault
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.store.database import observations_of, open_database
from tests.e2e import clients
from tests.e2e.under import NO_DOCKER, Under, ended_by, read_record

GOOD = (shell("touch answer"), say("Done."))
OVERLOAD = (Fault(kind="http", step=1, status=529, attempts=FOREVER),)
STORM = ended_by(Blame.INFRA, "model_api.overloaded", 2)
NOBODY = "http://127.0.0.1:9"
"""The discard port: nothing listens there."""


def agent_command(*options: str) -> list[str]:
    """The demo's agent: the Messages API, one shell tool, and a check of its work at the end."""
    return [sys.executable, "-m", "fairtrial.middleware.demo.agent", *options]


def agent_environment(home: Path, url: str, **more: str) -> dict[str, str]:
    return clients.clean_environment(home, ANTHROPIC_BASE_URL=url, **{**NO_DOCKER, **more})


def until(claim: Callable[[], object], what: str, *, deadline_s: float = 30.0) -> None:
    """Poll until `claim` is true."""
    end = time.monotonic() + deadline_s
    while not claim():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.02)


def says(under: Under | subprocess.CompletedProcess[str], *parts: str) -> None:
    """The parts stand in one line of fairtrial's own on standard error."""
    stderr = under.outcome.stderr if isinstance(under, Under) else under.stderr
    lines = [line for line in stderr.splitlines() if all(part in line for part in parts)]
    assert lines, f"no line holds {parts}:\n{stderr}"


@contextmanager
def started(
    command: Sequence[str], environment: dict[str, str], folder: Path
) -> Generator["subprocess.Popen[str]", None, None]:
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def recorded(record: Path, stderr: str) -> Trial:
    trial = read_record(record)
    assert trial is not None, stderr
    return trial


def stored(store: Path) -> list[Observation]:
    """The observations that are stored so far, of all trials."""
    if not store.exists():
        return []
    try:
        database = open_database(store, read_only=True)
    except sqlite3.Error:
        return []
    try:
        trials = [str(row[0]) for row in database.execute("SELECT trial FROM trials")]
        return [each for trial in trials for each in observations_of(database, trial)]
    finally:
        database.close()
