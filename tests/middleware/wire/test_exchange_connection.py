"""Whose connection it was: whether a request was whole, and whether an answer was still owed."""

import pytest

from fairtrial.middleware.wire.feed import Kind
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, TOKEN, Wire, anthropic_request


def test_a_whole_request_on_an_open_connection_is_both() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.broken("cut", "upstream")
    (ended,) = wire.ended()
    assert (ended.request_whole, ended.after_close) == (True, False)


@pytest.mark.parametrize("told", [True, False])
def test_a_request_that_the_client_never_finished_is_not_whole(told: bool) -> None:
    wire = Wire()
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, f"POST /t/{TOKEN}/v1/messages HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    wire.write(Kind.REQUEST_DATA, b'{"model"')
    if told:
        wire.json(Kind.REQUEST_END, {"wire_bytes": None, "complete": False})
    wire.broken("cut", "upstream", after_ms=60_000)
    (ended,) = wire.ended()
    assert ended.request_whole is False


def test_a_request_of_which_the_copy_has_a_hole_may_have_been_whole() -> None:
    wire = Wire()
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, f"POST /t/{TOKEN}/v1/messages HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    wire.json(Kind.LOST, {"records": 3, "bytes": 900, "since_ns": wire.now_ns, "until_ns": wire.now_ns})
    wire.broken("cut", "upstream")
    assert wire.ended()[0].request_whole is None


def test_a_request_behind_the_clients_own_close_is_owed_no_answer() -> None:
    wire = Wire()
    wire.request(anthropic_request(), headers=["Connection: keep-alive, Close"])
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.request(anthropic_request())
    wire.broken("cut", "upstream")
    assert [e.after_close for e in wire.ended()] == [False, True]


@pytest.mark.parametrize("close", ["Connection: close", "HTTP/1.0"])
def test_a_request_pipelined_behind_a_response_that_closes_is_owed_no_answer(close: str) -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.request(anthropic_request())
    wire.msg = 1
    if close == "HTTP/1.0":
        wire.write(Kind.RESPONSE_HEAD, b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    else:
        wire.head(headers=[close])
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    wire.msg = 2
    wire.broken("cut", "upstream")
    assert [e.after_close for e in wire.ended()] == [False, True]


def test_a_request_after_the_upstreams_fin_was_passed_on_is_owed_no_answer() -> None:
    wire = Wire()
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    fin_ns = wire.now_ns
    wire.ms += 50
    wire.request(anthropic_request())
    wire.json(Kind.RESPONSE_END, {"complete": False, "how": "cut", "first": "upstream", "first_ns": fin_ns})
    wire.json(Kind.CLOSE, {"how": "fin", "first": "upstream", "first_ns": fin_ns})
    assert [e.after_close for e in wire.ended()] == [False, True]
