"""Every ending of one side is the same ending on the other, and no pair outlives its sockets."""

import contextlib
import fcntl
import select
import socket
import ssl
import struct
import termios
import threading
import time

import pytest

from fairtrial.middleware.relay.ends import HIGH_BYTES
from fairtrial.middleware.wire.feed import Kind
from tests.middleware.relay.rig import Rig, eventually, fill, read_all, read_exactly, read_head, request, reset

ABORT_LIMIT_S = 3.0
"""`make bench` measures the budget of 100 ms; a loaded machine must not fail a test."""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def close_cleanly(sock: socket.socket) -> None:
    """FIN; behind a close_notify if it is TLS (Python's close sends none)."""
    if isinstance(sock, ssl.SSLSocket):
        sock.setblocking(False)
        with contextlib.suppress(ssl.SSLWantReadError):
            sock.unwrap()
    sock.close()


def ended_within(sock: socket.socket, limit_s: float) -> float:
    """Seconds until the socket ends in whatever way."""
    began = time.monotonic()
    read_all(sock)
    spent_s = time.monotonic() - began
    assert spent_s < limit_s
    return spent_s


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_while_the_upstream_is_silent_ends_the_upstream_at_once(any_rig: Rig, how: str) -> None:
    client = any_rig.client()
    client.sendall(request(body=b"{}"))
    up = any_rig.upstream.accept()
    read_head(up)
    read_exactly(up, 2)
    if how == "fin":
        client.close()
    else:
        reset(client)
    ended_within(up, ABORT_LIMIT_S)
    any_rig.no_pair_open()
    end = any_rig.observer.wait(Kind.RESPONSE_END)[0].json()
    assert (end["how"], end["first"], end["complete"]) == ("client_gone", "client", False)
    assert any_rig.observer.wait(Kind.CLOSE)[0].json()["first"] == "client"


def test_a_client_that_leaves_within_a_stream_ends_the_upstream_at_once(any_rig: Rig) -> None:
    client = any_rig.client()
    client.sendall(request(body=b"{}"))
    up = any_rig.upstream.accept()
    read_head(up)
    read_exactly(up, 2)
    up.sendall(SSE + b"5\r\nhello\r\n")
    read_exactly(client, len(SSE) + 10)
    client.close()
    ended_within(up, ABORT_LIMIT_S)
    any_rig.no_pair_open()


def test_a_client_that_resets_while_its_upload_is_paused_ends_the_upstream_at_once(any_rig: Rig) -> None:
    client = any_rig.client()
    client.sendall(request("POST", "/v1/messages", b"", "Content-Length: 100000000"))
    up = any_rig.upstream.accept()
    read_head(up)
    fill(client)  # the upstream reads nothing
    reset(client)
    any_rig.no_pair_open(ABORT_LIMIT_S)
    close = any_rig.observer.wait(Kind.CLOSE)[0].json()
    assert (close["first"], close["how"]) == ("client", "rst")
    assert any_rig.observer.of(Kind.REQUEST_END)[0].json()["complete"] is False


def test_a_client_that_closes_while_its_upload_is_paused_ends_the_upstream_at_once(any_rig: Rig) -> None:
    """A FIN that fits into our receive queue is seen though nobody reads it."""
    client = any_rig.client()
    client.sendall(request("POST", "/v1/messages", b"", "Content-Length: 100000000"))
    up = any_rig.upstream.accept()
    read_head(up)
    while not any_rig.in_loop(lambda: any(pair._paused for pair in any_rig.relay._pairs.values())):
        client.sendall(b"x" * 16384)
    client.close()
    any_rig.no_pair_open(ABORT_LIMIT_S)
    close = any_rig.observer.wait(Kind.CLOSE)[0].json()
    assert (close["first"], close["how"]) == ("client", "fin")


def test_a_client_that_goes_while_the_kernel_holds_its_upload_ends_the_upstream_at_once(any_rig: Rig) -> None:
    """Our own buffer is empty, the kernel's is not, and the upstream does not read: a FIN would never arrive."""
    client = any_rig.client()
    client.sendall(request("POST", "/v1/messages", b"", "Content-Length: 100000000"))
    up = any_rig.upstream.accept()
    read_head(up)

    def held_by_the_kernel_alone() -> bool:
        (pair,) = any_rig.relay._pairs.values()
        link = pair._upstream
        return link is not None and link.kernel_unsent() > 0 and not link.unsent_bytes

    while not all(any_rig.in_loop(held_by_the_kernel_alone) for _ in range(20)):
        client.sendall(b"x" * 16384)
    client.close()
    watch = select.poll()
    watch.register(up.fileno(), 0)
    eventually(lambda: bool(watch.poll(0)), "the upstream was not told")
    any_rig.no_pair_open(ABORT_LIMIT_S)


