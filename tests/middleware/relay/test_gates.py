"""Clients that wait at a gate: nothing of them is read, who may not come in is reset, and nobody is left over."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.gateway import GatewayDoor
from fairtrial.middleware.relay.relay import tcp_listener
from fairtrial.middleware.relay.route import Admission
from fairtrial.middleware.relay.settings import Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import DEADLINE_S, Rig, eventually, read_all, read_exactly, read_head, request, running

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Gated:
    """A gateway door whose gate does as the test says."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.asked: list[str] = []
        self.admission: Admission | None = Admission(admitted=True, container="c1")
        self.may_answer = asyncio.Event()
        self.may_answer.set()

        def make(upstream: Upstream, dialler: Dialler, listener: socket.socket) -> GatewayDoor:
            return GatewayDoor(upstream, dialler, listener, rig.relay.tokens, self._gate)

        upstream = Upstream.parse("test", rig.upstream.url)
        door = rig.in_loop(lambda: rig.relay.open_door(upstream, tcp_listener("127.0.0.1"), make))
        assert isinstance(door, GatewayDoor)
        self.door = door

    async def _gate(self, peer: str) -> Admission:
        self.asked.append(peer)
        await self.may_answer.wait()
        if self.admission is None:
            raise RuntimeError("a fault of ours")
        return self.admission

    def client(self) -> socket.socket:
        return self.rig.client(door=self.door)


@pytest.fixture
def gated(loop_kind: str) -> Iterator[Gated]:
    with running(loop_kind) as rig:
        yield Gated(rig)


def test_a_client_that_may_come_in_is_relayed_with_its_container(gated: Gated) -> None:
    client = gated.client()
    client.sendall(request(body=b"{}"))
    up = gated.rig.upstream.accept()
    assert read_head(up).startswith(b"POST /v1/messages HTTP/1.1\r\n")
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    assert gated.asked == ["127.0.0.1"]
    (opened,) = gated.rig.observer.wait(Kind.OPEN)
    assert opened.json()["container"] == "c1"


def test_one_that_may_not_is_reset_without_a_byte_and_reaches_nobody(gated: Gated) -> None:
    gated.admission = Admission(admitted=False)
    try:
        ended = read_all(gated.client())
    except ConnectionResetError:
        ended = (b"", "rst")  # it came before connect() had returned
    assert ended == (b"", "rst")
    assert gated.rig.relay.counters.turned_away == 1
    assert gated.rig.relay.counters.connections == 0


def test_one_without_a_token_of_ours_is_refused(gated: Gated) -> None:
    client = gated.client()
    client.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
    answer, how = read_all(client)
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert how == "fin"
    gated.rig.no_pair_open()


def test_a_gate_that_fails_keeps_nobody_out(gated: Gated) -> None:
    gated.admission = None
    client = gated.client()
    client.sendall(request(body=b"{}"))
    up = gated.rig.upstream.accept()
    read_head(up)
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    assert gated.rig.relay.counters.swallowed == 1
    gated.rig.relay.counters.swallowed = 0


def test_a_client_that_leaves_while_it_waits_is_no_harm(gated: Gated) -> None:
    gated.rig.in_loop(gated.may_answer.clear)
    client = gated.client()
    eventually(lambda: bool(gated.asked), "the gate was not asked")
    client.close()
    gated.rig.in_loop(gated.may_answer.set)
    eventually(lambda: gated.rig.relay.counters.connections == 1, "it did not come in")
    gated.rig.no_pair_open()


def test_a_relay_that_is_closed_sends_those_who_wait_away(gated: Gated) -> None:
    gated.rig.in_loop(gated.may_answer.clear)
    client = gated.client()
    eventually(lambda: bool(gated.asked), "the gate was not asked")
    asyncio.run_coroutine_threadsafe(gated.rig.relay.close(0.0), gated.rig.loop).result(DEADLINE_S)
    assert read_all(client)[0] == b""
    assert gated.rig.relay.counters.connections == 0
