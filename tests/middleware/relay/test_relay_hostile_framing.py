"""The relay's framers and head parser against strangers: no exception, no growth, no byte lost, and no cut matters.

The bounds are made small, so that what lies around them is met.  Another parser (h11) is asked about every head that we
vouch for: what two read alike is no ground for smuggling.
"""

import itertools
from collections.abc import Iterator

import h11
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairtrial.middleware.relay import chunked, heads, request_framing, response_framing
from fairtrial.middleware.relay.again import Said
from fairtrial.middleware.relay.framing import (
    BadRequest,
    Blind,
    BodyData,
    InFlight,
    MessageEnd,
    RequestFramer,
    ResponseFramer,
    Tunnel,
)
from fairtrial.middleware.relay.heads import BadHead, Body, RequestHead, ResponseHead, read_request_head, rewrite
from tests.middleware.held import held_bytes

HEAD_BYTES = 220
LINE_BYTES = 40
quietly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (heads, request_framing, response_framing):
            patch.setattr(module, "MAX_HEAD_BYTES", HEAD_BYTES)
        patch.setattr(chunked, "MAX_CHUNK_LINE_BYTES", LINE_BYTES)
        patch.setattr(chunked, "MAX_TRAILER_BYTES", LINE_BYTES)
        yield


# --- what is fed ----------------------------------------------------------------------------------------------------

REQUESTS = (
    b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
    b"PUT /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3;e=1\r\nabc\r\n0\r\nT: y\r\n\r\n",
    b"\r\n\r\nHEAD /d HTTP/1.0\r\n\r\n",
    b"GET /e HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n",
)
RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    + b"".join(b"5\r\nevent\r\n" for _ in range(9))
    + b"0\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nany\r\nthing",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
)
TOKENS = (
    *(
        b"\r",
        b"\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\n\n",
        b" ",
        b"\t",
        b"\0",
        b":",
        b";",
        b"\xff",
        b"0",
        b"HTTP/1.1 ",
        b"GET ",
    ),
    *(
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Host: y\r\n",
        b"x" * LINE_BYTES,
        b"a" * HEAD_BYTES,
    ),
    *(b"\r\nUpgrade: h2c", b"0\r\n\r\n", b"3\r\nabc\r\n", b"fffffffffffffff", b"-1"),
)


@st.composite
def broken(draw: st.DrawFn, samples: tuple[bytes, ...]) -> bytes:
    """Samples behind each other, edited."""
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(samples), min_size=1, max_size=4))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0 | 1:
                data[at:at] = draw(st.sampled_from(TOKENS))
            case 2:
                del data[at : at + draw(st.integers(1, 20))]
            case _:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
    return bytes(data)


