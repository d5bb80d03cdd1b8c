"""Requests that two servers read differently: a shared door lets none through uncounted, `run` passes every byte.

Each entry of tests/data/smuggling goes through a real relay.  What reaches the upstream is read by servers of every
flavour (`lenient_server.py`): a shared door (`refuse_bad_heads`) must have counted every request that any of them sees.
"""

import contextlib
import itertools
import re
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairtrial.middleware.relay.framing import BadRequest, BodyData, RequestFramer
from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.settings import RelaySettings
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.lenient_server import FLAVOURS, STRICT, requests_seen
from tests.middleware.relay.rig import Rig, eventually, read_all, running

CORPUS = Path(__file__).resolve().parents[2] / "data" / "smuggling" / "requests.txt"
_TITLE = re.compile(r"== (.+): (refused|broken|passes (\d+))")


@dataclass(frozen=True)
class Trick:
    """One entry: `passes` requests that all servers read alike; 0: the head is refused; None: the body is."""

    name: str
    text: str
    passes: int | None

    def bytes(self, host: str) -> bytes:
        """As sent to a door whose upstream is `host`."""
        smuggled = f"GET /smuggled HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n"
        text = self.text.replace("{smuggled}", smuggled).replace("{host}", host).replace("{long}", "l" * 70_000)
        return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


@cache
def corpus() -> tuple[Trick, ...]:
    """All entries, in order."""
    tricks: list[Trick] = []
    for line in CORPUS.read_text().split("\n"):
        title = _TITLE.fullmatch(line)
        if title is not None:
            passes = {"refused": 0, "broken": None}.get(title[2], int(title[3] or 0))
            tricks.append(Trick(title[1], "", passes))
        elif line and not (line.startswith("#") and not tricks):
            last = tricks[-1]
            tricks[-1] = Trick(last.name, last.text + line, last.passes)
    return tuple(tricks)


each_trick = pytest.mark.parametrize("trick", corpus(), ids=lambda trick: trick.name)


def carry(rig: Rig, data: bytes) -> tuple[bytes, bytes]:
    """Sends all of it, waits until the relay has done what it will do, leaves; what the client and the upstream got."""
    client = rig.client()
    with contextlib.suppress(OSError):  # refused while it was still sending
        client.sendall(data)

    def settled() -> bool:
        pairs = list(rig.relay._pairs.values())
        return all(
            pair._refusing is not None
            or pair._finished
            or (pair.account.bytes_up >= len(data) and pair._dial_task is None and not pair._pending)
            for pair in pairs
        )

    eventually(lambda: rig.relay.counters.connections == 1, "never accepted")
    eventually(lambda: bool(rig.in_loop(settled)), "never settled")
    refused = rig.relay.counters.refused > 0
    answer = b""
    if refused:
        answer, _ = read_all(client)
    client.close()
    got = b""
    if rig.observer.of(Kind.DIAL) or not refused:
        up = rig.upstream.accept()
        got, _ = read_all(up)
        up.close()
    rig.no_pair_open()
    return answer, got


@each_trick
def test_a_shared_door_counts_every_request_that_any_server_behind_it_sees(loop_kind: str, trick: Trick) -> None:
    with running(loop_kind, settings=RelaySettings(refuse_bad_heads=True)) as rig:
        answer, got = carry(rig, trick.bytes(rig.door.upstream.authority))
        counted = [record.payload.split(b" ", 2)[1] for record in rig.observer.of(Kind.REQUEST_HEAD)]
        for flavour in FLAVOURS:
            seen = requests_seen(got, flavour)
            assert seen == counted[: len(seen)], f"a server of flavour {flavour.name!r} sees {seen}"
        if trick.passes == 0:
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert (got, counted, rig.relay.counters.refused) == (b"", [], 1)
        elif trick.passes is None:
            assert (answer, counted, rig.relay.counters.refused) == (b"", [b"/a"], 1)
        else:
            assert (len(counted), rig.relay.counters.refused) == (trick.passes, 0)
            assert requests_seen(got, STRICT) == counted


@each_trick
def test_under_run_the_bytes_pass_unchanged(loop_kind: str, trick: Trick) -> None:
    """Nothing is refused; the Host of these is the upstream's own, so not even that line changes."""
    with running(loop_kind) as rig:
        data = trick.bytes(rig.door.upstream.authority)
        _, got = carry(rig, data)
        if "upgrade" in trick.name:  # what is behind it waits for the upstream's answer
            assert data.startswith(got)
            assert b"Upgrade" in got
        else:
            assert got == data
        assert rig.relay.counters.refused == 0


