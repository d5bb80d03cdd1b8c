"""The hook that edits a body: bytes and ends of connections on which one request is held, thought about and sent on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.docker import DockerDoor
from fairtrial.middleware.relay.editing import MAX_BODY_BYTES, Edits
from fairtrial.middleware.relay.framing import BodyData, MessageEnd, RequestFramer
from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.relay import unix_listener
from fairtrial.middleware.relay.route import Thinking
from fairtrial.middleware.relay.settings import Upstream
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import (
    DEADLINE_S,
    Rig,
    eventually,
    read_all,
    read_exactly,
    read_head,
    reset,
    running,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LINES = b"X-Odd:   kept \r\nhost: d\r\n"
OLD = b'{"Env":["A=old"]}'
NEW = b'{"Env":["A=quite new"]}'
LATER_NONE, FAULT = b"none", b"fault"


class Thinker:
    """An editor for `/create`: it answers `new`, once the test says so."""

    def __init__(self, new: bytes | None = NEW) -> None:
        self.new = new
        self.told: list[bytes] = []
        self.unseen: list[str] = []
        self.begun = 0
        self.may_answer = True
        self.loop: asyncio.AbstractEventLoop | None = None
        self._go: asyncio.Event = asyncio.Event()

    def wants(self, head: RequestHead) -> bool:
        return head.target.startswith(b"/create")

    def edit(self, head: RequestHead, body: bytes) -> Thinking | None:
        self.told.append(body)
        return None if self.new is None else self._think

    def not_edited(self, why: str) -> None:
        self.unseen.append(why)

    async def _think(self) -> bytes | None:
        self.begun += 1
        if not self.may_answer:
            await self._go.wait()
        if self.new == FAULT:
            raise RuntimeError("a fault of ours")
        return None if self.new == LATER_NONE else self.new

    def answer(self, rig: Rig) -> None:
        """Let everything that waits be answered."""
        rig.loop.call_soon_threadsafe(self._go.set)


class Held:
    """A Docker door with an editor, in front of an upstream under the test's control."""

    def __init__(self, rig: Rig, path: Path) -> None:
        self.rig = rig
        self.thinker = Thinker()
        self.path = str(path / "d.sock")

        def make(upstream: Upstream, dialler: Dialler, listener: socket.socket) -> DockerDoor:
            door = DockerDoor(upstream, dialler, listener, "trial-1")
            door.editor = self.thinker
            return door

        upstream = Upstream.parse("engine", rig.upstream.url)
        rig.in_loop(lambda: rig.relay.open_door(upstream, unix_listener(self.path), make))

    def client(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(DEADLINE_S)
        sock.connect(self.path)
        self.rig.clients.append(sock)
        return sock

    def wait_until_it_thinks(self, times: int = 1) -> None:
        eventually(lambda: self.thinker.begun >= times, "nobody thinks about a body")


@pytest.fixture
def held(loop_kind: str, tmp_path: Path) -> Iterator[Held]:
    with running(loop_kind) as rig:
        yield Held(rig, tmp_path)


def post(body: bytes, path: bytes = b"/create?name=x", lines: bytes = b"") -> bytes:
    return b"POST " + path + b" HTTP/1.1\r\n" + LINES + b"Content-Length: %d\r\n" % len(body) + lines + b"\r\n" + body


def chunked(body: bytes, path: bytes = b"/create", lines: bytes = b"") -> bytes:
    parts = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(piece), piece) for piece in (body[:3], body[3:]))
    head = b"POST " + path + b" HTTP/1.1\r\n" + LINES + b"Transfer-Encoding: chunked\r\n" + lines + b"\r\n"
    return head + parts + b"0\r\n\r\n"


def answered(client: socket.socket, up: socket.socket, wanted: bytes) -> None:
    """The upstream gets exactly this, and its answer comes back."""
    assert read_exactly(up, len(wanted)) == wanted
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK


def test_a_body_that_is_edited_has_its_own_length_and_every_other_byte_stays(held: Held) -> None:
    client = held.client()
    client.sendall(post(OLD, lines=b"X-Last: 1\r\n"))
    up = held.rig.upstream.accept()
    answered(client, up, post(NEW, lines=b"X-Last: 1\r\n"))
    assert held.thinker.told == [OLD]
    (told,) = held.rig.observer.wait(Kind.REQUEST_DATA)
    assert told.payload == OLD, "the observer is told what the client sent"


