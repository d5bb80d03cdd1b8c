"""Heads and bodies that cannot be framed: `serve` refuses behind what is in flight, `run` goes blind.

The corpus of tricks is in test_relay_hostile_smuggling.py; here it is about the place: the first thing on a connection,
behind a whole call, behind one that still streams, in the same read or byte by byte.
"""

import socket
import time
from collections.abc import Iterator

import pytest

from fairtrial.middleware.relay.settings import RelaySettings
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.beside import Meeting, beside
from tests.middleware.relay.rig import Rig, read_all, read_exactly, read_head, running

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SSE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
Seen = list[object]

# (request line and lines; %H is the Host line), and what the answer must name.
BAD = {
    "CL and TE": (
        b"POST %P/bad HTTP/1.1\r\n%H\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"",
    ),
    "two CL": (b"POST %P/bad HTTP/1.1\r\n%H\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody!", b""),
    "the same CL twice": (b"POST %P/bad HTTP/1.1\r\n%H\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody", b""),
    "two Hosts": (b"GET %P/bad HTTP/1.1\r\n%H\r\n%H\r\n\r\n", b"two Host lines"),
    "bare LF": (b"GET %P/bad HTTP/1.1\n%H\n\n", b"a bare CR or LF"),
    "bare LF in the lines": (b"GET %P/bad HTTP/1.1\r\n%H\nX: y\r\n\r\n", b"a bare CR or LF"),
    "obs-fold": (b"GET %P/bad HTTP/1.1\r\n%H\r\nX: a\r\n b\r\n\r\n", b"a folded header line"),
    "oversize": (b"GET %P/bad HTTP/1.1\r\n%H\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", b"over 64 KiB"),
    "no Host": (b"GET %P/bad HTTP/1.1\r\n\r\n", b"no Host line"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"not HTTP/1"),
}

