"""Corporate proxies: reached in plain or by TLS, with a login, silent, broken; towards plain and TLS upstreams."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

from fairtrial.middleware.relay.settings import ProxySettings, RelaySettings
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import (
    AUTHORITY,
    DEADLINE_S,
    Rig,
    UpstreamSide,
    fill,
    read_all,
    read_exactly,
    read_head,
    request,
    reset,
    running,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OPENED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class ProxySide:
    """A CONNECT proxy for any number of connections.  `asked` are the heads so far."""

    def __init__(self, *, tls: bool = False, name: str = "localhost", answer: Callable[[bytes], bytes] | None = None):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self.listener.getsockname()[1]
        self.url = f"http{'s' if tls else ''}://localhost:{self.port}"
        self.asked: list[bytes] = []
        self._answer = answer or (lambda _head: OPENED)
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            AUTHORITY.issue_cert(name).configure_cert(self._context)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        near.settimeout(DEADLINE_S)
        with contextlib.suppress(OSError, AssertionError), near:
            if self._context is not None:
                near = self._context.wrap_socket(near, server_side=True)
            with near:
                head = read_head(near)
                self.asked.append(head)
                reply = self._answer(head)
                near.sendall(reply)
                if b" 200 " not in reply:
                    return
                with socket.create_connection(("127.0.0.1", int(head.split(b" ")[1].rsplit(b":", 1)[1]))) as far:
                    self._splice(near, far)

    @staticmethod
    def _splice(near: socket.socket, far: socket.socket) -> None:
        """One thread for both ways: an SSL socket is none that two may use at once."""
        near.settimeout(0.02)
        far.settimeout(0.02)
        while True:
            for source, sink in ((near, far), (far, near)):
                try:
                    data = source.recv(65536)
                except TimeoutError:
                    continue
                if not data:
                    sink.settimeout(DEADLINE_S)
                    if isinstance(sink, ssl.SSLSocket):
                        with contextlib.suppress(OSError):
                            sink.unwrap()
                    return
                sink.settimeout(DEADLINE_S)
                sink.sendall(data)
                sink.settimeout(0.02)

    def close(self) -> None:
        self.listener.close()


@pytest.fixture(params=["http", "https"])
def proxy(request: pytest.FixtureRequest) -> Iterator[ProxySide]:
    """A proxy by http:// and by https://."""
    with contextlib.closing(ProxySide(tls=request.param == "https")) as side:
        yield side


def through(proxy: ProxySide, ca_file: str, login: str = "", **more: float) -> RelaySettings:
    url = proxy.url.replace("://", f"://{login}@") if login else proxy.url
    return RelaySettings(ca_files=(ca_file,), proxy=ProxySettings(https_proxy=url, http_proxy=url), **more)  # type: ignore[arg-type]  # only the numbers


def call(rig: Rig, body: bytes = b"") -> bytes:
    """One call with an answer; gives the head that the upstream read."""
    client = rig.client()
    client.sendall(request("POST", "/v1", body))
    up = rig.upstream.accept()
    head = read_head(up)
    assert read_exactly(up, len(body)) == body
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    rig.no_pair_open()
    return head


def dial_of(rig: Rig) -> dict[str, object]:
    return rig.observer.wait(Kind.DIAL)[0].json()


def test_a_tls_upstream_behind_a_proxy_with_a_login(proxy: ProxySide, loop_kind: str, ca_file: str) -> None:
    with running(loop_kind, tls=True, settings=through(proxy, ca_file, "user:p%40ss")) as rig:
        head = call(rig, b"x" * 300_000)
        dial = dial_of(rig)
    assert proxy.asked[0].startswith(b"CONNECT localhost:%d HTTP/1.1\r\n" % rig.upstream.port)
    assert b"Proxy-Authorization: Basic dXNlcjpwQHNz\r\n" in proxy.asked[0]
    assert b"roxy" not in head
    assert (dial["ok"], dial["via_proxy"], dial["proxy_mode"]) == (True, f"localhost:{proxy.port}", "connect")
    for stage in ("dns_s", "connect_s", "proxy_s", "tls_s"):
        value = dial[stage]
        assert isinstance(value, float)
        assert 0 < value < DEADLINE_S


