"""Which request heads pass, how bodies are framed, and that rewriting touches only what it must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.relay.heads import BadHead, Body, read_request_head, read_response_head, rewrite

HOST = b"Host: a\r\n"


def head(*lines: bytes, first: bytes = b"POST /x HTTP/1.1") -> bytes:
    return b"\r\n".join((first, *lines)) + b"\r\n\r\n"


@pytest.mark.parametrize(
    "raw, reason",
    [
        (head(b"Host: a", b"Host: a"), "two Host"),
        (head(b"host: a", b"HOST: b"), "two Host"),
        (head(b"X: a"), "no Host"),
        (head(b"Host: a", b"Transfer-Encoding: gzip"), "Transfer-Encoding other|llhttp"),
        (head(b"Host: a", b"Transfer-Encoding: gzip, chunked"), "Transfer-Encoding other|llhttp"),
        (
            head(b"Host: a", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
            "Transfer-Encoding other|llhttp",
        ),
        (head(b"Host: a", b"Transfer-Encoding: chunked", b"Content-Length: 3"), "Content-Length and|llhttp"),
        (head(b"Host: a", b"Transfer-Encoding: chunked", first=b"POST /x HTTP/1.0"), "HTTP/1.0"),
        (head(b"Host: a", b"Content-Length: 3", b"Content-Length: 3"), "two Content-Length|llhttp"),
        (head(b"Host: a", b"Content-Length: +3"), "Content-Length|llhttp"),
        (head(b"Host: a", b"Content-Length: 3, 3"), "Content-Length|llhttp"),
        (head(b"Host: a", b"Content-Length: 9999999999999999999999"), "Content-Length|llhttp"),
        (head(b"Host: a", b"X: 1", b" folded"), "folded"),
        (head(b"Host: a", b"X: 1", b"\tfolded"), "folded"),
        (b"GET /x HTTP/1.1\nHost: a\r\n\r\n", "bare"),
        (b"GET /x HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", "bare"),
        (head(b"Host: a", b"Content-Length : 3"), "llhttp"),
        (head(b"Host: a", b"X\x00Y: 3"), "llhttp"),
        (head(b"Host: a", b"no colon"), "llhttp"),
        (head(b"Host: a", first=b"GET  /x HTTP/1.1"), "request line"),
        (head(b"Host: a", first=b"GET /x HTTP/2.0"), "request line"),
        (head(b"Host: a", first=b"GET /x"), "request line"),
        (head(b"Host: a", first=b"NONSENSE /x HTTP/1.1"), "llhttp"),
        (head(b"Host: a", b"X: " + b"a" * 70_000), "64 KiB"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "request line|bare|llhttp"),
    ],
)
def test_a_head_that_two_parsers_might_read_differently_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(BadHead, match=reason):
        read_request_head(raw)


@pytest.mark.parametrize(
    "raw, body, length",
    [
        (head(b"Host: a"), Body.NONE, 0),
        (head(b"Host: a", b"Content-Length: 0"), Body.NONE, 0),
        (head(b"Host: a", b"content-length:   17  "), Body.LENGTH, 17),
        (head(b"Host: a", b"TRANSFER-ENCODING: Chunked"), Body.CHUNKED, 0),
        (head(first=b"GET / HTTP/1.0"), Body.NONE, 0),
        (b"\r\n\r\n" + head(b"Host: a", b"Content-Length: 1"), Body.LENGTH, 1),
        (head(b"Host: a", b"X: " + b"a" * 60_000), Body.NONE, 0),
    ],
)
def test_the_body_of_a_request_is_framed_by_its_head(raw: bytes, body: Body, length: int) -> None:
    read = read_request_head(raw)
    assert (read.body, read.length_bytes) == (body, length)


def test_an_upgrade_with_a_body_keeps_its_body_and_may_tunnel() -> None:
    read = read_request_head(
        head(
            b"Host: a",
            b"Upgrade: tcp",
            b"Connection: Upgrade",
            b"Content-Length: 28",
            first=b"POST /exec/1/start HTTP/1.1",
        )
    )
    assert (read.body, read.length_bytes, read.may_tunnel) == (Body.LENGTH, 28, True)


def test_an_upgrade_line_without_connection_upgrade_opens_nothing() -> None:
    assert read_request_head(head(b"Host: a", b"Upgrade: h2c")).may_tunnel is False


def test_connect_may_tunnel() -> None:
    assert read_request_head(head(b"Host: a:443", first=b"CONNECT a:443 HTTP/1.1")).may_tunnel is True


def test_docker_hijacks_may_tunnel_only_at_a_docker_door() -> None:
    raw = head(b"Host: a", b"Content-Length: 0", first=b"POST /v1.41/containers/abc/attach?stdin=1 HTTP/1.1")
    assert read_request_head(raw).may_tunnel is False
    assert read_request_head(raw, docker=True).may_tunnel is True


def test_rewriting_changes_target_and_host_value_and_takes_our_lines_out() -> None:
    raw = head(b"A: 1", b"hOsT: \t old ", b"X-FairTrial-Trial: 1", b"a:2", first=b"GET /t/tok/x?y HTTP/1.1")
    assert rewrite(read_request_head(raw), b"/base/x?y", b"new:1") == (
        b"GET /base/x?y HTTP/1.1\r\nA: 1\r\nhOsT: \t new:1 \r\na:2\r\n\r\n"
    )


def test_rewriting_puts_a_proxys_lines_behind_the_request_line() -> None:
    new = rewrite(
        read_request_head(head(b"Host: a", b"B: 2")), b"http://u/x", b"u", b"Proxy-Authorization: Basic eA==\r\n"
    )
    assert new == b"POST http://u/x HTTP/1.1\r\nProxy-Authorization: Basic eA==\r\nHost: u\r\nB: 2\r\n\r\n"


@given(
    st.lists(
        st.tuples(
            st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True),
            st.from_regex(rb"[!-~\x80-\xff]{0,20}", fullmatch=True),
        ).filter(
            lambda pair: (
                pair[0].lower() not in (b"host", b"content-length", b"transfer-encoding", b"connection", b"upgrade")
            )
        ),
        max_size=12,
    ),
    st.integers(0, 12),
)
def test_rewriting_leaves_every_other_byte_alone(lines: list[tuple[bytes, bytes]], at: int) -> None:
    others = [name + b": " + value for name, value in lines if not name.lower().startswith(b"x-fairtrial-")]
    before = [*others[:at], b"Host: door", *others[at:]]
    after = [*others[:at], b"Host: up", *others[at:]]
    raw = head(*before, first=b"GET /t/x/y HTTP/1.1")
    assert rewrite(read_request_head(raw), b"/y", b"up") == head(*after, first=b"GET /y HTTP/1.1")


@pytest.mark.parametrize(
    "raw, method, body, length",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"GET", Body.LENGTH, 5),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"HEAD", Body.NONE, 0),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", b"GET", Body.NONE, 0),
        (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", b"GET", Body.NONE, 0),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", b"GET", Body.NONE, 0),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", b"GET", Body.TUNNEL, 0),
        (b"HTTP/1.1 200 Connection established\r\n\r\n", b"CONNECT", Body.TUNNEL, 0),
        (b"HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\n", b"CONNECT", Body.LENGTH, 2),
        (b"HTTP/1.1 200\r\nTransfer-Encoding: gzip, Chunked\r\nContent-Length: 9\r\n\r\n", b"GET", Body.CHUNKED, 0),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", b"GET", Body.UNTIL_CLOSE, 0),
        (b"HTTP/1.0 200 OK\r\n\r\n", b"GET", Body.UNTIL_CLOSE, 0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\nContent-Length: 5\r\n\r\n", b"GET", Body.LENGTH, 5),
        (b"HTTP/1.1 529 \r\nContent-Length: 0\r\n\r\n", b"GET", Body.NONE, 0),
    ],
)
def test_the_end_of_a_response_body_follows_rfc_9112(raw: bytes, method: bytes, body: Body, length: int) -> None:
    read = read_response_head(raw, 1, method)
    assert read.body is body
    assert length in (0, read.length_bytes)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 0200 OK\r\n\r\n",
    ],
)
def test_a_response_head_that_cannot_be_framed_says_so(raw: bytes) -> None:
    with pytest.raises(BadHead):
        read_response_head(raw, 1, b"GET")


def test_dockers_unframed_200_is_a_tunnel_at_a_docker_door_only() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.multiplexed-stream\r\n\r\n"
    assert read_response_head(raw, 1, b"POST").body is Body.UNTIL_CLOSE
    assert read_response_head(raw, 1, b"POST", docker=True).body is Body.TUNNEL
