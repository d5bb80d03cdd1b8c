"""Unix sockets as upstream and as door: the same bytes, the same ends, and nobody else may connect."""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.relay.model import ModelDoor, SocketDoor
from fairtrial.middleware.relay.relay import unix_listener
from fairtrial.middleware.relay.settings import RelaySettings, Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import (
    DEADLINE_S,
    TOKEN,
    Rig,
    eventually,
    read_all,
    read_exactly,
    read_head,
    request,
    running,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[socket.socket]:
    """A model API that listens on a unix socket."""
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(tmp_path / "llm.sock"))
        listener.listen(8)
        listener.settimeout(DEADLINE_S)
        yield listener


def accepted(listener: socket.socket) -> socket.socket:
    sock, _ = listener.accept()
    sock.settimeout(DEADLINE_S)
    return sock


def unix_door(rig: Rig, upstream: Upstream, path: Path) -> ModelDoor:
    listener = unix_listener(str(path))

    def open_it() -> ModelDoor:
        return rig.relay.open_door(upstream, listener, rig.relay._model_door)

    door = rig.in_loop(open_it)
    assert isinstance(door, ModelDoor)
    return door


def unix_client(door: ModelDoor) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(DEADLINE_S)
    sock.connect(door.path)
    return sock


def test_an_upstream_on_a_unix_socket_is_reached_with_its_base_path(
    rig: Rig, served: socket.socket, tmp_path: Path
) -> None:
    quoted = str(tmp_path / "llm.sock").replace("/", "%2F")
    door = rig.open_door(Upstream.parse("local", f"http+unix://{quoted}/api/v1"))
    client = rig.client(door=door)
    client.sendall(request("GET", "/models"))
    with accepted(served) as up:
        assert read_head(up) == b"GET /api/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
        client.close()
        assert read_all(up) == (b"", "fin")
    rig.no_pair_open()
    dial = rig.observer.wait(Kind.DIAL)[0].json()
    assert (dial["ok"], dial["remote"], dial["dns_s"]) == (True, str(tmp_path / "llm.sock"), None)
    assert isinstance(dial["connect_s"], float)


def test_a_socket_that_nobody_serves_is_a_failed_connect(rig: Rig, tmp_path: Path) -> None:
    door = rig.open_door(Upstream.parse("local", f"unix://{tmp_path}/none.sock"))
    client = rig.client(door=door)
    client.sendall(request("GET"))
    assert read_all(client) == (b"", "rst")
    rig.no_pair_open()
    dial = rig.observer.wait(Kind.DIAL)[0].json()
    assert (dial["ok"], dial["stage"], dial["errno"]) == (False, "connect", 2)


def test_a_unix_socket_whose_queue_is_full_is_waited_for_as_a_blocking_client_would(rig: Rig, tmp_path: Path) -> None:
    path = str(tmp_path / "busy.sock")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(path)
        listener.listen(0)
        listener.settimeout(DEADLINE_S)
        first = socket.socket(socket.AF_UNIX)
        first.connect(path)
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with probe, pytest.raises(BlockingIOError):
            probe.connect(path)
        client = rig.client(door=rig.open_door(Upstream.parse("local", f"unix://{path}")))
        client.sendall(request("GET"))
        eventually(lambda: rig.relay.counters.requests == 1, "no request came in")
        accepted(listener).close()
        first.close()
        with accepted(listener) as up:
            read_head(up)
            up.sendall(OK)
            assert read_exactly(client, len(OK)) == OK
        client.close()
        rig.no_pair_open()


def test_a_unix_socket_that_stays_full_is_given_up_at_the_end_of_the_connect_budget(
    loop_kind: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "busy.sock")
    with (
        contextlib.closing(socket.socket(socket.AF_UNIX)) as listener,
        contextlib.closing(socket.socket(socket.AF_UNIX)) as first,
        running(loop_kind, settings=RelaySettings(connect_timeout_s=0.2)) as rig,
    ):
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        client = rig.client(door=rig.open_door(Upstream.parse("local", f"unix://{path}")))
        client.sendall(request("GET"))
        assert read_all(client) == (b"", "rst")
        rig.no_pair_open()
        dial = rig.observer.wait(Kind.DIAL)[0].json()
        assert (dial["stage"], dial["errno"]) == ("connect", 110)


