"""Many trials on one connection, and a thousand connections that come to nothing."""

import asyncio
import os
import random
import socket

import pytest

from fairtrial.middleware.core.observations import AttemptStarted, Host, Observation
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire.exchange import ExchangeTracker
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.beside import Meeting
from tests.middleware.relay.rig import TOKEN, Rig, eventually, read_exactly, read_head, request, reset

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
TOKENS = {TOKEN: "trial-1", "f" * 32: "trial-2", "e" * 32: "trial-3"}


def trials_told(rig: Rig) -> list[str | None]:
    """The trial of each attempt, in the order in which they began, as the observer reads the feed."""
    told: list[Observation] = []
    tracker = ExchangeTracker(Source("door.model", told.append, host=Host(name="node")), trial_of_token=TOKENS)
    for record in tuple(rig.observer.records):
        tracker.take(record)
    assert tracker.faults == 0, tracker.last_fault
    return [seen.subject.trial for seen in told if seen.kind == AttemptStarted.kind]


def trials_noted(rig: Rig, requests: int) -> list[object]:
    """The same as the relay says it: a note where the trial is another than that of the request before."""
    notes = {note.msg: note.json()["trial"] for note in rig.observer.of(Kind.NOTE, conn=1)}
    noted: list[object] = []
    for msg in range(1, requests + 1):
        noted.append(notes[msg] if msg in notes else noted[-1])
    return noted


@pytest.mark.parametrize("pipelined", [False, True])
def test_observations_say_whose_request_it_was_though_all_share_one_connection(any_rig: Rig, pipelined: bool) -> None:
    """Tokens differ from request to request; the upstream sees none of them."""
    rng = random.Random(3)
    for token, trial in TOKENS.items():
        any_rig.relay.add_token(token, trial)
    order = [rng.choice(list(TOKENS)) for _ in range(40)]
    meeting = Meeting(any_rig, direct=False)
    body = b'{"model":"claude","messages":[]}'
    asks = []
    for token in order:
        meeting.prefix = f"/t/{token}"
        asks.append(meeting.ask("POST", "/v1/messages", "Content-Type: application/json", body=body))
    for step in [asks] if pipelined else [[ask] for ask in asks]:
        meeting.client.sendall(b"".join(step))
        for _ in step:
            head = read_head(meeting.up)
            assert head.startswith(b"POST /v1/messages HTTP/1.1\r\n")
            assert not any(token.encode() in head for token in TOKENS)
            assert read_exactly(meeting.up, len(body)) == body
            meeting.up.sendall(OK)
            assert read_exactly(meeting.client, len(OK)) == OK
    meeting.leave()
    any_rig.no_pair_open()
    assert any_rig.relay.counters.connections == 1
    assert trials_told(any_rig) == [TOKENS[token] for token in order]
    assert trials_noted(any_rig, len(order)) == [TOKENS[token] for token in order]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def leave(sock: socket.socket, how: int) -> None:
    if how % 2:
        reset(sock)
    else:
        sock.close()


def test_connecting_and_leaving_a_thousand_times_leaves_no_pair_no_descriptor_and_no_task(any_rig: Rig) -> None:
    """Before the first byte, within a head, behind a head that is dialled for, within a body, with FIN and with RST.

    Nobody accepts upstream: over TLS each handshake is cut.
    """
    rig = any_rig
    rig.upstream.listener.close()
    rig.upstream.listener = socket.create_server(("127.0.0.1", rig.upstream.port), backlog=2000)
    first = rig.client()
    first.close()
    rig.no_pair_open()
    rig.clients.clear()
    before = descriptors()
    told = (b"", b"GET /t/unf", request(body=b"{}"), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
    for turn in range(1000):
        sock = rig.client()
        if told[turn % 4]:
            sock.sendall(told[turn % 4])
        leave(sock, turn // 4)
        rig.clients.clear()
    eventually(lambda: rig.relay.counters.connections == 1001, f"{rig.relay.counters}", 30)
    rig.no_pair_open(30)
    eventually(lambda: not rig.in_loop(lambda: len(asyncio.all_tasks(rig.loop))), "a task is left", 30)
    assert rig.in_loop(lambda: len(rig.relay._pairs)) == 0
    eventually(lambda: descriptors() <= before, f"{descriptors() - before} descriptors are left")
    assert len(rig.observer.of(Kind.CLOSE)) == 1001
