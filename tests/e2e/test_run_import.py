"""Real harnesses under `fairtrial run`, and their own files imported afterwards: joined, and the verdict revised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, EndedAs, Grade, Outcome
from fairtrial.middleware.demo.faults import catalogue
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.under import NO_DOCKER, fairtrial, run_under, shown

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("mini")
def test_a_step_limit_that_mini_books_with_exit_0_fails_the_trial(
    docker_engine: Engine, python_image: str, home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    """The process exits 0: without its trajectory the trial counts as passed."""
    trajectory = tmp_path / "run.traj.json"
    label = f"fairtrial.test={tmp_path.name}"
    with running_standin((shell("ls /"), shell("ls /tmp")), command_prefix=loopback_only) as server:
        command = clients.mini_command(
            "Say hello.",
            image=python_image,
            trajectory=trajectory,
            run_args=("--rm", f"--label={label}"),
            step_limit=2,
        )
        environment = clients.mini_environment(home, docker_engine.docker_host, server.url)
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
    if left := docker_engine.containers(f"label={label}"):  # mini stops it in the background, ten seconds later
        docker_engine.docker("rm", "-f", *left, check=False)
    assert under.trial.outcome is Outcome.PASSED, under.told()
    store = ("--store", str(under.store))
    said = fairtrial("import", "mini-swe-agent", str(trajectory), *store, environment=environment)
    assert said.returncode == 0, said.stderr
    assert "by the ids of 2 replies" in said.stdout
    told = shown(under.store, environment, under.trial.trial)
    assert told.verdict is not None
    assert (told.outcome, told.outcome_source, told.verdict.revision) == (Outcome.FAILED, "mini-swe-agent", 2)
    assert (told.verdict.blame, told.verdict.ended_as) == (Blame.MODEL, EndedAs.STEP_LIMIT), told.verdict
    again = fairtrial("import", "mini-swe-agent", str(trajectory), *store, environment=environment)
    assert "nothing new" in again.stdout


@pytest.mark.usefixtures("claude")
def test_claude_codes_stream_joins_by_request_ids_and_takes_no_blame_away(
    home: Path, project: Path, tmp_path: Path, loopback_only: Sequence[str]
) -> None:
    steps = (shell("echo hello > hello.txt"), say("Done."))
    with running_standin(steps, catalogue(1)["overloaded_for_ever"], command_prefix=loopback_only) as server:
        environment = clients.claude_environment(home, server.url, CLAUDE_CODE_MAX_RETRIES="1", **NO_DOCKER)
        command = clients.claude_command("say hello using bash", output_format="stream-json")
        under = run_under(command, environment, project, kept=tmp_path / "kept", prefix=loopback_only)
    stream = tmp_path / "out.jsonl"
    stream.write_text(under.outcome.stdout)
    transcripts = home / ".claude" / "projects"
    for path in (stream, transcripts):
        said = fairtrial("import", "claude-code", str(path), "--store", str(under.store), environment=environment)
        assert said.returncode == 0, said.stderr
        assert "request id" in said.stdout
    told = shown(under.store, environment, under.trial.trial)
    assert told.verdict is not None
    assert (told.outcome, told.outcome_source) == (Outcome.FAILED, "exit_code")
    assert (told.verdict.blame, told.verdict.grade) == (Blame.INFRA, Grade.PROVED), told.verdict
    assert told.verdict.cause == "model_api.overloaded"
    assert {b.exit_status for b in told.booked} == {"server_error"}
