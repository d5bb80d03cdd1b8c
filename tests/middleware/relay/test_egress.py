"""The connect door, on real sockets and both loops: every byte, every ending, and nobody else's traffic."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from fairtrial.middleware.relay.egress import USER, ConnectDoor
from fairtrial.middleware.relay.settings import ProxySettings, RelaySettings
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import (
    AUTHORITY,
    DEADLINE_S,
    TOKEN,
    Rig,
    UpstreamSide,
    eventually,
    fill,
    read_all,
    read_exactly,
    read_head,
    reset,
    running,
)

TRIAL = "trial"
PIECE = bytes(range(256)) * 4096


def credentials(token: str = TOKEN) -> bytes:
    return b"Proxy-Authorization: Basic " + base64.b64encode(f"{USER}:{token}".encode()) + b"\r\n"


def asking(authority: str, lines: bytes | None = None) -> bytes:
    name = authority.encode()
    return b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (name, name, credentials() if lines is None else lines)


class Through:
    """A relay with a connect door, and an upstream that a tunnel may lead to."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.upstream = UpstreamSide()
        self.authority = f"127.0.0.1:{self.upstream.port}"

        async def open_door() -> ConnectDoor:
            return rig.relay.open_connect_door(token=TOKEN, trial=TRIAL)

        self._clients: list[socket.socket] = []
        self.door = asyncio.run_coroutine_threadsafe(open_door(), rig.loop).result(DEADLINE_S)

    def client(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.door.port))
        sock.settimeout(DEADLINE_S)
        self._clients.append(sock)
        return sock

    def end(self) -> None:
        """Everything of the test's own is closed; then nothing of the relay may be open."""
        for sock in self._clients:
            sock.close()
        self.upstream.close()
        self.rig.no_pair_open()

    def tunnel(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of one."""
        client = self.client()
        client.sendall(asking(self.authority))
        upstream = self.upstream.accept()
        assert read_head(client).startswith(b"HTTP/1.1 200 ")
        return client, upstream

    def told(self, kind: Kind) -> list[dict[str, object]]:
        return [json.loads(record.payload) for record in self.rig.observer.records if record.kind == kind]

    def close(self) -> dict[str, object]:
        """The one CLOSE record."""
        eventually(lambda: bool(self.told(Kind.CLOSE)), "no CLOSE")
        return self.told(Kind.CLOSE)[-1]


@pytest.fixture
def through(loop_kind: str) -> Iterator[Through]:
    with running(loop_kind) as rig:
        made = Through(rig)
        yield made
        made.end()


def test_ten_megabytes_pass_each_way_at_once_verbatim(through: Through) -> None:
    client, upstream = through.tunnel()
    got: dict[str, bytes] = {}

    def reading(name: str, sock: socket.socket) -> None:
        got[name] = read_all(sock)[0]

    readers = [threading.Thread(target=reading, args=pair) for pair in (("down", client), ("up", upstream))]
    for reader in readers:
        reader.start()

    def sending(sock: socket.socket, first: bytes) -> None:
        for _ in range(10):
            sock.sendall(first + PIECE)
        sock.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=sending, args=(upstream, b"d"))
    sender.start()
    sending(client, b"u")
    for thread in (sender, *readers):
        thread.join(DEADLINE_S)
    assert got["up"] == (b"u" + PIECE) * 10
    assert got["down"] == (b"d" + PIECE) * 10
    eventually(lambda: bool(through.told(Kind.TUNNEL_END)), "no TUNNEL_END")
    (end,) = through.told(Kind.TUNNEL_END)
    assert (end["up"], end["down"]) == (10 * (len(PIECE) + 1), 10 * (len(PIECE) + 1))
    assert not [r for r in through.rig.observer.records if r.kind in (Kind.TUNNEL_UP, Kind.TUNNEL_DOWN)]


@pytest.mark.parametrize("cut", [1, 7, 40, 90])
def test_a_head_that_comes_in_two_pieces_with_the_clients_first_bytes_behind_it(through: Through, cut: int) -> None:
    client = through.client()
    wire = asking(through.authority) + b"\x16\x03\x01hello"
    client.sendall(wire[:cut])
    client.sendall(wire[cut:])
    upstream = through.upstream.accept()
    assert read_exactly(upstream, 8) == b"\x16\x03\x01hello"
    upstream.sendall(b"answer")
    assert read_head(client).startswith(b"HTTP/1.1 200 ")
    assert read_exactly(client, 6) == b"answer"
    client.close()


def test_an_upstream_that_speaks_first_is_heard_behind_our_answer(through: Through) -> None:
    client = through.client()
    client.sendall(asking(through.authority))
    through.upstream.accept().sendall(b"220 ready\r\n")
    assert read_head(client) == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert read_exactly(client, 11) == b"220 ready\r\n"


def test_a_clients_half_close_is_passed_on_and_the_answer_still_comes(through: Through) -> None:
    client, upstream = through.tunnel()
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    assert read_all(upstream) == (b"question", "fin")
    upstream.sendall(b"answer")
    upstream.close()
    assert read_all(client) == (b"answer", "fin")
    assert through.close()["first"] == "client"


def test_an_upstreams_half_close_is_passed_on_and_it_still_hears(through: Through) -> None:
    client, upstream = through.tunnel()
    upstream.sendall(b"bye")
    upstream.shutdown(socket.SHUT_WR)
    assert read_all(client) == (b"bye", "fin")
    client.sendall(b"last")
    client.close()
    assert read_all(upstream) == (b"last", "fin")
    assert through.close()["first"] == "upstream"


def test_an_upstreams_reset_is_a_reset_behind_all_that_it_had_sent(through: Through) -> None:
    client, upstream = through.tunnel()
    upstream.sendall(b"half of")
    assert read_exactly(client, 7) == b"half of"
    reset(upstream)
    assert read_all(client) == (b"", "rst")
    close = through.close()
    assert (close["first"], close["how"]) == ("upstream", "rst")


def test_a_clients_reset_reaches_the_upstream(through: Through) -> None:
    client, upstream = through.tunnel()
    client.sendall(b"x")
    assert read_exactly(upstream, 1) == b"x"
    reset(client)
    assert read_all(upstream)[1] == "rst"
    assert through.close()["first"] == "client"


def test_a_client_that_leaves_before_the_upstream_answers_leaves_nothing_open(through: Through) -> None:
    client = through.client()
    client.sendall(asking("192.0.2.1:443"))  # an address that nobody has
    eventually(lambda: bool([r for r in through.rig.observer.records if r.kind == Kind.REQUEST_HEAD]), "no head")
    client.close()
    eventually(lambda: through.rig.relay.counters.open_pairs == 0, "a pair stays open")


def test_a_dial_that_fails_is_a_reset_without_a_byte_and_its_reason_is_told(through: Through) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    client = through.client()
    client.sendall(asking(f"127.0.0.1:{port}"))
    assert read_all(client) == (b"", "rst")
    through.rig.observer.wait(Kind.DIAL)
    (dial,) = through.told(Kind.DIAL)
    assert (dial["ok"], dial["stage"]) == (False, "connect")


@pytest.mark.parametrize(
    "wire, status",
    [
        (asking("127.0.0.1:1", b""), b"407"),
        (asking("127.0.0.1:1", credentials("f" * 32)), b"407"),
        (b"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: h\r\n" + credentials() + b"\r\n", b"405"),
        (asking("127.0.0.1"), b"400"),
        (asking("127.0.0.1:0"), b"400"),
        (asking("169.254.169.254:80"), b"403"),
        (asking("[fe80::1]:443"), b"403"),
        (asking("[fd00:ec2::254]:80"), b"403"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
        (b"CONNECT a:1 HTTP/1.1\nHost: a:1\n\n", b"400"),
    ],
)
def test_what_is_not_this_trials_is_refused_and_nobody_is_dialled(through: Through, wire: bytes, status: bytes) -> None:
    client = through.client()
    client.sendall(wire)
    answer, how = read_all(client)
    assert answer.split(b" ")[1] == status
    assert how == "fin"
    assert through.told(Kind.DIAL) == []
    if status == b"407":
        assert b'\r\nProxy-Authenticate: Basic realm="fairtrial"\r\n' in answer


def test_the_token_is_in_no_record_but_the_head_that_stays_in_memory(through: Through) -> None:
    for side in through.tunnel():
        side.close()
    through.close()
    told = [r.payload for r in through.rig.observer.records if r.kind != Kind.REQUEST_HEAD]
    assert TOKEN.encode() not in b"".join(told)


def test_hosts_have_tunnels_of_their_own_and_the_same_host_the_same_dialler(through: Through) -> None:
    other = UpstreamSide()
    through.tunnel()
    through.tunnel()
    client = through.client()
    client.sendall(asking(f"localhost:{other.port}"))
    read_head(client)
    other.accept().sendall(b"me")
    assert read_exactly(client, 2) == b"me"
    assert len(through.door._diallers) == 2
    other.close()
    client.close()


def test_a_companys_proxy_is_asked_for_the_host_and_a_no_is_a_reset(loop_kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as company:
        settings = RelaySettings(proxy=ProxySettings(https_proxy=f"http://me:pw@127.0.0.1:{company.getsockname()[1]}"))
        with running(loop_kind, settings=settings) as rig:
            through = Through(rig)
            client = through.client()
            client.sendall(asking("api.example:443") + b"hello")
            proxy, _ = company.accept()
            proxy.settimeout(DEADLINE_S)
            head = read_head(proxy)
            assert head.startswith(b"CONNECT api.example:443 HTTP/1.1\r\n")
            assert base64.b64encode(b"me:pw") in head
            assert TOKEN.encode() not in head
            proxy.sendall(b"HTTP/1.1 200 ok\r\n\r\n")
            assert read_exactly(proxy, 5) == b"hello"
            proxy.sendall(b"world")
            assert read_head(client).startswith(b"HTTP/1.1 200 ")
            assert read_exactly(client, 5) == b"world"
            second = through.client()
            second.sendall(asking("api.example:443"))
            denying, _ = company.accept()
            read_head(denying)
            denying.sendall(b"HTTP/1.1 407 no\r\n\r\n")
            assert read_all(second) == (b"", "rst")
            proxy.close()
            denying.close()
            through.end()


# --- a company's proxy that is itself reached by https ----------------------------------------------------------------


class TlsProxy:
    """A CONNECT proxy by https: `accept` gives the open tunnel's near end, for the test to play the upstream in."""

    def __init__(self) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        AUTHORITY.issue_cert("localhost").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(DEADLINE_S)
        self.url = f"https://me:pw@localhost:{self._listener.getsockname()[1]}"

    def accept(self, behind: bytes = b"") -> ssl.SSLSocket:
        """`behind`: bytes of the upstream in the same record as the proxy's answer."""
        sock, _ = self._listener.accept()
        sock.settimeout(DEADLINE_S)
        near = self._context.wrap_socket(sock, server_side=True)
        head = read_head(near)
        assert head.startswith(b"CONNECT api.example:443 HTTP/1.1\r\n")
        assert base64.b64encode(b"me:pw") in head
        assert TOKEN.encode() not in head
        near.sendall(b"HTTP/1.1 200 ok\r\n\r\n" + behind)
        return near

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def behind_tls(loop_kind: str, ca_file: str) -> Iterator[tuple[Through, TlsProxy]]:
    proxy = TlsProxy()
    settings = RelaySettings(ca_files=(ca_file,), proxy=ProxySettings(https_proxy=proxy.url))
    with contextlib.closing(proxy), running(loop_kind, settings=settings) as rig:
        made = Through(rig)
        yield made, proxy
        made.end()


def test_an_https_proxy_carries_a_tunnel_verbatim_both_ways(behind_tls: tuple[Through, TlsProxy]) -> None:
    through, proxy = behind_tls
    client = through.client()
    client.sendall(asking("api.example:443") + b"hello")
    near = proxy.accept(behind=b"\x16first")
    assert read_head(client).startswith(b"HTTP/1.1 200 ")
    assert read_exactly(client, 6) == b"\x16first"
    assert read_exactly(near, 5) == b"hello"
    for source, sink in ((client, near), (near, client)):
        sending = threading.Thread(target=source.sendall, args=(PIECE * 4,))
        sending.start()
        assert read_exactly(sink, 4 * len(PIECE)) == PIECE * 4
        sending.join(DEADLINE_S)
    near.close()
    (dial,) = through.told(Kind.DIAL)
    assert (dial["ok"], dial["proxy_mode"], dial["tls_s"]) == (True, "connect", None)
    assert isinstance(dial["proxy_s"], float)


@pytest.mark.parametrize("first", [b"\x16\x03\x03", b"220 "], ids=["tls", "other"])
@pytest.mark.parametrize("ending", ["clean", "ragged", "rst"])
def test_an_end_behind_an_https_proxy_is_what_the_client_could_have_told(
    behind_tls: tuple[Through, TlsProxy], first: bytes, ending: str
) -> None:
    """Its own TLS tells a client what is missing; without one an end without close_notify must not look whole."""
    through, proxy = behind_tls
    client = through.client()
    client.sendall(asking("api.example:443"))
    near = proxy.accept()
    near.sendall(first + b"all of it")
    assert read_head(client).startswith(b"HTTP/1.1 200 ")
    assert read_exactly(client, len(first) + 9) == first + b"all of it"
    if ending == "rst":
        reset(near)
    else:
        if ending == "clean":
            near.setblocking(False)
            with contextlib.suppress(OSError):
                near.unwrap()
        near.close()
    is_reset = ending == "rst" or (ending == "ragged" and first == b"220 ")
    assert read_all(client) == (b"", "rst" if is_reset else "fin")
    client.close()
    assert through.close()["first"] == "upstream"


def test_a_client_that_ends_is_a_close_notify_to_an_https_proxy(behind_tls: tuple[Through, TlsProxy]) -> None:
    through, proxy = behind_tls
    client = through.client()
    client.sendall(asking("api.example:443"))
    near = proxy.accept()
    read_head(client)
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    assert read_all(near) == (b"question", "fin")
    near.sendall(b"answer")
    near.close()
    assert read_exactly(client, 6) == b"answer"
    assert through.close()["first"] == "client"


def test_a_client_that_reads_slowly_holds_back_what_an_https_proxy_sends(
    behind_tls: tuple[Through, TlsProxy],
) -> None:
    through, proxy = behind_tls
    client = through.client()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.sendall(asking("api.example:443"))
    near = proxy.accept()
    assert len(fill(near, limit_bytes=200 << 20)) < 100 << 20
    reset(client)
    through.rig.no_pair_open()
    near.close()


def test_an_https_proxy_that_is_not_trusted_is_a_dial_that_failed_at_the_proxy(loop_kind: str) -> None:
    proxy = TlsProxy()
    settings = RelaySettings(proxy=ProxySettings(https_proxy=proxy.url))
    with contextlib.closing(proxy), running(loop_kind, settings=settings) as rig:
        through = Through(rig)
        client = through.client()
        client.sendall(asking("api.example:443"))
        with pytest.raises(ssl.SSLError):
            proxy.accept()
        assert read_all(client) == (b"", "rst")
        rig.observer.wait(Kind.DIAL)
        (dial,) = through.told(Kind.DIAL)
        assert (dial["ok"], dial["stage"]) == (False, "proxy")
        through.end()
