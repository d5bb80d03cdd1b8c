"""A task of several containers, with compose v2 itself: the agent's, its services, and a dead one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.under import Under, run_under


@pytest.fixture
def compose() -> str:
    """The compose program as a command of its own."""
    try:
        return str(clients.docker_plugins() / "cli-plugins" / "docker-compose")
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


def with_service(service: str, compose: str, engine: Engine, image: str, folder: Path) -> Under:
    """The demo's agent, whose tools run in `main` while `db` runs this command beside it; its check fails."""
    for part in ("home", "project"):
        (folder / part).mkdir()
    box = {"image": image, "network_mode": "none"}
    services = {"main": {**box, "command": ["sleep", "600"]}, "db": {**box, "command": ["sh", "-c", service]}}
    (folder / "project" / "compose.yaml").write_text(json.dumps({"services": services}))
    project = f"{compose} -p ft-{folder.name[:20].strip('_').replace('_', '-')}"
    agent = f"{sys.executable} -m fairtrial.middleware.demo.agent"
    script = f"{project} up -d --quiet-pull || exit 9; {agent}; {project} down -t 0; exit 1"
    wait = "until [ -e /tmp/over ]; do sleep 0.1; done"
    gone = f"until {project} ps -a db | grep -q Exited; do sleep 0.2; done"
    steps = (shell(f"{gone}; {project} exec -T main sh -c 'touch /tmp/over; {wait}; test -e /x'"), say("Done."))
    with running_standin(steps) as server:
        environment = clients.clean_environment(
            folder / "home", ANTHROPIC_BASE_URL=server.url, DOCKER_HOST=engine.docker_host
        )
        return run_under(["sh", "-c", script], environment, folder / "project", kept=folder / "kept")


def test_a_service_that_ended_with_an_error_while_the_agent_worked_leaves_the_blame_open(
    compose: str, docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    under = with_service("sleep 3; exit 3", compose, docker_engine, busybox_image, tmp_path)
    roles = {use.name: use.role for use in under.trial.steps[0].containers if use.name}
    assert sorted(roles.values()) == ["main", "service"], under.told()
    assert under.verdict.blame is Blame.INDETERMINATE, under.told()
    assert "ended with exit code 3" in under.verdict.sentence, under.verdict.sentence


def test_a_service_that_did_its_work_and_ended_is_no_reason(
    compose: str, docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    under = with_service("sleep 3", compose, docker_engine, busybox_image, tmp_path)
    assert under.verdict.blame is Blame.MODEL, under.told()
