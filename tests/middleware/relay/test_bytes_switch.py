"""Two upstreams through one plain-proxy connection: hold the next request, let the responses end, close, dial anew.

The egress door does not exist yet; `PlainProxy` is the route that it will be: the absolute-form target of each
request names its upstream.  What is tested is the engine's part (`coupled.py`, `switch.py`), on real sockets.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from fairtrial.middleware.relay.coupled import DoorPolicy
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.ends import HIGH_BYTES
from fairtrial.middleware.relay.heads import RequestHead, rewrite
from fairtrial.middleware.relay.relay import tcp_listener
from fairtrial.middleware.relay.settings import Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import (
    DEADLINE_S,
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

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class PlainProxy:
    """A route whose upstream is named by each request; `lead` gives the same dialler for the same upstream."""

    policy = DoorPolicy(client_eof="gone")
    label = "egress:test"
    editor = None
    gate = None

    def __init__(self, rig: Rig, upstream: Upstream, dialler: Dialler, listener: socket.socket) -> None:
        self._rig = rig
        self._diallers = {upstream.url: dialler}
        self.upstream = upstream
        self.dialler = dialler
        self.listener = listener
        self.port: int = listener.getsockname()[1]

    def lead(self, head: RequestHead) -> Dialler:
        """The dialler of the upstream that this request names."""
        parts = urlsplit(head.target.decode("latin-1"))
        upstream = Upstream.parse("named", f"http://{parts.netloc}")
        known = self._diallers.get(upstream.url)
        if known is None:
            watch = self._rig.relay._watch
            assert watch is not None
            known = self._diallers[upstream.url] = Dialler(self._rig.loop, watch, upstream, self._rig.settings)
        return known

    def rewrite(self, head: RequestHead) -> tuple[bytes, str | None]:
        """Absolute form becomes origin form."""
        parts = urlsplit(head.target.decode("latin-1"))
        return rewrite(head, (parts.path or "/").encode("latin-1"), parts.netloc.encode("latin-1")), None

    def rewrite_loosely(self, rest: bytes) -> bytes:
        """Nothing can be recognised."""
        return rest


class Two:
    """A plain proxy in front of two upstreams `a` and `b`."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.a = rig.upstream
        self.b = UpstreamSide()

        def make(upstream: Upstream, dialler: Dialler, listener: socket.socket) -> PlainProxy:
            return PlainProxy(rig, upstream, dialler, listener)

        async def open_door() -> PlainProxy:
            return rig.relay.open_door(Upstream.parse("a", self.a.url), tcp_listener("127.0.0.1"), make)

        self.proxy = asyncio.run_coroutine_threadsafe(open_door(), rig.loop).result(DEADLINE_S)

    def client(self, *, receive_bytes: int | None = None) -> socket.socket:
        sock = socket.socket()
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(DEADLINE_S)
        sock.connect(("127.0.0.1", self.proxy.port))
        self.rig.clients.append(sock)
        return sock


@pytest.fixture
def two(loop_kind: str) -> Iterator[Two]:
    """On both loops."""
    with running(loop_kind) as rig:
        made = Two(rig)
        yield made
        made.b.close()


def get(upstream: UpstreamSide, path: str, *lines: str, method: str = "GET") -> bytes:
    head = [f"{method} {upstream.url}{path} HTTP/1.1", f"Host: 127.0.0.1:{upstream.port}", *lines]
    return ("\r\n".join(head) + "\r\n\r\n").encode()


def nobody_calls(upstream: UpstreamSide, patience_s: float = 0.15) -> None:
    upstream.listener.settimeout(patience_s)
    with pytest.raises(TimeoutError):
        upstream.listener.accept()
    upstream.listener.settimeout(DEADLINE_S)


def test_requests_for_one_upstream_share_its_connection(two: Two) -> None:
    client = two.client()
    up = None
    for path in ("/1", "/2", "/3"):
        client.sendall(get(two.a, path))
        up = up or two.a.accept()
        assert read_head(up) == f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{two.a.port}\r\n\r\n".encode()
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
    client.close()
    two.rig.no_pair_open()


