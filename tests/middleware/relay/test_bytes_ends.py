"""Where and how one side ends, at every point of a conversation: the other side sees what it would see directly."""

import random
import socket
import struct
import time

import pytest

from fairtrial.middleware.relay.settings import RelaySettings
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.beside import Meeting, beside, close_cleanly, in_background, unsent
from tests.middleware.relay.rig import Rig, eventually, fill, read_all, read_exactly, read_head, reset, running

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Seen = list[object]

# What the upstream has said before it ends, and whether a ragged end behind it can be told from a clean one.
SAID = {
    "nothing": (b"", True),
    "part of a head": (b"HTTP/1.1 200 OK\r\nConte", True),
    "an interim head": (b"HTTP/1.1 103 Early Hints\r\n\r\n", True),
    "a head with a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", True),
    "part of a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234", True),
    "part of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", True),
    "all but the last chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", True),
    "all but the end of the trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: 1\r\n", True),
    "everything": (OK, True),
    "a head without framing": (b"HTTP/1.1 200 OK\r\n\r\n", False),
    "a close-delimited body": (b"HTTP/1.1 200 OK\r\n\r\nhello", False),
    "an HTTP/1.0 body": (b"HTTP/1.0 200 OK\r\n\r\nhello", False),
}


def end_as(sock: socket.socket, how: str) -> None:
    """Ends a connection: fin (clean), ragged (FIN, but no close_notify), rst."""
    eventually(lambda: not unsent(sock), "the kernel still holds bytes")
    if how == "rst":
        reset(sock)
    elif how == "fin":
        close_cleanly(sock)
    else:
        sock.close()


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("said", sorted(SAID))
def test_the_client_sees_the_upstreams_end_as_it_was(any_rig: Rig, said: str, how: str) -> None:
    answer, _ = SAID[said]

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask(body=b"{}"))
        head = read_head(meeting.up) + read_exactly(meeting.up, 2)
        if answer:
            meeting.up.sendall(answer)
        end_as(meeting.up, how)
        got, ended = read_all(meeting.client)
        if ended == "ragged" and meeting.direct and how == "rst":
            ended = "rst"  # Python's TLS tells a reset as an EOF without close_notify
        return [head, got, ended]

    assert beside(any_rig, story)[1:] == [answer, how]


@pytest.mark.parametrize("said", sorted(SAID))
def test_a_ragged_end_is_an_error_for_the_client_unless_its_framing_tells_it(tls_rig: Rig, said: str) -> None:
    """A client that is told over plain TCP has no close_notify to miss: FIN where framing shows the cut, else RST."""
    answer, framed = SAID[said]
    seen: list[Seen] = []
    for direct in (True, False):
        meeting = Meeting(tls_rig, direct=direct)
        meeting.client.sendall(meeting.ask(body=b"{}"))
        read_head(meeting.up)
        read_exactly(meeting.up, 2)
        if answer:
            meeting.up.sendall(answer)
        end_as(meeting.up, "ragged")
        seen.append([*read_all(meeting.client)])
        meeting.leave()
    assert seen == [[answer, "ragged"], [answer, "fin" if framed else "rst"]]
    tls_rig.no_pair_open()


# What the client has sent and got before it ends.
TOLD = {
    "a head": ("Content-Length: 10", b"", b""),
    "part of a body": ("Content-Length: 10", b"01234", b""),
    "part of a chunk": ("Transfer-Encoding: chunked", b"5\r\nabc", b""),
    "a whole request": ("Content-Length: 2", b"{}", b""),
    "a request, and had part of the answer": (
        "Content-Length: 2",
        b"{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1",
    ),
    "a request, and had all of the answer": ("Content-Length: 2", b"{}", OK),
    "part of a body, and had all of the answer": ("Content-Length: 10", b"01234", OK),
}


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("told", sorted(TOLD))
def test_the_upstream_sees_the_clients_end_as_it_was(rig: Rig, told: str, how: str) -> None:
    line, body, answer = TOLD[told]

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/v1/messages", line) + body)
        seen: Seen = [read_head(meeting.up), read_exactly(meeting.up, len(body))]
        meeting.up.sendall(answer)
        seen.append(read_exactly(meeting.client, len(answer)))
        end_as(meeting.client, how)
        return [*seen, *read_all(meeting.up)]

    assert beside(rig, story)[-1] == how


