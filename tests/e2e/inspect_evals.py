"""Inspect with a task of ours: files, command line, environment, all of it offline.

In: the stand-in's address, what `tools.sh inspect` installed; for the Docker sandbox an engine of 24.0.6 or newer with
the image `ft-python`, and `tools.sh plugins`.  Out: a command for `fairtrial run`, and the folder of Inspect's logs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e import clients
from tests.e2e.engine import Engine

IMAGE = "ft-python"
MODEL = "anthropic/claude-sonnet-4-5-20250929"
_TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import sandbox


@scorer(metrics=[accuracy()])
def answered():
    async def score(state, target):
        told = await sandbox().exec(["cat", "answer.txt"])
        return Score(value="C" if target.text in told.stdout else "I")

    return score


@task
def hello(cached: bool = False):
    samples = [Sample(id=name, input=f"This is task-{n}. Go.", target=f"task-{n}") for n, name in enumerate(NAMES)]
    solver = [use_tools(bash(timeout=30)), generate(cache=cached)]
    return Task(dataset=samples, solver=solver, scorer=answered(), sandbox=SANDBOX)
"""
"""The scorer looks for a file in the sandbox that names the sample's task."""


@dataclass(frozen=True, slots=True)
class Eval:
    """One eval that is ready to run, in its folder."""

    command: tuple[str, ...]
    environment: dict[str, str]
    folder: Path

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def samples(self) -> list[dict[str, Any]]:
        """Inspect's own record of each sample, as Inspect itself reads its logs."""
        told = clients.run(
            [*self.command[:1], "log", "list", "--json", "--log-dir", str(self.logs)], self.environment, self.folder
        )
        names = [each["name"].removeprefix("file://") for each in json.loads(told.stdout)]
        found: list[dict[str, Any]] = []
        for name in names:
            dumped = clients.run([*self.command[:1], "log", "dump", name], self.environment, self.folder)
            assert dumped.returncode == 0, dumped.told()
            found += json.loads(dumped.stdout)["samples"]
        return sorted(found, key=lambda sample: (str(sample["id"]), sample["epoch"]))


def ready(
    folder: Path,
    base_url: str,
    names: Sequence[str],
    *,
    engine: Engine | None = None,
    memory: str = "256m",
    options: Sequence[str] = (),
) -> Eval:
    """An eval with one sample per name; with `engine` each has a container.  Raises ToolMissing."""
    home, project = folder / "home", folder / "project"
    project.mkdir()
    more: dict[str, str] = {}
    sandbox = '"local"'
    if engine is None:
        home.mkdir()
    else:
        (home / ".docker").mkdir(parents=True)
        shutil.copytree(clients.docker_plugins() / "cli-plugins", home / ".docker" / "cli-plugins")
        service = {"image": IMAGE, "command": "sleep infinity", "init": True, "network_mode": "none", "x-local": True}
        service |= {"mem_limit": memory, "memswap_limit": memory}
        (project / "compose.yaml").write_text(json.dumps({"services": {"default": service}}))
        sandbox = '("docker", "compose.yaml")'
        more["DOCKER_HOST"] = engine.docker_host
    text = _TASK.replace("NAMES", ascii(list(names))).replace("SANDBOX", sandbox)
    (project / "task.py").write_text(text)
    command = [str(clients.inspect_program()), "eval", "task.py", "--model", MODEL, "--log-dir", str(project / "logs")]
    environment = clients.clean_environment(
        home, ANTHROPIC_BASE_URL=base_url, ANTHROPIC_API_KEY="dummy", PYTHONDONTWRITEBYTECODE="1", **more
    )
    return Eval((*command, "--display", "plain", *options), environment, project)
