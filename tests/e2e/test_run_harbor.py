"""Harbor under `fairtrial run`: terminus-2, whose model calls come from the host and whose commands are tmux traffic,
and the real Claude Code in the task's container, whose calls come over the bridge.  Neither uses the host's network.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.observations import DoorExec, decode
from fairtrial.middleware.core.records import Outcome
from fairtrial.middleware.demo.script import Scenario, Step, say, shell
from fairtrial.middleware.demo.standin import running_standin
from fairtrial.middleware.store.database import observations_of, open_database
from tests.e2e import clients, harbor
from tests.e2e.engine import Engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.under import Under, run_under

pytestmark = pytest.mark.dear

HELLO = "echo hello > /work/hello.txt"
TERMINUS = ("-m", "openai/stand-in", "--ak", "record_terminal_session=false")
CLAUDE = ("-m", "anthropic/claude-opus-4-8", "--ak", "version=2.1.197")  # the version that tools.sh installs


def run_harbor(
    agent: str, script: Sequence[Step], engine: Engine, folder: Path, *options: str
) -> tuple[Under, harbor.Job]:
    """A whole job under `fairtrial run`; skips where Harbor, its plugin or its image cannot be had."""
    try:
        ensure_image(harbor.IMAGE, engine.docker_host, clients.e2e_folder() / "images")
    except ImageUnavailable as reason:
        pytest.skip(str(reason))
    (folder / "project").mkdir()
    with running_standin(Scenario(steps=tuple(script), side_text=None)) as server:
        try:
            job = harbor.job(agent, engine, folder, server.url, options=options)
        except clients.ToolMissing as reason:
            pytest.skip(str(reason))
        command = list(job.command)
        if agent == "terminus-2":  # litellm is told by an option, which must hold what the run put into the variable
            command = ["sh", "-c", 'exec "$@" --ak api_base=$OPENAI_BASE_URL', "sh", *command]
        under = run_under(command, job.environment, folder / "project", kept=folder / "kept", timeout_s=240)
    return under, job


def execs(under: Under) -> list[DoorExec]:
    """Every exec that passed the Docker door."""
    values = map(decode, observations_of(open_database(under.store), under.trial.trial))
    return [value for value in values if isinstance(value, DoorExec)]


def test_terminus_2_has_its_steps_and_none_of_its_upkeep_is_a_tool_call(docker_engine: Engine, tmp_path: Path) -> None:
    script = (harbor.typed(HELLO), harbor.typed(done=True), harbor.typed(done=True))
    under, job = run_harbor("terminus-2", script, docker_engine, tmp_path, *TERMINUS)
    (result,) = job.trials()
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}, under.told()
    assert under.trial.outcome is Outcome.PASSED
    assert [call.container_id for step in under.trial.steps for call in step.calls] == [None] * 3, under.told()
    assert len(execs(under)) > 10, "two to four execs a step, beside set-up and verifier"
    assert [tool for step in under.trial.steps for tool in step.tools] == [], under.told()
    assert [m.what for m in under.trial.mutations if "exec environment" in m.what] == []


def test_claude_code_in_the_tasks_container_is_seen_over_the_bridge(docker_engine: Engine, tmp_path: Path) -> None:
    script = (shell(HELLO), shell("cat /work/hello.txt"), say("Done."))
    under, job = run_harbor("claude-code", script, docker_engine, tmp_path, *CLAUDE)
    (result,) = job.trials()
    assert result["exception_info"] is None, under.told()
    assert result["verifier_result"]["rewards"] == {"reward": 1.0}, under.told()
    (box,) = under.trial.environment.container_ids
    assert [call.container_id for step in under.trial.steps for call in step.calls] == [box] * 3, under.told()
    tools = [[tool.name for tool in step.tools] for step in under.trial.steps]
    assert tools == [["Bash"], ["Bash"], []], under.told()
    assert all(tool.exec_id is None for step in under.trial.steps for tool in step.tools), "they are its own children"
    assert len(execs(under)) >= 8, "set-up, the agent itself, the verifier"
    assert [m.what for m in under.trial.mutations if "exec environment" in m.what] == [
        "exec environment ANTHROPIC_BASE_URL"
    ]
