"""Any conversation, however coded, framed and cut on the wire: both sides get exactly the bytes that were sent.

The pieces are reads of their own: the sender waits after each until the relay's loop has turned (`Sender`), which one
test below proves.  Plain and TLS upstreams, uvloop and asyncio.
"""

import socket
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.middleware.relay.settings import RelaySettings
from fairtrial.middleware.wire.feed import Kind, Record
from tests.middleware.relay.beside import close_cleanly, in_background, unsent
from tests.middleware.relay.drawn import CODINGS, Exchange, content, cuts, encode, exchanges, said_again
from tests.middleware.relay.rig import (
    TOKEN,
    Rig,
    eventually,
    read_all,
    read_exactly,
    read_head,
    request,
    reset,
    running,
)

BASE = "/api/anthropic"


@pytest.fixture(
    scope="module", params=["uvloop-plain-run", "asyncio-plain-serve", "uvloop-tls-serve", "asyncio-tls-run"]
)
def shared(request: pytest.FixtureRequest, ca_file: str) -> Iterator[Rig]:
    """One relay for all examples of a test; what is in order passes a shared door as it does a private one."""
    loop_kind, kind, command = str(request.param).split("-")
    limits = RelaySettings(ca_files=(ca_file,), refuse_bad_heads=command == "serve")
    with running(loop_kind, tls=kind == "tls", base=BASE, settings=limits) as rig:
        yield rig


class Sender:
    """Sends pieces so that each is a read of its own at the relay."""

    def __init__(self, rig: Rig, sock: socket.socket) -> None:
        self._rig = rig
        self._sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self._sock.sendall(piece)
            for _ in range(2):  # a turn of the loop that began after the send has read it
                self._rig.in_loop(lambda: None)


def test_each_piece_is_a_read_of_its_own(shared: Rig) -> None:
    start = len(shared.observer.records)
    client = shared.client()
    head = request("POST", "/x", b"", "Content-Length: 6")
    Sender(shared, client).send([head, b"12", b"345", b"6"])
    up = shared.upstream.accept()
    read_head(up)
    assert read_exactly(up, 6) == b"123456"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    Sender(shared, up).send([answer, b"ab", b"cde"])
    assert read_exactly(client, len(answer) + 5) == answer + b"abcde"
    client.close()
    shared.no_pair_open()
    records = shared.observer.records[start:]
    sent = [record.payload for record in records if record.kind == Kind.REQUEST_DATA]
    assert sent == [b"12", b"345", b"6"]
    assert [record.payload for record in records if record.kind == Kind.RESPONSE_DATA] == [b"ab", b"cde"]


@st.composite
def conversations(
    draw: st.DrawFn, authority: str, *, tls: bool
) -> tuple[list[Exchange], list[list[bytes]], list[list[bytes]]]:
    """Exchanges, the pieces of each request, the pieces of each response."""
    count = draw(st.integers(1, 5))
    made: list[Exchange] = []
    for turn in range(count):
        last = turn == count - 1
        again: bool = draw(st.booleans())
        if made and again:
            made.append(draw(said_again(made[-1], last=last, tls=tls)))
        else:
            made.append(draw(exchanges(BASE, authority, last=last, tls=tls)))
    if draw(st.booleans()):  # pipelined: one stream, cut without regard to where requests begin
        ups = [draw(cuts(b"".join(exchange.sent for exchange in made)))]
    else:
        ups = [draw(cuts(exchange.sent)) for exchange in made]
    return made, ups, [draw(cuts(exchange.response)) for exchange in made]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_both_sides_get_exactly_what_was_sent(shared: Rig, data: st.DataObject) -> None:
    tls = shared.upstream.tls
    made, ups, downs = data.draw(conversations(shared.door.upstream.authority, tls=tls))
    play(shared, made, ups, downs)


