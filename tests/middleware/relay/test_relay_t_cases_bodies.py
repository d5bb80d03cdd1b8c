"""Faults of other proxies with encodings, header lines, buffers and sizes (T41–T56, T61, T66, T68).

T numbers are those of the reference page model-api.md section 5.3; `test_relay_t_cases.py` has the whole table.
"""

import gzip
import socket
import threading
import zlib

import brotli
import pytest
import zstandard

from fairtrial.middleware.wire import decode
from fairtrial.middleware.wire.feed import Kind
from fairtrial.middleware.wire.sse import MAX_FRAME_BYTES
from tests.middleware.relay.observed import attempt, held_by_pairs
from tests.middleware.relay.rig import TOKEN, Rig, eventually, read_exactly, read_head, request, reset
from tests.middleware.relay.talk import ask, ask_stream, chunk, json_answer, say, stream_head
from tests.middleware.wire.families import CHAT, FAMILIES, GEMINI, MESSAGES, Family

family_of_routes = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def _raw_deflate(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(data) + squeeze.flush()


def _frames_of_zstd(data: bytes) -> bytes:
    half = len(data) // 2
    return zstandard.compress(data[:half]) + zstandard.compress(data[half:])


ENCODERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate, raw": _raw_deflate,
    "br": brotli.compress,
    "zstd": zstandard.compress,
    "zstd, frames": _frames_of_zstd,
    "gzip, gzip": lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :]),
}
"""By the name behind the comma one encoding is written in another way."""


@family_of_routes
@pytest.mark.parametrize("encoding", ENCODERS)
def test_an_encoded_stream_passes_as_it_is_and_is_read_from_a_decoded_copy(
    rig: Rig, family: Family, encoding: str
) -> None:
    """T41, T42, T45: nothing is decoded on the way, the header line stays, the tokens are counted all the same."""
    encoded: bytes = ENCODERS[encoding](b"".join(family.pieces))
    line = f"Content-Encoding: {encoding.partition(',')[0]}"
    client, up = ask_stream(rig, family)
    wire = stream_head(family, line) + b"".join(chunk(encoded[at : at + 50]) for at in range(0, len(encoded), 50))
    say(up, client, wire + b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.parse) == ("ok", "full")
    assert (ended.reply.input_tokens, ended.reply.output_tokens) == family.usage


@pytest.mark.parametrize("encoding", ENCODERS)
def test_an_encoded_request_passes_as_it_is_and_is_read_from_a_decoded_copy(rig: Rig, encoding: str) -> None:
    """T49: zstd request bodies (Codex) and all others are neither refused nor rewritten."""
    encoded: bytes = ENCODERS[encoding](MESSAGES.body)
    client, up = ask(rig, MESSAGES.path, encoded, f"Content-Encoding: {encoding.partition(',')[0]}")
    say(up, client, json_answer(MESSAGES.unary))
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.request.model, ended.request.has_tools, ended.parse) == ("claude-test", True, "full")


