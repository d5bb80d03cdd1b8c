"""Who sent a request is told beside the bytes: between the request and its answer, and whatever becomes of the look."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import Rig, eventually, read_all, read_exactly, read_head, request

ASK = """
import socket, sys
with socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as sock:
    sock.sendall(bytes.fromhex(sys.argv[2]))
    answer = b""
    while data := sock.recv(65536):
        answer += data
    sys.stdout.write(answer.hex())
"""
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def test_the_process_is_told_between_the_dial_and_the_answer_and_the_bytes_are_the_same(rig: Rig) -> None:
    asked = request("POST", "/v1/messages", b"{}")
    port = rig.client().getpeername()[1]
    with subprocess.Popen(
        [sys.executable, "-c", ASK, str(port), asked.hex()], stdout=subprocess.PIPE, text=True
    ) as child:
        up = rig.upstream.accept()
        assert read_head(up).startswith(b"POST /v1/messages HTTP/1.1\r\n")
        assert read_exactly(up, 2) == b"{}"
        eventually(lambda: bool(rig.observer.of(Kind.SENDER)), "nobody said who asked, though no answer had come yet")
        up.sendall(ANSWER)
        up.close()
        assert child.stdout is not None
        assert bytes.fromhex(child.stdout.read()) == ANSWER
    eventually(lambda: bool(rig.observer.of(Kind.RESPONSE_HEAD)), "the answer was not told")  # behind its bytes
    (said,) = rig.observer.of(Kind.SENDER)
    told = json.loads(said.payload)
    assert told["pid"] == child.pid
    kinds = [r.kind for r in rig.observer.records if r.conn == said.conn]
    assert kinds.index(Kind.DIAL) < kinds.index(Kind.SENDER) < kinds.index(Kind.RESPONSE_HEAD)
    assert len(rig.observer.of(Kind.SENDER)) == 1


@pytest.mark.parametrize("fault", [OSError("gone"), ValueError("no number"), MemoryError()])
def test_a_look_that_fails_costs_no_byte_and_no_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """The fault is put where a broken /proc would be: the search for the holder raises."""

    def broken(_: str) -> None:
        raise fault

    monkeypatch.setattr(rig.relay.senders, "_holder", broken)
    client = rig.client()
    client.sendall(request("POST", "/v1/messages", b"{}"))
    up = rig.upstream.accept()
    read_head(up)
    assert read_exactly(up, 2) == b"{}"
    up.sendall(ANSWER)
    up.close()
    assert read_all(client) == (ANSWER, "fin")
    client.close()
    rig.no_pair_open()
    assert rig.observer.of(Kind.SENDER) == []
    assert rig.relay.counters.swallowed == 0
