"""Conversations out of the ordinary, each told over a direct connection too: what both sides see is the same."""

import socket

import pytest

from fairtrial.middleware.wire.feed import Flag, Kind
from tests.middleware.relay.beside import Meeting, beside, close_cleanly
from tests.middleware.relay.rig import DEADLINE_S, Rig, read_all, read_exactly, read_head

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Seen = list[object]


def silent(sock: socket.socket, patience_s: float = 0.1) -> bool:
    """Nothing comes for a moment."""
    sock.settimeout(patience_s)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(DEADLINE_S)
    return False


def turn(meeting: Meeting, ask: bytes, body_bytes: int, answer: bytes) -> Seen:
    """One request, taken whole by the upstream, and one answer, taken whole by the client."""
    meeting.client.sendall(ask)
    head = read_head(meeting.up)
    body = read_exactly(meeting.up, body_bytes)
    meeting.up.sendall(answer)
    return [head, body, read_exactly(meeting.client, len(answer))]


def after(meeting: Meeting) -> Seen:
    """The connection still serves an ordinary call."""
    return turn(meeting, meeting.ask("GET", "/after"), 0, OK)


def test_a_100_passes_before_the_body_is_sent(any_rig: Rig) -> None:
    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/v1/files", "Expect: 100-continue", "Content-Length: 5"))
        seen: Seen = [read_head(meeting.up)]
        seen.append(silent(meeting.client))  # nobody answers in the upstream's place
        meeting.up.sendall(b"HTTP/1.1 100 Continue\r\nX: 1\r\n\r\n")
        seen.append(read_head(meeting.client))
        meeting.client.sendall(b"12345")
        seen.append(read_exactly(meeting.up, 5))
        meeting.up.sendall(OK)
        return [*seen, read_exactly(meeting.client, len(OK)), *after(meeting)]

    assert beside(any_rig, story)[1] is True
    heads = any_rig.observer.of(Kind.RESPONSE_HEAD)
    assert [head.flags for head in heads] == [Flag.INTERIM, 0, 0]


def test_a_417_passes_and_the_client_may_go_on_without_its_body(any_rig: Rig) -> None:
    """A client that was told 417 before its body closes: the bytes that it announced never come."""

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/v1/files", "Expect: 100-continue", "Content-Length: 5"))
        seen: Seen = [read_head(meeting.up)]
        answer = b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        meeting.up.sendall(answer)
        close_cleanly(meeting.up)
        return [*seen, *read_all(meeting.client)]

    assert beside(any_rig, story)[-1] == "fin"


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_error_that_comes_while_the_body_still_uploads_passes_at_once_and_the_rest_may_follow(
    any_rig: Rig, framing: str
) -> None:
    error = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nnope!"

    def story(meeting: Meeting) -> Seen:
        lines = {"length": "Content-Length: 10", "chunked": "Transfer-Encoding: chunked"}
        first = {"length": b"01234", "chunked": b"5;x=y\r\n01234\r\n5\r\n5"}[framing]
        rest = {"length": b"56789", "chunked": b"6789\r\n0\r\nX-T: 1\r\n\r\n"}[framing]
        meeting.client.sendall(meeting.ask("POST", "/v1/messages", lines[framing]) + first)
        seen: Seen = [read_head(meeting.up), read_exactly(meeting.up, len(first))]
        meeting.up.sendall(error)
        seen.append(read_exactly(meeting.client, len(error)))
        meeting.client.sendall(rest + meeting.ask("GET", "/next"))
        seen += [read_exactly(meeting.up, len(rest)), read_head(meeting.up)]
        meeting.up.sendall(OK)
        return [*seen, read_exactly(meeting.client, len(OK)), *after(meeting)]

    beside(any_rig, story)


