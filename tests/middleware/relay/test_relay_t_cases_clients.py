"""Faults of other proxies when a client leaves or an upstream is silent (T01–T12, T39), none of them here.

T numbers are those of the reference page model-api.md section 5.3; `test_relay_t_cases.py` has the whole table.
"""

import asyncio
import socket
import threading

import pytest

from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.observed import attempt, attempts, held_by_pairs
from tests.middleware.relay.rig import Rig, eventually, read_all, read_exactly, reset, running
from tests.middleware.relay.talk import ask, ask_stream, chunk, json_answer, say, stream_head
from tests.middleware.wire.families import FAMILIES, MESSAGES, Family

family_of_routes = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@family_of_routes
@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("moment", ["before the head", "behind the head", "within the stream"])
def test_a_client_that_leaves_ends_the_upstream_and_the_attempt(
    rig: Rig, family: Family, moment: str, how: str
) -> None:
    """T01, T02, T04, T08, T09, T12, T21: whenever it leaves, in every family; the attempt is over and says who left.

    The budget of 100 ms is measured by `make bench`.
    """
    client, up = ask_stream(rig, family)
    sent = b""
    if moment != "before the head":
        sent = stream_head(family)
    if moment == "within the stream":
        sent += b"".join(chunk(piece) for piece in family.pieces[: family.cut])
    if sent:
        say(up, client, sent)
    if how == "fin":
        client.close()
    else:
        reset(client)
    got, _ = read_all(up)
    assert got == b""
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.first_failure, ended.closed_by) == ("client_disconnect", "client", "client")
    assert (ended.dialect, ended.bytes_down or 0) == (family.dialect, len(sent))
    assert ended.reply.terminator in (False, None)
    assert (ended.ttfb is None) == (moment == "before the head")
    if moment == "within the stream":
        assert (ended.reply.input_tokens, ended.reply.output_tokens) == family.usage_at_cut
        assert ended.reply.usage_partial is not False


@family_of_routes
def test_a_client_that_leaves_a_call_without_a_stream_ends_the_upstream(rig: Rig, family: Family) -> None:
    """T03, T04: a unary call is ended like a stream, before and within its answer."""
    for part in (b"", json_answer(family.unary)[:-3]):
        client, up = ask(rig, family.unary_path, family.unary_body)
        if part:
            say(up, client, part)
        client.close()
        assert read_all(up)[0] == b""
        rig.no_pair_open()
    first, second = attempts(rig)
    assert [first.outcome, second.outcome] == ["client_disconnect", "client_disconnect"]
    assert (first.reply.status, second.reply.status, second.reply.terminator) == (None, 200, False)


def test_an_abandoned_stream_leaves_no_work_of_its_length(rig: Rig) -> None:
    """T05: of 24 MB that have passed nothing is held, so that nothing can be made of them when the client leaves."""
    client, up = ask_stream(rig, MESSAGES)
    piece = chunk(b"data: " + b"x" * 60_000 + b"\n\n") * 400
    sender = threading.Thread(target=up.sendall, args=(stream_head(MESSAGES) + piece,))
    sender.start()
    read_exactly(client, len(stream_head(MESSAGES) + piece))
    sender.join(10)
    eventually(lambda: held_by_pairs(rig) < 256 * 1024, "what has passed is still held")
    up.settimeout(0.2)
    with pytest.raises(TimeoutError):
        up.sendall(piece)  # nobody reads: now something is held, and the measure sees it
    eventually(lambda: held_by_pairs(rig) > 64 * 1024, "nothing is held")
    assert held_by_pairs(rig) < 1024 * 1024
    client.close()
    other = rig.client()
    other.sendall(b"GET /healthy HTTP/1.1\r\nHost: x\r\n\r\n")
    second = rig.upstream.accept()
    say(second, other, json_answer(b"{}"))
    other.close()
    rig.no_pair_open()


FAILURES = ("rst", "fin", "rst within", "fin within", "500", "529", "429")


