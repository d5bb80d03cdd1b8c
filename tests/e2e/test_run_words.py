"""A run with several trials: each word of the control API beside the trial that it names, and what is told of the run
while it goes on and after.  Real processes, sockets, containers."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.records import Run, Trial
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from fairtrial.middleware.store.database import latest_records, open_database
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.test_run_many import STEPS, agent, here, run_many
from tests.e2e.under import FAIRTRIAL, fairtrial

HOOK = """
import json, os, sys, time, urllib.request
from urllib.parse import quote
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def post(trial, page, body):
    url = f"{os.environ['FAIRTRIAL_CONTROL_URL']}/trials/{quote(trial, safe='')}/{page}"
    opener.open(urllib.request.Request(url, json.dumps(body).encode(), method="POST"), timeout=60).read()
own = os.environ["FAIRTRIAL_TRIAL"]
open("own", "w").write(own)
begun = time.time_ns()
"""
AFTER = """
post("first/1", "outcome", {"outcome": "passed", "reward": 1})
post("first/1", "mark", {"name": "sample.end", "text": "scored", "at": begun})
post("second", "mark", {"name": "sample.end"})
post("nobody", "outcome", {"outcome": "failed"})
post(own, "mark", {"name": "job.end"})
"""


def harness(folder: Path, *agents: str) -> list[str]:
    """A harness of a few lines: all agents side by side, then what its hook says of them."""
    code = f"{HOOK}\nimport subprocess\n"
    code += f"each = [subprocess.Popen(['/bin/sh', '-c', c]) for c in {list(agents)!r}]\n"
    code += "[process.wait() for process in each]\n" + AFTER
    script = folder / "harness.py"
    script.write_text(code)
    return [sys.executable, str(script)]


def asked(store: Path, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = fairtrial(*words, "--store", str(store), environment={**os.environ, "FAIRTRIAL_STORE": str(store)})
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done


def test_each_word_reaches_the_trial_that_it_names_and_the_run_is_still_found_by_its_id(tmp_path: Path) -> None:
    with running_standin(STEPS) as server:
        command = harness(tmp_path, *(agent(n, name=name) for n, name in ((1, "first%2F1"), (2, "second"))))
        outcome, run = run_many(command, here(server.url), tmp_path, "--run", "nightly", "--control")
    trials = {trial.name: trial for trial in run.trials}
    assert set(trials) == {"first/1", "second"}, outcome.told()
    first, second = trials["first/1"], trials["second"]
    assert [(each.label, each.outcome.value, each.inside) for each in first.booked] == [("first/1", "passed", True)]
    assert [(mark.name, mark.text, mark.step) for mark in first.marks] == [("sample.end", "scored", None)]
    assert first.marks[0].at < first.marks[0].told
    assert (second.booked, [mark.name for mark in second.marks]) == ([], ["sample.end"])
    for trial in run.trials:
        assert (trial.outcome.value, len(trial.steps)) == ("unknown", 3), "a word from inside moves nothing"
        assert trial.verdict is not None
        assert (trial.verdict.blame.value, trial.verdict.terminated_by) == ("indeterminate", None)
    assert run.unassigned == {"words": 2, "words.run": 1, "words.unknown": 1}
    assert "2 words of the control API stayed under the run's own id" in outcome.stderr, outcome.told()

    own, store = (tmp_path / "own").read_text(), tmp_path / "kept.db"
    shown = asked(store, "show", own).stdout
    assert f"RUN  {own}" in shown
    assert "exit 0; held 2 trials" in shown
    assert all(trial.trial[-12:] in shown for trial in run.trials)
    assert "of none of them: words 2, words.run 1, words.unknown 1" in shown
    again = msgspec.json.decode(asked(store, "show", own[-12:], "--json").stdout, type=Run)
    assert [trial.trial for trial in again.trials] == [trial.trial for trial in run.trials]
    assert (again.unassigned, again.exit_code, again.command, again.counts) == (
        run.unassigned,
        run.exit_code,
        run.command,
        run.counts,
    )
    assert "## Run nightly: 2 trials, the outcome is not known" in asked(store, "report", own).stdout
    assert json.loads(asked(store, "summary", "--run", own, "--json").stdout)["trials"] == 2
    assert len(json.loads(asked(store, "trials", "--run", own, "--json").stdout)) == 2
    assert "is a run of several trials" in asked(store, "show", own, "--replay", status=2).stderr

    lines = asked(store, "export", own, "--jsonl").stdout.splitlines()
    spans = [
        span
        for line in lines
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    events = [event for span in spans for event in span.get("events", []) if event["name"] == semconv.EVENT_MARK]
    assert len({span["traceId"] for span in spans}) == 2
    assert len(events) == 2
    one = asked(store, "show", first.trial).stdout
    assert "SAID FROM INSIDE (the control API); it counts for nothing" in one
    assert "the agent's side says: passed, reward 1 (control); it counts for nothing" in one


@contextmanager
def going_on(command: list[str], url: str, folder: Path) -> Iterator[Path]:
    """The run while it goes on; killed with all that it started."""
    store = folder / "kept.db"
    words = [*FAIRTRIAL, "run", "--store", str(store), "--run", "nightly", "--control", "--", *command]
    with subprocess.Popen(words, env=here(url), cwd=folder, start_new_session=True) as process:
        try:
            yield store
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def until(told: Callable[[], bool], within_s: float = 60) -> bool:
    deadline = time.monotonic() + within_s
    while not (found := told()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def test_the_trials_of_a_run_are_told_while_it_goes_on_and_nothing_is_written(tmp_path: Path) -> None:
    slow = (shell("echo {task} > answer"), shell("sleep 90"), say("done"))
    with running_standin(slow) as server:
        command = harness(tmp_path, *(agent(n, name=name) for n, name in ((1, "first"), (2, "second"))))
        with going_on(command, server.url, tmp_path) as store:
            assert until(lambda: len(server.model_calls) >= 4)
            assert until(lambda: "holds 2 trials so far" in fairtrial_trials(store))
            own = (tmp_path / "own").read_text()
            rows = json.loads(asked(store, "trials", "--run", "nightly", "--json").stdout)
            assert [(row["trial"], row["provisional"], row["closed"]) for row in rows] == [
                (own, False, None),
                *((f"{own}.{n}", True, None) for n in (2, 1)),
            ]
            assert {row["name"] for row in rows[1:]} == {"first", "second"}
            assert all("provisional: goes on; 2 model calls" in row["sentence"] for row in rows[1:])
            shown = asked(store, "show", own).stdout
            assert "still runs; holds 2 trials so far, 0 over" in shown
            part = asked(store, "show", "second", "--json")
            record = msgspec.json.decode(part.stdout, type=Trial)
            assert (record.name, len(record.steps), record.ended) == ("second", 2, None)
            assert "judged as of now" in part.stderr
            assert "Not counted: 2 trials that still run" in asked(store, "summary", "--run", "nightly").stdout
            assert "still runs" in asked(store, "show", "last").stdout
            assert (rows_of(store, "trials"), rows_of(store, "trial_keys")) == ([own], [own])


def rows_of(store: Path, table: str) -> list[str]:
    database = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return [str(row[0]) for row in database.execute(f"SELECT trial FROM {table}")]
    finally:
        database.close()


def fairtrial_trials(store: Path) -> str:
    return fairtrial("trials", "--run", "nightly", "--store", str(store), environment={**os.environ}).stdout


@pytest.mark.slow
@pytest.mark.usefixtures("mini")
def test_a_trial_whose_container_is_gone_has_a_provisional_verdict_while_the_batch_goes_on(
    docker_engine: Engine, python_image: str, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    """mini-swe-agent, one instance after another: the first runs out of memory, the second takes its time."""
    greedy = "test {task} != task-1 || python3 -c 'x=bytearray(400<<20)'; echo {task}"
    script = (
        shell("echo {task} one"),
        shell(greedy),
        shell("test {task} != task-2 || sleep 25; echo {task} slow"),
        shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo {task}"),
    )
    data = clients.mini_instances(tmp_path / "data", python_image, 3)
    home, label = tmp_path / "home", f"fairtrial.test={tmp_path.name}"
    home.mkdir()
    box = ["--rm", f"--label={label}", "--memory=64m", "--memory-swap=64m"]
    store, told = tmp_path / "kept.db", list[list[dict[str, Any]]]()
    with running_standin(script, command_prefix=loopback_only) as server:
        environment = clients.mini_environment(home, docker_engine.docker_host, server.url)
        command = clients.mini_batch_command(data, workers=1, output=tmp_path / "out", run_args=box)
        words = [*loopback_only, *FAIRTRIAL, "run", "--store", str(store), "--run", "swe", "--", *command]
        with (tmp_path / "said").open("w") as said:
            process = subprocess.Popen(words, env=environment, cwd=tmp_path, stdout=said, stderr=said)
            try:
                while process.poll() is None:
                    listed = fairtrial(
                        "trials", "--run", "swe", "--json", "--store", str(store), environment=environment
                    )
                    found = json.loads(listed.stdout) if listed.stdout else []
                    told.append([row for row in found if row["provisional"]])
            finally:
                process.kill()
                process.wait(60)
                if left := docker_engine.containers(f"label={label}"):
                    docker_engine.docker("rm", "-f", *left, check=False)
    over = [row for rows in told for row in rows if row["ended_ns"] is not None]
    assert over, (tmp_path / "said").read_text()
    assert {row["blame"] for row in over} == {"indeterminate"}, over
    first = [row for row in over if row["trial"].endswith(".1")]
    assert first
    assert all("provisional: " in row["sentence"] and row["steps"] == 4 for row in first), first
    ended = [trial for trial in records(store) if trial.verdict is not None]
    assert len(ended) == 3, (tmp_path / "said").read_text()
    assert ended[0].verdict is not None
    assert {(row["blame"], row["terminated_by"]) for row in first} == {
        (ended[0].verdict.blame.value, None if (by := ended[0].verdict.terminated_by) is None else by.cause)
    }


def records(store: Path) -> list[Trial]:
    database = open_database(store, read_only=True)
    try:
        return list(latest_records(database, "swe"))
    finally:
        database.close()