def test_an_early_error_may_stream_while_the_body_does(any_rig: Rig) -> None:
    """Neither direction waits for the other."""

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/v1/messages", "Content-Length: 1000"))
        seen: Seen = [read_head(meeting.up)]
        meeting.up.sendall(b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n")
        seen.append(read_head(meeting.client))
        for _ in range(10):
            meeting.client.sendall(b"u" * 100)
            seen.append(read_exactly(meeting.up, 100))
            meeting.up.sendall(b"4\r\ndown\r\n")
            seen.append(read_exactly(meeting.client, 9))
        meeting.up.sendall(b"0\r\n\r\n")
        return [*seen, read_exactly(meeting.client, 5), *after(meeting)]

    beside(any_rig, story)


BODILESS = {
    "HEAD with a length": ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"),
    "HEAD chunked": ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "HEAD bare": ("HEAD", b"HTTP/1.1 404 Not Found\r\nServer: x\r\n\r\n"),
    "204": ("POST", b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n"),
    "304": ("GET", b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 900\r\n\r\n'),
    "304 chunked": ("GET", b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "zero length": ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "interims": (
        "GET",
        (
            b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 \r\n\r\n"
            b"HTTP/1.1 199 Whatever\r\nContent-Length: 7\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
        ),
    ),
}


@pytest.mark.parametrize("kind", sorted(BODILESS))
def test_what_has_no_body_is_followed_by_the_next_response(any_rig: Rig, kind: str) -> None:
    """HEAD then GET on one connection, also pipelined; 204, 304 and 1xx with lines that speak of a body."""
    method, answer = BODILESS[kind]

    def story(meeting: Meeting) -> Seen:
        seen = turn(meeting, meeting.ask(method, "/one"), 0, answer) + after(meeting)
        meeting.client.sendall(meeting.ask(method, "/two") + meeting.ask("GET", "/three"))
        seen += [read_head(meeting.up), read_head(meeting.up)]
        meeting.up.sendall(answer + OK)
        return [*seen, read_exactly(meeting.client, len(answer + OK)), *after(meeting)]

    beside(any_rig, story)
    ends = [end.json() for end in any_rig.observer.of(Kind.RESPONSE_END)]
    assert [(end["complete"], end["how"]) for end in ends] == [(True, "framed")] * 5
    assert [any_rig.observer.joined(Kind.RESPONSE_DATA, msg=msg) for msg in range(1, 6)] == [
        b"",
        b"ok",
        b"",
        b"ok",
        b"ok",
    ]


ODD = {
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",
    "own status": b"HTTP/1.1 999 Odd\r\nContent-Length: 2\r\n\r\nok",
    "both framings": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n0\r\n\r\n",
    "the same length twice": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\nok",
    "hop-by-hop lines": b"HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n"
    b"Proxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nok",
    "names as sent": b"HTTP/1.1 200 OK\r\nset-COOKIE: a\r\nSet-Cookie: b\r\nx-Y:\t z \r\nContent-Length: 2\r\n\r\nok",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    "folded": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
    "latin-1": b"HTTP/1.1 200 \xdcber\r\nX-\xe9: \xff\r\nContent-Length: 2\r\n\r\nok",
    "a head of 60 KB": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 60_000 + b"\r\nContent-Length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("kind", sorted(ODD))
def test_no_line_of_a_response_changes(rig: Rig, kind: str) -> None:
    def story(meeting: Meeting) -> Seen:
        return turn(meeting, meeting.ask("GET", "/one"), 0, ODD[kind]) + after(meeting)

    beside(rig, story)


def test_an_upstream_may_speak_unasked(any_rig: Rig) -> None:
    """A server that times an idle connection out sends 408 and closes."""
    late = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

    def story(meeting: Meeting) -> Seen:
        seen = after(meeting)
        meeting.up.sendall(late)
        close_cleanly(meeting.up)
        return [*seen, *read_all(meeting.client)]

    assert beside(any_rig, story)[-2:] == [late, "fin"]


def test_one_event_of_a_stream_passes_while_the_next_is_not_there_yet(any_rig: Rig) -> None:
    """Byte by byte, as far as the loop reads: nothing is kept for a better occasion."""
    stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndata: 1\n\r\n8\r\ndata: 2\n\r\n0\r\n\r\n"

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("GET", "/stream"))
        seen: Seen = [read_head(meeting.up)]
        for at in range(len(stream)):
            meeting.up.sendall(stream[at : at + 1])
            assert read_exactly(meeting.client, 1) == stream[at : at + 1]
        return [*seen, *after(meeting)]

    beside(any_rig, story)


def test_a_body_passes_byte_by_byte_upwards(any_rig: Rig) -> None:
    body = b"3;x\r\nabc\r\n0\r\nT: 1\r\n\r\n"

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/up", "Transfer-Encoding: chunked"))
        seen: Seen = [read_head(meeting.up)]
        for at in range(len(body)):
            meeting.client.sendall(body[at : at + 1])
            assert read_exactly(meeting.up, 1) == body[at : at + 1]
        meeting.up.sendall(OK)
        return [*seen, read_exactly(meeting.client, len(OK)), *after(meeting)]

    beside(any_rig, story)


def test_a_hundred_calls_share_one_connection(any_rig: Rig) -> None:
    def story(meeting: Meeting) -> Seen:
        seen: Seen = []
        for number in range(100):
            body = b"x" * (number * 37 % 5000)
            seen += turn(meeting, meeting.ask("POST", f"/{number}", body=body), len(body), OK)
        return seen

    beside(any_rig, story)
    assert any_rig.relay.counters.connections == 1


def test_responses_may_come_before_the_requests_behind_them_were_read(any_rig: Rig) -> None:
    """Pipelining over the depth at which the client is held back."""
    count = 200

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(b"".join(meeting.ask("GET", f"/{number}") for number in range(count)))
        seen: Seen = []
        for number in range(count):
            seen.append(read_head(meeting.up))
            meeting.up.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n%03d" % number)
        return [*seen, read_exactly(meeting.client, count * 41)]

    beside(any_rig, story)
