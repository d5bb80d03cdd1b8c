"""Harbor with trials side by side in one `fairtrial run`: `harbor run -n 3`, nothing changed in it.

terminus-2 talks to the model from the host, without an id, and types into tmux: its environment is told by its turns,
and by the keys that its replies asked for.
Claude Code talks from the task's container: the container tells.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Outcome, Run
from fairtrial.middleware.demo.script import Scenario, Step, say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients, harbor
from tests.e2e.engine import Engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.test_run_harbor import CLAUDE, TERMINUS
from tests.e2e.test_run_many import after_import, run_many

pytestmark = pytest.mark.dear

TASKS = 3
HELLO = "echo hello > /work/hello.txt"


def side_by_side(
    agent: str, script: Sequence[Step], engine: Engine, folder: Path, *options: str
) -> tuple[clients.Outcome, Run, list[str]]:
    """Three tasks at once under `fairtrial run --run`; names of Harbor's trials beside the record."""
    try:
        ensure_image(harbor.IMAGE, engine.docker_host, clients.e2e_folder() / "images")
    except ImageUnavailable as reason:
        pytest.skip(str(reason))
    with running_standin(Scenario(steps=tuple(script), side_text=None)) as server:
        try:
            job = harbor.job(agent, engine, folder, server.url, options=options)
        except clients.ToolMissing as reason:
            pytest.skip(str(reason))
        for n in range(1, TASKS + 1):
            task = folder / "tasks" / f"hello-{n}"
            shutil.copytree(folder / "task", task)
            (task / "instruction.md").write_text(f"This is task-{n}. Write hello into /work/hello.txt.\n")
            settings = (task / "task.toml").read_text().replace("fairtrial/hello", f"fairtrial/hello-{n}")
            (task / "task.toml").write_text(settings)
        command = list(job.command)
        command[command.index("-p") + 1] = str(folder / "tasks")
        command[command.index("-n") + 1] = str(TASKS)
        if agent == "terminus-2":
            command = ["sh", "-c", 'exec "$@" --ak api_base=$OPENAI_BASE_URL', "sh", *command]
        project = folder / "project"
        project.mkdir()
        outcome, run = run_many(command, job.environment, project, "--run", "tb", timeout_s=300)
    rewards = [each["verifier_result"]["rewards"] for each in job.trials()]
    assert rewards == [{"reward": 1.0}] * TASKS, outcome.told()
    return outcome, run, sorted(str(each["trial_name"]) for each in job.trials())


def test_claude_code_in_three_containers_is_three_trials(docker_engine: Engine, tmp_path: Path) -> None:
    script = (shell(HELLO), shell("cat /work/hello.txt"), say("Done."))
    outcome, run, names = side_by_side("claude-code", script, docker_engine, tmp_path, *CLAUDE)
    assert [len(trial.steps) for trial in run.trials] == [3] * TASKS, outcome.told()
    assert [len(trial.environment.container_ids) for trial in run.trials] == [1] * TASKS, outcome.told()
    assert sorted(trial.name or "" for trial in run.trials) == [name.lower() for name in names]
    imported = after_import("harbor", tmp_path / "jobs", run, tmp_path / "project" / "kept.db")
    assert [(trial.outcome, len(trial.booked)) for trial in imported] == [(Outcome.PASSED, 1)] * TASKS
    assert [trial.booked[0].label.lower() for trial in imported] == [trial.name for trial in imported]
    assert run.unassigned == {}, outcome.told()


def test_terminus_2_without_an_id_is_three_trials_with_their_containers(docker_engine: Engine, tmp_path: Path) -> None:
    script = (
        harbor.typed("echo {task}", HELLO),
        harbor.typed("cat /work/hello.txt"),
        *(harbor.typed(f"ls /{folder}") for folder in ("", "work", "logs")),
        harbor.typed(done=True),
        harbor.typed(done=True),
    )
    slow = [Step(text=step.text, head_delay_s=0.4) for step in script]
    outcome, run, names = side_by_side("terminus-2", slow, docker_engine, tmp_path, *TERMINUS)
    assert [len(trial.steps) for trial in run.trials] == [7] * TASKS, (outcome.told(), run.unassigned)
    assert [len(trial.environment.container_ids) for trial in run.trials] == [1] * TASKS, outcome.told()
    assert sorted(trial.name or "" for trial in run.trials) == [name.lower() for name in names]
    imported = after_import("harbor", tmp_path / "jobs", run, tmp_path / "project" / "kept.db")
    assert [(trial.outcome, len(trial.booked)) for trial in imported] == [(Outcome.PASSED, 1)] * TASKS
    assert [trial.booked[0].label.lower() for trial in imported] == [trial.name for trial in imported]