@family_of_routes
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_reaches_the_client_and_is_never_tried_again(rig: Rig, family: Family, failure: str) -> None:
    """T06, T58, T60: one request of the client is one request at the upstream, whatever becomes of it."""
    client, up = ask_stream(rig, family)
    if failure.isdigit():
        answer = json_answer(b'{"error":{"type":"overloaded_error","message":"x"}}', f"{failure} X", "retry-after: 0")
        say(up, client, answer)
        up.close()
        assert read_all(client) == (b"", "fin")
    else:
        if "within" in failure:
            say(up, client, stream_head(family) + chunk(family.pieces[0]))
        if "rst" in failure:
            reset(up)
        else:
            up.close()
        assert read_all(client) == (b"", failure[:3])
    client.close()
    rig.no_pair_open()
    rig.upstream.listener.setblocking(False)
    with pytest.raises(BlockingIOError):  # no pair is open, so nobody is on the way here
        rig.upstream.listener.accept()
    assert (rig.relay.counters.requests, len(rig.observer.of(Kind.DIAL))) == (1, 1)
    ended = attempt(rig)
    assert ended.outcome == ("truncated" if "within" in failure else "error")
    assert ended.first_failure == "upstream"
    assert ended.reply.status == (int(failure) if failure.isdigit() else 200 if "within" in failure else None)


def test_a_silent_upstream_is_waited_for_and_the_silence_is_told(rig: Rig) -> None:
    """T07: no timeout of ours; how long nothing came is on the attempt, and that no byte ever did."""
    client, up = ask_stream(rig, MESSAGES)
    client.settimeout(0.25)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.close()
    read_all(up)
    rig.no_pair_open()
    ended = attempt(rig)
    assert ended.outcome == "client_disconnect"
    assert (ended.ttfb, ended.first_token, ended.reply.status) == (None, None, None)
    assert ended.silence_at_end is not None
    assert ended.silence_at_end >= 0.2


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_under_a_flood_is_no_fault_of_ours(rig: Rig, how: str) -> None:
    """T11: bytes keep coming for a client that is gone; nothing raises and nothing is logged as an error."""
    complaints: list[object] = []
    rig.in_loop(lambda: rig.loop.set_exception_handler(lambda _loop, context: complaints.append(context)))
    client, up = ask_stream(rig, MESSAGES)
    stop = threading.Event()

    def flood() -> None:
        up.sendall(stream_head(MESSAGES))
        try:
            while not stop.is_set():
                up.sendall(chunk(MESSAGES.pieces[3]) * 100)
        except OSError:
            return

    thread = threading.Thread(target=flood)
    thread.start()
    read_exactly(client, 100_000)
    if how == "fin":
        client.close()
    else:
        reset(client)
    rig.no_pair_open()
    thread.join(10)
    assert not thread.is_alive(), "the upstream still writes into the void"
    stop.set()
    assert complaints == []
    assert rig.relay.counters.swallowed == 0
    assert attempt(rig).outcome == "client_disconnect"


@pytest.mark.parametrize("begun", [False, True])
def test_a_call_that_is_open_at_shutdown_has_its_end(loop_kind: str, begun: bool) -> None:
    """T39: the end of the relay is an end of every attempt, told as ours."""
    with running(loop_kind) as rig:
        _client, up = ask_stream(rig, MESSAGES)
        if begun:
            say(up, _client, stream_head(MESSAGES) + b"".join(map(chunk, MESSAGES.pieces[: MESSAGES.cut])))
    ended = attempt(rig)
    assert (ended.outcome, ended.first_failure) == ("proxy_shutdown", "fairtrial")
    assert ended.reply.input_tokens == (11 if begun else None)


def test_a_half_closed_client_of_the_model_door_has_left(rig: Rig) -> None:
    """T10, as DESIGN section 3 "Ends" decides it: on a TCP model door a FIN with a call in flight is a client gone.

    The kernel cannot tell it from one that closed; clients of model APIs do not half-close.  Tunnels and Docker doors
    forward the half-close.
    """
    client, up = ask_stream(rig, MESSAGES)
    client.shutdown(socket.SHUT_WR)
    read_all(up)
    rig.no_pair_open()
    assert attempt(rig).outcome == "client_disconnect"


def test_streams_that_ended_leave_no_object_behind(rig: Rig) -> None:
    """T65 in small (`make bench` soaks 10 000): neither pair nor link nor task outlives its stream."""
    for turn in range(60):
        client, up = ask_stream(rig, MESSAGES)
        say(up, client, stream_head(MESSAGES) + b"".join(map(chunk, MESSAGES.pieces)))
        if turn % 2:
            say(up, client, b"0\r\n\r\n")
        client.close()
        up.close()
    rig.no_pair_open()
    tasks = rig.in_loop(lambda: [task for task in asyncio.all_tasks(rig.loop) if not task.done()])
    assert tasks == []
    assert rig.relay._pairs == {}
    watch = rig.relay._watch
    assert watch is not None
    eventually(lambda: rig.in_loop(lambda: len(watch._links)) == 0, "a link is still watched")
    assert [ended.outcome for ended in attempts(rig)] == ["ok"] * 60
