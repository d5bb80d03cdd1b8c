"""Upgrades: Codex's WebSocket, upgrades with a body, those that a server ignores; beside a direct connection."""

import random
import socket

import pytest
from wsproto.frame_protocol import FrameProtocol

from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.beside import Meeting, beside, in_background
from tests.middleware.relay.rig import Rig, read_all, read_exactly, read_head

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
CODEX = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
    "OpenAI-Beta: responses_websockets=2026-02-06",
)
H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
Seen = list[object]


def frames(count: int, seed: int, *, client: bool) -> bytes:
    """WebSocket frames: text in pieces, binary, ping; masked where a client speaks."""
    rng = random.Random(seed)
    protocol = FrameProtocol(client=client, extensions=[])
    out = bytearray()
    for _ in range(count):
        out += protocol.send_data("héllo " * rng.randrange(0, 400), fin=False)
        out += protocol.send_data("end", fin=True)
        out += protocol.send_data(rng.randbytes(rng.choice((0, 1, 125, 126, 65_535, 65_536))), fin=True)
        out += protocol.ping(b"are you there")
    return bytes(out)


def swap_in_cuts(client: socket.socket, up: socket.socket, ups: bytes, downs: bytes) -> tuple[bytes, bytes]:
    """Pieces go up and down in turn; gives what came out at the top and at the bottom."""
    rng = random.Random(5)
    top, bottom = bytearray(), bytearray()
    while len(top) < len(ups) or len(bottom) < len(downs):
        size = rng.choice((1, 2, 5, 130, 4_000, 70_000))
        piece, other = ups[len(top) : len(top) + size], downs[len(bottom) : len(bottom) + size]
        client.sendall(piece)
        up.sendall(other)
        top += read_exactly(up, len(piece))
        bottom += read_exactly(client, len(other))
    return bytes(top), bytes(bottom)


def call(meeting: Meeting, path: str = "/after") -> Seen:
    """An ordinary call on the same connection."""
    meeting.client.sendall(meeting.ask("GET", path))
    head = read_head(meeting.up)
    meeting.up.sendall(OK)
    return [head, read_exactly(meeting.client, len(OK))]


@pytest.mark.parametrize("ending", ["client", "upstream"])
def test_a_websocket_passes_frame_for_frame_both_ways(any_rig: Rig, ending: str) -> None:
    ups, downs = frames(6, 1, client=True), frames(6, 2, client=False)

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("GET", "/v1/responses", *CODEX))
        seen: Seen = [read_head(meeting.up)]
        meeting.up.sendall(SWITCH)
        seen.append(read_head(meeting.client))
        seen.append(swap_in_cuts(meeting.client, meeting.up, ups, downs) == (ups, downs))
        closing = FrameProtocol(client=ending == "client", extensions=[]).close(1000, "bye")
        first, second = (meeting.client, meeting.up) if ending == "client" else (meeting.up, meeting.client)
        first.sendall(closing)
        seen.append(len(read_exactly(second, len(closing))))
        return seen

    assert beside(any_rig, story)[2] is True
    assert any_rig.observer.joined(Kind.TUNNEL_UP).startswith(ups)
    assert any_rig.observer.joined(Kind.TUNNEL_DOWN).startswith(downs)


