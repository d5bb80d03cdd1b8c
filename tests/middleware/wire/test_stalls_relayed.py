"""Stalls through the real relay, each by its owner: the client that does not read, the upstream, our own loop.

The stalls are seconds long and the claims leave half of that, since others use this machine too.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fairtrial.middleware.core.observations import AttemptEnded
from tests.middleware.relay.observed import attempt, attempts
from tests.middleware.relay.rig import Rig, read_all, read_exactly, read_head, request, reset, running
from tests.middleware.wire.families import MESSAGES
from tests.middleware.wire.traffic import frame

STALL_S = 1.2
HALF_S = STALL_S / 2
ALMOST_S = STALL_S * 0.9

PING = frame("ping", {"type": "ping"})
DELTA = MESSAGES.pieces[3]
BEGIN, REST = b"".join(MESSAGES.pieces[:4]), b"".join(MESSAGES.pieces[4:])
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nRequest-Id: req_1\r\nConnection: close\r\n\r\n"

both_loops = pytest.mark.parametrize("loop_kind", ["uvloop", "asyncio"])


class Call:
    """One streamed call on its way: the head and the first tokens have come."""

    def __init__(self, rig: Rig, *, receive_bytes: int | None = None) -> None:
        self.rig = rig
        self.client = rig.client(receive_bytes=receive_bytes)
        self.client.sendall(request("POST", "/v1/messages", MESSAGES.body))
        self.server = rig.upstream.accept()
        read_head(self.server)
        read_exactly(self.server, len(MESSAGES.body))
        self.server.sendall(HEAD + BEGIN)
        read_head(self.client)
        read_exactly(self.client, len(BEGIN))

    def rest(self) -> AttemptEnded:
        """The upstream says the rest, and the client reads it."""
        self.server.sendall(REST)
        self.server.shutdown(socket.SHUT_WR)
        read_all(self.client)
        return self.over()

    def over(self) -> AttemptEnded:
        """What was seen, once the pair is gone."""
        self.client.close()
        self.server.close()
        self.rig.no_pair_open()
        return attempt(self.rig)

    def blocks(self, seconds: float = STALL_S) -> None:
        """Holds up the relay's loop, as a bug of ours would."""
        self.rig.in_loop(lambda: time.sleep(seconds))

    @contextmanager
    def upstream_says(self, piece: bytes) -> Iterator[None]:
        """The upstream sends this 20 times a second, all the while."""
        over = threading.Event()

        def say() -> None:
            while not over.wait(0.05):
                self.server.sendall(piece)

        speaker = threading.Thread(target=say, name="upstream")
        speaker.start()
        try:
            yield
        finally:
            over.set()
            speaker.join()


def owners(value: AttemptEnded) -> tuple[bool, bool, bool]:
    """Whether client, upstream and we ourselves held it up for the better half of the stall."""
    measured = (value.downstream_blocked, value.upstream_gap_with_pings, value.our_lag)
    return tuple((seconds or 0.0) >= HALF_S for seconds in measured)  # type: ignore[return-value]  # three in, three out


CLIENT, UPSTREAM, OURS, NOBODY = (True, False, False), (False, True, False), (False, False, True), (False, False, False)


@both_loops
def test_an_even_stream_is_held_up_by_nobody(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig)
        with call.upstream_says(DELTA):
            time.sleep(HALF_S)
        value = call.rest()
    assert value.outcome == "ok"
    assert owners(value) == NOBODY
    assert (value.upload_blocked, value.downstream_blocked) == (0.0, 0.0)


@both_loops
def test_a_slow_reader_is_the_clients(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig, receive_bytes=4096)
        flood = threading.Thread(target=call.server.sendall, args=(DELTA * 120_000,))
        flood.start()
        time.sleep(STALL_S)
        call.client.settimeout(30)
        drained = threading.Thread(target=read_all, args=(call.client,))
        drained.start()
        flood.join()
        call.server.sendall(REST)
        call.server.shutdown(socket.SHUT_WR)
        drained.join()
        value = call.over()
    assert value.outcome == "ok"
    assert owners(value) == CLIENT
    assert (value.downstream_blocked or 0) >= HALF_S


