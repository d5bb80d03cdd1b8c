"""Inspect's set-ups of the table: a task of ours, the basic agent with its bash tool, a scorer that may run a line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.table.bench import Bench, limited
from tests.e2e.table.outcome import Ran, faults, imported
from tests.e2e.table.rows import Scenario
from tests.e2e.under import NO_DOCKER, run_under

OLDEST_ENGINE = (24, 0, 6)
"""Inspect refuses an older one."""

_TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import basic_agent
from inspect_ai.tool import bash
from inspect_ai.util import sandbox

VERIFY = {verify!r}


@scorer(metrics=[accuracy()])
def told():
    async def score(state, target):
        if VERIFY and (await sandbox().exec(["bash", "-c", VERIFY])).returncode != 0:
            return Score(value="I")
        return Score(value="C" if target.text in state.output.completion else "I")

    return score


@task
def hello():
    return Task(
        dataset=[Sample(input="Write hello into a file and submit it.", target="hello")],
        solver=basic_agent(tools=[bash(timeout=30)], max_attempts=1, message_limit=20),
        scorer=told(),
        sandbox={sandbox!r},
    )
"""


def one(scenario: Scenario, bench: Bench, folder: Path) -> Ran:
    """One sample, one trial."""
    docker = scenario.setup.where == "docker"
    project, home = folder / "project", folder / "home"
    sandbox: str | tuple[str, str] = "local"
    more = dict(NO_DOCKER)
    if docker:
        engine = bench.newer(OLDEST_ENGINE)
        shutil.copytree(clients.docker_plugins(), home / ".docker")
        main: dict[str, object] = {"image": bench.image("ft-python", engine), "command": "sleep infinity", "init": True}
        main |= {"network_mode": "none", "x-local": True}
        if scenario.limit_mb is not None:
            main |= {"mem_limit": f"{scenario.limit_mb}m", "memswap_limit": f"{scenario.limit_mb}m"}
        (project / "compose.yaml").write_text(json.dumps({"services": {"default": main}}))
        sandbox, more = ("docker", "compose.yaml"), {"DOCKER_HOST": engine.docker_host}
    (project / "hello.py").write_text(_TASK.format(verify=scenario.verify, sandbox=sandbox))
    logs = folder / "logs"
    program = clients.inspect_program()
    command = [str(program), "eval", "hello.py", "--model", "anthropic/claude-sonnet-4-5-20250929"]
    command += ["--log-dir", str(logs), "--log-format", "json", "--display", "plain", "--max-retries", "1"]
    limit = limited(None if docker else scenario.limit_mb)
    with limit as prefix, running_standin(scenario.steps, faults(scenario)) as server:
        environment = clients.clean_environment(
            home, ANTHROPIC_BASE_URL=server.url, ANTHROPIC_API_KEY="dummy", INSPECT_TELEMETRY="", **more
        )
        environment["PATH"] = f"{program.parent}:{environment['PATH']}"
        kept, options = folder / "kept", ("--run", "table")
        under = run_under([*prefix, *command], environment, project, kept=kept, options=options, timeout_s=180)
    return imported(under, "inspect", logs, environment)