def test_a_plain_upstream_behind_an_https_proxy_is_asked_for_in_absolute_form(loop_kind: str, ca_file: str) -> None:
    with contextlib.closing(UpstreamSide(tls=True)) as proxy:
        settings = RelaySettings(
            ca_files=(ca_file,), proxy=ProxySettings(http_proxy=f"https://u:w@localhost:{proxy.port}")
        )
        with running(loop_kind, base="/base", settings=settings) as rig:
            client = rig.client()
            client.sendall(request("GET", "/v1"))
            sock = proxy.accept()
            head = read_head(sock)
            assert head.startswith(b"GET http://127.0.0.1:%d/base/v1 HTTP/1.1\r\n" % rig.upstream.port)
            assert b"Proxy-Authorization: Basic dTp3\r\n" in head
            sock.sendall(OK)
            assert read_exactly(client, len(OK)) == OK
            client.close()
            rig.no_pair_open()
            dial = dial_of(rig)
            assert (dial["ok"], dial["proxy_mode"], dial["tls_s"]) == (True, "absolute", None)
            assert isinstance(dial["proxy_s"], float)


def test_bulk_both_ways_through_tls_in_tls_is_the_same_bytes(loop_kind: str, ca_file: str) -> None:
    with contextlib.closing(ProxySide(tls=True)) as proxy:
        settings = through(proxy, ca_file)
        with running(loop_kind, tls=True, settings=settings) as rig:
            body = bytes(range(256)) * 8192
            client = rig.client()
            sending = threading.Thread(target=client.sendall, args=(request("POST", "/v1", body),))
            sending.start()
            up = rig.upstream.accept()
            read_head(up)
            assert read_exactly(up, len(body)) == body
            sending.join(DEADLINE_S)
            answering = threading.Thread(
                target=up.sendall, args=(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body,)
            )
            answering.start()
            read_head(client)
            assert read_exactly(client, len(body)) == body
            answering.join(DEADLINE_S)
            client.close()
            rig.no_pair_open()


def test_a_slow_reader_holds_back_an_upstream_behind_tls_in_tls(loop_kind: str, ca_file: str) -> None:
    with (
        contextlib.closing(ProxySide(tls=True)) as proxy,
        running(loop_kind, tls=True, settings=through(proxy, ca_file)) as rig,
    ):
        client = rig.client(receive_bytes=4096)
        client.sendall(request("GET"))
        up = rig.upstream.accept()
        read_head(up)
        up.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 30))
        sent = fill(up, limit_bytes=200 << 20)
        assert len(sent) < 100 << 20
        reset(client)
        rig.no_pair_open()


