"""Clients that mean no good, or know no better: the door keeps serving the others, and what it holds is bounded."""

import contextlib
import random
import resource
import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from fairtrial.middleware.relay.account import Account
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.relay import tcp_listener
from fairtrial.middleware.relay.serve_door import PathTokens, ServeDoor
from fairtrial.middleware.relay.settings import ProxySettings, RelaySettings, Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.observed import attempts, held_by_pairs
from tests.middleware.relay.rig import (
    DEADLINE_S,
    Rig,
    eventually,
    fill,
    read_all,
    read_exactly,
    read_head,
    request,
    reset,
    running,
)
from tests.middleware.relay.talk import json_answer, say
from tests.middleware.wire.families import MESSAGES

CROWD = 2000
CALL = request("POST", MESSAGES.path, MESSAGES.body)
ANSWER = json_answer(MESSAGES.unary)


class Healthy:
    """Another client of the same door, whose calls must go on."""

    def __init__(self, rig: Rig) -> None:
        self.client = rig.client()
        self.client.sendall(CALL)
        self.up = rig.upstream.accept()
        self._answer()

    def _answer(self) -> None:
        read_head(self.up)
        read_exactly(self.up, len(MESSAGES.body))
        say(self.up, self.client, ANSWER)

    def call(self) -> None:
        """One call, answered."""
        self.client.sendall(CALL)
        self._answer()

    def leave(self) -> None:
        self.client.close()
        self.up.close()


def _has_come(account: Account, count: int) -> bool:
    return account.bytes_up == count


def test_a_client_that_sends_byte_by_byte_is_served_and_so_are_the_others(rig: Rig) -> None:
    """One byte a turn of the loop stands for one byte a second."""
    other = Healthy(rig)
    slow = rig.client()
    slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    call = request("POST", "/v1/messages", b"{}")
    eventually(lambda: len(rig.relay._pairs) == 2, "never accepted")
    account = rig.relay._pairs[2].account
    for turn in range(len(call)):
        slow.send(call[turn : turn + 1])
        eventually(partial(_has_come, account, turn + 1), "the byte was never read")
        if turn % 10 == 0:
            other.call()
    up = rig.upstream.accept()
    read_head(up)
    assert read_exactly(up, 2) == b"{}"
    for turn in range(len(ANSWER)):
        say(up, slow, ANSWER[turn : turn + 1])
    slow.close()
    other.leave()
    rig.no_pair_open()
    assert {ended.outcome for ended in attempts(rig)} == {"ok"}


@pytest.mark.parametrize("part", [b"G", b"GET /t/x HTTP/1.1\r\nHost: x\r\nX: ", b"\r\n"])
def test_a_head_that_dawdles_is_refused_by_a_shared_door_however_steadily_it_drips(loop_kind: str, part: bytes) -> None:
    """Bytes that keep coming buy no time."""
    limits = RelaySettings(refuse_bad_heads=True, head_timeout_s=0.3)
    with running(loop_kind, settings=limits) as rig:
        other = Healthy(rig)
        slow = rig.client()
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        slow.sendall(part)
        stop = threading.Event()

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(0.02):
                    slow.send(b"\r\n" if part == b"\r\n" else b"y")

        dripping = threading.Thread(target=drip)
        dripping.start()
        for _ in range(20):
            other.call()
        got, _ = read_all(slow)
        stop.set()
        dripping.join(10)
        assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"dawdles" in got
        other.call()
        other.leave()
        rig.no_pair_open()
        assert rig.relay.counters.refused == 1


@pytest.fixture
def room_for_a_crowd() -> Iterator[None]:
    """Four descriptors for each connection: both ends of both sides are in this process."""
    need = 4 * CROWD + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < need:
        pytest.skip(f"the hard limit of open files ({hard}) is too low for {CROWD} connections")
    if soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Answering(threading.Thread):
    """Accepts everything, reads one request on each connection, answers when it is told to."""

    def __init__(self, listener: socket.socket, count: int) -> None:
        super().__init__(name="answering", daemon=True)
        self.listener = listener
        self.count = count
        self.ups: list[socket.socket] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while len(self.ups) < self.count:
                up, _ = self.listener.accept()
                up.settimeout(DEADLINE_S)
                self.ups.append(up)


@pytest.mark.usefixtures("room_for_a_crowd")
def test_two_thousand_open_calls_leave_room_for_one_more(loop_kind: str) -> None:
    """Each with its upstream connection; another client's calls are served meanwhile, and all get their answers."""
    with running(loop_kind) as rig:
        rig.upstream.listener.listen(CROWD)
        other = Healthy(rig)
        answering = Answering(rig.upstream.listener, CROWD)
        answering.start()
        call = request("GET", "/v1/models")
        crowd = [rig.client() for _ in range(CROWD)]
        for client in crowd:
            client.sendall(call)
        answering.join(60)
        assert len(answering.ups) == CROWD
        assert rig.relay.counters.open_pairs == CROWD + 1
        for _ in range(50):
            other.call()
        assert held_by_pairs(rig) < (CROWD + 1) * 4096
        for up in answering.ups:
            assert read_head(up).startswith(b"GET /v1/models ")
            up.sendall(ANSWER)
        for client in crowd:
            assert read_exactly(client, len(ANSWER)) == ANSWER
        other.call()
        for sock in (*crowd, *answering.ups):
            sock.close()
        other.leave()
        rig.no_pair_open(30.0)
        assert rig.relay.counters.requests == CROWD + 52