# Bodies that break, all behind `Transfer-Encoding: chunked`.
BROKEN = {
    "no size": b"3\r\nabc\r\nnot a size\r\n",
    "a bare LF": b"3\nabc\r\n0\r\n\r\n",
    "data over its size": b"3\r\nabcdef\r\n0\r\n\r\n",
    "a negative size": b"-3\r\nabc\r\n",
    "a size that overflows": b"fffffffffffffffff3\r\nabc\r\n",
    "a trailer that is none": b"0\r\nno colon\r\n\r\n",
    "an endless extension": b"3;" + b"x" * 20_000,
}


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def strict(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A shared door."""
    with running(str(request.param), settings=RelaySettings(refuse_bad_heads=True)) as rig:
        yield rig


def bad(meeting: Meeting, name: str) -> bytes:
    """The bad request as this client says it."""
    return BAD[name][0].replace(b"%P", meeting.prefix.encode()).replace(b"%H", b"Host: " + meeting.authority.encode())


def is_refusal(got: bytes, name: str) -> None:
    assert got.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert BAD[name][1] in got
    length = int(got.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    assert len(got.split(b"\r\n\r\n", 1)[1]) == length  # nothing behind it


def in_bytes(rig: Rig, sock: socket.socket, data: bytes) -> None:
    """Byte by byte (large ones in a few pieces), as long as anybody takes them."""
    step = max(1, len(data) // 300)
    try:
        for at in range(0, len(data), step):
            sock.sendall(data[at : at + step])
            rig.in_loop(lambda: None)
    except OSError:
        return


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_head_is_refused_before_anybody_is_dialled(strict: Rig, name: str, whole: bool) -> None:
    dials = len(strict.observer.of(Kind.DIAL))
    client = strict.client()
    data = BAD[name][0].replace(b"%P", b"").replace(b"%H", b"Host: door")
    if whole:
        client.sendall(data)
    else:
        in_bytes(strict, client, data)
    got, how = read_all(client)
    is_refusal(got, name)
    assert how == "fin"
    client.close()
    strict.no_pair_open()
    assert len(strict.observer.of(Kind.DIAL)) == dials


@pytest.mark.parametrize(
    "begun", [b"GET /bad HTTP/1.1\n", b"GET /bad HTTP/1.1\r\nHost: door\n", b"GET /bad HTTP/1.1\r\nX: " + b"a" * 66_000]
)
def test_what_can_never_become_a_good_head_is_refused_at_once(strict: Rig, begun: bytes) -> None:
    client = strict.client()
    client.sendall(begun)
    assert read_all(client)[0].startswith(b"HTTP/1.1 400 ")
    client.close()
    strict.no_pair_open()


LIVE = {
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345", b"67890"),
    "a stream": (SSE + b"5\r\nhello\r\n", b"0\r\n\r\n"),
    "trailers": (SSE + b"0\r\nX: 1\r\n", b"\r\n"),
    "a head": (b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 0\r\n\r\n"),
    "an interim head": (b"HTTP/1.1 100 Continue\r\n\r\n", OK),
    "nothing yet": (b"", OK),
}


@pytest.mark.parametrize("live", sorted(LIVE))
@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_head_behind_a_live_response_is_refused_when_that_has_ended(strict: Rig, name: str, live: str) -> None:
    first, rest = LIVE[live]
    meeting = Meeting(strict, direct=False)
    client = meeting.client
    client.sendall(meeting.ask("POST", "/good", body=b"{}") + bad(meeting, name))
    up = meeting.up
    assert read_head(up).startswith(b"POST /good ")
    assert read_exactly(up, 2) == b"{}"
    if first:
        up.sendall(first)
        assert read_exactly(client, len(first)) == first
    client.settimeout(0.02)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(10)
    up.sendall(rest)
    got, how = read_all(client)
    assert got[: len(rest)] == rest
    is_refusal(got[len(rest) :], name)
    assert how == "fin"
    assert read_all(up) == (b"", "fin")  # nothing of it
    meeting.leave()
    strict.no_pair_open()


def test_a_400_comes_behind_all_responses_in_flight(strict: Rig) -> None:
    """A HEAD among them, whose response has no body though it says so."""
    meeting = Meeting(strict, direct=False)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"
    asks = meeting.ask("GET", "/1") + meeting.ask("HEAD", "/2") + meeting.ask("GET", "/3")
    meeting.client.sendall(asks + bad(meeting, "two Hosts") + meeting.ask("GET", "/never"))
    for path in (b"GET /1", b"HEAD /2", b"GET /3"):
        assert read_head(meeting.up).startswith(path)
    for answer in (OK, head, OK):
        meeting.up.sendall(answer)
        assert read_exactly(meeting.client, len(answer)) == answer
    is_refusal(read_all(meeting.client)[0], "two Hosts")
    assert read_all(meeting.up) == (b"", "fin")
    meeting.leave()
    strict.no_pair_open()


def test_no_400_comes_behind_a_response_that_ends_with_the_connection(strict: Rig) -> None:
    """It would be part of the body."""
    meeting = Meeting(strict, direct=False)
    meeting.client.sendall(meeting.ask("GET", "/good") + bad(meeting, "bare LF"))
    read_head(meeting.up)
    meeting.up.sendall(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    meeting.up.close()
    assert read_all(meeting.client) == (b"HTTP/1.1 200 OK\r\n\r\nall of it", "fin")
    meeting.leave()
    strict.no_pair_open()


def test_no_400_comes_into_a_response_whose_end_nobody_can_tell(strict: Rig) -> None:
    """The client would take it for the rest of the body: such a connection can only be cut."""
    meeting = Meeting(strict, direct=False)
    meeting.client.sendall(meeting.ask("GET", "/good"))
    read_head(meeting.up)
    answer = b"HTTP/1.1 200 OK\nContent-Length: 500\n\n12345"
    meeting.up.sendall(answer)
    assert read_exactly(meeting.client, len(answer)) == answer
    meeting.client.sendall(bad(meeting, "two Hosts"))
    got, how = read_all(meeting.client)
    meeting.leave()
    strict.no_pair_open()
    assert (got, how) == (b"", "rst")


def test_what_is_held_behind_an_upgrade_never_passes_unjudged(strict: Rig) -> None:
    meeting = Meeting(strict, direct=False)
    ask = meeting.ask("GET", "/ws", "Connection: Upgrade", "Upgrade: websocket")
    meeting.client.sendall(ask + bad(meeting, "two Hosts"))
    read_head(meeting.up)
    meeting.up.sendall(b"HTTP/1.1 426 Upgrade Required\nContent-Length: 0\n\n")
    meeting.up.settimeout(0.5)
    try:
        arrived = meeting.up.recv(65_536)
    except (TimeoutError, ConnectionResetError):
        arrived = b""
    meeting.leave()
    strict.no_pair_open()
    assert arrived == b""


def test_a_head_that_dawdles_behind_a_live_response_is_refused_behind_it(loop_kind: str) -> None:
    with running(loop_kind, settings=RelaySettings(refuse_bad_heads=True, head_timeout_s=0.1)) as rig:
        meeting = Meeting(rig, direct=False)
        meeting.client.sendall(meeting.ask("GET", "/good") + b"GET /slow HTTP/1.1\r\nHost: x\r\n")
        read_head(meeting.up)
        meeting.up.sendall(SSE)
        assert read_exactly(meeting.client, len(SSE)) == SSE
        time.sleep(0.3)
        meeting.up.sendall(b"0\r\n\r\n")
        got, _ = read_all(meeting.client)
        assert got.startswith(b"0\r\n\r\nHTTP/1.1 400 ")
        assert b"dawdles" in got
        assert read_all(meeting.up) == (b"", "fin")
        meeting.leave()
        rig.no_pair_open()


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_body_that_breaks_ends_both_sides(loop_kind: str, ca_file: str, name: str, tls: bool, streams: bool) -> None:
    limits = RelaySettings(refuse_bad_heads=True, ca_files=(ca_file,))
    with running(loop_kind, tls=tls, settings=limits) as rig:
        meeting = Meeting(rig, direct=False)
        meeting.client.sendall(meeting.ask("POST", "/x", "Transfer-Encoding: chunked") + b"2\r\nok\r\n")
        read_head(meeting.up)
        assert read_exactly(meeting.up, 7) == b"2\r\nok\r\n"
        if streams:
            meeting.up.sendall(SSE + b"5\r\nhello\r\n")
            read_exactly(meeting.client, len(SSE) + 10)
        meeting.client.sendall(BROKEN[name])
        assert read_all(meeting.client) == (b"", "rst")
        arrived, how = read_all(meeting.up)
        assert how in (("rst", "ragged") if tls else ("rst",))  # Python's TLS tells a reset as an EOF
        assert not arrived.endswith(BROKEN[name][-3:])
        meeting.leave()
        rig.no_pair_open()
        assert rig.relay.counters.refused == 1


# ---------------------------------------------------------------------- run: one client, its own upstream


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def open_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A door of `run`."""
    with running(str(request.param)) as rig:
        yield rig


def blind(meeting: Meeting, data: bytes, whole: bool, arrives: int) -> Seen:
    """What reaches the upstream, and that both directions are open behind it."""
    if whole:
        meeting.client.sendall(data)
    else:
        in_bytes(meeting.rig, meeting.client, data)
    seen: Seen = [read_exactly(meeting.up, arrives)]
    meeting.up.sendall(b"whatever\n")
    seen.append(read_exactly(meeting.client, 9))
    meeting.client.sendall(b"\x00more\xff")
    seen.append(read_exactly(meeting.up, 6))
    meeting.client.shutdown(socket.SHUT_WR)
    seen += read_all(meeting.up)
    meeting.up.close()
    return [*seen, *read_all(meeting.client)]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", sorted(BAD))
def test_under_run_a_bad_head_reaches_the_upstream_as_it_would_directly(open_rig: Rig, name: str, whole: bool) -> None:
    def story(meeting: Meeting) -> Seen:
        arrives = len(bad(meeting, name))
        if not meeting.direct:
            extra = len(meeting.prefix) if name != "TLS" else 0
            hosts = BAD[name][0].count(b"%H") * (len(meeting.authority) - len(open_rig.door.upstream.authority))
            arrives -= extra + hosts
        return blind(meeting, bad(meeting, name), whole, arrives)

    beside(open_rig, story)


@pytest.mark.parametrize("live", sorted(LIVE))
def test_under_run_a_bad_head_behind_a_live_response_disturbs_neither(open_rig: Rig, live: str) -> None:
    first, rest = LIVE[live]

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("GET", "/good"))
        seen: Seen = [read_head(meeting.up)]
        meeting.up.sendall(first)
        seen.append(read_exactly(meeting.client, len(first)))
        data = bad(meeting, "two Hosts")
        meeting.client.sendall(data)
        arrives = data.replace(meeting.prefix.encode(), b"") if meeting.prefix else data
        arrives = arrives.replace(meeting.authority.encode(), open_rig.door.upstream.authority.encode())
        seen.append(read_exactly(meeting.up, len(arrives)))
        meeting.up.sendall(rest + OK)
        return [*seen, read_exactly(meeting.client, len(rest + OK))]

    beside(open_rig, story)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_under_run_a_body_that_breaks_reaches_the_upstream_as_it_would_directly(
    open_rig: Rig, name: str, whole: bool
) -> None:
    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/x", "Transfer-Encoding: chunked"))
        head = read_head(meeting.up)
        return [head, *blind(meeting, BROKEN[name], whole, len(BROKEN[name]))]

    beside(open_rig, story)
