"""fairtrial where CI runs: the whole job inside a container, without an engine, as root and as nobody, at its limit.

The engine is a private one; inside there is no Docker socket, no /dev/kmsg, and /sys/fs/cgroup is read-only, as on a
hosted runner's container job or a pod of a Kubernetes runner (one container, requests = limits).  `inside.py` is the
job: stand-in, agent, fairtrial.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairtrial.middleware.core.records import Blame, Grade, Trial, Verdict
from fairtrial.middleware.report.sight import sight_line
from tests.e2e.engine import Engine

pytestmark = pytest.mark.root
LIMIT = 400 << 20
TOO_MUCH = "python3 -c 'x=bytearray(600<<20); print(len(x))'"
LIMITED = ("--memory", str(LIMIT), "--memory-swap", str(LIMIT))
NOBODY = ("--user", "65534:65534")


class Job:
    """What one job inside a container left behind."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self.told = told
        assert told["record"] is not None, told
        self.trial = msgspec.convert(told["record"], Trial, strict=False)
        self.doctor = {str(one["name"]): one for one in told["doctor"]}

    @property
    def verdict(self) -> Verdict:
        assert self.trial.verdict is not None
        return self.trial.verdict


def job(engine: Engine, image: str, repo_root: Path, asked: Mapping[str, object], *options: str) -> Job:
    """Run it with this checkout and its environment mounted read-only."""
    venv = Path(sys.prefix)
    mounts = [part for place in {repo_root, venv} for part in ("--volume", f"{place}:{place}:ro")]
    done = engine.docker(
        "run", "--rm", *mounts, "--env", "PYTHONDONTWRITEBYTECODE=1", "--workdir", str(repo_root), *options,
        image, sys.executable, "-m", "tests.e2e.inside", json.dumps(asked),
        check=False, timeout_s=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return Job(json.loads(done.stdout))


@pytest.mark.parametrize("user", [(), NOBODY], ids=["root", "nobody"])
def test_a_container_job_without_an_engine_is_observed_and_says_what_it_cannot_see(
    docker_engine: Engine, python_image: str, repo_root: Path, user: tuple[str, ...]
) -> None:
    one = job(docker_engine, python_image, repo_root, {"tools": ["echo hi"]}, *LIMITED, *user)
    assert (one.told["status"], one.verdict.blame, len(one.trial.steps)) == (0, Blame.NONE, 2), one.told
    assert one.trial.limits.memory.ceiling == LIMIT
    levels = {name: family.level for name, family in one.trial.coverage.families.items()}
    assert (levels["model_api"], levels["memory"], levels["network"]) == ("full", "full", "partial")
    assert sight_line(one.trial.coverage).startswith("watched: model API, memory, ")
    sight = str(one.doctor["sight"]["text"])
    assert "in a container" in sight
    assert "who was killed for memory" in sight
    assert one.doctor["docker"]["state"] == "no"


def test_a_tool_at_the_jobs_limit_is_told_with_ceiling_peak_and_kill(
    docker_engine: Engine, python_image: str, repo_root: Path
) -> None:
    asked = {"tools": [TOO_MUCH], "check": "false", "options": ["--gate"]}
    one = job(docker_engine, python_image, repo_root, asked, *LIMITED, *NOBODY)
    assert (one.verdict.blame, one.verdict.cause, one.verdict.step) == (Blame.INFRA, "container.oom_kill", 1), one.told
    assert one.trial.limits.memory.ceiling == LIMIT
    (use,) = one.trial.steps[0].containers
    assert (use.role, use.oom_kills, use.memory_limit, use.memory_peak) == ("own", 1, LIMIT, LIMIT)
    # Others live in this cgroup, and nobody named the victim: suspected, so the gate keeps the command's status.
    assert (one.verdict.grade, one.told["status"]) == (Grade.SUSPECTED, 1)


def test_an_agent_that_is_killed_itself_is_said_to_be_the_likely_victim(
    docker_engine: Engine, python_image: str, repo_root: Path
) -> None:
    asked = {"tools": ["echo hi"], "after": f"exec {TOO_MUCH}"}
    one = job(docker_engine, python_image, repo_root, asked, *LIMITED, *NOBODY)
    assert one.trial.signal == 9, one.told
    assert (one.verdict.blame, one.verdict.cause) == (Blame.INFRA, "container.oom_kill"), one.told
    assert one.verdict.grade is Grade.SUSPECTED
    assert "The command itself ended by SIGKILL" in one.verdict.sentence
    assert one.verdict.terminated_by is not None