@pytest.mark.parametrize(
    "lines, body",
    [
        (("Content-Encoding: br",), b"".join(MESSAGES.pieces)),
        (("Content-Encoding: gzip",), gzip.compress(b"".join(MESSAGES.pieces))[:90] + b"\xff" * 60),
        (("Content-Encoding: x-nobody-knows",), b"".join(MESSAGES.pieces)),
        (("Content-Encoding: zstd, br",), brotli.compress(b"no zstd at all")),
    ],
)
def test_a_header_line_that_belies_its_body_passes_with_it(rig: Rig, lines: tuple[str, ...], body: bytes) -> None:
    """T43, T44: header and body stay the pair that the upstream sent; only the copy is given up."""
    client, up = ask_stream(rig, MESSAGES)
    say(up, client, stream_head(MESSAGES, *lines) + chunk(body) + b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert ended.parse == "partial"
    assert ended.outcome == "ok"
    assert ended.reply.terminator is None


def test_no_header_line_is_added_dropped_joined_or_moved(any_rig: Rig) -> None:
    """T42, T44, T46, T47, T48, T53: all but the trial's path and our own lines passes verbatim, in both directions."""
    lines = (
        "Accept-Encoding: gzip, deflate, br, zstd, x-new",
        "anthropic-beta: fine-grained-tool-streaming-2025-05-14",
        "Anthropic-Beta: a,b , c",
        "anthropic-version: 2026-10-21",
        "X-Claude-Code-Session-Id: s",
        "Authorization: Bearer sk-of-the-client",
        "x-api-key: sk",
        "Connection: keep-alive, x-hop",
        "X-Hop: 1",
        "TE: trailers",
        "Proxy-Authorization: Basic of-the-client",
        "X-Empty:",
    )
    client = any_rig.client()
    client.sendall(request("POST", "/v1/messages", b"{}", *lines, "X-Fairtrial-Secret: ours"))
    up = any_rig.upstream.accept()
    head = read_head(up)
    read_exactly(up, 2)
    authority = any_rig.door.upstream.authority
    wanted = ("POST /v1/messages HTTP/1.1", f"Host: {authority}", *lines, "Content-Length: 2", "", "")
    assert head == "\r\n".join(wanted).encode()
    assert TOKEN.encode() not in head
    say(
        up,
        client,
        b"HTTP/1.1 200 OK\r\nX-Accel-Buffering: no\r\ncontent-type: a\r\nContent-Type: b\r\nConnection: x-up\r\nX-Up: 1"
        b"\r\nServer:\r\nContent-Length: 2\r\n\r\n{}",
    )
    client.close()
    any_rig.no_pair_open()


def test_a_length_beside_chunks_passes_and_is_read_as_chunks(rig: Rig) -> None:
    """T46: Transfer-Encoding wins on the copy (RFC 9112 section 6.3); the bytes are the upstream's."""
    client, up = ask_stream(rig, MESSAGES)
    head = stream_head(MESSAGES, "Content-Length: 5")
    say(up, client, head + b"".join(map(chunk, MESSAGES.pieces)) + b"0\r\n\r\n")
    client.sendall(request("GET", "/v1/models"))
    read_head(up)
    say(up, client, json_answer(b"{}"))
    client.close()
    rig.no_pair_open()
    assert rig.observer.joined(Kind.RESPONSE_DATA, msg=1) == b"".join(MESSAGES.pieces)
    assert rig.observer.joined(Kind.RESPONSE_DATA, msg=2) == b"{}"


@pytest.mark.parametrize("where", ["response", "request"])
def test_a_bomb_passes_and_its_copy_is_given_up(rig: Rig, where: str) -> None:
    """T50: 200 MB from a few KB; what is decoded is bounded, the call is the client's as ever."""
    bomb = zstandard.compress(bytes(200 << 20), level=19)
    assert len(bomb) < 32 * 1024
    assert decode.MAX_DECODED_BYTES < 200 << 20
    line = "Content-Encoding: zstd"
    if where == "request":
        client, up = ask(rig, MESSAGES.path, bomb, line)
        say(up, client, json_answer(MESSAGES.unary))
    else:
        client, up = ask_stream(rig, MESSAGES)
        say(up, client, stream_head(MESSAGES, line) + chunk(bomb) + b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.parse) == ("ok", "partial")
    assert ended.parse_why is not None
    assert "times its encoded size" in ended.parse_why


def test_each_write_of_the_upstream_reaches_the_client_before_the_next(any_rig: Rig) -> None:
    """T51, T52, T54: pings and comments of a few bytes are not collected, nothing is kept until the end."""
    client, up = ask_stream(any_rig, MESSAGES)
    say(up, client, stream_head(MESSAGES))
    for _ in range(20):
        for part in (b": ping\n\n", b"event: ping\ndata: {}\n\n", b"\n", b"d"):
            say(up, client, chunk(part))
    say(up, client, b"1")  # even within a chunk's size
    client.close()
    any_rig.no_pair_open()


def test_silence_is_told_with_and_without_pings(rig: Rig) -> None:
    """T54: what a client's watchdog would have seen, and what its user felt."""
    client, up = ask_stream(rig, MESSAGES)
    say(up, client, stream_head(MESSAGES) + chunk(MESSAGES.pieces[0]))
    pause = threading.Event()
    for _ in range(4):
        pause.wait(0.1)
        say(up, client, chunk(b"event: ping\ndata: {}\n\n"))
    pause.wait(0.1)
    say(up, client, b"".join(map(chunk, MESSAGES.pieces[1:])) + b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert ended.max_gap is not None
    assert ended.max_gap_with_pings is not None
    assert ended.max_gap >= 0.49
    assert 0.09 <= ended.max_gap_with_pings < ended.max_gap


def test_an_event_without_an_end_is_neither_kept_nor_mistaken_for_a_cut(rig: Rig) -> None:
    """T55, T56: megabytes without a line end cost the parser its sight of that frame, and the relay nothing."""
    client, up = ask_stream(rig, MESSAGES)
    endless = b"data: " + b"x" * (MAX_FRAME_BYTES + 4096)
    wire = stream_head(MESSAGES) + chunk(endless) + chunk(endless) + chunk(b"\n\n")
    sender = threading.Thread(target=up.sendall, args=(wire,))
    sender.start()
    assert read_exactly(client, len(wire)) == wire
    sender.join(10)
    eventually(lambda: held_by_pairs(rig) < 256 * 1024, "what has passed is still held")
    say(up, client, b"".join(map(chunk, MESSAGES.pieces)) + b"0\r\n\r\n")
    client.close()
    rig.no_pair_open()
    ended = attempt(rig)
    assert (ended.outcome, ended.parse, ended.reply.output_tokens) == ("ok", "partial", 42)


def test_thirty_three_megabytes_up_are_no_matter_of_size(any_rig: Rig) -> None:
    """T61: no bound of ours on a body; it streams."""
    size = 33 << 20
    piece = bytes(range(256)) * 256
    client = any_rig.client()
    client.sendall(request("POST", "/v1/messages", b"", f"Content-Length: {size}"))

    def upload() -> None:
        for _ in range(size // len(piece)):
            client.sendall(piece)

    thread = threading.Thread(target=upload)
    thread.start()
    up = any_rig.upstream.accept()
    read_head(up)
    for _ in range(size // len(piece)):
        assert read_exactly(up, len(piece)) == piece
    thread.join(20)
    say(up, client, json_answer(b"{}", "413 Payload Too Large"))
    client.close()
    any_rig.no_pair_open()
    assert attempt(any_rig).reply.status == 413


def test_a_websocket_is_tunnelled_and_a_426_is_the_upstreams_own(rig: Rig) -> None:
    """T66: no reconnects for want of an answer: what the upstream says to an upgrade passes at once."""
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA==")
    for answer in (
        b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x02{}",
    ):
        client = rig.client()
        client.sendall(request("GET", "/v1/responses", b"", *upgrade))
        up = rig.upstream.accept()
        assert b"Sec-WebSocket-Key: eA==" in read_head(up)
        say(up, client, answer)
        client.close()
        up.close()
        rig.no_pair_open()


@pytest.mark.parametrize("status", ["413 Payload Too Large", "401 Unauthorized"])
@pytest.mark.parametrize("family", [MESSAGES, CHAT, GEMINI], ids=lambda family: family.name)
def test_an_early_refusal_reaches_a_client_that_still_uploads(any_rig: Rig, family: Family, status: str) -> None:
    """T68: `Expect: 100-continue` is answered by the upstream; what it answers instead comes before the body."""
    client = any_rig.client()
    client.sendall(request("POST", family.path, b"", "Expect: 100-continue", "Content-Length: 33554432"))
    up = any_rig.upstream.accept()
    read_head(up)
    say(up, client, b"HTTP/1.1 100 Continue\r\n\r\n")
    client.sendall(b"x" * 100_000)
    read_exactly(up, 100_000)
    say(up, client, json_answer(b'{"type":"error","error":{"type":"request_too_large"}}', status))
    client.sendall(b"x" * 50_000)
    read_exactly(up, 50_000)
    reset(client)
    any_rig.no_pair_open()
    ended = attempt(any_rig)
    assert (ended.outcome, ended.reply.status, ended.request_whole) == ("error", int(status[:3]), False)


def test_a_dead_path_to_the_upstream_is_probed(any_rig: Rig) -> None:
    """T67: where no FIN can come any more, the kernel's probes end the wait; the silence is told meanwhile (T07)."""
    client, up = ask_stream(any_rig, MESSAGES)
    (pair,) = any_rig.relay._pairs.values()
    link = pair._upstream
    assert link is not None
    assert link._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert link._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
    client.close()
    up.close()
    any_rig.no_pair_open()
