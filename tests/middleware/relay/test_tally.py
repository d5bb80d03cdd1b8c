"""A Docker door's tunnels are counted and its bodies copied in part, whatever passes: the feed stays small."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from random import Random

import pytest

from fairtrial.middleware.relay.coupled import DoorPolicy
from fairtrial.middleware.relay.tally import BODY_BYTES
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import Rig, eventually, read_all, read_exactly, read_head, reset, running

EXEC = (
    b"POST /v1.41/exec/abc/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
    b"Content-Length: 28\r\n\r\n"
    b'{"Detach":false,"Tty":false}'
)
SWITCH = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
MEGABYTES_200 = 200_000_000


@pytest.fixture
def rig(loop_kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A door with the policy of a TCP Docker door."""
    with running(loop_kind) as made:
        monkeypatch.setattr(made.door, "policy", DoorPolicy(client_eof="half", docker=True), raising=False)
        yield made


def frame(stream: int, payload: bytes) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(payload).to_bytes(4, "big") + payload


def begun(rig: Rig) -> tuple[socket.socket, socket.socket]:
    """Client and engine, an exec's tunnel open between them."""
    client = rig.client()
    client.sendall(EXEC)
    engine = rig.upstream.accept()
    read_head(engine)
    read_exactly(engine, 28)
    engine.sendall(SWITCH)
    read_exactly(client, len(SWITCH))
    return client, engine


def told(rig: Rig) -> dict[str, object]:
    rig.no_pair_open()
    (record,) = rig.observer.of(Kind.TUNNEL_END)
    assert record.msg == 1
    return record.json()


def copied_bytes(rig: Rig) -> int:
    return sum(len(record.payload) for record in tuple(rig.observer.records))


def test_200_mb_through_an_exec_leave_the_feed_nearly_empty_and_every_byte_is_counted(rig: Rig) -> None:
    client, engine = begun(rig)
    draw = Random(7)
    sent = {1: 0, 2: 0}
    piece = bytearray()
    for _ in range(400):
        stream, size = draw.choice((1, 1, 1, 2)), draw.choice((1, 7, 900, 4096, 32768))
        piece += frame(stream, bytes(size))
        sent[stream] += size
    times = MEGABYTES_200 // len(piece) + 1

    def write() -> None:
        for _ in range(times):
            engine.sendall(piece)
        engine.shutdown(socket.SHUT_WR)

    def ask() -> None:
        client.sendall(b"i" * 3_000_000)
        client.shutdown(socket.SHUT_WR)

    threads = [threading.Thread(target=act) for act in (write, ask, lambda: read_all(engine))]
    for thread in threads:
        thread.start()
    passed = 0
    while data := client.recv(1 << 20):
        passed += len(data)
    for thread in threads:
        thread.join()
    assert passed == times * len(piece)
    assert told(rig) == {
        "stdin": 3_000_000,
        "stdout": times * sent[1],
        "stderr": times * sent[2],
        "raw": 0,
        "framed": True,
        "whole": True,
        "upstream_ended": True,
    }
    assert copied_bytes(rig) < 10_000
    assert rig.feed.stats.dropped_records == rig.feed.stats.lost_records == 0


def test_an_exec_without_a_byte_has_its_sums_too(rig: Rig) -> None:
    client, engine = begun(rig)
    client.shutdown(socket.SHUT_WR)
    assert engine.recv(1) == b""
    engine.close()
    assert read_all(client) == (b"", "fin")
    sums = told(rig)
    assert (sums["stdin"], sums["stdout"], sums["stderr"], sums["raw"]) == (0, 0, 0, 0)
    assert sums["upstream_ended"] is True
    assert rig.observer.of(Kind.CLOSE)[0].json()["first"] == "client"


def test_a_client_that_left_is_told_from_an_engine_that_ended(rig: Rig) -> None:
    client, engine = begun(rig)
    engine.sendall(frame(1, b"half of it")[:-4])
    read_exactly(client, 14)
    reset(client)
    assert read_all(engine) == (b"", "rst")
    sums = told(rig)
    assert (sums["stdout"], sums["whole"], sums["upstream_ended"]) == (6, False, False)


