"""A whole run whose agent uses docker: each exec and each `docker run` is in the record, with who ended it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame, Grade, Tool
from fairtrial.middleware.demo.script import say, shell
from tests.e2e.clients import e2e_folder
from tests.e2e.engine import Engine, EngineUnavailable, private_engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.test_run_containers import run_agent
from tests.e2e.under import Under

DONE = say("Done.")


@pytest.fixture
def box(docker_engine: Engine) -> Iterator[str]:
    """A name for the container that the agent starts."""
    name = f"ft-door-{uuid.uuid4().hex[:8]}"
    yield name
    docker_engine.docker("rm", "-f", name, check=False)


def start(name: str, image: str, *options: str) -> str:
    return f"docker run -d --name {name} --network none {' '.join(options)} {image} sleep 600"


def tools(under: Under, step: int) -> list[Tool]:
    """The tools of a step, from 1."""
    return under.trial.steps[step - 1].tools


def test_execs_and_runs_are_in_the_record_with_their_bytes_and_ends(
    docker_engine: Engine, busybox_image: str, box: str, tmp_path: Path
) -> None:
    script = (
        shell(start(box, busybox_image)),
        shell(f"docker exec {box} sh -c 'echo out; echo err >&2; exit 3'"),
        shell(f"docker run --rm --network none {busybox_image} sh -c 'echo done; exit 4'"),
        shell(f"timeout -s KILL 2 docker exec {box} sleep 600"),
        shell(f"docker exec {box} tmux; docker exec {box} true"),
        DONE,
    )
    under = run_agent("one", script, docker_engine, tmp_path)
    (started,) = tools(under, 1)
    assert (started.name is not None, started.container_id) == (True, None), "a place, no tool"

    (ran,) = tools(under, 2)
    assert (ran.exec_via, ran.join, ran.exit_code, ran.ended_by) == ("docker", "time", 3, "process"), under.told()
    assert (ran.bytes_out, ran.bytes_err, ran.bytes_in) == (8, 4, 0)
    assert ran.command == ["sh", "-c", "<30 characters>"]
    assert ran.dispatch_delay is not None
    assert ran.exec_duration is not None
    assert 0 < ran.dispatch_delay <= ran.exec_duration

    call, run = tools(under, 3)
    assert call.exec_id is None
    assert (run.name, run.exit_code, run.bytes_out, run.ended_by) == (None, 4, 5, "process"), under.told()
    assert run.container_id is not None

    (left,) = tools(under, 4)
    assert (left.exec_id is not None, left.exit_code, left.ended_by) == (True, None, "client"), under.told()

    (upkept,) = tools(under, 5)
    assert (upkept.exec_id is not None, upkept.exit_code, upkept.ended_by) == (True, 0, "process"), under.told()


def test_an_exec_whose_engine_is_killed_has_no_exit_code_and_the_gap_is_told(tmp_path: Path) -> None:
    try:
        with private_engine() as engine:
            image = ensure_image("ft-busybox", engine.docker_host, e2e_folder() / "images")
            script = (
                shell(start("box", image, "--stop-signal", "KILL")),
                shell(f"docker exec box sleep 600 & sleep 2; kill -9 {engine.pid}; wait; exit 1"),
                DONE,
            )
            under = run_agent("one", script, engine, tmp_path)
            engine.again()
    except (EngineUnavailable, ImageUnavailable) as reason:
        pytest.skip(str(reason))
    (lost,) = tools(under, 2)
    assert (lost.exec_id is not None, lost.exit_code, lost.ended_by) == (True, None, "engine"), under.told()
    assert under.trial.coverage.collectors["docker_events"].startswith("lost"), under.trial.coverage
    assert (under.verdict.blame, under.verdict.grade) == (Blame.INFRA, Grade.SUSPECTED), under.told()
    assert (under.verdict.cause, under.verdict.step) == ("runtime.exec_lost", 2)


def test_a_door_whose_socket_is_taken_away_is_told_and_nobody_is_blamed(docker_engine: Engine, tmp_path: Path) -> None:
    """By a cleaner of /tmp, say: the commands for containers that follow meet no engine, whoever asked for them."""
    script = (shell('rm "${DOCKER_HOST#unix://}"'), shell("docker ps"), DONE)
    under = run_agent("one", script, docker_engine, tmp_path)
    assert "annot connect to the Docker daemon" in under.outcome.stdout, under.told()
    assert "was gone before the command ended" in under.outcome.stderr, under.told()
    assert under.verdict.blame is Blame.INDETERMINATE, under.told()
    assert "socket of fairtrial's Docker door was gone" in under.verdict.sentence


def test_a_door_that_is_left_alone_is_not_missed(docker_engine: Engine, tmp_path: Path) -> None:
    under = run_agent("one", (shell("docker ps"), DONE), docker_engine, tmp_path)
    assert "was gone" not in under.outcome.stderr, under.told()
    assert under.verdict.blame is Blame.MODEL, under.told()
