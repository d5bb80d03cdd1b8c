"""Bedrock is read from checked messages: conversations, Claude's chunks, and chunks of nobody we know."""

import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire import eventstream
from fairtrial.middleware.wire.dialects import choose
from fairtrial.middleware.wire.dialects.bedrock import Bedrock
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import TextDigest
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest
from tests.middleware.wire.awsmessages import event, exception, packed, strings
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, Wire, anthropic_request

DIALECT = Bedrock()
CLAUDE = "anthropic.claude-test-v1%3A0"
INVOKE = f"/model/{CLAUDE}/invoke-with-response-stream"
CONVERSE = f"/model/{CLAUDE}/converse-stream"
OTHER = "/model/amazon.nova-lite-v1%3A0/invoke-with-response-stream"
MEDIA = "application/vnd.amazon.eventstream"

Json = dict[str, object]


def conversation(**changes: object) -> bytes:
    fields: Json = {
        "messages": [
            {"role": "user", "content": [{"text": "do it"}]},
            {
                "role": "assistant",
                "content": [
                    {"text": "I will."},
                    {"toolUse": {"toolUseId": "t1", "name": "sh", "input": {"command": "ls"}}},
                ],
            },
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "a b"}]}}]},
        ],
        "system": [{"text": "You are a test."}],
        "toolConfig": {"tools": [{"toolSpec": {"name": "sh"}}]},
        "inferenceConfig": {"maxTokens": 100},
    }
    return json.dumps(fields | changes).encode()


def read(body: bytes, path: str = CONVERSE) -> RequestFacts:
    return DIALECT.read_request(RequestHead("POST", path, Headers()), path, body)


def said(kind: str, **payload: object) -> bytes:
    return event(kind, json.dumps(payload).encode())


def chunk(value: object) -> bytes:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return event("chunk", json.dumps({"bytes": b64encode(raw).decode(), "p": "abcd"}).encode())


CONVERSED = b"".join(
    [
        said("messageStart", role="assistant"),
        said("contentBlockDelta", contentBlockIndex=0, delta={"text": "Grüße, "}),
        said("contentBlockDelta", contentBlockIndex=0, delta={"text": "Welt."}),
        said("contentBlockStop", contentBlockIndex=0),
        said("contentBlockStart", contentBlockIndex=1, start={"toolUse": {"toolUseId": "t2", "name": "sh"}}),
        said("contentBlockDelta", contentBlockIndex=1, delta={"toolUse": {"input": '{"command":'}}),
        said("contentBlockDelta", contentBlockIndex=1, delta={"toolUse": {"input": '"make test"}'}}),
        said("contentBlockStop", contentBlockIndex=1),
        said("messageStop", stopReason="tool_use"),
        said("metadata", usage={"inputTokens": 20, "outputTokens": 7, "cacheReadInputTokens": 4}, metrics={}),
    ]
)
CHUNKED = b"".join(
    chunk(part.partition(b"data: ")[2]) for part in ANTHROPIC_STREAM.split(b"\n\n") if part and b"ping" not in part
)


def reply(body: bytes, path: str = CONVERSE, *, media: str = MEDIA, status: int = 200, size: int = 1 << 20) -> Tally:
    asked = read(anthropic_request() if "invoke" in path else conversation(), path)
    headers = (
        ("content-type", media),
        ("x-amzn-requestid", "r-1"),
        ("x-amzn-errortype", "ThrottlingException:http:/x"),
    )
    reader = DIALECT.read_reply(ResponseHead(status, Headers(headers)), asked)
    for i in range(0, len(body), size):
        reader.feed(body[i : i + size], 1000 + i)
    reader.finish(whole=True)
    return reader.tally


def text_digest(text: str) -> str | None:
    state = TextDigest()
    state.add(text)
    return state.result()[0]


def test_a_conversation_gives_counts_and_digests() -> None:
    seen = read(conversation())
    assert (seen.operation, seen.model, seen.stream, seen.max_tokens) == (
        "chat",
        "anthropic.claude-test-v1:0",
        True,
        100,
    )
    assert (seen.history_len, seen.assistant_turns, seen.has_tools, seen.tool_count) == (3, 1, True, 1)
    assert (seen.tool_result_ids, seen.last_assistant_digest) == (["t1"], text_digest("I will."))
    assert read(conversation(inferenceConfig={"maxTokens": 1})).body_digest == seen.body_digest
    assert read(conversation(), CONVERSE.removesuffix("-stream")).stream is False


