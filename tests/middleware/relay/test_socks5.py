"""SOCKS5 proxies towards plain and TLS upstreams, with and without a login."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from fairtrial.middleware.relay.settings import ProxySettings, RelaySettings
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import DEADLINE_S, Rig, read_all, read_exactly, read_head, request, running

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Socks:
    """A SOCKS5 proxy; `asked` are (host or address, port).  `reply` other than 0 refuses."""

    listener: socket.socket
    login: bytes | None = None
    reply: int = 0
    junk: bytes | None = None
    asked: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self._one, args=(near,), daemon=True).start()

    def _one(self, near: socket.socket) -> None:
        near.settimeout(DEADLINE_S)
        with near, contextlib.suppress(OSError, AssertionError):
            methods = read_exactly(near, read_exactly(near, 2)[1])
            if self.junk is not None:
                near.sendall(self.junk)
                return
            wanted = 0 if self.login is None else 2
            if wanted not in methods:
                near.sendall(b"\x05\xff")
                return
            near.sendall(bytes([5, wanted]))
            if self.login is not None:
                user = read_exactly(near, read_exactly(near, 2)[1])
                word = read_exactly(near, read_exactly(near, 1)[0])
                near.sendall(b"\x01" + (b"\x00" if user + b":" + word == self.login else b"\x01"))
                if user + b":" + word != self.login:
                    return
            kind = read_exactly(near, 4)[3]
            host = read_exactly(near, {1: 4, 4: 16}.get(kind) or read_exactly(near, 1)[0])
            port = int.from_bytes(read_exactly(near, 2), "big")
            self.asked.append((host, port))
            near.sendall(bytes([5, self.reply, 0, 3, 4]) + b"here" + b"\x00\x01")
            if self.reply:
                return
            with socket.create_connection(("127.0.0.1", port)) as far:
                back = threading.Thread(target=splice, args=(far, near))
                back.start()
                splice(near, far)
                back.join()


def splice(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def socks() -> Iterator[Socks]:
    """A proxy that lets everybody through."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        made = Socks(listener)
        threading.Thread(target=made.serve, daemon=True).start()
        yield made


def through(socks: Socks, ca_file: str, login: str = "", scheme: str = "socks5") -> RelaySettings:
    url = f"{scheme}://{login}127.0.0.1:{socks.port}"
    return RelaySettings(ca_files=(ca_file,), proxy=ProxySettings(https_proxy=url, http_proxy=url))


def call(rig: Rig) -> dict[str, object]:
    """One call with an answer; gives its dial."""
    client = rig.client()
    client.sendall(request("GET", "/v1"))
    up = rig.upstream.accept()
    assert read_head(up).startswith(b"GET /v1 HTTP/1.1\r\n")  # no absolute form: it is a tunnel
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.no_pair_open()
    return rig.observer.wait(Kind.DIAL)[0].json()


def refused(rig: Rig) -> dict[str, object]:
    client = rig.client()
    client.sendall(request("GET"))
    assert read_all(client) == (b"", "rst")
    rig.no_pair_open()
    return rig.observer.wait(Kind.DIAL)[0].json()


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
def test_a_tls_upstream_by_its_name(scheme: str, socks: Socks, loop_kind: str, ca_file: str) -> None:
    with running(loop_kind, tls=True, settings=through(socks, ca_file, scheme=scheme)) as rig:
        dial = call(rig)
        assert socks.asked == [(b"localhost", rig.upstream.port)]
    assert (dial["ok"], dial["proxy_mode"], dial["via_proxy"]) == (True, "socks5", f"127.0.0.1:{socks.port}")
    assert isinstance(dial["proxy_s"], float)
    assert isinstance(dial["tls_s"], float)


def test_a_plain_upstream_by_its_address(socks: Socks, loop_kind: str, ca_file: str) -> None:
    with running(loop_kind, settings=through(socks, ca_file)) as rig:
        call(rig)
        assert socks.asked == [(b"\x7f\x00\x00\x01", rig.upstream.port)]


def test_a_login_is_given_where_it_is_wanted(socks: Socks, loop_kind: str, ca_file: str) -> None:
    socks.login = b"user:p@ss"
    with running(loop_kind, tls=True, settings=through(socks, ca_file, "user:p%40ss@")) as rig:
        assert call(rig)["ok"] is True


@pytest.mark.parametrize("login", ["", "user:wrong@"])
def test_a_wrong_or_missing_login_is_told(login: str, socks: Socks, loop_kind: str, ca_file: str) -> None:
    socks.login = b"user:right"
    with running(loop_kind, tls=True, settings=through(socks, ca_file, login)) as rig:
        dial = refused(rig)
    assert (dial["ok"], dial["stage"], dial["errno"]) == (False, "proxy", 13)
    assert "login" in str(dial["error"])


def test_a_refusal_is_told_in_the_proxys_words(socks: Socks, loop_kind: str, ca_file: str) -> None:
    socks.reply = 4
    with running(loop_kind, tls=True, settings=through(socks, ca_file)) as rig:
        dial = refused(rig)
    assert (dial["ok"], dial["stage"]) == (False, "proxy")
    assert "host unreachable" in str(dial["error"])


@pytest.mark.parametrize("junk", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["nothing", "http"])
def test_what_is_no_socks_proxy_is_a_proxy_failure(junk: bytes, socks: Socks, loop_kind: str, ca_file: str) -> None:
    socks.junk = junk
    with running(loop_kind, tls=True, settings=through(socks, ca_file)) as rig:
        dial = refused(rig)
    assert (dial["ok"], dial["stage"]) == (False, "proxy")