def test_an_early_413_followed_by_rst_reaches_the_client(any_rig: Rig) -> None:
    """T68: a refusal while the body is still sent."""
    client = any_rig.client()
    client.sendall(request("POST", "/v1/messages", b"", "Content-Length: 50000000"))
    up = any_rig.upstream.accept()
    read_head(up)
    answer = b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 9\r\nConnection: close\r\n\r\ntoo large"
    failed: list[OSError] = []

    def upload() -> None:
        try:
            for _ in range(800):
                client.sendall(b"x" * 65536)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=upload)
    thread.start()
    read_exactly(up, 300_000)
    up.sendall(answer)
    reset(up)
    thread.join(10)
    assert failed, "the client's upload was not ended"
    got, how = read_all(client)
    assert got == answer
    assert how in ("rst", "fin")
    any_rig.no_pair_open()
    close = any_rig.observer.wait(Kind.CLOSE)[0].json()
    assert (close["first"], close["how"]) == ("upstream", "rst")


def test_a_cut_chunked_stream_stays_a_cut_with_fin(rig: Rig) -> None:
    client = rig.client()
    client.sendall(request(body=b"{}"))
    up = rig.upstream.accept()
    read_head(up)
    read_exactly(up, 2)
    up.sendall(SSE + b"5\r\nhel")
    up.close()
    assert read_all(client) == (SSE + b"5\r\nhel", "fin")
    client.close()
    rig.no_pair_open()
    end = rig.observer.wait(Kind.RESPONSE_END)[0].json()
    assert (end["how"], end["complete"], end["first"]) == ("cut", False, "upstream")
    assert rig.observer.joined(Kind.RESPONSE_DATA) == b"hel"


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_reset_upstream_resets_the_client_behind_every_byte_that_came(rig: Rig, size: int) -> None:
    """T19: a reset behind a body loses no tail of it."""
    client = rig.client(receive_bytes=8192)
    client.sendall(request(body=b"{}"))
    up = rig.upstream.accept()
    read_head(up)
    read_exactly(up, 2)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n"
    body = bytes(range(256)) * (size // 256 + 1)
    sender = threading.Thread(target=up.sendall, args=(head + body,))
    sender.start()
    most = read_exactly(client, len(head + body) - 4)
    sender.join(10)
    eventually(lambda: not _unsent(up), "the kernel still holds bytes of the upstream")
    reset(up)
    rest, how = read_all(client)
    assert most + rest == head + body
    assert how == "rst"
    rig.no_pair_open()


def test_a_close_delimited_body_ends_with_fin_and_is_complete(any_rig: Rig) -> None:
    client = any_rig.client()
    client.sendall(request("GET"))
    up = any_rig.upstream.accept()
    read_head(up)
    up.sendall(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    close_cleanly(up)
    assert read_all(client) == (b"HTTP/1.1 200 OK\r\n\r\nall of it", "fin")
    client.close()
    any_rig.no_pair_open()
    end = any_rig.observer.wait(Kind.RESPONSE_END)[0].json()
    assert (end["how"], end["complete"]) == ("close_delimited", True)


def test_a_ragged_tls_end_behind_a_close_delimited_body_is_a_reset(tls_rig: Rig) -> None:
    client = tls_rig.client()
    client.sendall(request("GET"))
    up = tls_rig.upstream.accept()
    read_head(up)
    up.sendall(b"HTTP/1.1 200 OK\r\n\r\npart")
    up.close()  # no close_notify: Python's close does not send one
    assert read_all(client) == (b"HTTP/1.1 200 OK\r\n\r\npart", "rst")
    tls_rig.no_pair_open()
    end = tls_rig.observer.wait(Kind.RESPONSE_END)[0].json()
    assert (end["how"], end["complete"], end["close_how"]) == ("cut", False, "tls_ragged")


def test_a_ragged_tls_end_within_a_framed_body_is_a_fin(tls_rig: Rig) -> None:
    client = tls_rig.client()
    client.sendall(request("GET"))
    up = tls_rig.upstream.accept()
    read_head(up)
    up.sendall(SSE + b"5\r\nhe")
    up.close()
    assert read_all(client) == (SSE + b"5\r\nhe", "fin")
    client.close()
    tls_rig.no_pair_open()
    assert tls_rig.observer.wait(Kind.CLOSE)[0].json()["how"] == "tls_ragged"


def test_an_upstream_that_closes_an_idle_connection_closes_the_client(any_rig: Rig) -> None:
    """T57: no socket is kept beyond what the upstream keeps."""
    client = any_rig.client()
    client.sendall(request("GET"))
    up = any_rig.upstream.accept()
    read_head(up)
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    up.close()
    assert read_all(client) == (b"", "fin")
    client.close()
    any_rig.no_pair_open()


def test_a_client_that_leaves_an_idle_connection_closes_the_upstream(any_rig: Rig) -> None:
    client = any_rig.client()
    client.sendall(request("GET"))
    up = any_rig.upstream.accept()
    read_head(up)
    up.sendall(OK)
    read_exactly(client, len(OK))
    client.close()
    assert read_all(up) == (b"", "fin")
    up.close()
    any_rig.no_pair_open()


def test_a_request_on_a_connection_that_the_upstream_left_is_a_reset(rig: Rig) -> None:
    """T58: a stale connection is shown, not dialled anew."""
    client = rig.client()
    client.sendall(request("GET"))
    up = rig.upstream.accept()
    read_head(up)
    up.sendall(OK)
    read_exactly(client, len(OK))
    up.close()
    assert client.recv(1) == b""
    client.sendall(request("GET"))
    rig.no_pair_open(1.0)
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        client.sendall(request("GET"))


def test_an_early_response_does_not_stop_the_upload(any_rig: Rig) -> None:
    client = any_rig.client()
    client.sendall(request("POST", "/v1/messages", b"", "Content-Length: 10") + b"01234")
    up = any_rig.upstream.accept()
    read_head(up)
    read_exactly(up, 5)
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.sendall(b"56789")
    assert read_exactly(up, 5) == b"56789"
    client.sendall(request("GET", "/second"))
    assert read_head(up).startswith(b"GET /second HTTP/1.1\r\n")
    up.sendall(OK)
    assert read_exactly(client, len(OK)) == OK
    client.close()
    any_rig.no_pair_open()


def test_an_upstream_that_half_closes_still_gets_the_rest_of_the_upload(rig: Rig) -> None:
    client = rig.client()
    client.sendall(request("POST", "/v1/messages", b"", "Content-Length: 10") + b"01234")
    up = rig.upstream.accept()
    read_head(up)
    up.sendall(OK)
    up.shutdown(socket.SHUT_WR)
    assert read_all(client) == (OK, "fin")
    client.sendall(b"56789")
    assert read_exactly(up, 10) == b"0123456789"
    client.close()
    assert read_all(up) == (b"", "fin")
    rig.no_pair_open()


def test_connecting_and_leaving_two_hundred_times_leaves_nothing_open(rig: Rig) -> None:
    for turn in range(200):
        sock = rig.client()
        if turn % 4 == 1:
            sock.sendall(b"GET /t/unfinished")
        elif turn % 4 == 2:
            sock.sendall(request(body=b"{}"))
        if turn % 2:
            reset(sock)
        else:
            sock.close()
    eventually(lambda: rig.relay.counters.connections >= 150, "not accepted")
    rig.no_pair_open()


def test_a_slow_reader_holds_the_upstream_back_and_the_buffers_stay_small(any_rig: Rig) -> None:
    client = any_rig.client(receive_bytes=4096)
    client.sendall(request("GET"))
    up = any_rig.upstream.accept()
    read_head(up)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n"
    up.sendall(head)
    assert len(fill(up, limit_bytes=100_000_000)) < 30_000_000
    held = any_rig.in_loop(lambda: max(pair._client.unsent_bytes for pair in any_rig.relay._pairs.values()))
    assert isinstance(held, int)
    assert held <= 3 * HIGH_BYTES
    read_exactly(client, len(head) + 1000)
    client.close()
    any_rig.no_pair_open()
    assert any_rig.observer.wait(Kind.BLOCKED)[0].json()["side"] == "client"


def test_a_paused_upstream_that_resets_loses_no_byte_for_a_slow_client(rig: Rig) -> None:
    """T19: a reset behind a body loses no tail of it."""
    client = rig.client(receive_bytes=4096)
    client.sendall(request("GET"))
    up = rig.upstream.accept()
    read_head(up)
    up.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    body = fill(up)
    taken = bytearray(read_exactly(client, 19 + 100_000))
    finished = threading.Event()

    def drain() -> None:
        got, how = read_all(client)
        taken.extend(got + how.encode())
        finished.set()

    threading.Thread(target=drain, daemon=True).start()
    eventually(lambda: not _unsent(up), "the kernel still holds bytes of the upstream")
    reset(up)
    assert finished.wait(20)
    assert bytes(taken[19:]) == body + b"rst"
    rig.no_pair_open()


def _unsent(sock: socket.socket) -> int:
    return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0])
