"""The Docker door in front of a real engine: what the docker command does through it, it does as without it.

Each of these failed in some proxy (reference/container.md, 1.3 and 4.1): a half-close that ended both sides gave `exec`
an exit status of 0 and no output; a head that was held back hung `run`; an idle timeout cut `logs -f`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from fairtrial.middleware.relay.docker import DockerDoor, upstream_of
from fairtrial.middleware.relay.docker_upstream import DockerUpstream
from fairtrial.middleware.relay.relay import tcp_listener, unix_listener
from fairtrial.middleware.relay.settings import Upstream
from tests.e2e.engine import Engine
from tests.e2e.through import LIMIT_S, Through, open_door
from tests.middleware.relay.rig import DEADLINE_S, Rig, UpstreamSide, eventually

MEGABYTES_20 = 20_000_000


@pytest.fixture(params=["unix", "tcp"], scope="module")
def through(
    request: pytest.FixtureRequest, docker_engine: Engine, busybox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Through]:
    """A door on a socket or a port, and a running container; at the end no pair may be open."""
    side = UpstreamSide()  # the rig's own model door leads there; nobody uses it
    rig = Rig("uvloop", side)
    listener = tcp_listener("127.0.0.1")
    if request.param == "unix":
        listener.close()
        listener = unix_listener(str(tmp_path_factory.mktemp("door") / "docker.sock"))
    upstream = upstream_of(DockerUpstream(url=docker_engine.docker_host))
    door = open_door(rig, upstream, listener)
    box = docker_engine.docker("run", "-d", "--network", "none", busybox_image, "sleep", "600").stdout.strip()
    try:
        yield Through(rig, door, busybox_image, box)
    finally:
        docker_engine.docker("rm", "-f", box)
        try:
            rig.no_pair_open()
        finally:
            rig.close()
            side.close()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_run_gives_output_and_status(through: Through) -> None:
    assert through.docker(
        "run", "--rm", "--network", "none", through.image, "sh", "-c", "echo out; echo err >&2; exit 4"
    ) == (
        4,
        b"out\n",
        b"err\n",
    )


def test_exec_gives_late_output_and_status(through: Through) -> None:
    started = time.monotonic()
    assert through.docker("exec", through.box, "sh", "-c", "sleep 1; echo late; exit 3") == (3, b"late\n", b"")
    assert time.monotonic() - started >= 1


def test_exec_of_a_missing_program_has_its_error_and_126_or_127(through: Through) -> None:
    status, out, err = through.docker("exec", through.box, "no-such-program")
    assert status in (126, 127)
    assert b"no-such-program" in out + err


def test_exec_reads_its_input_to_the_end(through: Through) -> None:
    assert through.docker("exec", "-i", through.box, "wc", "-c", stdin=b"x" * 1000) == (0, b"1000\n", b"")
    assert through.docker("exec", "-i", through.box, "cat", stdin=b"") == (0, b"", b"")


def test_run_reads_its_input_to_the_end(through: Through) -> None:
    done = through.docker("run", "-i", "--rm", "--network", "none", through.image, "md5sum", stdin=b"hello")
    assert done == (0, b"5d41402abc4b2a76b9719d911017c592  -\n", b"")


def test_20_mb_pass_in_and_out(through: Through) -> None:
    data = os.urandom(MEGABYTES_20)
    status, out, _ = through.docker("exec", "-i", through.box, "cat", stdin=data)
    assert (status, digest(out)) == (0, digest(data))
    status, out, _ = through.docker("exec", through.box, "head", "-c", str(MEGABYTES_20), "/dev/zero")
    assert (status, out.count(0)) == (0, MEGABYTES_20)


def test_a_terminal(through: Through) -> None:
    """`run -it` needs a terminal of its own: script(1) gives one."""
    command = (
        f"docker --host {through.door.url} run -it --rm --network none {through.image} sh -c 'tty; echo done; exit 7'"
    )
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT_S,
    )
    assert b"/dev/pts/0" in done.stdout
    assert b"done" in done.stdout
    assert done.returncode == 7


def test_copies_in_and_out(through: Through, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "in").write_bytes(data)
    assert through.docker("cp", str(tmp_path / "in"), f"{through.box}:/tmp/file")[0] == 0
    assert through.docker("cp", f"{through.box}:/tmp/file", str(tmp_path / "out"))[0] == 0
    assert (tmp_path / "out").read_bytes() == data
    assert through.docker("cp", f"{through.box}:/no/such", str(tmp_path / "none"))[0] != 0


def test_logs_are_followed_line_by_line_and_a_client_that_leaves_closes_its_upstream(through: Through) -> None:
    status, box, _ = through.docker(
        "run", "-d", "--network", "none", through.image, "sh", "-c", "while :; do echo tick; sleep 0.2; done"
    )
    assert status == 0
    name = box.decode().strip()
    try:
        follower = through.start("logs", "-f", name)
        assert follower.stdout is not None
        assert [follower.stdout.readline() for _ in range(3)] == [b"tick\n"] * 3
        follower.kill()
        follower.communicate(timeout=LIMIT_S)
        eventually(lambda: through.rig.relay.counters.open_pairs == 0, "the follower's pair stays open")
    finally:
        through.docker("rm", "-f", name)


def test_events_and_stats_stream(through: Through) -> None:
    events = through.start("events", "--format", "{{.Action}}", "--filter", f"container={through.box}")
    stats = through.start("stats", "--format", "{{.ID}}", through.box)
    assert events.stdout is not None
    assert stats.stdout is not None
    try:
        seen: list[bytes] = []

        def read() -> None:
            assert events.stdout is not None
            seen.append(events.stdout.readline())

        reader = threading.Thread(target=read)
        reader.start()
        while reader.is_alive():  # an event may be before the stream's begin
            through.docker("exec", through.box, "true")
            reader.join(0.2)
        assert seen[0].startswith((b"exec_create", b"exec_start", b"exec_die"))
        assert through.box[:12].encode() in stats.stdout.readline()
    finally:
        for process in (events, stats):
            process.kill()
            process.communicate(timeout=LIMIT_S)


def test_a_detached_run_leaves_no_pair_behind(through: Through) -> None:
    """The command opens `/wait` and abandons it."""
    name = f"ft-{uuid.uuid4().hex[:8]}"
    assert through.docker("run", "-d", "--name", name, "--network", "none", through.image, "sleep", "600")[0] == 0
    try:
        eventually(lambda: through.rig.relay.counters.open_pairs == 0, "pairs stay open behind a detached run")
    finally:
        through.docker("rm", "-f", name)


def test_a_classic_build_and_one_that_fails(through: Through, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {through.image}\nCOPY big /big\nRUN wc -c </big >/size\n")
    (tmp_path / "big").write_bytes(os.urandom(2_000_000))
    tag = f"ft-build-{uuid.uuid4().hex[:8]}"
    environment = {**os.environ, "DOCKER_BUILDKIT": "0"}
    command = [
        "docker",
        "--host",
        through.door.url,
        "build",
        "--force-rm",
        "--network",
        "none",
        "-t",
        tag,
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert through.docker("run", "--rm", "--network", "none", tag, "cat", "/size")[1] == b"2000000\n"
    (tmp_path / "Dockerfile").write_text(f"FROM {through.image}\nRUN exit 9\n")
    done = subprocess.run(command, capture_output=True, env=environment, check=False, timeout=LIMIT_S)
    assert done.returncode != 0
    assert b"returned a non-zero code: 9" in done.stderr
    through.docker("rmi", "-f", tag)


def test_docker_py_runs_execs_and_half_closes(through: Through) -> None:
    _use_docker_py(through)
    gc.collect()  # docker-py leaves connections of its own to the collector
    eventually(lambda: through.rig.relay.counters.open_pairs == 0, "pairs stay open behind docker-py")


def _use_docker_py(through: Through) -> None:
    with contextlib.closing(docker.DockerClient(base_url=through.door.url)) as client:
        box = client.containers.get(through.box)
        code, output = box.exec_run(["sh", "-c", "echo out; echo err >&2; exit 5"], demux=True)
        assert code == 5
        assert tuple(output) == (b"out\n", b"err\n")
        made = client.api.exec_create(through.box, ["wc", "-c"], stdin=True)
        stream = client.api.exec_start(made["Id"], socket=True)
        raw: socket.socket = getattr(stream, "_sock")  # noqa: B009 - typed as one of three classes, of which one has it
        raw.settimeout(DEADLINE_S)
        raw.sendall(b"12345")
        raw.shutdown(socket.SHUT_WR)
        got = b""
        while data := raw.recv(4096):
            got += data
        stream.close()
        raw.close()
        assert got.endswith(b"5\n")
        assert client.api.exec_inspect(made["Id"])["ExitCode"] == 0


def test_http2_preface_passes_to_the_engine_and_its_answer_back(through: Through, docker_engine: Engine) -> None:
    """An engine without gRPC on its socket answers something; the door must not change what."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)

    def said(address: str) -> bytes:
        is_unix = address.startswith("unix://")
        with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET) as sock:
            sock.settimeout(DEADLINE_S)
            if is_unix:
                sock.connect(address.removeprefix("unix://"))
            else:
                host, _, port = address.removeprefix("tcp://").partition(":")
                sock.connect((host, int(port)))
            sock.sendall(preface)
            got = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                sock.settimeout(2)
                while data := sock.recv(4096):
                    got += data
            return got

    assert said(through.door.url) == said(docker_engine.docker_host)


def test_the_engine_is_asked_before_the_child_is_sent_to_it(through: Through, tmp_path: Path) -> None:
    def ping(door: DockerDoor) -> str | None:
        return asyncio.run_coroutine_threadsafe(door.ping(), through.rig.loop).result(DEADLINE_S)

    assert ping(through.door) is None
    nobody = open_door(
        through.rig, Upstream.parse("engine", f"unix://{tmp_path}/none.sock"), unix_listener(str(tmp_path / "a"))
    )
    assert ping(nobody) == "No such file or directory"