def test_servers_of_these_flavours_would_be_fooled() -> None:
    """The measure works: without a front dozens of entries show some flavour another request than the strict server."""
    fooled = {
        trick.name
        for trick in corpus()
        if any(b"/smuggled" in requests_seen(trick.bytes("h"), flavour) for flavour in FLAVOURS)
        if b"/smuggled" not in requests_seen(trick.bytes("h"), STRICT)
    }
    assert len(fooled) > 30
    for flavour in FLAVOURS:
        assert requests_seen(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n", flavour) == [
            b"/a",
            b"/b",
        ]


def test_every_entry_is_read_and_named_once() -> None:
    names = [trick.name for trick in corpus()]
    assert len(names) == len(set(names)) == CORPUS.read_text().count("\n== ")
    assert all(b"/a" in trick.bytes("h") or trick.passes == 0 for trick in corpus())


# --- the same by chance, at the framer ------------------------------------------------------------------------------

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
FIRST_LINES = [b"POST /a HTTP/1.1", b"GET /a HTTP/1.1", b"POST /a HTTP/1.0", b"GET /a", b"POST  /a HTTP/1.1"]
LINES = [
    b"Host: h",
    b"Content-Length: 5",
    b"Content-Length: 0",
    b"Content-Length: 37",
    b"Content-Length:+5",
    b"Content-Length: 5, 5",
    b"Content-Length:\t5 ",
    b"Content-Length : 5",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: Chunked ",
    b"Transfer-Encoding:chunked,",
    b"Transfer-Encoding: x, chunked",
    b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:",
    b" chunked",
    b"\tx: y",
    b"X: a\x00b",
    b"X: \xff",
    b"X:",
    b"",
    b"Connection: close, transfer-encoding",
    b"Upgrade: h2c",
    b"Content-Length: 5\x0b",
]
ENDS = [b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"\n\r\n"]
BODY = [
    b"5\r\nabcde\r\n",
    b"5;a=b\r\nabcde\r\n",
    b"05\r\nabcde\r\n",
    b"0x5\r\nabcde\r\n",
    b"5 \r\nabcde\r\n",
    b"5\nabcde\r\n",
    b"5;\x00\r\nabcde\r\n",
    b"0\r\n\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"0\r\nX: y\r\r\n\r\n",
    b"00\r\n\r\n",
    b"25\r\n" + SMUGGLED,
    b"\r\n",
    b"abcde",
    SMUGGLED,
]


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """One or two requests of tricky parts, and always a last one that looks like a request."""
    out = b""
    for _ in range(draw(st.integers(1, 2))):
        lines = [draw(st.sampled_from(FIRST_LINES)), *draw(st.lists(st.sampled_from(LINES), max_size=4)), b"Host: h"]
        if draw(st.booleans()):
            lines.pop()
        for line in lines:
            out += line + draw(st.sampled_from(ENDS))
        out += draw(st.sampled_from([b"\r\n"] * 6 + [b"\n", b"\r"]))
        out += b"".join(draw(st.lists(st.sampled_from(BODY), max_size=4)))
    return out + SMUGGLED


@given(conversations(), st.lists(st.integers(1, 300), max_size=6))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_a_strict_door_passes_on_no_server_reads_as_more_requests(data: bytes, points: list[int]) -> None:
    framer = RequestFramer()
    passed, counted = b"", list[bytes]()
    edges = [0, *sorted({point for point in points if point < len(data)}), len(data)]
    for start, end in itertools.pairwise(edges):
        for event in framer.feed(data[start:end]) if not framer.dead else []:
            if isinstance(event, RequestHead):
                passed += event.raw
                counted.append(event.target)
            elif isinstance(event, BodyData):
                passed += event.wire
            elif isinstance(event, BadRequest):
                assert framer.dead
    for flavour in FLAVOURS:
        seen = requests_seen(passed, flavour)
        assert seen == counted[: len(seen)], flavour.name


def test_two_clients_of_a_door_never_share_a_connection_upstream(loop_kind: str) -> None:
    """What makes smuggling worth the while elsewhere: here a poisoned connection is its own client's."""
    with running(loop_kind, settings=RelaySettings(refuse_bad_heads=True)) as rig:
        clients = [rig.client(), rig.client()]
        ups: list[socket.socket] = []
        for client in clients:
            client.sendall(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
            ups.append(rig.upstream.accept())
        assert len({up.getpeername() for up in ups}) == 2
        for sock in (*clients, *ups):
            sock.close()
        rig.no_pair_open()
