"""Several trials in one `fairtrial run`: real agents side by side, each with a record of its own and nobody else's."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from fairtrial.middleware.core.records import Blame, Run, Trial
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.test_standin_clients import SCRIPT
from tests.e2e.under import FAIRTRIAL, NO_DOCKER, fairtrial, shown

AGENT = (sys.executable, "-m", "fairtrial.middleware.demo.agent")
STEPS = (shell("echo {task} > answer"), shell("cat answer"), say("done"))


def at_once(*commands: str) -> list[str]:
    """A harness of one line: all commands side by side, then the status of the last."""
    return ["/bin/sh", "-c", " & ".join(commands) + " & wait"]


def agent(n: int, *, name: str | None = None, task: str | None = None) -> str:
    """The scripted agent at a task of its own."""
    url = "" if name is None else f'ANTHROPIC_BASE_URL="$ANTHROPIC_BASE_URL.{name}" '
    return url + shlex.join([*AGENT, "--task", task or f"task-{n}: make a file named answer."])


def run_many(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *options: str,
    prefix: Sequence[str] = (),
    timeout_s: float = 240,
) -> tuple[clients.Outcome, Run]:
    """Under `fairtrial run`; the record must be that of a run."""
    record = folder / "run.json"
    asked = ["--store", str(folder / "kept.db"), "--json", str(record), *options]
    outcome = clients.run(
        [*FAIRTRIAL, "run", *asked, "--", *command], environment, folder, prefix=prefix, timeout_s=timeout_s
    )
    assert record.exists(), outcome.told()
    content = record.read_bytes()
    assert json.loads(content)["schema"] == "fairtrial.run/1", outcome.told()
    return outcome, msgspec.json.decode(content, type=Run)


def here(url: str) -> dict[str, str]:
    return {**os.environ, "ANTHROPIC_BASE_URL": url, **NO_DOCKER}


def ended_by(trial: Trial) -> str | None:
    assert trial.verdict is not None
    return None if trial.verdict.terminated_by is None else trial.verdict.terminated_by.cause


def after_import(harness: str, results: Path, run: Run, store: Path) -> list[Trial]:
    """The run's trials once the harness's own results were imported."""
    environment = {**os.environ, "FAIRTRIAL_STORE": str(store)}
    done = fairtrial("import", harness, str(results), "--run", run.run or "", environment=environment)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return [shown(store, environment, trial.trial) for trial in run.trials]


def test_agents_without_ids_side_by_side_are_told_by_their_tasks_and_one_dies_alone(tmp_path: Path) -> None:
    faults = [Fault(kind="http", status=529, step=1, attempts=None, task="task-2")]
    with running_standin(STEPS, faults) as server:
        command = at_once(*(agent(n) for n in range(1, 5)))
        outcome, run = run_many(command, here(server.url), tmp_path, "--run", "nightly")
    assert (outcome.returncode, run.run, run.exit_code) == (0, "nightly", 0), outcome.told()
    assert run.counts["trials"] == 4, outcome.told()
    assert run.unassigned == {}
    assert sorted(len(trial.steps) for trial in run.trials) == [2, 3, 3, 3], outcome.told()
    dead = [trial for trial in run.trials if ended_by(trial) is not None]
    assert [(ended_by(trial), len(trial.steps)) for trial in dead] == [("model_api.overloaded", 2)], outcome.told()
    for trial in run.trials:
        assert [step.index for step in trial.steps] == list(range(1, len(trial.steps) + 1))
        assert trial.closed == "normal"
    assert "4 trials in run nightly (exit 0): 1 ended from outside, proved, 3" in outcome.stderr, outcome.told()
    assert "model_api.overloaded" in outcome.stderr
    listed = fairtrial(
        "trials", "--run", "nightly", "--json", "--store", str(tmp_path / "kept.db"), environment=here("")
    )
    assert {row["trial"] for row in json.loads(listed.stdout)} == {trial.trial for trial in run.trials}
    shown = fairtrial(
        "show", dead[0].trial, "--replay", "--json", "--store", str(tmp_path / "kept.db"), environment={**os.environ}
    )
    again = msgspec.json.decode(shown.stdout, type=Trial)
    assert (again.steps, ended_by(again)) == (dead[0].steps, "model_api.overloaded"), shown.stderr


def test_an_agent_that_another_ones_tool_starts_is_its_subagent(tmp_path: Path) -> None:
    inner = f"test {{task}} != task-1 || {agent(9)}"
    with running_standin((shell("echo {task} > answer"), shell(inner), say("done"))) as server:
        outcome, run = run_many(at_once(agent(1), agent(2)), here(server.url), tmp_path, "--run", "nightly")
    told = [(len(trial.steps), [call.role for call in trial.side_calls]) for trial in run.trials]
    assert sorted(told) == [(3, []), (3, ["subagent"] * 3)], outcome.told()
    assert run.unassigned == {}


def test_trials_of_the_same_task_are_told_by_a_name_behind_the_base_url(tmp_path: Path) -> None:
    with running_standin(STEPS) as server:
        command = at_once(*(agent(1, name=name) for name in ("first", "second", "third")))
        outcome, run = run_many(command, here(server.url), tmp_path)
    assert sorted(trial.name or "" for trial in run.trials) == ["first", "second", "third"], outcome.told()
    assert [len(trial.steps) for trial in run.trials] == [3, 3, 3]
    assert run.unassigned == {}


def test_trials_of_the_same_task_without_a_name_are_given_to_none_and_what_to_pass_is_said(tmp_path: Path) -> None:
    with running_standin(STEPS) as server:
        twins = [agent(9), agent(9)]
        command = at_once(agent(1), agent(2), *twins)
        outcome, run = run_many(command, here(server.url), tmp_path, "--run", "nightly")
    assert [len(trial.steps) for trial in run.trials] == [3, 3], outcome.told()
    assert run.unassigned["attempts"] == 6, run.unassigned
    assert "6 model calls could not be told to be one trial's" in outcome.stderr, outcome.told()
    assert "FAIRTRIAL_TRIAL=NAME" in outcome.stderr


def test_without_a_run_name_agents_without_marks_stay_one_trial(tmp_path: Path) -> None:
    with running_standin(STEPS) as server:
        record = tmp_path / "one.json"
        asked = ["--store", str(tmp_path / "kept.db"), "--json", str(record)]
        command = [*FAIRTRIAL, "run", *asked, "--", *at_once(agent(1), agent(2))]
        outcome = clients.run(command, here(server.url), tmp_path)
    assert json.loads(record.read_bytes())["schema"] == "fairtrial.trial/1", outcome.told()


def test_gate_asks_for_a_retry_when_one_of_the_trials_was_ended_by_infra(tmp_path: Path) -> None:
    faults = [Fault(kind="http", status=529, step=1, attempts=None, task="task-2")]
    with running_standin(STEPS, faults) as server:
        command = at_once(agent(1), agent(2))
        outcome, run = run_many(command, here(server.url), tmp_path, "--run", "nightly", "--gate")
    assert (outcome.returncode, run.exit_code) == (75, 0), outcome.told()


def test_two_runs_at_once_share_a_store_and_none_of_their_trials(tmp_path: Path) -> None:
    store = str(tmp_path / "both.db")

    def one(name: str) -> Run:
        folder = tmp_path / name
        folder.mkdir()
        command = at_once(agent(1), agent(2), agent(3))
        return run_many(command, here(server.url), folder, "--run", name, "--store", store)[1]

    with running_standin(STEPS) as server, ThreadPoolExecutor() as pool:
        runs = list(pool.map(one, ("left", "right")))
    for run in runs:
        assert [len(trial.steps) for trial in run.trials] == [3, 3, 3], run.unassigned
        listed = fairtrial("trials", "--run", run.run or "", "--json", "--store", store, environment={**os.environ})
        assert {row["trial"] for row in json.loads(listed.stdout)} == {trial.trial for trial in run.trials}
    assert len({trial.trial for run in runs for trial in run.trials}) == 6


def test_a_killed_run_is_closed_trial_by_trial_at_the_next_start(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    slow = (shell("echo {task} > answer"), shell("sleep 60"))
    with running_standin(slow) as server:
        command = [*FAIRTRIAL, "run", "--store", str(store), "--run", "nightly", "--", *at_once(agent(1), agent(2))]
        process = subprocess.Popen(command, env=here(server.url), cwd=tmp_path, start_new_session=True)
        deadline = time.monotonic() + 60
        while len(server.model_calls) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)  # what was seen for less than half a second may stand in no row yet
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    deadline = time.monotonic() + 60
    rows: list[dict[str, object]] = []
    while time.monotonic() < deadline:
        environment = {**os.environ}
        done = fairtrial("trials", "--run", "nightly", "--json", "--store", str(store), environment=environment)
        rows = json.loads(done.stdout)
        if len(rows) == 2 and all(row["closed"] for row in rows):
            break
        time.sleep(0.5)
    assert [(row["closed"], row["steps"]) for row in rows] in (
        [("recovered", 2)] * 2,
        [("incomplete", 2)] * 2,
    ), rows


@pytest.mark.usefixtures("claude")
def test_four_times_claude_code_side_by_side_are_four_trials(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    with running_standin(SCRIPT, command_prefix=loopback_only) as server:
        tasks = (f"say hello using bash, and name task-{n}" for n in range(4))
        command = at_once(*(shlex.join(clients.claude_command(task)) for task in tasks))
        environment = clients.claude_environment(home, server.url, **NO_DOCKER)
        outcome, run = run_many(command, environment, project, "--run", "four", prefix=loopback_only)
    assert [len(trial.steps) for trial in run.trials] == [2, 2, 2, 2], outcome.told()
    assert run.unassigned == {}, outcome.told()
    sides = [call for trial in run.trials for call in trial.side_calls if call.role not in {"probe", "title"}]
    assert sides == []


@pytest.mark.slow
@pytest.mark.usefixtures("mini")
def test_a_batch_of_mini_swe_agent_is_told_by_containers_and_an_oom_stays_in_its_trial(
    docker_engine: Engine, python_image: str, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    """`mini-extra swebench` with three workers in one process: no id, one address, containers of random names."""
    greedy = "test {task} != task-2 || python3 -c 'x=bytearray(400<<20)'; echo {task} > answer"
    script = (
        shell("echo {task} one"),
        shell(greedy),
        shell("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo {task}"),
    )
    data = clients.mini_instances(tmp_path / "data", python_image, 3)
    home, label = tmp_path / "home", f"fairtrial.test={tmp_path.name}"
    home.mkdir()
    box = ["--rm", f"--label={label}", "--memory=64m", "--memory-swap=64m"]
    with running_standin(script, command_prefix=loopback_only) as server:
        environment = clients.mini_environment(home, docker_engine.docker_host, server.url)
        command = clients.mini_batch_command(data, workers=3, output=tmp_path / "out", run_args=box)
        try:
            outcome, run = run_many(command, environment, tmp_path, "--run", "swe", prefix=loopback_only)
        finally:
            if left := docker_engine.containers(f"label={label}"):
                docker_engine.docker("rm", "-f", *left, check=False)
    assert run.counts["trials"] == 3, outcome.told()
    assert run.unassigned == {}, outcome.told()
    assert [len(trial.environment.container_ids) for trial in run.trials] == [1, 1, 1], outcome.told()
    kills = [sum(use.oom_kills or 0 for step in trial.steps for use in step.containers) for trial in run.trials]
    assert sorted(kills) == [0, 0, 1], outcome.told()
    for trial, killed in zip(run.trials, kills, strict=True):
        assert trial.verdict is not None
        assert [tool.join for step in trial.steps for tool in step.tools] == ["text"] * 3, outcome.told()
        if not killed:
            assert (trial.verdict.terminated_by, trial.verdict.present) == (None, []), outcome.told()
            assert trial.verdict.blame is not Blame.INFRA
    imported = after_import("mini-swe-agent", tmp_path / "out", run, tmp_path / "kept.db")
    labels = [[(booked.label, booked.joined_by is not None) for booked in trial.booked] for trial in imported]
    assert sorted(labels) == [[(f"demo__{n}", True)] for n in range(1, 4)], labels
    assert labels[kills.index(1)] == [("demo__2", True)], "the harness's results are at the trials that they are of"
