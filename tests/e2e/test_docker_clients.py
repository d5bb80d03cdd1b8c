"""More clients of the Docker door, real ones: aiodocker, compose v2, buildx with BuildKit's sessions over HTTP/2."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.relay.docker import upstream_of
from fairtrial.middleware.relay.docker_upstream import DockerUpstream
from fairtrial.middleware.wire.feed import Kind
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.through import LIMIT_S, Through, door_to
from tests.middleware.relay.rig import eventually

_AIODOCKER = """
import asyncio
import hashlib
import json
import sys

import aiodocker

MEGABYTES_20 = 20_000_000


async def _read(stream):
    parts = {1: b"", 2: b""}
    while (message := await stream.read_out()) is not None:
        parts[message.stream] += message.data
    return parts


async def main(url, box, image):
    said = {}
    async with aiodocker.Docker(url=url) as docker:
        container = await docker.containers.get(box)
        running = await container.exec(["sh", "-c", "echo out; echo err >&2; exit 5"])
        async with running.start(detach=False) as stream:
            parts = await _read(stream)
        said["exec"] = [parts[1].decode(), parts[2].decode(), (await running.inspect())["ExitCode"]]
        data = bytes(range(256)) * (MEGABYTES_20 // 256)
        running = await container.exec(["head", "-c", str(len(data))], stdin=True)
        async with running.start(detach=False) as stream:
            reading = asyncio.create_task(_read(stream))
            await stream.write_in(data)
            parts = await reading
        said["back"] = hashlib.sha256(parts[1]).hexdigest() == hashlib.sha256(data).hexdigest()
        events = docker.events.subscribe()
        made = await docker.containers.run(
            config={"Image": image, "Cmd": ["sh", "-c", "echo one; echo two; exit 3"], "NetworkDisabled": True}
        )
        said["wait"] = (await made.wait())["StatusCode"]
        said["logs"] = "".join([line async for line in made.log(stdout=True, follow=True)])
        await made.delete(force=True)
        seen = []
        while "destroy" not in seen:
            event = await asyncio.wait_for(events.get(), 20)
            if event["Actor"]["ID"] == made.id:
                seen.append(event["Action"])
        said["events"] = seen
    print(json.dumps(said))


asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def through(docker_engine: Engine, busybox_image: str, tmp_path: Path) -> Iterator[Through]:
    """A door on a socket, and a running container."""
    box = docker_engine.docker("run", "-d", "--network", "none", busybox_image, "sleep", "600").stdout.strip()
    try:
        upstream = upstream_of(DockerUpstream(url=docker_engine.docker_host))
        with door_to(upstream, tmp_path, image=busybox_image, box=box) as made:
            yield made
            eventually(lambda: made.rig.relay.counters.open_pairs == 0, "pairs stay open behind the client")
    finally:
        docker_engine.docker("rm", "-f", box)


def with_plugins(through: Through, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The docker command with compose and buildx; skips where they are not installed."""
    try:
        plugins = clients.docker_plugins()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))
    config = folder / "config"
    config.mkdir(exist_ok=True)
    if not (config / "cli-plugins").exists():
        (config / "cli-plugins").symlink_to(plugins / "cli-plugins")
    return subprocess.run(
        ["docker", *arguments],
        env={**os.environ, "DOCKER_HOST": through.door.url, "DOCKER_CONFIG": str(config), "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S,
    )


def test_aiodocker(through: Through, tmp_path: Path) -> None:
    try:
        python = clients.aiodocker_python()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [str(python), "-c", _AIODOCKER, through.door.url, through.box, through.image],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "exec": ["out\n", "err\n", 5],
        "back": True,
        "wait": 3,
        "logs": "one\ntwo\n",
        "events": ["create", "start", "die", "destroy"],
    }
    through.rig.no_pair_open()
    small, large = through.execs()
    assert (small.stdout, small.stderr, small.stdin) == (4, 4, 0)
    assert (large.stdout, large.stdin) == (20_000_000, 20_000_000)
    assert (small.ended_by, large.ended_by) == ("process", "process")


def test_compose_brings_up_execs_and_takes_down(through: Through, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        f"services:\n  main:\n    image: {through.image}\n    command: sleep 600\n    network_mode: none\n"
        f"  job:\n    image: {through.image}\n    command: sh -c 'echo job; exit 6'\n    network_mode: none\n"
    )
    project = f"ft{uuid.uuid4().hex[:8]}"
    compose = ("compose", "-p", project)
    up = with_plugins(through, tmp_path, *compose, "up", "-d", "main")
    assert up.returncode == 0, up.stderr
    try:
        ran = with_plugins(through, tmp_path, *compose, "exec", "-T", "main", "sh", "-c", "echo hi; exit 3")
        assert (ran.returncode, ran.stdout) == (3, "hi\n"), ran.stderr
        job = with_plugins(through, tmp_path, *compose, "run", "--rm", "-T", "job")
        assert (job.returncode, job.stdout) == (6, "job\n"), job.stderr
        attached = with_plugins(through, tmp_path, *compose, "up", "--exit-code-from", "job", "job")
        assert attached.returncode == 6, attached.stderr
        assert "job-1  | job" in attached.stdout
        assert "main" in with_plugins(through, tmp_path, *compose, "ps").stdout
    finally:
        down = with_plugins(through, tmp_path, *compose, "down", "-t", "0")
    assert down.returncode == 0, down.stderr
    through.rig.no_pair_open()
    (seen,) = through.execs()
    assert (seen.stdout, seen.ended_by) == (3, "process")


def test_buildx_builds_with_buildkit_over_its_session(through: Through, tmp_path: Path) -> None:
    """The engine is the HTTP/2 client of `/session`; a 3 MB context goes up through `/grpc`."""
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {through.image}\nCOPY big /big\nRUN wc -c </big >/size\n")
    (context / "big").write_bytes(os.urandom(3_000_000))
    tag = f"ft-buildx-{uuid.uuid4().hex[:8]}"
    built = with_plugins(
        through, tmp_path, "buildx", "build", "--network", "none", "--progress", "plain", "-t", tag, "context"
    )
    assert built.returncode == 0, built.stderr
    try:
        assert through.docker("run", "--rm", "--network", "none", tag, "cat", "/size")[1] == b"3000000\n"
    finally:
        through.docker("rmi", "-f", tag)
    (context / "Dockerfile").write_text(f"FROM {through.image}\nRUN exit 9\n")
    failed = with_plugins(through, tmp_path, "buildx", "build", "--network", "none", "--progress", "plain", "context")
    assert failed.returncode != 0
    assert "exit code: 9" in failed.stderr
    through.rig.no_pair_open()
    heads = [record.payload.partition(b"\r\n")[0] for record in through.rig.observer.of(Kind.REQUEST_HEAD)]
    assert any(b"/session " in head for head in heads), heads
    assert max(int(str(one.json()["stdin"])) for one in through.rig.observer.of(Kind.TUNNEL_END)) > 3_000_000
