"""The tracker tells what happened to each request: what was measured of a call, and what never leaves."""

import gzip
import json

import pytest

from fairtrial.middleware.wire.feed import Kind
from fairtrial.middleware.wire.redact import digest
from tests.middleware.wire.traffic import (
    ANTHROPIC_STREAM,
    OPENAI_STREAM,
    TRIAL,
    WALL_NS,
    Wire,
    anthropic_request,
    one_call,
    openai_request,
    pieces,
)


def test_a_whole_call_is_ok_and_carries_what_was_measured() -> None:
    wire = one_call(Wire())
    (ended,) = wire.ended()
    assert (ended.outcome, ended.dialect, ended.provider) == ("ok", "anthropic_messages", "anthropic")
    assert (ended.upstream_host, ended.method, ended.path) == ("api.test:443", "POST", "/v1/messages?beta=true")
    assert ended.started_wall_ns == WALL_NS
    assert (ended.request_sent, ended.ttfb, ended.first_token) == (0.001, 0.011, 0.012)
    assert (ended.dns, ended.connect, ended.tls, ended.reused) == (0.001, 0.002, 0.003, False)
    assert (ended.bytes_up, ended.bytes_down) == (len(anthropic_request()) + 300, 1000)
    assert (ended.first_failure, ended.closed_by, ended.close_kind) == (None, None, "framed")
    assert (ended.parse, ended.reply.request_id, ended.reply.provider_id) == ("full", "req_1", True)
    assert (ended.reply.input_tokens, ended.reply.output_tokens, ended.reply.cache_read_tokens) == (11, 42, 5)
    (started,) = wire.started()
    assert started.attempt == ended.attempt
    assert started.request == ended.request
    assert {o.subject.trial for o in wire.observations} == {TRIAL}
    assert wire.edges == ["call_started", "call_ended"]


@pytest.mark.parametrize("cuts", [2, 17, 400])
def test_any_cut_of_the_bytes_gives_the_same_facts(cuts: int) -> None:
    whole, cut = one_call(Wire()).ended()[0], one_call(Wire(), cuts=cuts).ended()[0]
    assert cut.reply == whole.reply
    assert cut.request == whole.request


def test_no_content_and_no_secret_leaves() -> None:
    wire = one_call(Wire())
    written = json.dumps([o.value for o in wire.observations])
    for secret in ("make test", "sk-secret", "Welt", "do it", "You are", "tok-", '"s-1"'):
        assert secret not in written


def test_the_second_request_of_a_connection_did_not_dial() -> None:
    wire = one_call(Wire())
    wire.request(anthropic_request())
    wire.head()
    wire.data(ANTHROPIC_STREAM)
    wire.end()
    second = wire.ended()[1]
    assert (second.reused, second.dns, second.connect, second.remote) == (True, None, None, None)


def test_openai_chat_is_read_through_its_own_door() -> None:
    wire = Wire(door="model:openai")
    wire.request(openai_request(), path="/v1/chat/completions")
    wire.head(headers=["x-request-id: r2"])
    wire.data(OPENAI_STREAM)
    wire.end()
    (ended,) = wire.ended()
    assert (ended.outcome, ended.dialect, ended.provider) == ("ok", "openai_chat", "openai")
    assert (ended.reply.input_tokens, ended.reply.output_tokens, ended.reply.stop_reason) == (20, 7, "tool_calls")
    assert ended.reply.tool_calls[0].text_digest == digest("make test")


def test_encoded_replies_and_requests_are_read_from_decoded_copies() -> None:
    wire = Wire()
    wire.request(gzip.compress(anthropic_request()), headers=["Content-Encoding: gzip"])
    wire.head(headers=["Content-Encoding: gzip"])
    for piece in pieces(gzip.compress(ANTHROPIC_STREAM), 30):
        wire.data(piece)
    wire.end()
    (ended,) = wire.ended()
    assert (ended.request.model, ended.reply.output_tokens, ended.outcome) == ("claude-test", 42, "ok")


def test_unknown_paths_pass_and_are_recorded() -> None:
    wire = Wire()
    wire.request(b"{}", path="/v1/embeddings?key=secret")
    wire.head(media="application/json")
    wire.data(b"{}")
    wire.end()
    (ended,) = wire.ended()
    assert (ended.dialect, ended.request.operation, ended.outcome) == ("unknown", "other", "ok")
    assert (ended.path, ended.reply.terminator) == ("/v1/embeddings", None)


def test_greetings_are_no_calls() -> None:
    wire = Wire()
    wire.request(method="HEAD", path="/")
    wire.head(404, media="text/plain")
    wire.end()
    assert wire.ended()[0].request.operation == "hello"
    assert wire.edges == []


def test_a_tunnel_is_one_attempt_with_its_bytes_counted() -> None:
    wire = Wire()
    wire.request(method="GET", path="/v1/responses", headers=["Upgrade: websocket"])
    wire.head(101)
    wire.json(Kind.RESPONSE_END, {"wire_bytes": 0, "complete": True, "how": "tunnel"})
    wire.write(Kind.TUNNEL_UP, b"x" * 10)
    wire.write(Kind.TUNNEL_DOWN, b"y" * 20)
    wire.json(Kind.CLOSE, {"first": "client", "how": "fin", "client_last_ns": wire.now_ns})
    (ended,) = wire.ended()
    assert (ended.bytes_down, ended.parse, ended.closed_by) == (20, "none", "client")


def test_request_bodies_are_let_go_when_they_were_read() -> None:
    wire = one_call(Wire(), cuts=5)
    assert wire.tracker.held_bytes == 0
    wire.msg += 1
    wire.write(Kind.REQUEST_HEAD, b"POST /v1/messages HTTP/1.1\r\n\r\n")
    wire.write(Kind.REQUEST_DATA, b"x" * 1000)
    assert wire.tracker.held_bytes == 1000
    wire.broken("client_gone", "client")
    assert wire.tracker.held_bytes == 0