def test_a_chunked_body_that_is_edited_gets_a_length_in_the_place_of_its_coding(held: Held) -> None:
    client = held.client()
    client.sendall(chunked(OLD, lines=b"X-Last: 1\r\n"))
    head = b"POST /create HTTP/1.1\r\n" + LINES + b"Content-Length: %d\r\nX-Last: 1\r\n\r\n" % len(NEW)
    answered(client, held.rig.upstream.accept(), head + NEW)
    assert held.thinker.told == [OLD]


@pytest.mark.parametrize("sent", [post(OLD), chunked(OLD), chunked(OLD, b"/other"), post(b""), post(OLD, b"/other")])
@pytest.mark.parametrize("new", [None, LATER_NONE, FAULT])
def test_a_body_that_is_not_edited_passes_with_its_own_framing(held: Held, sent: bytes, new: bytes | None) -> None:
    held.thinker.new = new
    client = held.client()
    client.sendall(sent)
    answered(client, held.rig.upstream.accept(), sent)
    faults = held.rig.relay.counters.swallowed
    assert faults == (1 if new == FAULT and b"/create" in sent and OLD[3:] in sent else 0)
    held.rig.relay.counters.swallowed = 0


def test_requests_behind_one_that_is_thought_about_wait_and_keep_their_order(held: Held) -> None:
    held.thinker.may_answer = False
    client = held.client()
    client.sendall(b"GET /before HTTP/1.1\r\nHost: d\r\n\r\n")
    up = held.rig.upstream.accept()
    answered(client, up, b"GET /before HTTP/1.1\r\nHost: d\r\n\r\n")
    behind = b"GET /behind HTTP/1.1\r\nHost: d\r\n\r\n" + post(OLD, b"/other")
    client.sendall(post(OLD) + behind + post(OLD))
    held.wait_until_it_thinks()
    up.setblocking(False)
    with pytest.raises(BlockingIOError):
        up.recv(1)
    up.settimeout(DEADLINE_S)
    held.thinker.answer(held.rig)
    wanted = post(NEW) + behind + post(NEW)
    assert read_exactly(up, len(wanted)) == wanted
    up.sendall(OK * 4)
    assert read_exactly(client, 4 * len(OK)) == OK * 4


def test_a_kept_connection_is_edited_each_time(held: Held) -> None:
    client = held.client()
    up: socket.socket | None = None
    for _ in range(5):
        client.sendall(post(OLD))
        up = up or held.rig.upstream.accept()
        answered(client, up, post(NEW))
    assert len(held.thinker.told) == 5


@pytest.mark.parametrize("framed", ["length", "chunked"])
def test_a_body_that_is_too_long_passes_unseen_and_is_counted(held: Held, framed: str) -> None:
    long = OLD + b" " * MAX_BODY_BYTES
    client = held.client()
    sent = post(long) if framed == "length" else chunked(long)
    client.sendall(sent)
    answered(client, held.rig.upstream.accept(), sent)
    assert held.thinker.told == []
    assert held.thinker.unseen == [f"it is longer than {MAX_BODY_BYTES} bytes"]


def test_a_client_that_waits_to_be_asked_for_its_body_is_not_kept_waiting(held: Held) -> None:
    client = held.client()
    sent = post(OLD, lines=b"Expect: 100-continue\r\n")
    client.sendall(sent[: -len(OLD)])
    up = held.rig.upstream.accept()
    assert read_head(up) == sent[: -len(OLD)]
    up.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    read_head(client)
    client.sendall(OLD)
    answered(client, up, OLD)
    assert len(held.thinker.unseen) == 1


def test_a_body_that_ends_before_its_time_goes_on_as_far_as_it_came(held: Held) -> None:
    client = held.client()
    client.sendall(post(OLD)[:-4])
    client.shutdown(socket.SHUT_WR)
    up = held.rig.upstream.accept()
    assert read_all(up) == (post(OLD)[:-4], "fin")
    up.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    up.close()
    assert read_all(client)[0].startswith(b"HTTP/1.1 400")
    assert len(held.thinker.unseen) == 1
    held.rig.no_pair_open()