def test_an_answer_that_is_no_frame_is_raw(rig: Rig) -> None:
    client, engine = begun(rig)
    engine.sendall(b"OCI runtime exec failed\r\n")
    engine.close()
    client.shutdown(socket.SHUT_WR)
    assert read_all(client)[0] == b"OCI runtime exec failed\r\n"
    sums = told(rig)
    assert (sums["raw"], sums["framed"]) == (25, False)


def test_what_came_before_the_answer_and_with_it_is_counted(rig: Rig) -> None:
    client = rig.client()
    client.sendall(EXEC + b"early")
    client.shutdown(socket.SHUT_WR)
    engine = rig.upstream.accept()
    read_head(engine)
    engine.sendall(SWITCH + frame(2, b"err"))
    assert read_all(engine) == (EXEC[-28:] + b"early", "fin")
    engine.close()
    assert read_all(client)[0] == SWITCH + frame(2, b"err")
    sums = told(rig)
    assert (sums["stdin"], sums["stderr"]) == (5, 3)


def test_of_each_body_the_first_64_kib_are_copied(rig: Rig) -> None:
    client = rig.client()
    build = b"POST /v1.41/build HTTP/1.1\r\nHost: d\r\nContent-Length: 5000000\r\n\r\n"
    writer = threading.Thread(target=lambda: client.sendall(build + b"t" * 5_000_000))
    writer.start()
    engine = rig.upstream.accept()
    read_head(engine)
    assert read_exactly(engine, 5_000_000) == b"t" * 5_000_000
    writer.join()
    engine.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    answer = b"".join(b"%x\r\n%s\r\n" % (3000, b"j" * 3000) for _ in range(100)) + b"0\r\n\r\n"
    engine.sendall(answer)
    head = read_head(client)
    assert read_exactly(client, len(answer)) == answer
    assert head.startswith(b"HTTP/1.1 200")
    client.sendall(b"POST /v1.41/exec/x/json HTTP/1.1\r\nHost: d\r\nContent-Length: 3\r\n\r\nabc")
    read_head(engine)
    engine.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    read_head(client)
    read_exactly(client, 2)
    client.close()
    engine.close()
    rig.no_pair_open()
    assert rig.observer.joined(Kind.REQUEST_DATA, msg=1) == b"t" * BODY_BYTES
    assert rig.observer.joined(Kind.RESPONSE_DATA, msg=1) == b"j" * BODY_BYTES
    assert rig.observer.of(Kind.REQUEST_END, msg=1)[0].json() == {
        "wire_bytes": len(build) + 5_000_000,
        "complete": True,
    }
    assert rig.observer.of(Kind.RESPONSE_END, msg=1)[0].json()["complete"] is True
    assert rig.observer.joined(Kind.REQUEST_DATA, msg=2) == b"abc"
    assert rig.observer.joined(Kind.RESPONSE_DATA, msg=2) == b"{}"


def test_a_fault_in_the_counting_costs_the_sums_only(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: object, _data: bytes) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("fairtrial.middleware.wire.dockerstream.FrameCounter.feed", broken)
    client, engine = begun(rig)
    engine.sendall(frame(1, b"out"))
    engine.close()
    client.shutdown(socket.SHUT_WR)
    assert read_all(client)[0] == frame(1, b"out")
    sums = told(rig)
    assert (sums["stdout"], sums["raw"], sums["stdin"]) == (None, None, 0)
    eventually(lambda: rig.feed.stats.swallowed == 1, "the fault is not counted")


def test_the_model_door_copies_as_before(loop_kind: str) -> None:
    with running(loop_kind) as made:
        client = made.client()
        body = json.dumps("x" * 200_000).encode()
        client.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: d\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        engine = made.upstream.accept()
        read_head(engine)
        read_exactly(engine, len(body))
        client.close()
        made.no_pair_open()
        assert made.observer.joined(Kind.REQUEST_DATA) == body
