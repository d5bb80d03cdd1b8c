"""Heads are read leniently and within bounds."""

from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.wire.http1 import MAX_FIELDS, parse_request_head, parse_response_head


def test_a_request_head_gives_method_target_and_fields_in_order() -> None:
    head = parse_request_head(b"post /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nX-A:  1 \r\nx-a: 2\r\nEmpty:\r\n\r\n")
    assert head is not None
    assert (head.method, head.target) == ("POST", "/v1/x?y=1")
    assert head.headers.get("x-a") == "1"
    assert head.headers.joined("x-a") == "1, 2"
    assert head.headers.get("empty") is None
    assert head.headers.get("absent") is None


def test_bare_line_feeds_and_leading_blank_lines_are_read() -> None:
    head = parse_request_head(b"\r\n\nGET / HTTP/1.0\nA: b\n\nnot: a header\n")
    assert head is not None
    assert head.headers.fields == (("a", "b"),)


def test_a_response_head_gives_the_status_with_or_without_a_reason() -> None:
    for raw in (b"HTTP/1.1 529 \r\n\r\n", b"HTTP/1.1 529\r\n\r\n", b"HTTP/1.1 529 Overloaded now\r\nA: b\r\n\r\n"):
        head = parse_response_head(raw)
        assert head is not None
        assert head.status == 529


def test_what_is_no_head_is_none() -> None:
    assert parse_request_head(b"") is None
    assert parse_request_head(b"hello\r\n\r\n") is None
    assert parse_response_head(b"<html>") is None
    assert parse_response_head(b"HTTP/1.1 abc\r\n\r\n") is None


def test_fields_beyond_the_bound_are_not_read() -> None:
    head = parse_request_head(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 2000 + b"\r\n")
    assert head is not None
    assert len(head.headers.fields) == MAX_FIELDS


@given(raw=st.binary(max_size=400))
def test_no_bytes_raise(raw: bytes) -> None:
    parse_request_head(raw)
    parse_response_head(raw)