@pytest.mark.parametrize("told", sorted(TOLD))
def test_a_tls_upstream_is_told_of_a_clients_end_at_once(tls_rig: Rig, told: str) -> None:
    """What is under way is never ended cleanly: a close_notify is only for a connection that carries nothing."""
    line, body, answer = TOLD[told]
    meeting = Meeting(tls_rig, direct=False)
    meeting.client.sendall(meeting.ask("POST", "/v1/messages", line) + body)
    read_head(meeting.up)
    read_exactly(meeting.up, len(body))
    meeting.up.sendall(answer)
    read_exactly(meeting.client, len(answer))
    meeting.client.close()
    got, how = read_all(meeting.up)
    assert got == b""
    assert how == ("fin" if told == "a request, and had all of the answer" else "ragged")
    meeting.leave()
    tls_rig.no_pair_open()


def test_a_client_that_resets_while_its_upload_is_paused_is_reset_for_the_upstream_too(rig: Rig) -> None:
    """Directly, the upstream loses what it had not read; so it does here."""

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/v1/messages", "Content-Length: 100000000"))
        head = read_head(meeting.up)
        sent = fill(meeting.client)
        assert len(sent) > 100_000
        reset(meeting.client)
        rig.no_pair_open()
        got, how = read_all(meeting.up)
        return [head, how, sent.startswith(got)]

    assert beside(rig, story)[1:] == ["rst", True]


def test_an_upstream_that_half_closes_gets_the_rest_of_the_upload(rig: Rig) -> None:
    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/v1/messages", "Content-Length: 2000000") + b"01234")
        seen: Seen = [read_head(meeting.up), read_exactly(meeting.up, 5)]
        meeting.up.sendall(OK)
        meeting.up.shutdown(socket.SHUT_WR)
        seen += read_all(meeting.client)
        with in_background(lambda: meeting.client.sendall(b"x" * 1_999_995)) as faults:
            seen.append(read_exactly(meeting.up, 1_999_995) == b"x" * 1_999_995)
        return [*seen, faults]

    beside(rig, story)


def test_a_client_that_half_closes_behind_its_request_is_gone_at_a_model_door(rig: Rig) -> None:
    """DESIGN names it, and no SDK half-closes: directly the answer would still come."""
    seen = {}
    for direct in (True, False):
        meeting = Meeting(rig, direct=direct)
        meeting.client.sendall(meeting.ask(body=b"{}"))
        read_head(meeting.up)
        read_exactly(meeting.up, 2)
        meeting.client.shutdown(socket.SHUT_WR)
        assert read_all(meeting.up) == (b"", "fin")
        if direct:
            meeting.up.sendall(OK)
            meeting.up.close()
        seen[direct] = read_all(meeting.client)
        meeting.leave()
    assert seen == {True: (OK, "fin"), False: (b"", "rst")}
    rig.no_pair_open()
    assert rig.observer.wait(Kind.CLOSE)[0].json()["first"] == "client"


def test_a_tunnel_is_half_closed_from_either_side(rig: Rig) -> None:
    """Over plain TCP; that a TLS upstream hears of it, and may go on, is in test_coupled.py."""

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("GET", "/v1/responses", "Connection: Upgrade", "Upgrade: websocket"))
        seen: Seen = [read_head(meeting.up)]
        meeting.up.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        seen.append(read_head(meeting.client))
        meeting.up.sendall(b"last words")
        meeting.up.shutdown(socket.SHUT_WR)
        seen += read_all(meeting.client)
        meeting.client.sendall(b"z" * 300_000)
        meeting.client.shutdown(socket.SHUT_WR)
        got, how = read_all(meeting.up)
        return [*seen, got == b"z" * 300_000, how]

    assert beside(rig, story)[-4:] == [b"last words", "fin", True, "fin"]


NOTSENT_AT = 144
"""Where tcpi_notsent_bytes stands in struct tcp_info (linux/tcp.h, since Linux 4.6)."""

TOO_LARGE = b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large"


def refused_early(meeting: Meeting, wait_s: float, *, nodelay: bool = True) -> tuple[bool, bool]:
    """Whether the 413 left the server's kernel before the reset, and whether the client, which sends as long as it
    can, then still reads all of it.

    With `nodelay` (as servers do) it always leaves.  Else the kernel holds it back until what was sent before (the TLS
    session tickets) is acknowledged, and throws it away at the reset.
    """
    meeting.client.sendall(meeting.ask("POST", "/v1/messages", "Content-Length: 50000000"))
    unsent: list[int] = []

    def upstream() -> None:
        sock = meeting.up
        if nodelay:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read_head(sock)
        read_exactly(sock, 100_000)
        sock.sendall(TOO_LARGE)
        (count,) = struct.unpack_from("I", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160), NOTSENT_AT)
        unsent.append(count)
        reset(sock)

    piece = b"x" * 65_536
    with in_background(upstream) as faults:
        try:
            for _ in range(800):
                meeting.client.sendall(piece)
        except OSError:
            pass
        else:
            raise AssertionError("the upload was not ended")
        time.sleep(wait_s)
        got = b""
        try:
            while data := meeting.client.recv(65_536):
                got += data
        except OSError:
            pass
    assert faults == []
    meeting.leave()
    return unsent == [0], got == TOO_LARGE


