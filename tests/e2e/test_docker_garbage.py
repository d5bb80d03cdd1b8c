"""A client that speaks garbage at the Docker door: a real engine's own answer or an end, and nobody else notices."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.core.observations import DoorContainer
from fairtrial.middleware.relay.docker import upstream_of
from fairtrial.middleware.relay.docker_upstream import DockerUpstream
from tests.e2e.engine import Engine
from tests.e2e.through import LIMIT_S, Through, door_to

GARBAGE: dict[str, bytes] = {
    "no HTTP at all": b"\x00\x01\x02garbage\xff\xfe\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(32) + b"\r\n\r\n",
    "a head without end, then gone": b"GET /_ping HTTP/1.1\r\nHost: docker\r\nX-A: ",
    "a length that is none": b"POST /v1.41/containers/create HTTP/1.1\r\nHost: d\r\nContent-Length: ten\r\n\r\n{}",
    "two lengths": b"POST /v1.41/containers/create HTTP/1.1\r\nHost: d\r\nContent-Length: 2\r\n"
    b"Content-Length: 3\r\n\r\n{}",
    "a body that is no JSON": b"POST /v1.41/containers/create HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n"
    b"Content-Length: 3\r\nConnection: close\r\n\r\n\xff{]",
    "an id that leads elsewhere": b"POST /v1.41/containers/..%2F..%2Fimages/kill HTTP/1.1\r\nHost: d\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n",
    "a path that leads elsewhere": b"POST /v1.41/containers/../../../etc/passwd/kill HTTP/1.1\r\nHost: d\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n",
    "a head that is too long": b"GET /_ping HTTP/1.1\r\nHost: d\r\nX-A: " + b"a" * (2 << 20) + b"\r\n\r\n",
}


def said(address: str, request: bytes) -> bytes:
    """All that comes back until the end, after the writing half was closed."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(LIMIT_S)
        client.connect(address.removeprefix("unix://"))
        got = b""
        try:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                got += piece
        except (BrokenPipeError, ConnectionResetError):
            pass  # ended in the middle of what it sent
    return got


@pytest.fixture(scope="module")
def through(docker_engine: Engine, busybox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    """A door in front of the engine, and a running container."""
    folder: Path = tmp_path_factory.mktemp("door")
    box = docker_engine.docker("run", "-d", "--network", "none", busybox_image, "sleep", "600").stdout.strip()
    try:
        upstream = upstream_of(DockerUpstream(url=docker_engine.docker_host))
        with door_to(upstream, folder, image=busybox_image, box=box) as made:
            yield made
    finally:
        docker_engine.docker("rm", "-f", box)


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_has_the_engines_own_answer_or_an_end_and_others_are_served(
    docker_engine: Engine, through: Through, kind: str
) -> None:
    with through.start("exec", through.box, "sh", "-c", "sleep 0.3; echo served") as beside:
        direct = said(docker_engine.docker_host, GARBAGE[kind])
        answer = said(through.door.url, GARBAGE[kind])
        out, _ = beside.communicate(timeout=LIMIT_S)
    assert (beside.returncode, out) == (0, b"served\n")
    assert answer.split(b"\r\n")[0] in (direct.split(b"\r\n")[0], b"", b"HTTP/1.1 400 Bad Request")
    through.rig.no_pair_open()


def test_what_names_no_container_is_in_no_fact(through: Through) -> None:
    """`seen` itself claims that no record made the tracker fail."""
    said(through.door.url, GARBAGE["an id that leads elsewhere"])
    through.rig.no_pair_open()
    named = [one for one in through.seen() if isinstance(one, DoorContainer)]
    assert not any(one.container_id or ".." in (one.container_named or "") for one in named)