def test_a_request_for_another_upstream_closes_the_first_and_dials_anew(two: Two) -> None:
    client = two.client()
    for upstream in (two.a, two.b, two.a):
        client.sendall(get(upstream, "/x"))
        up = upstream.accept()
        assert read_head(up).startswith(b"GET /x HTTP/1.1\r\n")
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
    assert read_all(two.b.open[0]) == (b"", "fin")
    assert read_all(two.a.open[0]) == (b"", "fin")
    client.close()
    assert read_all(two.a.open[1]) == (b"", "fin")
    two.rig.no_pair_open()
    assert [dial.json()["ok"] for dial in two.rig.observer.of(Kind.DIAL)] == [True, True, True]


def test_the_next_request_is_held_until_the_responses_before_it_have_ended(two: Two) -> None:
    client = two.client()
    client.sendall(get(two.a, "/1") + get(two.a, "/2") + get(two.b, "/3") + get(two.b, "/4") + get(two.a, "/5"))
    up = two.a.accept()
    assert read_head(up).startswith(b"GET /1 ")
    assert read_head(up).startswith(b"GET /2 ")
    nobody_calls(two.b)
    up.sendall(OK + OK[:-1])
    assert read_exactly(client, 2 * len(OK) - 1) == OK + OK[:-1]
    nobody_calls(two.b)
    up.sendall(OK[-1:])
    other = two.b.accept()
    assert read_exactly(client, 1) == OK[-1:]
    assert read_all(up) == (b"", "fin")
    assert read_head(other).startswith(b"GET /3 ")
    assert read_head(other).startswith(b"GET /4 ")
    other.sendall(OK + OK)
    assert read_exactly(client, 2 * len(OK)) == OK + OK
    back = two.a.accept()
    assert read_head(back).startswith(b"GET /5 ")
    back.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    two.rig.no_pair_open()


def test_what_is_held_for_the_other_upstream_is_bounded_and_whole(two: Two) -> None:
    client = two.client()
    client.sendall(get(two.a, "/1"))
    up = two.a.accept()
    read_head(up)
    client.sendall(get(two.b, "/2", "Content-Length: 100000000", method="POST"))
    sent = fill(client)
    assert len(sent) < 20_000_000
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    other = two.b.accept()
    assert read_head(other).startswith(b"POST /2 ")
    assert read_exactly(other, len(sent)) == sent
    reset(client)
    read_all(other)
    two.rig.no_pair_open()


def test_a_client_that_leaves_while_its_request_is_held_ends_everything(two: Two) -> None:
    client = two.client()
    client.sendall(get(two.a, "/1") + get(two.b, "/2"))
    up = two.a.accept()
    read_head(up)
    nobody_calls(two.b)
    client.close()
    assert read_all(up)[0] == b""
    two.rig.no_pair_open()
    nobody_calls(two.b)


def test_a_failed_second_dial_loses_no_byte_of_the_first_response(two: Two) -> None:
    body = bytes(range(256)) * 12_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    two.b.listener.close()
    client = two.client()
    client.sendall(get(two.a, "/1") + get(two.b, "/2"))
    up = two.a.accept()
    read_head(up)
    sender = threading.Thread(target=up.sendall, args=(head + body,))
    sender.start()
    got, how = read_all(client)
    sender.join(DEADLINE_S)
    assert (got == head + body, how) == (True, "rst")
    two.rig.no_pair_open()


def test_an_upload_that_goes_on_behind_its_early_response_reaches_its_own_upstream(two: Two) -> None:
    client = two.client()
    client.sendall(get(two.a, "/1", "Content-Length: 10", method="POST") + b"01234")
    up = two.a.accept()
    read_head(up)
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.sendall(b"56789" + get(two.b, "/2"))
    assert read_exactly(up, 10) == b"0123456789"
    other = two.b.accept()
    assert read_head(other).startswith(b"GET /2 ")
    other.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    two.rig.no_pair_open()