def test_an_invocation_of_claude_is_read_as_anthropics_by_its_model_or_its_version() -> None:
    assert read(anthropic_request(), INVOKE).tool_result_ids == ["toolu_1"]
    profile = "/model/arn%3Aaws%3Abedrock%3Ax%3A1%3Aapplication-inference-profile%2Fabc/invoke"
    named = read(anthropic_request(anthropic_version="bedrock-2023-05-31"), profile)
    assert (named.assistant_turns, named.stream) == (1, False)
    other = read(b'{"inputText": "x"}', OTHER)
    assert (other.operation, other.model, other.history_len) == ("chat", "amazon.nova-lite-v1:0", None)
    assert read(b"{}", f"/model/{CLAUDE}/count-tokens").operation == "count_tokens"


@pytest.mark.parametrize("body", [b"", b"[]", b'{"messages": [3]}', b'{"toolConfig": 3}', b'{"inferenceConfig": []}'])
@pytest.mark.parametrize("path", [CONVERSE, INVOKE, OTHER])
def test_a_body_that_is_no_request_gives_fewer_facts_and_no_exception(body: bytes, path: str) -> None:
    assert read(body, path).raw_digest == digest(body)


def test_paths_decide() -> None:
    assert choose("POST", CONVERSE).name == "bedrock"
    assert choose("POST", f"/model/{CLAUDE}/invoke").name == "bedrock"
    assert choose("GET", "/foundation-models").name == "unknown"


def test_a_conversation_stream_gives_usage_stop_reason_text_and_tools() -> None:
    tally = reply(CONVERSED)
    assert (tally.terminator, tally.stop_reason, tally.request_id, tally.provider_id) == (True, "tool_use", "r-1", True)
    assert (tally.input_tokens, tally.output_tokens, tally.cache_read_tokens) == (20, 7, 4)
    assert (tally.usage_partial, tally.text_digest) == (False, text_digest("Grüße, Welt."))
    (tool,) = tally.tool_calls
    assert (tool.id, tool.name, tool.text_digest) == ("t2", "sh", digest("make test"))
    assert (tally.events, tally.open_tool_calls, tally.unread_frames) == (10, 0, 0)


def test_claudes_chunks_give_what_anthropics_stream_gives() -> None:
    tally = reply(CHUNKED, INVOKE)
    assert (tally.terminator, tally.stop_reason, tally.input_tokens, tally.output_tokens) == (True, "tool_use", 11, 42)
    assert (tally.tool_calls[0].text_digest, tally.request_id, tally.unread_frames) == (digest("make test"), "r-1", 0)
    assert tally.text_chars is not None


@given(size=st.integers(1, 700), path=st.sampled_from([CONVERSE, INVOKE]))
def test_any_cut_gives_the_same_tally_but_for_times(size: int, path: str) -> None:
    body = CONVERSED if path == CONVERSE else CHUNKED
    cut, uncut = reply(body, path, size=size), reply(body, path)
    cut.first_token_ns = uncut.first_token_ns
    assert cut == uncut


def test_a_stream_that_stops_early_is_not_whole() -> None:
    cut = reply(CONVERSED[: CONVERSED.index(b"contentBlockStop", CONVERSED.index(b"t2")) - 30])
    assert (cut.terminator, cut.open_tool_calls, cut.usage_partial) == (False, 1, True)
    assert reply(CHUNKED[:900], INVOKE).terminator is False
    assert reply(b"").terminator is False


def test_a_stream_without_its_terminator_but_with_a_wrong_checksum_says_nothing_of_its_end() -> None:
    for body, path in ((CONVERSED, CONVERSE), (CHUNKED, INVOKE)):
        broken = bytearray(body)
        broken[len(body) // 2] ^= 1
        tally = reply(bytes(broken), path)
        assert (tally.terminator, tally.unread_frames) == (None, 1)


def test_a_message_that_is_too_long_may_have_been_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eventstream, "MAX_MESSAGE_BYTES", 300)
    tally = reply(said("messageStart") + said("messageStop", stopReason="x" * 300))
    assert (tally.terminator, tally.unread_frames) == (None, 1)


