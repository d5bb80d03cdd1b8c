"""`doctor --from-container`: one line that says whether a container reaches a model door, and if not, why."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.under import FAIRTRIAL


def doctor(environ: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Exit status and the line."""
    done = subprocess.run(
        [*FAIRTRIAL, "doctor", *arguments], env=dict(environ), capture_output=True, text=True, check=False, timeout=90
    )
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout.strip()


@pytest.fixture
def environ(home: Path, docker_engine: Engine) -> dict[str, str]:
    return clients.clean_environment(home, DOCKER_HOST=docker_engine.docker_host)


def test_it_proves_the_way_over_the_bridge_and_leaves_nothing_behind(
    environ: dict[str, str], docker_engine: Engine, python_image: str
) -> None:
    before = set(docker_engine.containers())
    status, line = doctor(environ, "--from-container", python_image)
    assert status == 0, line
    assert line.startswith(
        f"ok       container  a container from {python_image} on the network bridge reaches the model door at "
        f"{docker_engine.gateway}:"
    ), line
    assert set(docker_engine.containers()) == before
    status, text = doctor(environ, "--from-container", python_image, "--json")
    assert (status, json.loads(text)["state"]) == (0, "ok")


def test_a_small_image_with_busybox_alone_can_ask_too(environ: dict[str, str], busybox_image: str) -> None:
    status, line = doctor(environ, "--from-container", busybox_image)
    assert status == 0, line


@pytest.mark.parametrize(
    "network, state, said",
    [
        ("host", 0, "reaches the model door on loopback, as the host does"),
        ("none", 1, "it has no network (none) → give the container a bridge network"),
        ("ft-no-such-network", 1, "network ft-no-such-network not found → try the same by docker run"),
    ],
)
def test_other_networks_are_answered_for(
    environ: dict[str, str], python_image: str, network: str, state: int, said: str
) -> None:
    status, line = doctor(environ, "--from-container", python_image, "--container-network", network)
    assert status == state, line
    assert said in line


def test_what_is_not_there_is_said_with_a_remedy(environ: dict[str, str], tmp_path: Path) -> None:
    status, line = doctor(environ, "--from-container", "ft-no-such-image")
    assert status == 1
    assert line.endswith(
        "the engine has no image ft-no-such-image → docker pull ft-no-such-image, or name one that it has"
    )
    status, line = doctor({**environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}, "--from-container", "x")
    assert (status, "the engine does not answer" in line) == (1, True), line


@pytest.mark.dear
@pytest.mark.root
@pytest.mark.parametrize("verdict", ["DROP", "REJECT"])
def test_a_firewall_is_named(environ: dict[str, str], docker_engine: Engine, python_image: str, verdict: str) -> None:
    """A rule for the gateway of the engine under test alone, taken away again."""
    assert docker_engine.gateway is not None
    rule = ["INPUT", "-d", docker_engine.gateway, "-p", "tcp", "-j", verdict]
    subprocess.run(["iptables", "-I", *rule], check=True)
    try:
        status, line = doctor(environ, "--from-container", python_image)
    finally:
        subprocess.run(["iptables", "-D", *rule], check=True)
    assert status == 1
    assert f"allow TCP to {docker_engine.gateway} (iptables" in line