def test_switching_a_hundred_times_leaves_no_socket_and_no_task(two: Two) -> None:
    client = two.client()
    for turn in range(100):
        upstream = two.b if turn % 2 else two.a
        client.sendall(get(upstream, f"/{turn}"))
        up = upstream.accept()
        assert read_head(up).startswith(f"GET /{turn} ".encode())
        up.sendall(OK)
        assert read_exactly(client, len(OK)) == OK
    ended = [sock for upstream in (two.a, two.b) for sock in upstream.open][:-1]
    client.close()
    two.rig.no_pair_open()
    assert {read_all(sock) for sock in ended} == {(b"", "fin")}
    eventually(lambda: not two.rig.in_loop(lambda: len(asyncio.all_tasks(two.rig.loop))), "a task is left")


def test_an_upstream_that_ends_behind_its_response_is_left_as_well(two: Two) -> None:
    """`Connection: close` is between the client and that upstream; a reset of it is no news either."""
    client = two.client()
    client.sendall(get(two.a, "/1") + get(two.b, "/2") + get(two.a, "/3"))
    for upstream, leave in ((two.a, reset), (two.b, socket.socket.close), (two.a, socket.socket.close)):
        up = upstream.accept()
        read_head(up)
        go = threading.Event()
        two.rig.loop.call_soon_threadsafe(go.wait)  # the relay sees the response and the end at once
        up.sendall(OK)
        leave(up)
        go.set()
    assert read_all(client) == (3 * OK, "fin")
    client.close()
    two.rig.no_pair_open()


def test_a_response_that_ends_with_the_connection_ends_it_for_what_is_held_too(two: Two) -> None:
    client = two.client()
    client.sendall(get(two.a, "/1") + get(two.b, "/2"))
    up = two.a.accept()
    read_head(up)
    up.sendall(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    up.close()
    assert read_all(client) == (b"HTTP/1.1 200 OK\r\n\r\nall of it", "fin")
    client.close()
    two.rig.no_pair_open()
    nobody_calls(two.b)


def test_a_slow_reader_of_the_first_response_holds_the_second_upstream_back(two: Two) -> None:
    rig = two.rig
    client = two.client(receive_bytes=4096)
    client.sendall(get(two.a, "/1") + get(two.b, "/2"))
    up = two.a.accept()
    read_head(up)

    def unsent() -> int:
        held = rig.in_loop(lambda: next(iter(rig.relay._pairs.values()))._client.unsent_bytes)
        assert isinstance(held, int)
        return held

    wanted = bytearray(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    up.sendall(wanted)
    while unsent() < HIGH_BYTES - 20_000:
        piece = b"2000\r\n" + b"a" * 0x2000 + b"\r\n"
        up.sendall(piece)
        wanted += piece
    last = b"9000\r\n" + b"z" * 0x9000 + b"\r\n0\r\n\r\n"
    up.sendall(last)  # one read: the response ends, and the client is behind
    wanted += last
    other = two.b.accept()
    read_head(other)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
    other.sendall(head)
    wanted += head + fill(other, limit_bytes=100_000_000)
    assert unsent() < 3 * HIGH_BYTES
    assert read_exactly(client, len(wanted)) == wanted
    reset(client)
    read_all(other)
    rig.no_pair_open()


def test_an_upgrade_that_is_held_opens_its_tunnel_at_its_own_upstream(two: Two) -> None:
    client = two.client()
    ask = get(two.b, "/2", "Connection: Upgrade", "Upgrade: websocket")
    client.sendall(get(two.a, "/1") + ask + b"early bytes")
    up = two.a.accept()
    read_head(up)
    up.sendall(OK)
    other = two.b.accept()
    assert b"Upgrade: websocket" in read_head(other)
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    other.sendall(switch)
    assert read_exactly(other, 11) == b"early bytes"
    assert read_exactly(client, len(OK + switch)) == OK + switch
    client.close()
    read_all(other)
    other.close()
    two.rig.no_pair_open()
