"""Any cut of the same bytes gives the same messages, in both directions."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.relay.framing import (
    BadRequest,
    Blind,
    BodyData,
    ChunkedBody,
    InFlight,
    MessageEnd,
    RequestEvent,
    RequestFramer,
    ResponseEvent,
    ResponseFramer,
    Tunnel,
)
from fairtrial.middleware.relay.heads import RequestHead, ResponseHead

REQUESTS = (
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
    b"\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n"
    b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'3;ext="a b"\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: yes\r\n\r\n'
    b"HEAD /d HTTP/1.1\r\nHost: x\r\n\r\n"
)
RESPONSES = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    b"HTTP/1.1 204 No Content\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: 1\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end"
)
METHODS = (b"POST", b"GET", b"PUT", b"HEAD", b"GET")


def cut(data: bytes, points: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(set(points)), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


def tell_requests(events: Iterable[RequestEvent]) -> tuple[list[tuple[bytes, bytes, int]], bytes]:
    """(target, payload, wire bytes) per message, and everything that was given out, joined."""
    messages: list[tuple[bytes, bytes, int]] = []
    out = bytearray()
    target, payload = b"", bytearray()
    for event in events:
        if isinstance(event, RequestHead):
            target, payload = event.target, bytearray()
            out += event.raw
        elif isinstance(event, BodyData):
            payload += event.payload
            out += event.wire
        elif isinstance(event, MessageEnd):
            messages.append((target, bytes(payload), event.wire_bytes))
        else:
            raise AssertionError(event.reason)
    return messages, bytes(out)


def tell_responses(events: Iterable[ResponseEvent]) -> list[tuple[int, int, bytes]]:
    """(request number, status, payload) per head."""
    told: list[tuple[int, int, bytes]] = []
    for event in events:
        if isinstance(event, ResponseHead):
            told.append((event.msg, event.status, b""))
        elif isinstance(event, BodyData):
            told[-1] = (*told[-1][:2], told[-1][2] + event.payload)
    return told


def responses(*methods: bytes) -> ResponseFramer:
    framer = ResponseFramer()
    framer.fifo.extend(InFlight(number, method, may_tunnel=False) for number, method in enumerate(methods, 1))
    return framer


@given(st.lists(st.integers(1, len(REQUESTS) - 1), max_size=30))
def test_any_cut_gives_the_same_requests_and_loses_no_byte(points: list[int]) -> None:
    framer = RequestFramer()
    events = [event for piece in cut(REQUESTS, points) for event in framer.feed(piece)]
    messages, out = tell_requests(events)
    assert [message[:2] for message in messages] == [
        (b"/a", b"hello"),
        (b"/b", b""),
        (b"/c", b"abc0123456789"),
        (b"/d", b""),
    ]
    assert sum(message[2] for message in messages) == len(REQUESTS)
    assert out == REQUESTS
    assert framer.at_boundary


@given(st.lists(st.integers(1, len(RESPONSES) - 1), max_size=30))
def test_any_cut_gives_the_same_responses(points: list[int]) -> None:
    framer = responses(*METHODS)
    events = [event for piece in cut(RESPONSES, points) for event in framer.feed(piece)]
    assert tell_responses(events) == [
        (1, 100, b""),
        (1, 200, b"hello"),
        (2, 204, b""),
        (3, 200, b"abc"),
        (4, 200, b""),
        (5, 200, b"until the end"),
    ]
    end = framer.eof()
    assert end is not None
    assert (end.msg, end.how) == (5, "close_delimited")
    assert framer.idle


@given(st.binary(max_size=300), st.lists(st.integers(1, 299), max_size=10))
def test_no_bytes_make_the_request_side_lose_any(data: bytes, points: list[int]) -> None:
    framer = RequestFramer()
    out = bytearray()
    for piece in cut(data, [point for point in points if point < len(data)]):
        if framer.dead:
            out += piece
            continue
        for event in framer.feed(piece):
            if isinstance(event, RequestHead):
                out += event.raw
            elif isinstance(event, BodyData):
                out += event.wire
            elif isinstance(event, BadRequest):
                out += event.rest
    assert bytes(out) + bytes(framer._carry) == data


@given(st.binary(max_size=300), st.lists(st.integers(1, 299), max_size=10))
def test_no_bytes_make_the_response_side_raise(data: bytes, points: list[int]) -> None:
    framer = responses(b"GET", b"HEAD")
    for piece in cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + data, points):
        events = framer.feed(piece)
        if events and isinstance(events[-1], Blind | Tunnel):
            break


@pytest.mark.parametrize(
    "body",
    [
        b"5\nhello\r\n",
        b"5\r\nhelloX\r\n",
        b"-5\r\n",
        b"\r\n",
        b"5 5\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\n folded: x\r\n\r\n",
    ],
)
def test_a_chunked_request_body_that_is_none_is_bad_where_it_breaks(body: bytes) -> None:
    framer = RequestFramer()
    events = framer.feed(b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    bad = events[-1]
    assert isinstance(bad, BadRequest)
    assert bad.in_body
    assert framer.dead


@pytest.mark.parametrize(
    "start, reason",
    [
        (b"GET / HTTP/1.1\nHo", "bare"),
        (b"\x16\x03\x01\x02\x00", "not HTTP/1"),
        (b"GET /" + b"a" * 70_000, "64 KiB"),
        (b"\r\n" * 40_000, "64 KiB"),
    ],
)
def test_a_hopeless_head_is_bad_at_once(start: bytes, reason: str) -> None:
    (bad,) = RequestFramer().feed(start)
    assert isinstance(bad, BadRequest)
    assert reason in bad.reason
    assert bad.rest == start


def test_bytes_behind_an_upgrade_are_held_until_the_answer() -> None:
    raw = b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    framer = RequestFramer()
    framer.feed(raw + b"first")
    framer.feed(b" second")
    assert framer.holding
    assert framer.held_bytes == 12
    assert framer.release_to_tunnel() == b"first second"


def test_held_bytes_become_requests_again() -> None:
    raw = b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    framer = RequestFramer()
    framer.feed(raw + b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n")
    events = framer.release_to_http()
    assert isinstance(events[0], RequestHead)
    assert events[0].target == b"/next"


def test_a_tunnel_hands_over_what_came_with_its_head() -> None:
    framer = responses(b"CONNECT")
    events = framer.feed(b"HTTP/1.1 200 Connection established\r\n\r\nleft over")
    assert isinstance(events[-1], Tunnel)
    assert events[-1].rest == b"left over"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 1\n\nx",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX",
    ],
)
def test_a_response_that_cannot_be_framed_is_blind_at_once(data: bytes) -> None:
    events = responses(b"GET").feed(data)
    assert isinstance(events[-1], Blind)


def test_a_response_nobody_asked_for_is_framed_as_request_zero() -> None:
    events = responses().feed(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
    assert isinstance(events[0], ResponseHead)
    assert events[0].msg == 0


HEADS = (
    (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"ok"),
    (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b""),
    (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b""),
    (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"oka"),
    (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    (b"GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n", b""),
    (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    (b"GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n"),
    (b"GET", b"HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\n\r\n", b"HTTP/1.1 204 No\r\n\r\n"),
    (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"o"),
    (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"okHTTP/1.1 "),
)


@given(order=st.lists(st.sampled_from(HEADS), max_size=12))
def test_a_response_in_one_read_tells_the_same_on_the_short_path(order: list[tuple[bytes, bytes, bytes]]) -> None:
    told: list[list[tuple[int, int]]] = []
    for short in (True, False):
        framer = responses(*(method for method, _, _ in order))
        ended: list[tuple[int, int]] = []
        for _, head, rest in order:
            msg = framer.fifo[0].msg if framer.fifo else 0
            head_bytes = framer.take_whole(head + rest) if short else 0
            if head_bytes:
                assert head_bytes == len(head)
                ended.append((msg, len(head + rest)))
                continue
            events = framer.feed(head + rest)
            ended += [(event.msg, event.wire_bytes) for event in events if isinstance(event, MessageEnd)]
            if any(isinstance(event, Blind) for event in events):
                break
        told.append(ended)
    assert told[0] == told[1]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\n", b"\n\r\n", b"\r\r"])
def test_a_head_that_passes_anyway_is_waited_for_to_its_loose_end(end: bytes) -> None:
    data = b"GET / HTTP/1.1\nHost: h" + end
    framer = RequestFramer(patient=True)
    for at in range(len(data) - 1):
        assert framer.feed(data[at : at + 1]) == []
    (event,) = framer.feed(data[-1:])
    assert isinstance(event, BadRequest)
    assert event.rest == data
    assert isinstance(RequestFramer().feed(data[:20])[0], BadRequest), "where it is refused, it is refused at once"


@pytest.mark.parametrize("data", [b"GET /\n", b"\x16\x03\x01", b"GET / HTTP/1.1\n" + b"x" * 70_000])
def test_what_is_no_head_or_too_long_for_one_is_not_waited_for(data: bytes) -> None:
    (event,) = RequestFramer(patient=True).feed(data)
    assert isinstance(event, BadRequest)
    assert event.rest == data


def test_what_a_fault_of_ours_leaves_is_given_out_to_the_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
    framer = RequestFramer()
    assert framer.feed(b"GET /b HTTP/1.1\r\nHo") == []

    def broken(*_: object, **__: object) -> RequestHead:
        raise ZeroDivisionError

    monkeypatch.setattr("fairtrial.middleware.relay.request_framing.read_request_head", broken)
    (event,) = framer.feed(b"st: h\r\n\r\n" + begun)
    assert isinstance(event, BadRequest)
    assert isinstance(event.fault, ZeroDivisionError)
    assert (event.in_body, event.rest) == (False, b"GET /b HTTP/1.1\r\nHost: h\r\n\r\n" + begun)
    assert (framer.dead, framer.ready, framer.held_bytes) == (True, False, 0)


def test_a_fault_within_a_body_gives_out_what_no_event_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> tuple[int, bool]:
        raise ZeroDivisionError

    monkeypatch.setattr(ChunkedBody, "feed", broken)
    head = b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    first, second = RequestFramer().feed(head + b"3\r\nabc\r\n")
    assert isinstance(first, RequestHead)
    assert isinstance(second, BadRequest)
    assert (second.in_body, second.rest) == (True, b"3\r\nabc\r\n")


@given(
    pieces=st.lists(
        st.sampled_from(
            (b"3\r\nabc\r\n", b"3;x=y\r\nabc\r\n", b"03\r\n\r\n\n\r\n", b"1\r\na\r\n1\r\nb\r\n", b"2\r\na", b"b\r\n",
             b"2\r\nab\r", b"\n", b"3\r\nabc\n", b"4\r\nabc\r\n", b"0\r\n\r\n", b"x\r\n", b"\r\n")
        ),
        max_size=8,
    )
)  # fmt: skip
def test_the_short_path_of_streams_tells_the_same_as_the_long_one(pieces: list[bytes]) -> None:
    told: list[list[object]] = []
    for short in (True, False):
        framer = ResponseFramer()
        framer.fifo.append(InFlight(1, b"GET"))
        events: list[object] = list(framer.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"))
        for piece in pieces:
            if framer.chunked is None or any(isinstance(event, Blind) for event in events):
                break
            payload = framer.take_chunk(piece) if short else None
            events += framer.feed(piece) if payload is None else [BodyData(b"", payload)]
            events.append(framer.wire_bytes)
        told.append(events)
    assert told[0] == told[1]


def test_a_few_empty_lines_before_a_head_are_ignored_and_a_flood_of_them_is_no_head() -> None:
    few = RequestFramer(docker=False)
    assert any(isinstance(event, RequestHead) for event in few.feed(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"))
    flood = RequestFramer(docker=False)
    (bad,) = flood.feed(b"\r\n" * 40)
    assert isinstance(bad, BadRequest)
    assert "empty lines" in bad.reason
