"""Harbor with a task of ours: folder, command line, environment, all of it offline.

In: an engine that has the image `ft-harness`, the stand-in's address, what `tools.sh harbor plugins claude` installed.
Out: a command for `fairtrial run`, and the folder in which Harbor leaves its results.  Harbor makes its containers with
compose, so the command's HOME holds that plugin; they are stopped at once, not after ten seconds.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairtrial.middleware.demo.script import Step, say
from tests.e2e import clients
from tests.e2e.engine import Engine

IMAGE = "ft-harness"
_TASK = f"""
schema_version = "1.4"
artifacts = []
[task]
name = "fairtrial/hello"
version = "1.0.0"
description = ""
authors = []
keywords = []
[metadata]
[verifier]
timeout_sec = 60.0
environment_mode = "shared"
collect = []
[agent]
timeout_sec = {{agent_s}}
[environment]
network_mode = "public"
docker_image = "{IMAGE}"
os = "linux"
mcp_servers = []
{{memory}}
"""
VERIFY = "if grep -q hello /work/hello.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a task of ours asks for and allows."""

    verify: str = VERIFY
    solve: str | None = None
    """For the oracle."""
    agent_s: float = 120.0
    memory_mb: int | None = None
    tmpfs: str | None = None
    """As compose writes it, such as `/scratch:size=300m`."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job that is ready to run."""

    command: tuple[str, ...]
    environment: dict[str, str]
    results: Path

    def trials(self) -> list[dict[str, Any]]:
        """Harbor's own result of each trial."""
        return [json.loads(path.read_text()) for path in sorted(self.results.glob("*/*/result.json"))]


def typed(*keystrokes: str, done: bool = False) -> Step:
    """An answer that terminus-2 understands: what to type, or that the task is done."""
    commands = [{"keystrokes": f"{each}\n", "duration": 0.2} for each in keystrokes]
    return say(json.dumps({"analysis": "a", "plan": "p", "commands": commands, "task_complete": done}))


def job(
    agent: str,
    engine: Engine,
    folder: Path,
    base_url: str,
    *,
    attempts: int = 1,
    options: Sequence[str] = (),
    asked: Task | None = None,
) -> Job:
    """A job of one task and this agent.  Raises ToolMissing."""
    home, task, results = folder / "home", folder / "task", folder / "jobs"
    (home / ".docker").mkdir(parents=True)
    shutil.copytree(clients.docker_plugins() / "cli-plugins", home / ".docker" / "cli-plugins")
    for part in ("tests", "environment"):
        (task / part).mkdir(parents=True)
    asked = Task() if asked is None else asked
    memory = "" if asked.memory_mb is None else f"memory_mb = {asked.memory_mb}"
    (task / "task.toml").write_text(_TASK.format(agent_s=asked.agent_s, memory=memory))
    (task / "instruction.md").write_text("Write hello into /work/hello.txt.\n")
    _script(task / "tests" / "test.sh", asked.verify)
    if asked.solve is not None:
        _script(task / "solution" / "solve.sh", asked.solve)
    more = folder / "more.yaml"
    claude = f"{clients.claude_binary()}:/usr/local/bin/claude:ro"
    main: dict[str, object] = {"stop_grace_period": "0s", "volumes": [claude]}
    if asked.tmpfs is not None:
        main["tmpfs"] = [asked.tmpfs]
    more.write_text(json.dumps({"services": {"main": main}}))
    program = str(clients.harbor_program())
    command = [program, "run", "-p", str(task), "-a", agent, "-e", "docker", "-o", str(results), "-q", "--yes"]
    command += ["-k", str(attempts), "-n", str(attempts), "--job-name", "one", "--extra-docker-compose", str(more)]
    environment = clients.clean_environment(
        home,
        DOCKER_HOST=engine.docker_host,
        ANTHROPIC_BASE_URL=base_url,
        OPENAI_BASE_URL=f"{base_url}/v1",
        ANTHROPIC_API_KEY="dummy",
        OPENAI_API_KEY="dummy",
        HARBOR_TELEMETRY="0",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
    )
    return Job((*command, *options), environment, results)


def _script(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{line}\n")
    path.chmod(0o755)