@pytest.mark.parametrize("ending", ["clean", "cut"])
def test_ends_of_an_upstream_behind_an_https_proxy_are_told_apart(ending: str, loop_kind: str, ca_file: str) -> None:
    """A close-delimited response: whole after the upstream's own close_notify, cut when the tunnel ends without one."""
    with (
        contextlib.closing(ProxySide(tls=True)) as proxy,
        running(loop_kind, tls=True, settings=through(proxy, ca_file)) as rig,
    ):
        client = rig.client()
        client.sendall(request("GET"))
        up = rig.upstream.accept()
        read_head(up)
        up.sendall(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        assert isinstance(up, ssl.SSLSocket)
        if ending == "clean":
            up.setblocking(False)
            with contextlib.suppress(OSError):
                up.unwrap()
        up.close()
        assert read_all(client) == (b"HTTP/1.1 200 OK\r\n\r\nall of it", "fin" if ending == "clean" else "rst")
        client.close()
        rig.no_pair_open()
        ends = [record.json() for record in rig.observer.of(Kind.RESPONSE_END)]
        assert [end["complete"] for end in ends] == [ending == "clean"]


def test_a_client_that_leaves_closes_the_tunnel(proxy: ProxySide, loop_kind: str, ca_file: str) -> None:
    with running(loop_kind, tls=True, settings=through(proxy, ca_file)) as rig:
        client = rig.client()
        client.sendall(request("GET"))
        up = rig.upstream.accept()
        read_head(up)
        client.close()
        read_all(up)
        rig.no_pair_open()


# --- proxies that do not let us through -------------------------------------------------------------------------------


def refused(rig: Rig) -> dict[str, object]:
    """One call that is reset: how its dial went."""
    client = rig.client()
    client.sendall(request("GET"))
    assert read_all(client) == (b"", "rst")
    rig.no_pair_open()
    return dial_of(rig)


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("status", [407, 403, 502])
def test_a_proxys_refusal_is_told_with_its_status(status: int, tls: bool, loop_kind: str, ca_file: str) -> None:
    answer = b"HTTP/1.1 %d No\r\nContent-Length: 4\r\n\r\nsigh" % status
    with (
        contextlib.closing(ProxySide(tls=tls, answer=lambda _head: answer)) as proxy,
        running(loop_kind, tls=True, settings=through(proxy, ca_file)) as rig,
    ):
        dial = refused(rig)
    assert (dial["ok"], dial["stage"], dial["status"]) == (False, "proxy", status)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200"], ids=["none", "other", "half"])
def test_a_proxy_that_speaks_something_else_is_a_proxy_failure(answer: bytes, loop_kind: str, ca_file: str) -> None:
    with (
        contextlib.closing(ProxySide(answer=lambda _head: answer)) as proxy,
        running(loop_kind, tls=True, settings=through(proxy, ca_file)) as rig,
    ):
        dial = refused(rig)
    assert (dial["ok"], dial["stage"]) == (False, "proxy")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_accepts_and_stays_silent_ends_at_the_budget(scheme: str, loop_kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        settings = RelaySettings(connect_timeout_s=0.3, proxy=ProxySettings(https_proxy=url))
        with running(loop_kind, tls=True, settings=settings) as rig:
            dial = refused(rig)
    assert (dial["ok"], dial["stage"], dial["errno"], dial["proxy_mode"]) == (False, "proxy", 110, "connect")


def test_a_proxy_whose_certificate_is_not_trusted_is_a_proxy_failure(loop_kind: str) -> None:
    with contextlib.closing(ProxySide(tls=True)) as proxy:
        settings = RelaySettings(proxy=ProxySettings(https_proxy=proxy.url))
        with running(loop_kind, tls=True, settings=settings) as rig:
            dial = refused(rig)
    assert (dial["ok"], dial["stage"]) == (False, "proxy")
    assert "CERTIFICATE_VERIFY_FAILED" in str(dial["error"]).upper().replace(" ", "_")


def test_a_proxy_with_another_hosts_certificate_is_refused(loop_kind: str, ca_file: str) -> None:
    with (
        contextlib.closing(ProxySide(tls=True, name="other.test")) as proxy,
        running(loop_kind, tls=True, settings=through(proxy, ca_file)) as rig,
    ):
        dial = refused(rig)
    assert (dial["ok"], dial["stage"]) == (False, "proxy")


def test_no_proxy_is_needed_for_a_host_that_is_exempt(loop_kind: str, ca_file: str) -> None:
    settings = RelaySettings(
        ca_files=(ca_file,), proxy=ProxySettings(https_proxy="https://127.0.0.1:1", no_proxy="localhost")
    )
    with running(loop_kind, tls=True, settings=settings) as rig:
        call(rig)
        assert dial_of(rig)["via_proxy"] is None


# --- no other bounds --------------------------------------------------------------------------------------------------


def test_a_silent_upstream_is_never_cut(loop_kind: str, ca_file: str) -> None:
    """With every knob far below the silence: before the head, within the body, and while nothing is in flight."""
    settings = RelaySettings(
        ca_files=(ca_file,), dns_timeout_s=0.2, connect_timeout_s=0.2, head_timeout_s=0.2, half_open_s=0.2
    )
    with running(loop_kind, tls=True, settings=settings) as rig:
        client = rig.client()
        client.sendall(request("GET"))
        up = rig.upstream.accept()
        read_head(up)
        for silence, piece in ((1.0, OK[:-1]), (1.0, OK[-1:])):
            client.settimeout(silence)
            with pytest.raises(TimeoutError):
                client.recv(1)
            client.settimeout(DEADLINE_S)
            up.sendall(piece)
            assert read_exactly(client, len(piece)) == piece
        client.settimeout(1.0)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(DEADLINE_S)
        client.sendall(request("GET"))
        read_head(up)
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
        client.close()
        rig.no_pair_open()
