"""The real Claude Code inside containers, on the engine's bridge: no host networking, no registry.

The image is made of this host's files; Claude Code is its one native file, mounted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.observations import AttemptEnded
from fairtrial.middleware.core.records import Blame, Grade
from fairtrial.middleware.demo.faults import catalogue
from fairtrial.middleware.demo.script import Step, say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.test_standin_clients import FINAL, SCRIPT
from tests.e2e.under import Under, run_under, seen_in

pytestmark = pytest.mark.usefixtures("claude")

PROMPT = "say hello using bash"
CLAUDE = f"claude -p '{PROMPT}' --output-format json --allowedTools Bash"


@pytest.fixture
def boxes(docker_engine: Engine, tmp_path: Path) -> Iterator[list[str]]:
    """Names for containers, which are gone afterwards."""
    names = [f"ft-inside-{tmp_path.name[:12]}-{n}" for n in range(2)]
    docker_engine.docker("rm", "-f", *names, check=False)
    yield names
    docker_engine.docker("rm", "-f", *names, check=False)


def under(script: str, engine: Engine, image: str, folder: Path, *faults: str, steps: Sequence[Step] = SCRIPT) -> Under:
    """A shell script as the command: `$BOX` begins a `docker run` that holds Claude Code, `$ENV` is what it is told."""
    (folder / "home").mkdir()
    (folder / "project").mkdir()
    quiet = " ".join(f"-e {name}={value}" for name, value in clients.CLAUDE_QUIET.items())
    with running_standin(steps, [fault for name in faults for fault in catalogue(1)[name]]) as server:
        environment = clients.clean_environment(
            folder / "home",
            ANTHROPIC_BASE_URL=server.url,
            ANTHROPIC_API_KEY="dummy",
            DOCKER_HOST=engine.docker_host,
            ENV=f"{quiet} -e ANTHROPIC_BASE_URL -e ANTHROPIC_API_KEY -e HOME=/root",
            BOX=f"-v {clients.claude_binary()}:/usr/local/bin/claude:ro",
            IMAGE=image,
        )
        return run_under(["sh", "-c", script], environment, folder / "project", kept=folder / "kept")


def test_claude_code_in_a_container_works_and_each_of_its_calls_is_known_by_its_container(
    docker_engine: Engine, python_image: str, tmp_path: Path
) -> None:
    run = under(f"docker run --rm --cidfile id $BOX $ENV $IMAGE {CLAUDE}", docker_engine, python_image, tmp_path)
    assert (run.outcome.returncode, run.outcome.json()["result"]) == (0, FINAL), run.told()
    box = (tmp_path / "project" / "id").read_text()
    trial = run.trial
    assert [call.container_id for step in trial.steps for call in step.calls] == [box, box], run.told()
    assert [[tool.name for tool in step.tools if tool.name] for step in trial.steps] == [["Bash"], []], run.told()
    assert trial.coverage.families["model_api"].level == "full", run.told()
    assert run.verdict.blame is Blame.NONE, run.told()


def test_what_the_api_did_to_an_agent_in_a_container_is_blamed_as_anywhere(
    docker_engine: Engine, python_image: str, tmp_path: Path
) -> None:
    script = f"docker run --rm $BOX $ENV -e CLAUDE_CODE_MAX_RETRIES=1 $IMAGE {CLAUDE}"
    run = under(script, docker_engine, python_image, tmp_path, "overloaded_for_ever")
    assert run.outcome.returncode != 0, run.told()
    assert (run.verdict.blame, run.verdict.grade) == (Blame.INFRA, Grade.PROVED), run.told()
    assert run.verdict.cause == "model_api.overloaded", run.told()


def test_a_kill_for_memory_among_the_agents_own_children_is_told_at_the_step_of_its_tool(
    docker_engine: Engine, python_image: str, tmp_path: Path
) -> None:
    """The agent shares its container with its tools: no exec tells them apart, the step's window does."""
    steps = (shell("ls /"), shell('python3 -c "x = bytearray(2 << 30)"; echo $?'), say("Done."))
    script = f"docker run --rm --cidfile id -m 700m --memory-swap 700m $BOX $ENV $IMAGE {CLAUDE}; exit 1"
    run = under(script, docker_engine, python_image, tmp_path, steps=steps)
    box = (tmp_path / "project" / "id").read_text()
    first, second = ([use for use in step.containers if use.id == box] for step in run.trial.steps[:2])
    assert [use.oom_kills for use in second] == [1], run.told()
    assert all((use.memory_peak or 0) >= 700 << 20 for use in second), run.told()
    assert not any(use.oom_kills for use in first), run.told()
    assert (run.verdict.blame, run.verdict.grade) == (Blame.INFRA, Grade.SUSPECTED), run.told()
    assert (run.verdict.cause, run.verdict.step) == ("container.oom_kill", 2), run.told()


def test_two_claude_codes_at_once_started_by_exec_are_told_apart(
    docker_engine: Engine, python_image: str, boxes: list[str], tmp_path: Path
) -> None:
    one, two = boxes
    script = f"""
    for n in {one} {two}; do docker run -d --cidfile $n --name $n $BOX $IMAGE sleep 600 >/dev/null; done
    for n in {one} {two}; do docker exec $ENV $n {CLAUDE} > $n.json & done
    wait
    """
    run = under(script, docker_engine, python_image, tmp_path)
    project = tmp_path / "project"
    for name in boxes:
        assert json.loads((project / f"{name}.json").read_text())["result"] == FINAL, run.told()
    asked = [a for a in seen_in(run.store, AttemptEnded) if a.request.operation == "chat"]
    for name in boxes:
        box = (project / name).read_text()
        assert sum(attempt.container_id == box for attempt in asked) == 2, run.told()
    assert not any(attempt.container_id is None for attempt in asked), run.told()
