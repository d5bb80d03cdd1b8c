"""What a Docker door will need of the engine: hijacks, stdin before the answer, half-closes that are no ending."""

import socket
from collections.abc import Iterator

import pytest

from fairtrial.middleware.relay.coupled import DoorPolicy
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import Rig, read_all, read_exactly, read_head, reset, running

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"
ATTACH = b"POST /v1.41/containers/abc/attach?stdin=1&stream=1 HTTP/1.1\r\nHost: d\r\nContent-Length: 0\r\n\r\n"
EXEC = (
    b"POST /v1.41/exec/abc/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
    b"Content-Length: 28\r\n\r\n"
    b'{"Detach":false,"Tty":false}'
)


@pytest.fixture
def docker_rig(loop_kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A door with the policy of a TCP Docker door."""
    with running(loop_kind) as rig:
        monkeypatch.setattr(rig.door, "policy", DoorPolicy(client_eof="half", docker=True), raising=False)
        yield rig


def test_an_unframed_200_is_a_tunnel_and_stdin_with_its_eof_may_come_first(docker_rig: Rig) -> None:
    client = docker_rig.client()
    client.sendall(ATTACH + b"stdin before the answer")
    client.shutdown(socket.SHUT_WR)
    up = docker_rig.upstream.accept()
    read_head(up)
    up.sendall(STREAM + b"out")
    assert read_all(up) == (b"stdin before the answer", "fin")
    up.sendall(b"put after the half-close")
    up.close()
    assert read_all(client) == (STREAM + b"output after the half-close", "fin")
    docker_rig.no_pair_open()
    sums = docker_rig.observer.of(Kind.TUNNEL_END)[0].json()
    assert (sums["stdin"], sums["raw"]) == (len(b"stdin before the answer"), len(b"output after the half-close"))


def test_exec_half_closes_right_behind_its_101_and_still_gets_its_output(docker_rig: Rig) -> None:
    client = docker_rig.client()
    client.sendall(EXEC)
    up = docker_rig.upstream.accept()
    head = read_head(up)
    assert b"Upgrade: tcp" in head
    assert read_exactly(up, 28) == EXEC[-28:]
    switch = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    up.sendall(switch)
    assert read_exactly(client, len(switch)) == switch
    client.shutdown(socket.SHUT_WR)
    assert up.recv(1) == b""
    up.sendall(b"o" * 500_000)
    up.close()
    assert read_all(client) == (b"o" * 500_000, "fin")
    docker_rig.no_pair_open()


def test_a_half_close_behind_a_request_does_not_end_a_long_answer(docker_rig: Rig) -> None:
    """T10: a half-close is no disconnect."""
    client = docker_rig.client()
    client.sendall(b"GET /v1.41/events HTTP/1.1\r\nHost: d\r\n\r\n")
    up = docker_rig.upstream.accept()
    read_head(up)
    client.shutdown(socket.SHUT_WR)
    assert up.recv(1) == b""
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    up.sendall(answer)
    up.close()
    assert read_all(client) == (answer, "fin")
    docker_rig.no_pair_open()
    assert docker_rig.observer.of(Kind.RESPONSE_END)[0].json()["complete"] is True


def test_a_client_that_resets_behind_its_upload_ends_the_upstream_behind_the_last_byte(docker_rig: Rig) -> None:
    client = docker_rig.client()
    client.sendall(b"PUT /v1.41/containers/abc/archive HTTP/1.1\r\nHost: d\r\nContent-Length: 100\r\n\r\n" + b"tar")
    up = docker_rig.upstream.accept()
    read_head(up)
    reset(client)
    assert read_all(up) == (b"tar", "rst")
    docker_rig.no_pair_open()