def pieces(data: bytes, points: list[int]) -> list[bytes]:
    edges = [0, *sorted({point % len(data) for point in points if len(data)} - {0}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# --- requests -------------------------------------------------------------------------------------------------------


def tell_requests(cuts: list[bytes], *, short: bool) -> tuple[list[object], bytes]:
    """What the framer says, whatever the cuts, and every byte that it gave out or keeps, in order."""
    framer = RequestFramer()
    told: list[object] = []
    out = bytearray()
    payload = bytearray()
    for piece in cuts:
        if framer.dead:
            out += piece
            continue
        head = framer.take_whole(piece) if short else None
        if head is not None:
            told += [(head.target, head.body, head.length_bytes), piece[len(head.raw) :], ("end", len(piece))]
            out += piece
            continue
        for event in framer.feed(piece):
            if isinstance(event, RequestHead):
                told.append((event.target, event.body, event.length_bytes))
                out += event.raw
            elif isinstance(event, BodyData):
                payload += event.payload
                out += event.wire
            elif isinstance(event, MessageEnd):
                told += [bytes(payload), ("end", event.wire_bytes)]
                payload.clear()
            else:
                told.append(("bad", event.in_body))
                out += event.rest
        assert framer.held_bytes <= max(HEAD_BYTES, len(piece)) + len(piece) or framer.holding
    told.append((framer.at_boundary, framer.head_pending, framer.holding) if not framer.dead else "dead")
    return told, bytes(out) + (b"" if framer.dead else bytes(framer._carry))


@given(broken(REQUESTS), st.lists(st.integers(0, 2000), max_size=20))
@quietly
def test_no_cut_changes_what_requests_are_and_no_byte_is_lost(data: bytes, points: list[int]) -> None:
    whole, out = tell_requests([data], short=False)
    for cuts in (pieces(data, points), bytewise(data)):
        for short in (False, True):
            told, kept = tell_requests(cuts, short=short)
            assert kept == data
            assert [each for each in told if each != b""] == [each for each in whole if each != b""]
    assert out == data


def test_what_came_before_a_half_head_is_no_part_of_its_length() -> None:
    """Requests that were held behind an upgrade come at once, and may be more than the bound of a head together."""
    framer = RequestFramer()
    events = framer.feed(REQUESTS[0] * 40 + b"GET /half")
    assert not framer.dead
    events += framer.feed(b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [event.target for event in events if isinstance(event, RequestHead)] == [b"/a"] * 40 + [b"/half"]


# --- responses ------------------------------------------------------------------------------------------------------


def tell_responses(cuts: list[bytes], methods: list[bytes], *, short: bool) -> list[object]:
    """As the engine asks: the short paths first, nothing more after a tunnel or blindness."""
    framer = ResponseFramer()
    framer.fifo.extend(InFlight(number, method) for number, method in enumerate(methods, 1))
    told: list[object] = []
    payload = bytearray()

    def said(thing: object) -> None:
        if payload:
            told.append(bytes(payload))
            payload.clear()
        told.append(thing)

    for piece in cuts:
        chunk = framer.take_chunk(piece) if short else None
        if chunk is not None:
            payload += chunk
            continue
        waiting = framer.fifo[0] if framer.fifo else None
        head_end = framer.take_whole(piece) if short else 0
        if head_end and waiting is not None:
            whole = heads.read_response_head(piece[:head_end], waiting.msg, waiting.method)
            said((whole.msg, whole.status, whole.body))
            payload += piece[head_end:]
            said(("end", whole.msg, len(piece)))
            continue
        for event in framer.feed(piece):
            if isinstance(event, ResponseHead):
                said((event.msg, event.status, event.body))
            elif isinstance(event, BodyData):
                payload += event.payload
            elif isinstance(event, MessageEnd):
                said(("end", event.msg, event.wire_bytes))
            elif isinstance(event, Tunnel):
                said("tunnel")
            else:
                assert isinstance(event, Blind)
                said("blind")
        assert held_bytes(framer) <= 2000 + 2 * len(piece)
        if told and told[-1] in ("tunnel", "blind"):
            return told
    said((framer.idle, framer.until_close, framer.wire_bytes))
    end = framer.eof()
    said(None if end is None else (end.msg, end.wire_bytes, end.how))
    return told


@given(
    broken(RESPONSES),
    st.lists(st.sampled_from([b"GET", b"HEAD", b"POST", b"CONNECT"]), max_size=5),
    st.lists(st.integers(0, 2000), max_size=20),
)
@quietly
def test_no_cut_changes_what_responses_are(data: bytes, methods: list[bytes], points: list[int]) -> None:
    whole = tell_responses([data], methods, short=False)
    for cuts in ([data], pieces(data, points), bytewise(data)):
        for short in (False, True):
            assert tell_responses(cuts, methods, short=short) == whole


# --- holding, in any order ------------------------------------------------------------------------------------------


class Conversation(RuleBasedStateMachine):
    """A client that pipelines behind upgrades, and an upstream that grants or refuses them."""

    def __init__(self) -> None:
        super().__init__()
        self.framer = RequestFramer()
        self.sent = bytearray()
        self.out = bytearray()
        self.behind = bytearray()

    def take(self, events: list[RequestHead | BodyData | MessageEnd | BadRequest]) -> None:
        for event in events:
            if isinstance(event, RequestHead):
                self.out += event.raw
            elif isinstance(event, BodyData):
                self.out += event.wire
            elif isinstance(event, BadRequest):
                self.out += event.rest

    @rule(data=broken(REQUESTS), points=st.lists(st.integers(0, 500), max_size=4))
    def send(self, data: bytes, points: list[int]) -> None:
        for piece in pieces(data, points):
            self.sent += piece
            if self.framer.dead:
                self.behind += piece
            else:
                self.take(self.framer.feed(piece))

    @precondition(lambda self: self.framer.holding)
    @rule()
    def refuse(self) -> None:
        self.take(self.framer.release_to_http())

    @precondition(lambda self: self.framer.holding)
    @rule()
    def grant(self) -> None:
        self.behind += self.framer.release_to_tunnel()

    @invariant()
    def every_byte_is_somewhere(self) -> None:
        kept = b"" if self.framer.dead else bytes(self.framer._carry)
        assert bytes(self.out) + kept + bytes(self.behind) == bytes(self.sent)


Conversation.TestCase.settings = settings(
    quietly, max_examples=40, stateful_step_count=12, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
TestConversation = Conversation.TestCase


# --- heads ----------------------------------------------------------------------------------------------------------

NAMES = [
    b"Host",
    b"Content-Length",
    b"Transfer-Encoding",
    b"Connection",
    b"X-Any",
    b"Upgrade",
    b"Expect",
    b"content-length",
]
VALUES = [
    b"x",
    b"",
    b"5",
    b"05",
    b"+5",
    b"5,5",
    b"chunked",
    b"Chunked",
    b"gzip, chunked",
    b"close",
    b"a\xe9",
    b"\t5 ",
    b"a b",
]


@st.composite
def heads_of(draw: st.DrawFn) -> bytes:
    """A head of plausible lines, now and then with a byte where it does not belong."""
    method = draw(st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"DELETE"]))
    target = draw(st.sampled_from([b"/", b"/a?b=c", b"/%3A", b"*", b"http://h/x"]))
    lines = [method + b" " + target + b" " + draw(st.sampled_from([b"HTTP/1.1"] * 5 + [b"HTTP/1.0"]))]
    lines += draw(
        st.lists(
            st.builds(
                lambda name, space, value: name + b":" + space + value,
                st.sampled_from(NAMES),
                st.sampled_from([b" ", b""]),
                st.sampled_from(VALUES),
            ),
            max_size=4,
        )
    )
    if draw(st.integers(0, 5)):
        lines.insert(1, b"Host: door")
    raw = bytearray(b"\r\n".join(lines) + b"\r\n\r\n")
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(raw) - 5))
        raw[at:at] = draw(st.binary(min_size=1, max_size=1))
    return bytes(raw)