def test_a_chunk_that_cannot_be_framed_goes_on_blind_behind_what_was_held(held: Held) -> None:
    client = held.client()
    sent = chunked(OLD)[: -len(b"0\r\n\r\n")] + b"zz\r\nnonsense"
    client.sendall(sent)
    up = held.rig.upstream.accept()
    assert read_exactly(up, len(sent)) == sent


def test_a_client_that_half_closed_behind_its_request_still_gets_its_answer(held: Held) -> None:
    held.thinker.may_answer = False
    client = held.client()
    client.sendall(post(OLD))
    held.wait_until_it_thinks()
    client.shutdown(socket.SHUT_WR)
    held.thinker.answer(held.rig)
    up = held.rig.upstream.accept()
    assert read_all(up) == (post(NEW), "fin")
    up.sendall(OK)
    up.close()
    assert read_all(client) == (OK, "fin")
    held.rig.no_pair_open()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_leaves_meanwhile_leaves_nothing_behind(held: Held, how: str) -> None:
    held.thinker.may_answer = False
    client = held.client()
    client.sendall(post(OLD))
    held.wait_until_it_thinks()
    if how == "close":
        client.close()
    else:
        reset(client)
    held.rig.no_pair_open()
    held.thinker.answer(held.rig)
    assert held.rig.relay.counters.dial_failed == 0
    held.rig.upstream.listener.settimeout(0.1)
    with pytest.raises(TimeoutError):
        held.rig.upstream.accept()


def test_a_relay_that_is_closed_meanwhile_ends_the_client(held: Held) -> None:
    held.thinker.may_answer = False
    client = held.client()
    client.sendall(post(OLD))
    held.wait_until_it_thinks()
    asyncio.run_coroutine_threadsafe(held.rig.relay.close(0.0), held.rig.loop).result(DEADLINE_S)
    assert read_all(client)[0] == b""
    held.rig.no_pair_open()


def test_an_upgrade_behind_it_becomes_a_tunnel_with_what_was_sent_early(held: Held) -> None:
    held.thinker.may_answer = False
    start = post(b"{}", b"/exec/abc/start", b"Connection: Upgrade\r\nUpgrade: tcp\r\n")
    client = held.client()
    client.sendall(post(OLD) + start + b"early stdin")
    held.wait_until_it_thinks()
    held.thinker.answer(held.rig)
    up = held.rig.upstream.accept()
    wanted = post(NEW) + start
    assert read_exactly(up, len(wanted)) == wanted
    up.sendall(OK)
    switch = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
    up.sendall(switch + b"out")
    assert read_exactly(client, len(OK + switch) + 3) == OK + switch + b"out"
    assert read_exactly(up, 11) == b"early stdin"
    client.shutdown(socket.SHUT_WR)
    assert up.recv(1) == b""
    up.close()
    assert read_all(client) == (b"", "fin")
    held.rig.no_pair_open()


def test_any_cut_of_the_same_bytes_gives_the_same_bytes() -> None:
    sent = chunked(OLD) + post(OLD, b"/other") + post(OLD) + b"GET / HTTP/1.1\r\nHost: d\r\n\r\n"

    def passed(*pieces: bytes) -> bytes:
        framer, edits, out = RequestFramer(docker=True), Edits(Thinker()), b""
        for piece in pieces:
            edits.put(framer.feed(piece), 0)
            events, thinking = edits.run()
            while thinking is not None:
                events += edits.answer(NEW)
                more, thinking = edits.run()
                events += more
            for event, _ in events:
                if isinstance(event, RequestHead):
                    out += event.sent or event.raw
                elif isinstance(event, BodyData):
                    out += event.wire
                else:
                    assert isinstance(event, MessageEnd)
        assert edits.held_bytes == 0
        return out

    wanted = passed(sent)
    assert wanted.count(NEW) == 2
    assert wanted.count(OLD) == 1
    for cut in range(len(sent) + 1):
        assert passed(sent[:cut], sent[cut:]) == wanted, cut
    assert passed(*(sent[at : at + 1] for at in range(len(sent)))) == wanted
