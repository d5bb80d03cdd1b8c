"""Whatever the framing, the cuts and the pipelining: the bytes are those that were sent, and the copies agree."""

import random
import socket
import threading
from dataclasses import dataclass

import pytest

from fairtrial.middleware.relay.settings import RelaySettings
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import TOKEN, Rig, read_all, read_exactly, running

SEEDS = range(12)


@dataclass
class Exchange:
    """One request and its response, as sent, as it must arrive, and as the observer must see it."""

    sent: bytes
    arrives: bytes
    request_payload: bytes
    response: bytes
    response_payload: bytes
    complete: bool = True
    ends: bool = False


def body_bytes(rng: random.Random) -> bytes:
    size = rng.choice((0, 1, 2, 17, 1000, 70_000, 200_000))
    return rng.randbytes(size)


def chunked(rng: random.Random, body: bytes) -> bytes:
    """The chunked coding with what the RFC allows: extensions, upper-case sizes, leading zeros, trailers."""
    out = bytearray()
    pos = 0
    while pos < len(body):
        size = min(len(body) - pos, rng.choice((1, 3, 16, 500, 9000)))
        number = rng.choice((f"{size:x}", f"{size:X}", f"000{size:x}"))
        extension = rng.choice(("", "", ";a=b", ';quoted="x y;z"', " ;spaced"))
        out += f"{number}{extension}\r\n".encode() + body[pos : pos + size] + b"\r\n"
        pos += size
    out += b"0\r\n" + rng.choice((b"", b"X-Trailer: 1\r\nX-Other: two words\r\n")) + b"\r\n"
    return bytes(out)


def make_exchange(rng: random.Random, base: bytes, authority: bytes, *, last: bool) -> Exchange:
    method = rng.choice((b"GET", b"POST", b"HEAD", b"PUT", b"DELETE"))
    path = rng.choice((b"/v1/messages?beta=true", b"/v1/models/a%3Ab", b"/v1//x/../y;p=1", b"/v1/m?q=%20&r=/t/other/"))
    payload = body_bytes(rng) if method in (b"POST", b"PUT") else b""
    if not payload:
        framing, wire = b"", b""
    elif rng.random() < 0.5:
        framing, wire = b"Content-Length: %d\r\n" % len(payload), payload
    else:
        framing, wire = b"transfer-encoding:  CHUNKED\r\n", chunked(rng, payload)
    lines = b"X-Dup: 1\r\nx-dup:2\r\nAccept-Encoding: gzip, br\r\nTE: trailers\r\nX-Bytes: \xc3\xa9\xff\r\n"
    ours = rng.choice((b"", b"X-Fairtrial-Note: mine\r\n"))
    sent = (
        method
        + b" /t/"
        + TOKEN.encode()
        + path
        + b" HTTP/1.1\r\nhOST:  door \r\n"
        + lines
        + ours
        + framing
        + b"\r\n"
        + wire
    )
    arrives = (
        method + b" " + base + path + b" HTTP/1.1\r\nhOST:  " + authority + b" \r\n" + lines + framing + b"\r\n" + wire
    )
    return answer(rng, method, sent, arrives, payload, last=last)