def test_a_door_on_a_unix_socket_is_for_its_user_alone_and_passes_bytes_and_ends(rig: Rig, tmp_path: Path) -> None:
    door = unix_door(rig, Upstream.parse("x", rig.upstream.url + "/base"), tmp_path / "door.sock")
    assert stat.S_IMODE(os.stat(door.path).st_mode) == 0o600
    assert door.url(TOKEN) == f"http+unix://{door.path.replace('/', '%2F')}/t/{TOKEN}"
    with unix_client(door) as client:
        client.sendall(request("GET", "/v1"))
        up = rig.upstream.accept()
        assert read_head(up) == b"GET /base/v1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % rig.upstream.port
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
        up.close()
        assert read_all(client) == (b"", "fin")
    rig.no_pair_open()
    opened = rig.observer.wait(Kind.OPEN)[0].json()
    assert (opened["peer"], opened["upstream"]) == ("unix", rig.upstream.url + "/base")
    assert rig.observer.joined(Kind.NOTE).count(b"trial-1") == 1


def test_a_client_of_a_unix_door_that_leaves_aborts_its_upstream(rig: Rig, tmp_path: Path) -> None:
    door = unix_door(rig, Upstream.parse("x", rig.upstream.url), tmp_path / "door.sock")
    client = unix_client(door)
    client.sendall(request("GET", "/v1"))
    up = rig.upstream.accept()
    read_head(up)
    client.close()
    assert read_all(up) == (b"", "fin")
    rig.no_pair_open()


def test_a_socket_left_over_by_a_dead_process_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = str(tmp_path / "door.sock")
    unix_listener(path).close()
    assert os.path.exists(path)
    with unix_listener(path) as alive:
        assert alive.getsockname() == path
        with pytest.raises(OSError, match="in use"):
            unix_listener(path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="in use"):
        unix_listener(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("url", ["unix://run/x.sock", "unix:///" + "x" * 110, "http+unix://x/v1", "unix://"])
def test_an_address_that_names_no_socket_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(ValueError, match="upstream x: "):
        Upstream.parse("x", url)


def test_the_address_of_a_socket_is_told_as_it_was_given() -> None:
    for url in ("unix:///run/llm.sock", "http+unix://%2Frun%2Fllm.sock/v1"):
        assert Upstream.parse("x", url).url == url


def test_a_door_in_the_place_of_a_socket_changes_nothing_of_a_request(
    rig: Rig, served: socket.socket, tmp_path: Path
) -> None:
    listener = unix_listener(str(tmp_path / "door.sock"))

    def open_it() -> ModelDoor:
        upstream = Upstream.parse("x", f"unix://{tmp_path}/llm.sock")
        return rig.relay.open_door(
            upstream, listener, lambda up, dialler, sock: SocketDoor(up, dialler, sock, "trial-9")
        )

    door = rig.in_loop(open_it)
    assert isinstance(door, ModelDoor)
    asked = b"GET /t/x/v1?a=%3A HTTP/1.1\r\nhOST:  api.fair.test\r\nX: y\r\n\r\n"
    with unix_client(door) as client:
        client.sendall(asked)
        with accepted(served) as up:
            assert read_head(up) == asked
            up.sendall(OK)
            assert read_exactly(client, len(OK)) == OK
    rig.no_pair_open()
    assert b"trial-9" in rig.observer.joined(Kind.NOTE)


def test_tls_within_a_socket_passes_unread(rig: Rig, served: socket.socket, tmp_path: Path) -> None:
    listener = unix_listener(str(tmp_path / "door.sock"))

    def open_it() -> ModelDoor:
        upstream = Upstream.parse("x", f"unix://{tmp_path}/llm.sock")
        return rig.relay.open_door(
            upstream, listener, lambda up, dialler, sock: SocketDoor(up, dialler, sock, "trial-9")
        )

    door = rig.in_loop(open_it)
    assert isinstance(door, ModelDoor)
    hello = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(range(190))
    with unix_client(door) as client:
        client.sendall(hello)
        with accepted(served) as up:
            assert read_exactly(up, len(hello)) == hello
            up.sendall(b"\x15\x03\x01\x00\x02\x02\x28")
            assert read_exactly(client, 7) == b"\x15\x03\x01\x00\x02\x02\x28"
    rig.no_pair_open()
