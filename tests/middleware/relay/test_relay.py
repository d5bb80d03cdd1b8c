"""Doors open and close in order, and what happens to the connections in them."""

import asyncio
import socket
import time

import pytest

from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.relay import Relay, new_event_loop, new_token
from fairtrial.middleware.relay.settings import RelaySettings, Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import DEADLINE_S, Rig, eventually, read_all, read_exactly, read_head, request, running

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def close(rig: Rig, grace_s: float) -> None:
    asyncio.run_coroutine_threadsafe(rig.relay.close(grace_s), rig.loop).result(DEADLINE_S)


def test_a_port_in_use_is_an_error_at_the_start(rig: Rig) -> None:
    with pytest.raises(OSError, match="in use"):
        asyncio.run_coroutine_threadsafe(
            rig.relay.open_model_door(Upstream.parse("x", "http://127.0.0.1:1"), port=rig.door.port), rig.loop
        ).result(DEADLINE_S)


def test_closing_lets_what_is_in_flight_end(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        idle, busy = rig.client(), rig.client()
        ups: list[socket.socket] = []
        for client in (idle, busy):
            client.sendall(request("GET"))
            ups.append(rig.upstream.accept())
            read_head(ups[-1])
            ups[-1].sendall(OK)
            read_exactly(client, len(OK))
        up = ups[-1]
        busy.sendall(request("GET"))
        read_head(up)
        closing = asyncio.run_coroutine_threadsafe(rig.relay.close(5.0), rig.loop)
        assert read_all(idle) == (b"", "fin")
        up.sendall(OK)
        assert read_exactly(busy, len(OK)) == OK
        assert read_all(busy) == (b"", "fin")
        closing.result(DEADLINE_S)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", rig.door.port), timeout=5)


def test_what_outlives_the_grace_is_aborted_as_our_doing(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        client = rig.client()
        client.sendall(request("GET"))
        up = rig.upstream.accept()
        read_head(up)
        close(rig, 0.05)
        assert read_all(client) == (b"", "rst")
        assert read_all(up) == (b"", "rst")
        end = rig.observer.wait(Kind.CLOSE)[0].json()
        assert (end["first"], end["in_flight"]) == ("fairtrial", 1)


def test_a_blocked_loop_is_told_and_charged_to_the_connections_that_were_open(rig: Rig) -> None:
    client = rig.client()
    client.sendall(request("GET"))
    up = rig.upstream.accept()
    read_head(up)
    rig.in_loop(lambda: time.sleep(0.15))
    eventually(lambda: bool(rig.observer.of(Kind.LAG)), "no LAG")
    up.sendall(OK)
    read_exactly(client, len(OK))
    client.close()
    rig.no_pair_open()
    lag_s = rig.observer.of(Kind.CLOSE)[0].json()["lag_max_s"]
    assert isinstance(lag_s, float)
    assert lag_s > 0.05


def test_two_doors_lead_to_two_upstreams(loop_kind: str) -> None:
    with running(loop_kind) as first, running(loop_kind) as second:
        other = first.open_door(Upstream.parse("other", second.upstream.url))
        client = first.client(door=other)
        client.sendall(request("GET"))
        up = second.upstream.accept()
        assert read_head(up).startswith(b"GET /v1/messages ")
        client.close()
        read_all(up)
        first.no_pair_open()


def test_no_loop_is_needed_before_the_first_door() -> None:
    relay = Relay(RelaySettings(), FeedSender(None))
    with pytest.raises(RuntimeError, match="no door"):
        _ = relay.loop


def test_the_loop_is_uvloop_where_it_can_be_imported() -> None:
    loop = new_event_loop()
    assert type(loop).__module__.startswith("uvloop")
    loop.close()


def test_tokens_have_128_bits() -> None:
    assert len(new_token()) == 32
    assert new_token() != new_token()