@pytest.mark.parametrize("coding", CODINGS)
def test_every_coding_passes_in_every_framing(shared: Rig, coding: str) -> None:
    """The whole table once, whatever hypothesis draws above."""
    body = encode(coding, content(9_000, 3))
    authority = shared.door.upstream.authority
    line = f"Content-Encoding: {coding.removeprefix('multi-frame ')}\r\n".encode()
    half = len(body) // 2
    as_chunks = b"%x;ext=1\r\n%b\r\n%x\r\n%b\r\n0\r\nX-T: 1\r\n\r\n" % (
        half,
        body[:half],
        len(body) - half,
        body[half:],
    )
    length = b"Content-Length: %d\r\n" % len(body)
    framings = {
        "length": (length, body, True, "none"),
        "chunked": (b"Transfer-Encoding: chunked\r\n", as_chunks, True, "none"),
        "close": (b"", body, True, "fin"),
        "cut length": (length, body[:half], False, "fin"),
        "cut chunk": (b"Transfer-Encoding: chunked\r\n", b"%x\r\n" % len(body) + body[:half], False, "fin"),
    }
    for up in ("length", "chunked"):
        for framing, wire, complete, end in framings.values():
            rest = line + framings[up][0] + b"\r\n" + framings[up][1]
            answer = b"HTTP/1.1 200 OK\r\n" + line + framing + b"\r\n" + wire
            exchange = Exchange(
                b"POST /t/%s/v1 HTTP/1.1\r\nHost: door\r\n" % TOKEN.encode() + rest,
                b"POST %s/v1 HTTP/1.1\r\nHost: %s\r\n" % (BASE.encode(), authority.encode()) + rest,
                body,
                answer,
                body if complete else body[:half],
                complete,
                framing != b"",
                end,
            )
            play(shared, [exchange], [[exchange.sent]], [[exchange.response]])


def play(rig: Rig, made: list[Exchange], ups: list[list[bytes]], downs: list[list[bytes]]) -> None:
    """Tells the whole conversation and compares what arrived on both sides, how it ended, and the copies."""
    start = len(rig.observer.records)
    arrived: list[bytes] = []
    end = made[-1].end
    client = rig.client()

    def upstream() -> None:
        sock = rig.upstream.accept()
        for exchange, pieces in zip(made, downs, strict=True):
            arrived.append(read_exactly(sock, len(exchange.arrives)))
            Sender(rig, sock).send(pieces)
        if end == "rst":
            eventually(lambda: not unsent(sock), "the kernel still holds bytes of the upstream")
            reset(sock)
        elif end == "fin":
            close_cleanly(sock)
        elif end == "ragged":
            sock.close()

    got = bytearray()
    try:
        with in_background(upstream) as upstream_faults:
            if len(ups) == len(made):
                for exchange, pieces in zip(made, ups, strict=True):
                    with in_background(partial(Sender(rig, client).send, pieces)) as faults:
                        got += read_exactly(client, len(exchange.response))
                    assert faults == []
            else:
                with in_background(partial(Sender(rig, client).send, ups[0])) as faults:
                    got += read_exactly(client, sum(len(exchange.response) for exchange in made))
                assert faults == []
        assert upstream_faults == []
        assert bytes(got) == b"".join(exchange.response for exchange in made)
        assert b"".join(arrived) == b"".join(exchange.arrives for exchange in made)
        if end != "none":
            assert read_all(client) == (b"", made[-1].ends_as)
    finally:
        client.close()
        while rig.upstream.open:
            rig.upstream.open.pop().close()
        rig.clients.clear()
    rig.no_pair_open()
    check_copies(made, rig.observer.records[start:])


def check_copies(made: list[Exchange], records: list[Record]) -> None:
    def joined(kind: Kind, msg: int) -> bytes:
        return b"".join(record.payload for record in records if record.kind == kind and record.msg == msg)

    for msg, exchange in enumerate(made, 1):
        assert joined(Kind.REQUEST_HEAD, msg) == exchange.sent[: exchange.sent.index(b"\r\n\r\n") + 4]
        assert joined(Kind.REQUEST_DATA, msg) == exchange.request_payload
        assert joined(Kind.RESPONSE_DATA, msg) == exchange.response_payload
        (end,) = [record for record in records if record.kind == Kind.RESPONSE_END and record.msg == msg]
        assert end.json()["complete"] is exchange.complete
    assert not any(record.kind == Kind.BLIND for record in records)