def test_a_refused_websocket_falls_back_to_http_on_the_same_connection(any_rig: Rig) -> None:
    """Codex goes on with POST after 426."""
    refusal = b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: HTTP/1.1\r\nContent-Length: 4\r\n\r\nno!\n"

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("GET", "/v1/responses", *CODEX))
        seen: Seen = [read_head(meeting.up)]
        meeting.up.sendall(refusal)
        seen.append(read_exactly(meeting.client, len(refusal)))
        meeting.client.sendall(meeting.ask("POST", "/v1/responses", body=b"{}"))
        seen += [read_head(meeting.up), read_exactly(meeting.up, 2)]
        meeting.up.sendall(OK)
        return [*seen, read_exactly(meeting.client, len(OK)), *call(meeting)]

    beside(any_rig, story)
    assert any_rig.observer.of(Kind.TUNNEL_UP) == []


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_upgrade_with_a_body_gets_its_body_first_and_then_the_tunnel(any_rig: Rig, framing: str) -> None:
    line = {"length": "Content-Length: 5", "chunked": "Transfer-Encoding: chunked"}[framing]
    body = {"length": b"hello", "chunked": b"5;x\r\nhello\r\n0\r\nT: 1\r\n\r\n"}[framing]

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/exec", "Connection: Upgrade", "Upgrade: tcp", line) + body)
        seen: Seen = [read_head(meeting.up), read_exactly(meeting.up, len(body))]
        meeting.up.sendall(b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nfirst")
        seen += [read_head(meeting.client), read_exactly(meeting.client, 5)]
        meeting.client.sendall(b"GET / is no request here\n")
        seen.append(read_exactly(meeting.up, 25))
        meeting.up.close()
        return [*seen, read_all(meeting.client)[0]]

    beside(any_rig, story)
    assert any_rig.observer.joined(Kind.REQUEST_DATA) == b"hello"
    assert any_rig.observer.joined(Kind.TUNNEL_UP) == b"GET / is no request here\n"


@pytest.mark.parametrize("body", [b"", b'{"stream":true}'])
@pytest.mark.parametrize("stream", [False, True])
def test_an_h2c_that_the_server_ignores_is_an_ordinary_call(any_rig: Rig, body: bytes, stream: bool) -> None:
    """curl --http2 and Java's client ask so on plain connections; the next request follows as if nothing was said."""
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" if stream else OK

    def story(meeting: Meeting) -> Seen:
        seen: Seen = []
        for number in range(3):
            meeting.client.sendall(meeting.ask("POST", f"/{number}", *H2C, body=body))
            seen += [read_head(meeting.up), read_exactly(meeting.up, len(body))]
            meeting.up.sendall(answer)
            seen.append(read_exactly(meeting.client, len(answer)))
        return [*seen, *call(meeting)]

    beside(any_rig, story)
    assert any_rig.observer.of(Kind.TUNNEL_UP) == []
    assert [end.json()["complete"] for end in any_rig.observer.of(Kind.RESPONSE_END)] == [True] * 4


def test_what_is_pipelined_behind_an_ignored_h2c_waits_for_its_answer_and_is_not_lost(any_rig: Rig) -> None:
    """Held until the server has said what it makes of the upgrade: then they are requests, each rewritten."""
    meeting = Meeting(any_rig, direct=False)
    meeting.client.sendall(meeting.ask("GET", "/1", *H2C) + meeting.ask("GET", "/2", *H2C) + meeting.ask("GET", "/3"))
    for number in (1, 2, 3):
        assert read_head(meeting.up).startswith(f"GET /{number} HTTP/1.1\r\n".encode())
        meeting.up.sendall(OK)
        assert read_exactly(meeting.client, len(OK)) == OK
    meeting.client.close()
    any_rig.no_pair_open()


@pytest.mark.parametrize("how", ["length", "chunked", "stream"])
def test_an_upgrade_that_is_refused_while_its_body_uploads_leaves_an_ordinary_connection(
    any_rig: Rig, how: str
) -> None:
    """The answer comes first, the rest of the body and the next call after it: nothing may be held for ever."""
    answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno"
    if how == "stream":
        answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n"
    line = "Transfer-Encoding: chunked" if how == "chunked" else "Content-Length: 10"
    first, rest = (b"5\r\n01234\r\n", b"5\r\n56789\r\n0\r\n\r\n") if how == "chunked" else (b"01234", b"56789")

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("POST", "/1", *H2C, line) + first)
        seen: Seen = [read_head(meeting.up), read_exactly(meeting.up, len(first))]
        meeting.up.sendall(answer)
        seen.append(read_exactly(meeting.client, len(answer)))
        meeting.client.sendall(rest)
        seen.append(read_exactly(meeting.up, len(rest)))
        return [*seen, *call(meeting)]

    beside(any_rig, story)


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"]
)
def test_an_interim_answer_does_not_decide_an_upgrade(any_rig: Rig, interim: bytes) -> None:
    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("GET", "/v1/responses", *CODEX))
        seen: Seen = [read_head(meeting.up)]
        meeting.up.sendall(interim)
        seen.append(read_exactly(meeting.client, len(interim)))
        meeting.up.sendall(SWITCH)
        seen.append(read_exactly(meeting.client, len(SWITCH)))
        meeting.client.sendall(b"\x81\x80\x00\x00\x00\x00")
        return [*seen, read_exactly(meeting.up, 6)]

    beside(any_rig, story)


def test_connect_passes_as_any_request_does_and_its_2xx_opens_a_tunnel(rig: Rig) -> None:
    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: %s\r\n\r\n" % meeting.authority.encode())
        head = read_head(meeting.up)
        meeting.up.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n\x16\x03\x01")
        seen: Seen = [head.split(b"\r\n")[0], read_head(meeting.client), read_exactly(meeting.client, 3)]
        meeting.client.sendall(b"\x16\x03\x03")
        return [*seen, read_exactly(meeting.up, 3)]

    beside(rig, story)


def test_a_tunnel_carries_ten_megabytes_each_way_at_once(rig: Rig) -> None:
    ups, downs = random.Random(1).randbytes(10_000_000), random.Random(2).randbytes(10_000_000)

    def story(meeting: Meeting) -> Seen:
        meeting.client.sendall(meeting.ask("GET", "/v1/responses", *CODEX))
        read_head(meeting.up)
        meeting.up.sendall(SWITCH)
        read_head(meeting.client)
        got: list[bytes] = []
        with (
            in_background(lambda: meeting.client.sendall(ups)),
            in_background(lambda: got.append(read_exactly(meeting.client, len(downs)))),
            in_background(lambda: meeting.up.sendall(downs)),
        ):
            arrived = read_exactly(meeting.up, len(ups)) == ups
        return [arrived, got == [downs]]

    assert beside(rig, story) == [True, True]