@pytest.mark.usefixtures("room_for_a_crowd")
def test_two_thousand_connections_that_say_nothing_cost_next_to_nothing(loop_kind: str) -> None:
    """No upstream is dialled for them, and they are no reason to keep others waiting."""
    with running(loop_kind) as rig:
        crowd = [rig.client() for _ in range(CROWD)]
        eventually(lambda: rig.relay.counters.open_pairs == CROWD, "not all were accepted", 30.0)
        other = Healthy(rig)
        for _ in range(20):
            other.call()
        assert len(rig.observer.of(Kind.DIAL)) == 1
        assert held_by_pairs(rig) < CROWD * 4096
        for client in crowd:
            client.close()
        other.leave()
        rig.no_pair_open(30.0)


def test_requests_that_nobody_waits_for_are_held_back_at_their_source(rig: Rig) -> None:
    """A client that pipelines and never reads: its requests stay in its own kernel, and so do the answers upstream."""
    other = Healthy(rig)
    greedy = rig.client(receive_bytes=4096)
    stop = threading.Event()

    def answer() -> None:
        up = rig.upstream.accept()
        up.settimeout(0.2)
        with contextlib.suppress(OSError):
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    if up.recv(65536):
                        up.sendall(ANSWER * 50)
                    else:
                        return

    answering = threading.Thread(target=answer)
    answering.start()
    greedy.settimeout(0.5)
    flood = request("GET", "/v1/models") * 400
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 60_000_000:
            sent += greedy.send(flood)
    assert sent < 60_000_000
    assert held_by_pairs(rig) < 2 << 20
    for _ in range(10):
        other.call()
    reset(greedy)
    stop.set()
    answering.join(20)
    other.leave()
    rig.no_pair_open()


def test_an_upload_that_is_not_taken_is_held_back_at_its_source(rig: Rig) -> None:
    other = Healthy(rig)
    client = rig.client()
    client.sendall(request("POST", "/v1/files", b"", "Content-Length: 1000000000"))
    up = rig.upstream.accept()
    read_head(up)
    assert len(fill(client, limit_bytes=100_000_000)) < 60_000_000
    assert held_by_pairs(rig) < 1 << 20
    other.call()
    reset(client)
    other.leave()
    rig.no_pair_open()


@pytest.mark.parametrize("shared", [False, True])
def test_noise_is_tunnelled_or_refused_and_nobody_else_notices(loop_kind: str, shared: bool) -> None:
    rng = random.Random(7)
    with running(loop_kind, settings=RelaySettings(refuse_bad_heads=shared)) as rig:
        other = Healthy(rig)
        for turn in range(30):
            noise = bytes([rng.choice(b"\0\x16\x80GPC\r\n {")]) + rng.randbytes(rng.randrange(2000)) + b"\r\n\r\n"
            client = rig.client()
            with contextlib.suppress(OSError):
                client.sendall(noise)
            if shared:
                got, _ = read_all(client)
                assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            else:
                up = rig.upstream.accept()
                assert read_exactly(up, len(noise)) == noise
                up.close()
            client.close()
            if turn % 5 == 0:
                other.call()
        other.leave()
        rig.no_pair_open()
        assert rig.relay.counters.swallowed == 0
        assert [ended.outcome for ended in attempts(rig) if ended.conn == 1] == ["ok"] * 7


def test_a_crowd_that_comes_and_goes_leaves_nothing(rig: Rig) -> None:
    """Connections that break off at every point of a call, many at once."""
    other = Healthy(rig)
    for turn in range(300):
        client = rig.client()
        client.sendall(CALL[: turn * 3 % len(CALL)])
        if turn % 3 == 0:
            reset(client)
        elif turn % 3 == 1:
            client.close()
        else:
            client.shutdown(socket.SHUT_WR)
        if turn % 50 == 0:
            other.call()
    eventually(lambda: rig.relay.counters.open_pairs <= 1, "pairs are left")
    other.call()
    other.leave()
    rig.no_pair_open()
    assert rig.relay.counters.swallowed == 0


FOREIGN = [
    b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
    b"CONNECT intranet:22 HTTP/1.1\r\nHost: intranet:22\r\n\r\n",
    b"GET http://169.254.169.254/latest HTTP/1.1\nHost: 169.254.169.254\n\n",
    b"GET //169.254.169.254/latest HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
    b"GET @169.254.169.254/latest HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET http://model.test@169.254.169.254/ HTTP/1.1\r\nHost: x\r\n\r\n",
]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("asked", FOREIGN)
def test_nobody_reaches_another_host_with_the_operators_credentials(loop_kind: str, shared: bool, asked: bytes) -> None:
    """A plain upstream behind a proxy: the door is not an open proxy (DESIGN section 8)."""
    with running(loop_kind) as rig:
        proxy = ProxySettings(http_proxy=f"http://operator:secret@127.0.0.1:{rig.upstream.port}")
        rig.relay.settings = RelaySettings(refuse_bad_heads=shared, proxy=proxy)
        upstream = Upstream.parse("behind", "http://model.test/base")
        if shared:
            listener = tcp_listener("127.0.0.1", 0)
            tokens = PathTokens(None)
            rig.in_loop(lambda: rig.relay.open_door(upstream, listener, partial(_serve_door, tokens)))
            port = listener.getsockname()[1]
        else:
            port = rig.open_door(upstream).port
        client = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        client.sendall(asked)
        got, answer = b"", b""
        rig.upstream.listener.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            up = rig.upstream.accept()
            up.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                while data := up.recv(65536):
                    got += data
            up.close()
        if shared and not got:
            answer, _ = read_all(client)
        client.close()
        rig.no_pair_open()
        ours = got.split(b" ", 2)[1:2] == [b"http://model.test/base//169.254.169.254/latest"]
        assert ours or b"Proxy-Authorization" not in got
        if shared:
            assert ours or answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))


def _serve_door(tokens: PathTokens, upstream: Upstream, dialler: Dialler, listener: socket.socket) -> ServeDoor:
    return ServeDoor(upstream, dialler, listener, tokens)