@given(heads_of() | st.binary(max_size=80).map(lambda junk: b"GET / HTTP/1.1\r\n" + junk + b"\r\n\r\n"))
@settings(quietly, max_examples=400)
def test_a_head_that_we_vouch_for_is_read_alike_by_another_parser(raw: bytes) -> None:
    assume(raw.find(b"\r\n\r\n") == len(raw) - 4)
    try:
        head = read_request_head(raw)
    except BadHead:
        return
    other = h11.Connection(h11.SERVER)
    other.receive_data(raw)
    event = other.next_event()
    assert isinstance(event, h11.Request), raw
    assert (event.method, event.target) == (head.method, head.target)
    framing_of = {name: value for name, value in event.headers if name in (b"content-length", b"transfer-encoding")}
    if head.body is Body.CHUNKED:
        assert {name: value.lower() for name, value in framing_of.items()} == {b"transfer-encoding": b"chunked"}
    else:
        assert int(framing_of.get(b"content-length", b"0")) == head.length_bytes
        assert b"transfer-encoding" not in framing_of
    new = rewrite(head, b"/new", b"up:1")
    again = read_request_head(new)
    assert (again.target, again.body, again.length_bytes) == (b"/new", head.body, head.length_bytes)


@given(st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 \r\n"]))
def test_no_response_head_of_a_stranger_raises_anything_else(junk: bytes, start: bytes) -> None:
    for method in (b"GET", b"HEAD", b"CONNECT", b""):
        try:
            read = heads.read_response_head(start + junk + b"\r\n\r\n", 1, method, docker=True)
        except BadHead:
            continue
        assert read.length_bytes >= 0
        assert 100 <= read.status <= 999


@pytest.mark.parametrize("size", [1, 5, 4096])
@pytest.mark.parametrize(
    "opener",
    [
        b"GET /",
        b"GET / HTTP/1.1\r\nX: ",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5;",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
        b"\r\n\r\n\r\n",
    ],
)
def test_an_endless_part_of_a_request_ends_the_framing_at_the_bound(opener: bytes, size: int) -> None:
    framer = RequestFramer()
    events = framer.feed(opener)
    filler = b"\r\n" * size if opener.startswith(b"\r\n") else b"x" * size
    for _ in range(2 * HEAD_BYTES + 10):
        events += framer.feed(filler)
        if framer.dead:
            break
        assert held_bytes(framer) <= 2 * HEAD_BYTES + 2 * len(filler) + 400
    assert isinstance(events[-1], BadRequest)


@pytest.mark.parametrize("size", [1, 5, 4096])
@pytest.mark.parametrize(
    "opener",
    [
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
)
def test_an_endless_part_of_a_response_goes_blind_at_the_bound(opener: bytes, size: int) -> None:
    framer = ResponseFramer()
    framer.fifo.append(InFlight(1, b"GET"))
    events = framer.feed(opener)
    for _ in range(2 * HEAD_BYTES + 10):
        events += framer.feed(b"x" * size)
        if events and isinstance(events[-1], Blind):
            return
        assert held_bytes(framer) <= 2 * HEAD_BYTES + 2 * size + 600
    raise AssertionError("never blind")


# --- heads that are said again --------------------------------------------------------------------------------------

LINES_SAID = [
    b"Host: door",
    b"Content-Length: 05",
    b"Idempotency-Key: aaaa-bbbb",
    b"X-Fairtrial-Trial: t",
    b"Accept: */*",
    b"Content-Type: application/json",
]
INTRUDERS = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b"\x7f",
    b"\xff",
    b"chunked",
    b"Transfer-Encoding:",
    b"6",
    b"+",
]


def test_the_memory_that_is_attacked_below_is_one() -> None:
    lines = [line for line in LINES_SAID if not line.startswith(b"X-Fairtrial")]
    first = b"\r\n".join([b"POST /t/x/v1/x HTTP/1.1", *lines]) + b"\r\n\r\n"
    said = None
    for key in (b"aaaa-bbbb", b"cccc-dddd"):
        raw = first.replace(b"aaaa-bbbb", key)
        head = read_request_head(raw)
        said = Said(head, rewrite(head, b"/v1/x", b"up:1"), None, 1, said)
    assert said is not None
    third = first.replace(b"aaaa-bbbb", b"eeee-ffff")
    assert said.again(third + b"12345") == (sent_for(third) or b"") + b"12345"


def sent_for(raw: bytes) -> bytes | None:
    """What goes upstream for a head by the general way; None if it is refused."""
    try:
        return rewrite(read_request_head(raw), b"/v1/x", b"up:1")
    except BadHead:
        return None


@st.composite
def said_again(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A head, the next one with another value in it, and a third that may have been tampered with."""
    lines = draw(st.permutations(LINES_SAID) | st.permutations(LINES_SAID[1:]).map(lambda rest: [LINES_SAID[0], *rest]))
    if draw(st.integers(0, 3)):
        lines = [line for line in lines if not line.startswith(b"X-Fairtrial")]
    first = b"\r\n".join([b"POST /t/x/v1/x HTTP/1.1", *lines]) + b"\r\n\r\n"
    second = first.replace(b"aaaa-bbbb", b"cccc-dddd")
    third = bytearray(first.replace(b"aaaa-bbbb", b"eeee-ffff"))
    for _ in range(draw(st.integers(0, 2))):
        value = third.find(b"eeee")
        at = draw(
            st.integers(value, value + 8) if value >= 0 and draw(st.booleans()) else st.integers(0, len(third) - 1)
        )
        new = draw(st.sampled_from(INTRUDERS) | st.binary(min_size=1, max_size=1))
        third[at : at + len(new)] = new  # of the same size: the others are no head said again
    return first, second, bytes(third)


@given(said_again(), st.sampled_from([b"12345"] * 5 + [b"123456", b"1234", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"]))
@settings(quietly, max_examples=300)
def test_a_head_said_again_passes_only_as_it_would_have_passed_the_first_time(
    heads_said: tuple[bytes, bytes, bytes], body: bytes
) -> None:
    """The memory of a head is no way around the judgement."""
    first, second, third = heads_said
    said = None
    for raw in (first, second):
        head = read_request_head(raw)
        said = Said(head, rewrite(head, b"/v1/x", b"up:1"), None, 1, said)
    assert said is not None
    new = said.again(third + body)
    if new is None:
        return
    end = third.find(b"\r\n\r\n") + 4
    assert end == len(third)
    judged = read_request_head(third)  # refuses nothing that was let through
    assert (judged.body, judged.length_bytes) == (Body.LENGTH, len(body))
    assert new == (sent_for(third) or b"") + body