def test_an_early_413_with_an_immediate_reset_is_lost_no_more_often_than_directly(any_rig: Rig) -> None:
    rng = random.Random(413)
    heard = {True: 0, False: 0}
    for _ in range(10):
        wait_s = rng.choice((0.0, 0.0, 0.002, 0.01))
        for direct in (True, False):
            left, whole = refused_early(Meeting(any_rig, direct=direct), wait_s)
            assert left
            heard[direct] += whole
    any_rig.no_pair_open()
    assert heard[False] >= heard[True]


def test_an_early_413_is_heard_whenever_it_left_a_server_that_delays_small_segments(any_rig: Rig) -> None:
    """Nagle's algorithm: what the server's own kernel threw away at its reset, no relay can pass on."""
    rng = random.Random(1413)
    for _ in range(12):
        meeting = Meeting(any_rig, direct=False)
        left, whole = refused_early(meeting, rng.choice((0.0, 0.0, 0.002, 0.01)), nodelay=False)
        assert whole == left
    any_rig.no_pair_open()


def test_five_close_delimited_megabytes_with_a_ragged_end_reach_a_slow_reader_and_then_an_error(tls_rig: Rig) -> None:
    body = random.Random(5).randbytes(5_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n"
    ends = {}
    for direct in (True, False):
        meeting = Meeting(tls_rig, direct=direct, receive_bytes=8192)
        meeting.client.sendall(meeting.ask("GET", "/v1/files/x/content"))
        read_head(meeting.up)

        def upstream(sock: socket.socket) -> None:
            sock.sendall(head + body)
            sock.close()  # no close_notify

        with in_background(lambda sock=meeting.up: upstream(sock)) as faults:  # type: ignore[misc]
            got = bytearray()
            for _ in range(20):  # slow at first: everything has ended long before the client has read it
                got += read_exactly(meeting.client, 4096)
                time.sleep(0.01)
            rest, how = read_all(meeting.client)
        assert faults == []
        ends[direct] = (bytes(got) + rest == head + body, how)
        meeting.leave()
    assert ends == {True: (True, "ragged"), False: (True, "rst")}
    tls_rig.no_pair_open()
    (end,) = tls_rig.observer.of(Kind.RESPONSE_END)
    assert (end.json()["complete"], end.json()["close_how"]) == (False, "tls_ragged")


def test_an_upload_that_waits_for_an_upstream_that_has_half_closed_is_not_cut(loop_kind: str) -> None:
    """Its client is silent only because nobody takes what it has."""
    with running(loop_kind, settings=RelaySettings(half_open_s=0.2)) as rig:

        def story(meeting: Meeting) -> Seen:
            meeting.client.sendall(meeting.ask("POST", "/v1/messages", "Content-Length: 30000000") + b"01234")
            seen: Seen = [read_head(meeting.up), read_exactly(meeting.up, 5)]
            meeting.up.sendall(OK)
            meeting.up.shutdown(socket.SHUT_WR)
            seen += read_all(meeting.client)
            with in_background(lambda: meeting.client.sendall(b"x" * 29_999_995)) as faults:
                time.sleep(1.0)  # five times the bound
                seen.append(len(read_exactly(meeting.up, 29_999_995)))
            return [*seen, faults]

        beside(rig, story)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_an_answer_half_read_is_a_reset_for_the_upstream(any_rig: Rig, how: str) -> None:
    """Closing with unread bytes is a reset on the wire; the relay is paused by then, and must notice all the same."""

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("GET", "/v1/files/x/content"))
        head = read_head(meeting.up)
        meeting.up.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        assert len(fill(meeting.up, limit_bytes=100_000_000)) < 100_000_000
        end_it = reset if how == "rst" else socket.socket.close
        end_it(meeting.client)
        any_rig.no_pair_open()
        got, ended = read_all(meeting.up)
        return [head, got, "error" if ended in ("rst", "ragged") else ended]

    assert beside(any_rig, story, receive_bytes=4096)[-1] == "error"
