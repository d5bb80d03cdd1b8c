"""How execs through the Docker door end on a real engine: its client is killed, the engine is killed; and over TLS."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from fairtrial.middleware.core.observations import DoorContainer
from fairtrial.middleware.relay.docker import upstream_of
from fairtrial.middleware.relay.docker_upstream import DockerUpstream
from tests.e2e.clients import e2e_folder
from tests.e2e.engine import Engine, EngineUnavailable, private_engine
from tests.e2e.image import ImageUnavailable, ensure_image
from tests.e2e.through import LIMIT_S, Through, door_to
from tests.middleware.relay.rig import DEADLINE_S, eventually

MEGABYTES_20 = 20_000_000


@pytest.fixture
def through(docker_engine: Engine, busybox_image: str, tmp_path: Path) -> Iterator[Through]:
    """A door on a socket in front of an engine on a socket, and a running container."""
    box = docker_engine.docker("run", "-d", "--network", "none", busybox_image, "sleep", "600").stdout.strip()
    try:
        with door_to(
            upstream_of(DockerUpstream(url=docker_engine.docker_host)), tmp_path, image=busybox_image, box=box
        ) as made:
            yield made
    finally:
        docker_engine.docker("rm", "-f", box)


def begun(through: Through, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """An exec that has said its first line and runs on."""
    process = through.start("exec", *arguments, through.box, "sh", "-c", "echo begun; exec sleep 600", stdin=stdin)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    return process


@pytest.mark.parametrize("options", [(), ("-i",)], ids=["without stdin", "with stdin"])
def test_a_client_that_is_killed_ends_its_connection_and_is_said_to_have_left(
    through: Through, options: tuple[str, ...]
) -> None:
    process = begun(through, *options, stdin=subprocess.PIPE if options else subprocess.DEVNULL)
    process.kill()
    killed_s = time.monotonic()
    process.communicate(timeout=LIMIT_S)
    eventually(lambda: through.rig.relay.counters.open_pairs == 0, "the exec's pair stays open")
    assert time.monotonic() - killed_s < DEADLINE_S
    through.rig.no_pair_open()
    (seen,) = through.execs()
    assert (seen.ended_by, seen.stdout) == ("client", 6)


def test_an_ordinary_end_is_the_processes(through: Through) -> None:
    assert through.docker("exec", through.box, "sh", "-c", "echo out; echo err >&2; exit 3") == (3, b"out\n", b"err\n")
    through.rig.no_pair_open()
    (seen,) = through.execs()
    assert (seen.ended_by, seen.stdout, seen.stderr, seen.stdin, seen.raw) == ("process", 4, 4, 0, 0)
    assert seen.dispatch_delay is not None
    assert seen.create_delay is not None
    assert seen.create_delay > 0
    assert seen.duration is not None
    assert 0 < seen.dispatch_delay <= seen.duration < LIMIT_S


def test_a_run_is_seen_from_its_making_to_its_exit_code(through: Through) -> None:
    ran = through.docker(
        "run", "--rm", "--network", "none", through.image, "sh", "-c", "echo out; echo err >&2; exit 4"
    )
    assert ran == (4, b"out\n", b"err\n")
    through.rig.no_pair_open()
    did = {value.action: value for value in through.seen() if isinstance(value, DoorContainer)}
    assert did["create"].text_digest is not None
    assert (did["attach"].stdout, did["attach"].stderr, did["attach"].ended_by) == (4, 4, "process")
    assert did["wait"].exit_code == 4
    assert len({value.container_id for value in did.values()}) == 1


# --- an engine behind TLS --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    """A door in front of a private engine that listens with TLS and asks for a certificate."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("client@test.invalid")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name, certificate in (("server-", server), ("", client)):
        certificate.cert_chain_pems[0].write_to_path(str(folder / f"{name}cert.pem"))
        certificate.private_key_pem.write_to_path(str(folder / f"{name}key.pem"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["-H", f"tcp://127.0.0.1:{port}", "--tlsverify", "--tlscacert", str(folder / "ca.pem")]
    options += ["--tlscert", str(folder / "server-cert.pem"), "--tlskey", str(folder / "server-key.pem")]
    try:
        with private_engine(*options) as engine:
            image = ensure_image("ft-busybox", engine.docker_host, e2e_folder() / "images")
            box = engine.docker("run", "-d", "--network", "none", image, "sleep", "600").stdout.strip()
            upstream = upstream_of(DockerUpstream(url=f"tcp://127.0.0.1:{port}", tls_dir=str(folder), tls_verify=True))
            with door_to(upstream, folder, image=image, box=box) as made:
                yield made
    except (EngineUnavailable, ImageUnavailable) as reason:
        pytest.skip(str(reason))


def test_tls_a_half_close_reaches_the_engine_and_the_output_behind_it_comes_back(secure: Through) -> None:
    assert secure.docker("exec", "-i", secure.box, "wc", "-c", stdin=b"x" * 1000) == (0, b"1000\n", b"")
    assert secure.docker("exec", secure.box, "sh", "-c", "sleep 1; echo late; exit 3") == (3, b"late\n", b"")
    done = secure.docker("run", "-i", "--rm", "--network", "none", secure.image, "md5sum", stdin=b"hello")
    assert done == (0, b"5d41402abc4b2a76b9719d911017c592  -\n", b"")


def test_tls_20_mb_pass_both_ways(secure: Through) -> None:
    data = os.urandom(MEGABYTES_20)
    status, out, _ = secure.docker("exec", "-i", secure.box, "cat", stdin=data)
    assert (status, out == data) == (0, True)
    secure.rig.no_pair_open()
    assert (secure.execs()[-1].stdin, secure.execs()[-1].stdout) == (MEGABYTES_20, MEGABYTES_20)


def test_tls_a_client_that_is_killed_ends_its_connection(secure: Through) -> None:
    process = begun(secure)
    process.kill()
    process.communicate(timeout=LIMIT_S)
    secure.rig.no_pair_open()
    assert secure.execs()[-1].ended_by == "client"


# --- an engine that dies ---------------------------------------------------------------------------------------------


def test_an_engine_that_is_killed_ends_every_stream_and_no_pair_stays(tmp_path: Path) -> None:
    try:
        with private_engine() as engine:
            image = ensure_image("ft-busybox", engine.docker_host, e2e_folder() / "images")
            options = ("--stop-signal", "KILL", "--network", "none")
            box = engine.docker("run", "-d", *options, image, "sleep", "600").stdout.strip()
            upstream = upstream_of(DockerUpstream(url=engine.docker_host))
            with door_to(upstream, tmp_path, image=image, box=box) as through:
                process = begun(through)
                assert engine.pid is not None
                os.kill(engine.pid, signal.SIGKILL)
                process.communicate(timeout=LIMIT_S)
                assert process.returncode != 0
                through.rig.no_pair_open()
                (seen,) = through.execs()
                assert seen.ended_by in ("engine", "process")  # only the lost events tell the two apart: steps/tools.py
                engine.again()
                assert through.docker("version")[0] == 0  # the door dials anew
    except (EngineUnavailable, ImageUnavailable) as reason:
        pytest.skip(str(reason))
