"""Harbor with its job plugin under `fairtrial run --control`: what it tells of each trial stands in its record,
and nothing that happens to fairtrial changes a job.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, Outcome, Trial
from fairtrial.middleware.demo.script import Scenario, say
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients, harbor
from tests.e2e.engine import Engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.kill_points import observer_of
from tests.e2e.test_run_harbor import TERMINUS
from tests.e2e.test_run_many import after_import, run_many
from tests.e2e.under import FAIRTRIAL, fairtrial

pytestmark = pytest.mark.dear

HELLO = "echo hello > /work/hello.txt"
PLUGIN = ("--plugin", "fairtrial")
NAMED = ("--ak", 'session_id_headers=["x-fairtrial-trial"]')
LIFE = ["start", "environment-start", "agent-start", "agent-end", "verification-start", "end"]


def ready(agent: str, engine: Engine, folder: Path, url: str, *options: str, attempts: int = 2) -> harbor.Job:
    """A job whose task the oracle solves."""
    try:
        ensure_image(harbor.IMAGE, engine.docker_host, clients.e2e_folder() / "images")
        job = harbor.job(agent, engine, folder, url, attempts=attempts, options=[*PLUGIN, *options])
    except (ImageUnavailable, clients.ToolMissing) as reason:
        pytest.skip(str(reason))
    (folder / "task" / "solution").mkdir()
    (folder / "task" / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{HELLO}\n")
    (folder / "project").mkdir()
    return job


def marks(trial: Trial) -> list[str]:
    return [mark.name for mark in trial.marks]


def validated(path: Path) -> dict[str, object]:
    """A trajectory as Harbor's own model reads it."""
    read = "import sys; from harbor.models.trajectories import Trajectory\n"
    read += "print(Trajectory.model_validate_json(open(sys.argv[1]).read()).model_dump_json())"
    python = clients.harbor_program().with_name("python")
    done = subprocess.run([python, "-c", read, path], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_each_trial_has_its_marks_its_word_and_its_verdict_beside_the_trajectory(
    docker_engine: Engine, tmp_path: Path, hooks_path: str
) -> None:
    """Two attempts of one task at once, the same words: their names tell calls, containers and what was said."""
    script = (harbor.typed(HELLO), harbor.typed(done=True), harbor.typed(done=True))
    with running_standin(Scenario(steps=script, side_text=None)) as server:
        job = ready("terminus-2", docker_engine, tmp_path, server.url, *TERMINUS, *NAMED)
        command = ["sh", "-c", 'exec "$@" --ak api_base=$OPENAI_BASE_URL', "sh", *job.command]
        environment = {**job.environment, "PYTHONPATH": hooks_path}
        outcome, run = run_many(command, environment, tmp_path / "project", "--run", "tb", "--control")
    names = sorted(str(each["trial_name"]) for each in job.trials())
    assert len(run.trials) == 2 and run.unassigned == {}, outcome.told()
    assert [marks(trial) for trial in run.trials] == [LIFE] * 2, outcome.told()
    assert sorted(trial.marks[0].about or "" for trial in run.trials) == names
    assert [trial.name for trial in run.trials] == [trial.marks[0].about for trial in run.trials]
    assert [len(trial.environment.container_ids) for trial in run.trials] == [1, 1], outcome.told()
    assert [(trial.marks[-1].text, trial.outcome) for trial in run.trials] == [("reward 1", Outcome.UNKNOWN)] * 2
    for trial in run.trials:
        (said,) = trial.booked
        assert (said.harness, said.label, said.outcome, said.inside) == (
            "control",
            trial.marks[0].about,
            "passed",
            True,
        )
        begins = [step.started for step in trial.steps if step.started is not None]
        assert trial.marks[2].at < min(begins) and max(begins) < trial.marks[3].at, "agent-start, agent-end"
    imported = after_import("harbor", job.results, run, tmp_path / "project" / "kept.db")
    for trial in imported:
        assert [(each.harness, each.label) for each in trial.booked] == [
            ("harbor", trial.marks[0].about),
            ("control", trial.marks[0].about),
        ]
        assert trial.outcome is Outcome.PASSED and trial.verdict is not None and trial.verdict.blame is Blame.NONE
    store = str(tmp_path / "project" / "kept.db")
    done = fairtrial("export", "--into", str(job.results / "one"), "--store", store, environment=environment)
    assert done.returncode == 0, done.stderr
    written = sorted((job.results / "one").glob("*/agent/trajectory.json"))
    before = [json.loads(path.read_text())["extra"]["fairtrial"] for path in written]
    assert sorted(each["trial"] for each in before) == sorted(trial.trial for trial in run.trials)
    assert [validated(path)["extra"] for path in written] == [{"fairtrial": each} for each in before]


def test_an_attempt_that_harbor_repeats_and_a_name_that_is_no_word_are_told_as_they_are(
    docker_engine: Engine, tmp_path: Path, hooks_path: str
) -> None:
    with running_standin(Scenario(steps=(say("unused"),))) as server:
        job = ready(
            "oracle", docker_engine, tmp_path, server.url, "--max-retries", "1", "--retry-include", "FileNotFoundError"
        )
        hostile = tmp_path / "a b%2f..$(id)'\u00e9?x=1#"
        (tmp_path / "task").rename(hostile)
        (hostile / "solution" / "solve.sh").unlink()
        command = list(job.command)
        command[command.index("-p") + 1] = str(hostile)
        environment = {**job.environment, "PYTHONPATH": hooks_path}
        outcome, run = run_many(command, environment, tmp_path / "project", "--run", "tb", "--control")
    said = [(marks(trial), trial.marks[-1].text, [each.exit_status for each in trial.booked]) for trial in run.trials]
    twice = [*LIFE, "retry", *LIFE]
    assert said == [(twice, "reward 0, FileNotFoundError", ["FileNotFoundError"])] * len(run.trials), outcome.told()
    assert len(run.trials) > 1 and outcome.returncode == 0


def test_a_job_ends_the_same_when_its_words_reach_nobody(
    docker_engine: Engine, tmp_path: Path, hooks_path: str
) -> None:
    """A port that nobody has, one that never answers, and an observer that is killed as often as it begins."""
    with socket.create_server(("127.0.0.1", 0)) as silent, running_standin(Scenario(steps=(say("unused"),))) as server:
        for way in ("gone", "silent", "killed"):
            folder = tmp_path / way
            folder.mkdir()
            job = ready("oracle", docker_engine, folder, server.url, attempts=1)
            environment = {**job.environment, "PYTHONPATH": hooks_path}
            if way == "killed":
                status = _without_an_observer(job.command, environment, folder / "project")
                assert status == (0, 2), way
            else:
                port = 1 if way == "gone" else silent.getsockname()[1]
                environment["FAIRTRIAL_CONTROL_URL"] = f"http://127.0.0.1:{port}/t/x"
                outcome = clients.run(job.command, environment, folder / "project")
                assert outcome.returncode == 0, outcome.told()
            assert [each["verifier_result"]["rewards"] for each in job.trials()] == [{"reward": 1.0}], way


def _without_an_observer(command: Sequence[str], environment: dict[str, str], folder: Path) -> tuple[int, int]:
    """Exit status of the run, and how many observers were killed meanwhile."""
    options = ["--store", str(folder / "kept.db"), "--control"]
    process = subprocess.Popen(
        [*FAIRTRIAL, "run", *options, "--", *command],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    killed: set[int] = set()

    def kill() -> None:
        while process.poll() is None and len(killed) < 2:
            found = observer_of(process.pid)
            if found is not None and found not in killed:
                os.kill(found, signal.SIGKILL)
                killed.add(found)
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    status = process.wait(300)
    killer.join()
    return status, len(killed)