def test_an_exception_in_the_stream_is_an_error_inside_a_200() -> None:
    cases = [
        (exception("throttlingException", b'{"message": "slow down"}'), "throttlingException"),
        (exception("modelStreamErrorException", b"no json"), "modelStreamErrorException"),
        (
            packed(strings({":message-type": "error", ":error-code": "InternalError", ":error-message": "x"}), b""),
            "InternalError",
        ),
    ]
    for message, kind in cases:
        for begun, path in ((CONVERSED[:200], CONVERSE), (chunk({"type": "message_start"}), INVOKE)):
            start = said("messageStart") if path == CONVERSE else begun
            tally = reply(start + message, path)
            assert (tally.error_in_stream, tally.error_type) == (True, kind)
            assert not tally.terminator


def test_chunks_of_other_models_end_with_their_metrics_and_else_claim_nothing() -> None:
    metrics = {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 3, "outputTokenCount": 4}}
    asked = read(b'{"inputText": "x"}', OTHER)
    for body, terminator, tokens in (
        (chunk({"outputText": "a"}) + chunk(metrics), True, 4),
        (chunk({"outputText": "a"}), None, None),
    ):
        reader = DIALECT.read_reply(ResponseHead(200, Headers((("content-type", MEDIA),))), asked)
        reader.feed(body, 1)
        reader.finish(whole=True)
        assert (reader.tally.terminator, reader.tally.output_tokens) == (terminator, tokens)
        assert reader.tally.first_token_ns == 1


def test_one_body_is_read_at_its_end() -> None:
    answer: Json = {
        "output": {
            "message": {
                "role": "assistant",
                "content": [{"text": "all"}, {"toolUse": {"toolUseId": "t", "name": "sh", "input": {"command": "ls"}}}],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 1, "outputTokens": 2},
    }
    tally = reply(json.dumps(answer).encode(), media="application/json")
    assert (tally.terminator, tally.stop_reason, tally.output_tokens) == (True, "tool_use", 2)
    assert tally.tool_calls[0].text_digest == digest("ls")
    message: Json = {"type": "message", "content": [{"type": "text", "text": "x"}], "usage": {"output_tokens": 3}}
    invoked = reply(json.dumps(message).encode(), INVOKE.replace("-with-response-stream", ""), media="application/json")
    assert (invoked.terminator, invoked.output_tokens, invoked.request_id) == (True, 3, "r-1")


def test_a_refusal_is_typed_by_its_header() -> None:
    tally = reply(b'{"message": "Too many requests"}', media="application/json", status=429)
    assert (tally.error_type, tally.error_in_stream) == ("ThrottlingException", False)


@given(junk=st.binary(max_size=200))
def test_junk_never_raises_and_completes_nothing(junk: bytes) -> None:
    for path in (CONVERSE, INVOKE):
        assert not reply(junk, path).terminator
        assert not reply(chunk(junk) + event("contentBlockDelta", junk) + event("metadata", junk), path).terminator


@given(junk=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_values_of_any_other_type_never_raise(junk: object) -> None:
    for name in ("messages", "system", "toolConfig", "inferenceConfig"):
        read(conversation(**{name: junk}))
    for name in ("delta", "start", "contentBlockIndex", "usage", "stopReason"):
        reply(said("contentBlockDelta", **{name: junk}) + said("contentBlockStart", **{name: junk}))
    reply(chunk(junk), INVOKE)


def test_the_tracker_tells_a_whole_and_a_cut_stream_apart() -> None:
    wire = Wire(door="model:bedrock")
    for body in (CONVERSED, CONVERSED[:400]):
        wire.request(conversation(), path=CONVERSE)
        wire.head(media=MEDIA)
        wire.data(body)
        wire.end()
    assert [(each.dialect, each.outcome) for each in wire.ended()] == [("bedrock", "ok"), ("bedrock", "truncated")]