def answer(rng: random.Random, method: bytes, sent: bytes, arrives: bytes, payload: bytes, *, last: bool) -> Exchange:
    kinds = ["length", "chunked", "none", "empty"] + (["close", "cut_length", "cut_chunked"] if last else [])
    kind = rng.choice(kinds)
    body = body_bytes(rng) or b"x"
    interim = rng.choice(
        (b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    )
    common = b"Date: x\r\nSet-Cookie: a\r\nset-cookie: b\r\n"
    if method == b"HEAD":
        head = b"HTTP/1.1 200 OK\r\n" + common + b"Content-Length: 4242\r\n\r\n"
        return Exchange(sent, arrives, payload, interim + head, b"")
    if kind == "none":
        status = rng.choice((b"204 No Content", b"304 Not Modified"))
        return Exchange(sent, arrives, payload, interim + b"HTTP/1.1 " + status + b"\r\nContent-Length: 9\r\n\r\n", b"")
    if kind == "empty":
        return Exchange(sent, arrives, payload, interim + b"HTTP/1.1 529 \r\nContent-Length: 0\r\n\r\n", b"")
    if "length" in kind:
        head = b"HTTP/1.1 200 OK\r\n" + common + b"content-LENGTH: %d\r\n\r\n" % len(body)
        if kind == "length":
            return Exchange(sent, arrives, payload, interim + head + body, body)
        return Exchange(sent, arrives, payload, interim + head + body[:-1], body[:-1], complete=False, ends=True)
    if "chunked" in kind:
        head = b"HTTP/1.1 200 OK\r\n" + common + b"Transfer-Encoding: gzip, chunked\r\n\r\n"
        wire = chunked(rng, body)
        if kind == "chunked":
            return Exchange(sent, arrives, payload, interim + head + wire, body)
        plain = b"%x\r\n" % len(body) + body[:-1]
        return Exchange(sent, arrives, payload, interim + head + plain, body[:-1], complete=False, ends=True)
    head = b"HTTP/1.1 200 OK\r\n" + common + b"\r\n"
    return Exchange(sent, arrives, payload, interim + head + body, body, ends=True)


def send_in_cuts(rng: random.Random, sock: socket.socket, data: bytes) -> None:
    pos = 0
    while pos < len(data):
        size = rng.choice((1, 2, 7, 100, 1500, 65_536, 300_000))
        sock.sendall(data[pos : pos + size])
        pos += size


def play(rig: Rig, seed: int, base: bytes, *, pipelined: bool) -> None:
    rng = random.Random(seed)
    authority = rig.door.upstream.authority.encode()
    count = rng.randrange(1, 7)
    exchanges = [make_exchange(rng, base, authority, last=turn == count - 1) for turn in range(count)]
    client = rig.client()
    arrived: list[bytes] = []
    faults: list[BaseException] = []
    up_rng, down_rng = random.Random(seed + 1), random.Random(seed + 2)

    def upstream() -> None:
        try:
            sock = rig.upstream.accept()
            for exchange in exchanges:
                arrived.append(read_exactly(sock, len(exchange.arrives)))
                send_in_cuts(down_rng, sock, exchange.response)
            if exchanges[-1].ends:
                sock.close()
        except BaseException as error:
            faults.append(error)

    server = threading.Thread(target=upstream)
    server.start()
    wanted = b"".join(exchange.response for exchange in exchanges)
    if pipelined:
        stream = b"".join(exchange.sent for exchange in exchanges)
        sender = threading.Thread(target=send_in_cuts, args=(up_rng, client, stream))
        sender.start()
        got = read_exactly(client, len(wanted))
        sender.join(10)
    else:
        got = b""
        for exchange in exchanges:
            sender = threading.Thread(target=send_in_cuts, args=(up_rng, client, exchange.sent))
            sender.start()
            got += read_exactly(client, len(exchange.response))
            sender.join(10)
    server.join(10)
    assert faults == []
    assert got == wanted
    assert b"".join(arrived) == b"".join(exchange.arrives for exchange in exchanges)
    if exchanges[-1].ends:
        assert read_all(client) == (b"", "fin")
    client.close()
    rig.no_pair_open()
    check_copies(rig, exchanges)


def check_copies(rig: Rig, exchanges: list[Exchange]) -> None:
    observer = rig.observer
    observer.wait(Kind.CLOSE)
    for msg, exchange in enumerate(exchanges, 1):
        head = exchange.sent.index(b"\r\n\r\n") + 4
        assert observer.joined(Kind.REQUEST_HEAD, msg=msg) == exchange.sent[:head]
        assert observer.joined(Kind.REQUEST_DATA, msg=msg) == exchange.request_payload
        assert observer.joined(Kind.RESPONSE_DATA, msg=msg) == exchange.response_payload
        (end,) = observer.of(Kind.RESPONSE_END, msg=msg)
        assert end.json()["complete"] is exchange.complete
        assert len(observer.of(Kind.REQUEST_END, msg=msg)) == 1
    assert observer.of(Kind.BLIND) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pipelined", [False, True])
def test_bytes_are_exact_over_random_cuts(loop_kind: str, seed: int, pipelined: bool) -> None:
    with running(loop_kind, base="/api/anthropic") as rig:
        play(rig, seed, b"/api/anthropic", pipelined=pipelined)


@pytest.mark.parametrize("seed", range(100, 104))
def test_bytes_are_exact_over_random_cuts_to_a_tls_upstream(loop_kind: str, ca_file: str, seed: int) -> None:
    with running(loop_kind, tls=True, settings=RelaySettings(ca_files=(ca_file,))) as rig:
        play_tls(rig, seed)


def play_tls(rig: Rig, seed: int) -> None:
    """As `play`, but the last response is framed: what a TLS end means is tested beside the other ends."""
    rng = random.Random(seed)
    authority = rig.door.upstream.authority.encode()
    exchanges = [make_exchange(rng, b"", authority, last=False) for _ in range(4)]
    client = rig.client()
    arrived: list[bytes] = []

    def upstream() -> None:
        sock = rig.upstream.accept()
        for exchange in exchanges:
            arrived.append(read_exactly(sock, len(exchange.arrives)))
            send_in_cuts(rng, sock, exchange.response)

    server = threading.Thread(target=upstream)
    server.start()
    sender = threading.Thread(
        target=send_in_cuts, args=(random.Random(seed), client, b"".join(exchange.sent for exchange in exchanges))
    )
    sender.start()
    wanted = b"".join(exchange.response for exchange in exchanges)
    assert read_exactly(client, len(wanted)) == wanted
    sender.join(10)
    server.join(10)
    assert b"".join(arrived) == b"".join(exchange.arrives for exchange in exchanges)
    client.close()
    rig.no_pair_open()
    check_copies(rig, exchanges)


def test_twenty_megabytes_each_way_are_intact(any_rig: Rig) -> None:
    up_body = random.Random(1).randbytes(20_000_000)
    down_body = random.Random(2).randbytes(20_000_000)
    client = any_rig.client()
    head = b"POST /t/%s/v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n" % TOKEN.encode()
    got: list[bytes] = []

    def upstream() -> None:
        sock = any_rig.upstream.accept()
        seen = b""
        while b"\r\n\r\n" not in seen:
            seen += sock.recv(65536)
        rest = seen.split(b"\r\n\r\n", 1)[1]
        got.append(rest + read_exactly(sock, 20_000_000 - len(rest)))
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n" + down_body)

    server = threading.Thread(target=upstream)
    server.start()
    client.sendall(head + up_body)
    answer_head = b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n"
    assert read_exactly(client, len(answer_head)) == answer_head
    assert read_exactly(client, 20_000_000) == down_body
    server.join(10)
    assert got == [up_body]
    client.close()
    any_rig.no_pair_open()
