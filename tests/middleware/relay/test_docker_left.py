"""A unix client of the Docker door that has left closes its upstream; one that only half-closed does not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.docker import DockerDoor
from fairtrial.middleware.relay.relay import unix_listener
from fairtrial.middleware.relay.settings import Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import DEADLINE_S, Rig, fill, read_all, read_exactly, read_head, running

EXEC = (
    b"POST /v1.41/exec/abc/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
    b"Content-Length: 28\r\n\r\n"
    b'{"Detach":false,"Tty":false}'
)
SWITCH = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


@pytest.fixture
def rig(loop_kind: str) -> Iterator[Rig]:
    with running(loop_kind) as made:
        yield made


def connected(rig: Rig, tmp_path: Path) -> socket.socket:
    """A client of a unix door in front of the rig's upstream."""
    return connected_to(rig, tmp_path, rig.upstream.url)


def connected_to(rig: Rig, tmp_path: Path, upstream_url: str) -> socket.socket:
    def make(upstream: Upstream, dialler: Dialler, listener: socket.socket) -> DockerDoor:
        return DockerDoor(upstream, dialler, listener, "trial-1")

    listener = unix_listener(str(tmp_path / "docker.sock"))
    rig.in_loop(lambda: rig.relay.open_door(Upstream.parse("engine", upstream_url), listener, make))
    client = socket.socket(socket.AF_UNIX)
    rig.clients.append(client)
    client.settimeout(DEADLINE_S)
    client.connect(str(tmp_path / "docker.sock"))
    return client


def exec_begun(rig: Rig, tmp_path: Path) -> tuple[socket.socket, socket.socket]:
    """Client on a unix door and engine on TCP, an exec's tunnel between them."""
    client = connected(rig, tmp_path)
    client.sendall(EXEC)
    engine = rig.upstream.accept()
    read_head(engine)
    read_exactly(engine, 28)
    engine.sendall(SWITCH)
    read_exactly(client, len(SWITCH))
    return client, engine


def test_a_client_that_half_closed_and_then_left_closes_a_silent_exec(rig: Rig, tmp_path: Path) -> None:
    client, engine = exec_begun(rig, tmp_path)
    client.shutdown(socket.SHUT_WR)
    assert engine.recv(1) == b""
    assert rig.relay.counters.open_pairs == 1
    client.close()
    rig.no_pair_open()
    ended = rig.observer.of(Kind.TUNNEL_END)[0].json()
    assert ended["upstream_ended"] is False


def test_a_client_that_leaves_a_silent_exec_closes_it_at_once(rig: Rig, tmp_path: Path) -> None:
    client, engine = exec_begun(rig, tmp_path)
    client.close()
    assert engine.recv(1) == b""
    rig.no_pair_open()
    assert rig.observer.of(Kind.CLOSE)[0].json()["first"] == "client"


def test_what_a_client_had_sent_before_it_left_reaches_the_engine_whole(rig: Rig, tmp_path: Path) -> None:
    client, engine = exec_begun(rig, tmp_path)
    sent = fill(client)
    assert len(sent) > 500_000
    client.close()
    assert read_all(engine) == (sent, "fin")
    rig.no_pair_open()


def test_a_client_that_leaves_while_nobody_takes_its_upload_closes_its_upstream(rig: Rig, tmp_path: Path) -> None:
    client = connected(rig, tmp_path)
    client.sendall(b"PUT /containers/x/archive HTTP/1.1\r\nHost: d\r\nContent-Length: 900000000\r\n\r\n")
    engine = rig.upstream.accept()
    fill(client)
    client.close()
    rig.no_pair_open()
    engine.close()


def test_a_client_that_half_closed_behind_its_request_and_then_left_is_gone(rig: Rig, tmp_path: Path) -> None:
    client = connected(rig, tmp_path)
    client.sendall(b"POST /containers/x/wait HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n")
    client.shutdown(socket.SHUT_WR)
    engine = rig.upstream.accept()
    read_head(engine)
    assert engine.recv(1) == b""
    assert rig.relay.counters.open_pairs == 1
    client.close()
    rig.no_pair_open()


def test_a_client_that_half_closed_and_stays_gets_the_output(rig: Rig, tmp_path: Path) -> None:
    client, engine = exec_begun(rig, tmp_path)
    client.shutdown(socket.SHUT_WR)
    assert engine.recv(1) == b""
    for _ in range(20):
        engine.sendall(b"x" * 50_000)
    engine.close()
    assert len(read_all(client)[0]) == 1_000_000
    rig.no_pair_open()


def test_an_engine_that_answers_early_ends_its_side_and_goes_resets_a_client_that_uploads_on(
    rig: Rig, tmp_path: Path
) -> None:
    """The client reads nothing while it uploads, as one that sends a head over the engine's limit: without the reset
    both would wait for ever.  What the engine had answered is there to be read all the same."""
    answer = b"HTTP/1.1 431 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "engine.sock"))
        server.listen()
        client = connected_to(rig, tmp_path, f"unix://{tmp_path}/engine.sock")
        client.sendall(b"POST /v1.41/build HTTP/1.1\r\nHost: d\r\nContent-Length: 100000000\r\n\r\n")
        engine, _ = server.accept()
        read_head(engine)
        engine.sendall(answer)
        engine.shutdown(socket.SHUT_WR)
        fill(client)
        engine.close()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            client.sendall(b"x" * 10_000_000)
        assert read_exactly(client, len(answer)) == answer
    rig.no_pair_open()