@both_loops
def test_a_silent_upstream_is_the_upstreams(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig)
        time.sleep(STALL_S)
        value = call.rest()
    assert owners(value) == UPSTREAM
    assert (value.upstream_gap or 0) >= ALMOST_S
    assert (value.max_gap or 0) >= ALMOST_S
    assert value.outcome == "ok"


@both_loops
def test_a_silent_upstream_that_pings_is_silent_in_words_only(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig)
        with call.upstream_says(PING):
            time.sleep(STALL_S)
        value = call.rest()
    assert owners(value) == NOBODY
    assert (value.upstream_gap or 0) >= ALMOST_S
    assert (value.max_gap or 0) >= ALMOST_S
    assert (value.upstream_gap_with_pings or 0) < HALF_S
    assert (value.reply.pings or 0) > 10


@both_loops
def test_a_wait_for_the_first_byte_is_the_upstreams(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        client = rig.client()
        client.sendall(request("POST", "/v1/messages", MESSAGES.unary_body))
        server = rig.upstream.accept()
        read_head(server)
        time.sleep(STALL_S)
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        server.sendall(answer % len(MESSAGES.unary) + MESSAGES.unary)
        read_head(client)
        read_exactly(client, len(MESSAGES.unary))
        client.close()
        rig.no_pair_open()
        value = attempt(rig)
    assert owners(value) == UPSTREAM
    assert (value.outcome, value.max_gap) == ("ok", value.max_gap_with_pings)
    assert (value.max_gap or 0) < HALF_S


@both_loops
def test_our_own_loop_held_up_is_ours_though_the_client_saw_a_silence(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig)
        with call.upstream_says(DELTA):
            time.sleep(0.2)
            call.blocks()
        value = call.rest()
    assert owners(value) == OURS
    assert (value.max_gap or 0) >= ALMOST_S
    assert (value.our_lag or 0) >= ALMOST_S


@both_loops
def test_a_silence_that_went_on_behind_our_lag_is_the_upstreams_and_the_lag_is_ours(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig)
        call.blocks()
        time.sleep(STALL_S)
        value = call.rest()
    assert owners(value) == (False, True, True)
    assert (value.upstream_gap_with_pings or 0) >= 2 * ALMOST_S


@both_loops
def test_what_came_while_our_loop_was_held_up_is_not_charged_to_the_upstream(loop_kind: str) -> None:
    """It may have come at any time since the lag began."""
    with running(loop_kind) as rig:
        call = Call(rig)
        speaker = threading.Timer(0.2, call.server.sendall, args=(DELTA,))
        speaker.start()
        call.blocks()
        speaker.join()
        value = call.rest()
    assert owners(value) == OURS


@both_loops
def test_a_slow_reader_and_a_late_loop_at_once_are_told_apart(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig, receive_bytes=4096)
        flood = threading.Thread(target=call.server.sendall, args=(DELTA * 120_000,))
        flood.start()
        time.sleep(HALF_S)
        call.blocks()
        call.client.settimeout(30)
        drained = threading.Thread(target=read_all, args=(call.client,))
        drained.start()
        flood.join()
        call.server.shutdown(socket.SHUT_WR)
        drained.join()
        value = call.over()
    assert owners(value) == (True, False, True)


@both_loops
def test_an_upload_that_the_upstream_does_not_take_is_told(loop_kind: str) -> None:
    body = b'{"model":"m","messages":[],"x":"' + b"y" * (24 << 20) + b'"}'
    with running(loop_kind) as rig:
        client = rig.client()
        sender = threading.Thread(target=client.sendall, args=(request("POST", "/v1/messages", body),))
        sender.start()
        server = rig.upstream.accept()
        read_head(server)
        time.sleep(STALL_S)
        read_exactly(server, len(body))
        sender.join()
        server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        read_head(client)
        client.close()
        rig.no_pair_open()
        value = attempt(rig)
    assert (value.upload_blocked or 0) >= HALF_S
    assert owners(value) == NOBODY


# --- who failed first, and who had held it up -------------------------------------------------------------------------


@both_loops
def test_a_client_that_gives_up_on_a_silent_upstream_failed_first_and_was_kept_waiting_by_it(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig)
        time.sleep(STALL_S)
        reset(call.client)
        value = call.over()
    assert (value.outcome, value.first_failure, value.close_kind) == ("client_disconnect", "client", "rst")
    assert owners(value) == UPSTREAM
    assert (value.silence_at_end or 0) >= ALMOST_S
    assert (value.upstream_last or 99) < HALF_S


@both_loops
def test_a_client_that_gives_up_while_our_loop_stands_was_kept_waiting_by_us(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig)
        with call.upstream_says(DELTA):
            time.sleep(0.2)
            gone = threading.Timer(HALF_S, reset, args=(call.client,))
            gone.start()
            try:
                call.blocks()
            finally:
                gone.join()
        value = call.over()
    assert (value.outcome, value.first_failure) == ("client_disconnect", "client")
    assert owners(value) == OURS


@both_loops
def test_an_upstream_that_is_cut_behind_a_slow_reader_failed_first_while_the_client_did_not_read(
    loop_kind: str,
) -> None:
    with running(loop_kind) as rig:
        call = Call(rig, receive_bytes=4096)
        call.server.settimeout(0.5)
        with pytest.raises(TimeoutError):
            call.server.sendall(DELTA * 200_000)
        time.sleep(STALL_S)
        reset(call.server)
        # The relay passes on what it had, once it is read; then the end.
        time.sleep(0.2)
        call.client.settimeout(30)
        read_all(call.client)
        value = call.over()
    assert (value.outcome, value.first_failure) == ("truncated", "upstream")
    assert (value.blocked_before_end or 0) >= HALF_S
    assert owners(value) == CLIENT


@both_loops
def test_an_upstream_that_is_cut_after_a_silence_failed_first_and_was_silent(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig)
        time.sleep(STALL_S)
        reset(call.server)
        read_all(call.client)
        value = call.over()
    assert (value.outcome, value.first_failure, value.errno) == ("truncated", "upstream", "ECONNRESET")
    assert owners(value) == UPSTREAM


@both_loops
def test_what_fairtrial_ends_itself_is_its_own_failure(loop_kind: str) -> None:
    with running(loop_kind) as rig:
        call = Call(rig)
        (pair,) = rig.relay._pairs.values()
        rig.in_loop(lambda: pair.abort("test"))
        read_all(call.client)
        value = call.over()
    assert (value.outcome, value.first_failure, value.closed_by) == ("proxy_shutdown", "fairtrial", "fairtrial")


@both_loops
def test_a_lag_of_an_earlier_call_is_not_charged_to_a_later_one_of_the_connection(loop_kind: str) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(MESSAGES.unary)
    asked = request("POST", "/v1/messages", MESSAGES.unary_body)
    with running(loop_kind) as rig:
        client = rig.client()
        client.sendall(asked)
        server = rig.upstream.accept()
        read_head(server)
        read_exactly(server, len(MESSAGES.unary_body))
        rig.in_loop(lambda: time.sleep(STALL_S))
        server.sendall(answer + MESSAGES.unary)
        read_head(client)
        read_exactly(client, len(MESSAGES.unary))
        client.sendall(asked)
        read_head(server)
        read_exactly(server, len(MESSAGES.unary_body))
        reset(server)
        read_all(client)
        client.close()
        rig.no_pair_open()
        first, second = attempts(rig)
    assert (first.our_lag or 0) >= ALMOST_S
    assert second.outcome == "error"
    assert (second.our_lag or 0) < HALF_S
