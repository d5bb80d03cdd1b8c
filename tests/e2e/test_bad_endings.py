"""Signals reach the command once, its status is kept, and what was seen before fairtrial was killed is judged."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, EndedAs, Trial
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from fairtrial.middleware.store.database import open_database
from tests.e2e.demo_agent import NOBODY, agent_command, agent_environment, recorded, started, stored, until
from tests.e2e.under import fairtrial, run_command, shown

COUNTS_SIGNALS = """
import os, signal, sys, time
seen = []
def note(number, frame):
    seen.append(number)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, note)
open("ready", "w").close()
end = time.monotonic() + 20
while not seen and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.5)
with open("seen", "w") as file:
    file.write(" ".join(map(str, seen)))
sys.exit(7)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_command_once_and_its_status_is_kept(
    number: signal.Signals, home: Path, project: Path, tmp_path: Path
) -> None:
    record, store = tmp_path / "trial.json", tmp_path / "store.db"
    command = run_command([sys.executable, "-c", COUNTS_SIGNALS], store, record)
    with started(command, agent_environment(home, NOBODY), project) as process:
        until((project / "ready").exists, "the command is up")
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 7, stderr
    assert (project / "seen").read_text() == str(int(number))
    trial = recorded(record, stderr)
    assert (trial.closed, trial.exit_code, trial.signal) == ("normal", 7, None)
    # It had not asked the model yet: zero steps and an outside event.
    check_cancelled(trial, EndedAs.NEVER_RAN)


def check_cancelled(trial: Trial, ended_as: EndedAs) -> None:
    assert trial.verdict is not None
    assert (trial.verdict.blame, trial.verdict.cause) == (Blame.OPERATOR, "operator.cancelled"), trial.verdict
    assert trial.verdict.ended_as is ended_as


def test_a_command_that_a_signal_ends_takes_fairtrial_with_it_by_the_same_signal(
    home: Path, project: Path, tmp_path: Path
) -> None:
    record, store = tmp_path / "trial.json", tmp_path / "store.db"
    reached = project / "reached"
    with running_standin((shell(f"touch {reached}; exec sleep 60"), say("Done."))) as server:
        command = run_command(agent_command(), store, record)
        with started(command, agent_environment(home, server.url), project) as process:
            until(reached.exists, "the first command runs")
            process.terminate()
            process.wait(timeout=30)
    assert process.returncode == -signal.SIGTERM
    trial = recorded(record, "")
    assert (trial.closed, trial.exit_code, trial.signal) == ("normal", None, signal.SIGTERM)
    assert len(trial.steps) == 1
    check_cancelled(trial, EndedAs.KILLED)


def test_ctrl_c_at_a_terminal_reaches_the_command_once(home: Path, project: Path, tmp_path: Path) -> None:
    record, store = tmp_path / "trial.json", tmp_path / "store.db"
    command = run_command([sys.executable, "-c", COUNTS_SIGNALS], store, record)
    # The program of our own beside it is the terminal: a session leader whose keys go to the foreground group.
    terminal = "import os, pty, sys; status = pty.spawn(sys.argv[1:]); sys.exit(os.waitstatus_to_exitcode(status))"
    process = subprocess.Popen(
        [sys.executable, "-c", terminal, *command],
        env=agent_environment(home, NOBODY),
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert process.stdin is not None
        until((project / "ready").exists, "the command is up")
        process.stdin.write(b"\x03")
        process.stdin.flush()
        until((project / "seen").exists, "the command has had its signal")
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 7, said
    assert (project / "seen").read_text() == str(int(signal.SIGINT))
    assert recorded(record, said.decode()).closed == "normal"


def test_a_trial_whose_fairtrial_was_killed_is_closed_as_incomplete_with_what_was_seen(
    home: Path, project: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store.db"
    reached = project / "reached"
    script = (shell(f"touch {reached}; exec sleep 60"), say("Done."))
    with running_standin(script) as server:
        environment = agent_environment(home, server.url)
        with started(run_command(agent_command(), store, None), environment, project) as process:
            until(reached.exists, "the first command runs")
            until(lambda: "attempt.ended" in {each.kind for each in stored(store)}, "the first call is stored")
            process.kill()
            process.wait(timeout=30)
            until(lambda: not open_trials(store), "the observer closed the trial")
    trial = shown(store, environment)
    assert trial.closed in {"incomplete", "recovered"}
    assert len(trial.steps) == 1
    assert trial.steps[0].calls[0].outcome == "ok"
    assert trial.verdict is not None
    assert trial.verdict.blame is Blame.INDETERMINATE, trial.verdict
    assert trial.verdict.terminated_by is None
    listed = fairtrial("trials", "--json", "--store", str(store), environment=environment)
    assert [row["blame"] for row in json.loads(listed.stdout)] == ["indeterminate"]


def open_trials(store: Path) -> int:
    database = open_database(store, read_only=True)
    try:
        return int(database.execute("SELECT count(*) FROM trials WHERE closed IS NULL").fetchone()[0])
    finally:
        database.close()
