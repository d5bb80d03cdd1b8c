"""Anthropic Messages is read without keeping content: requests, bodies, streams, and what is wrong with them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects.anthropic_messages import AnthropicMessages
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import TextDigest
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, anthropic_request, sse, typed

DIALECT = AnthropicMessages()
HEAD = RequestHead("POST", "/v1/messages", Headers())


def facts(**changes: object) -> RequestFacts:
    return DIALECT.read_request(HEAD, "/v1/messages", anthropic_request(**changes))


def stream(body: bytes, *, size: int = 1 << 20) -> Tally:
    reader = DIALECT.read_reply(
        ResponseHead(200, Headers((("content-type", "text/event-stream; charset=utf-8"),))),
        RequestFacts(operation="chat"),
    )
    for i in range(0, len(body), size):
        reader.feed(body[i : i + size], 1000 + i)
    reader.finish(whole=True)
    return reader.tally


def whole(body: object, *, status: int = 200, operation: str = "chat") -> Tally:
    reader = DIALECT.read_reply(
        ResponseHead(status, Headers((("content-type", "application/json"),))), RequestFacts(operation=operation)
    )
    reader.feed(json.dumps(body).encode() if not isinstance(body, bytes) else body, 1)
    reader.finish(whole=True)
    return reader.tally


def text_digest(text: str) -> str | None:
    state = TextDigest()
    state.add(text)
    return state.result()[0]


def test_a_request_gives_counts_and_digests() -> None:
    seen = facts()
    assert (seen.operation, seen.model, seen.stream, seen.max_tokens) == ("chat", "claude-test", True, 32000)
    assert (seen.history_len, seen.assistant_turns, seen.has_tools, seen.tool_count) == (3, 1, True, 1)
    assert seen.tool_result_ids == ["toolu_1"]
    assert seen.last_assistant_digest == text_digest("I will.")
    assert seen.last_assistant_chars == 7
    assert (seen.session_kind, seen.session) == ("metadata.user_id", digest("s-1"))
    assert len(seen.message_digests) == 3


def test_what_clients_flip_on_a_retry_does_not_change_the_body_digest() -> None:
    first = facts()
    for changes in ({"stream": False}, {"max_tokens": 1000}, {"temperature": 0}):
        again = facts(**changes)
        assert again.body_digest == first.body_digest
        assert again.raw_digest != first.raw_digest
    assert facts(model="other").body_digest != first.body_digest


def test_moved_cache_marks_do_not_change_a_messages_digest() -> None:
    marked = facts(
        messages=[
            {
                "role": "user",
                "content": [{"type": "text", "text": "do it", "cache_control": {"type": "ephemeral"}}],
            }
        ]
    )
    assert marked.first_user_digest == facts().first_user_digest
    assert marked.message_digests[0] == facts().message_digests[0]


def test_older_and_newer_session_marks_are_read() -> None:
    assert facts(metadata={"user_id": "user_a_account_b_session_s-1"}).session == digest("s-1")
    assert facts(metadata={"user_id": "somebody"}).session is None
    assert facts(metadata={"user_id": "{broken"}).session is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": 3}', b'{"messages": ["x"]}', b"\xff\xfe"])
def test_a_body_that_is_no_request_gives_fewer_facts_and_no_exception(body: bytes) -> None:
    seen = DIALECT.read_request(HEAD, "/v1/messages", body)
    assert seen.operation == "chat"
    assert seen.raw_digest == digest(body)


@pytest.mark.parametrize(
    "method, path, operation",
    [
        ("POST", "/v1/messages", "chat"),
        ("POST", "/api/anthropic/v1/messages", "chat"),
        ("POST", "/v1/messages/count_tokens", "count_tokens"),
        ("GET", "/v1/models", "models"),
        ("HEAD", "/", "hello"),
        ("HEAD", "/api/hello", "hello"),
    ],
)
def test_side_paths_are_told_apart(method: str, path: str, operation: str) -> None:
    assert DIALECT.claims(method, path)
    assert DIALECT.read_request(RequestHead(method, path, Headers()), path, b"{}").operation == operation


def test_paths_of_others_are_not_claimed() -> None:
    assert not DIALECT.claims("POST", "/v1/messages/batches")
    assert not DIALECT.claims("POST", "/v1/chat/completions")
    assert not DIALECT.claims("GET", "/v1/files")


def test_a_whole_stream_gives_usage_stop_reason_text_and_tools() -> None:
    """T29: cache counts are carried."""
    tally = stream(ANTHROPIC_STREAM)
    assert (tally.terminator, tally.stop_reason, tally.model, tally.response_id) == (
        True,
        "tool_use",
        "claude-test-1",
        "msg_1",
    )
    assert (tally.input_tokens, tally.output_tokens, tally.usage_partial) == (11, 42, False)
    assert (tally.text_digest, tally.text_chars) == (text_digest("Grüße, Welt \u0085 ok."), 17)
    (tool,) = tally.tool_calls
    assert (tool.id, tool.name, tool.text_digest) == ("toolu_2", "Bash", digest("make test"))
    assert (tally.open_tool_calls, tally.events, tally.pings, tally.unread_frames) == (0, 12, 1, 0)


@given(size=st.integers(1, 700))
def test_any_cut_gives_the_same_tally_but_for_times(size: int) -> None:
    cut, uncut = stream(ANTHROPIC_STREAM, size=size), stream(ANTHROPIC_STREAM)
    assert cut.first_token_ns is not None
    cut.first_token_ns = uncut.first_token_ns
    assert cut == uncut


@given(length=st.integers(0, len(ANTHROPIC_STREAM) - 1))
def test_a_shortened_stream_never_claims_more_than_it_held(length: int) -> None:
    tally = stream(ANTHROPIC_STREAM[:length])
    whole_tally = stream(ANTHROPIC_STREAM)
    assert (tally.text_chars or 0) <= (whole_tally.text_chars or 0)
    assert len(tally.tool_calls) <= 1
    # The last frame may be whole without its blank line; the one before it tells that all was said.
    if b"message_delta" not in ANTHROPIC_STREAM[:length]:
        assert tally.terminator is False
        assert tally.output_tokens is None
        assert tally.usage_partial is not False


def test_an_open_tool_call_is_counted_as_open() -> None:
    tally = stream(ANTHROPIC_STREAM[: ANTHROPIC_STREAM.index(b'"and')])
    assert tally.open_tool_calls == 1
    assert [(tool.id, tool.text_digest) for tool in tally.tool_calls] == [("toolu_2", None)]


def test_usage_is_merged_by_field_and_never_added() -> None:
    """T25, T26, T27: cumulative, nulls ignored, the last input count wins."""
    tally = stream(
        sse(
            *typed(
                {"type": "message_start", "message": {"usage": {"input_tokens": 2679, "output_tokens": 3}}},
                {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 10}},
                {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 20, "input_tokens": 10682}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": None}},
            )
        )
    )
    assert (tally.input_tokens, tally.output_tokens, tally.terminator) == (10682, 20, True)


def test_hidden_thinking_and_unknown_events_are_no_first_token_and_no_harm() -> None:
    tally = stream(
        sse(
            *typed(
                {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
                {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "x"}},
                {"type": "content_block_stop", "index": 0},
                {"type": "content_block_start", "index": 1, "content_block": {"type": "server_tool_use", "id": "s"}},
                {"type": "content_block_stop", "index": 1},
                {"type": "brand_new", "anything": [1]},
            )
        )
    )
    assert (tally.first_token_ns, tally.started_content, tally.tool_calls) == (None, False, [])
    assert tally.unread_frames == 0


def test_a_frame_that_is_not_what_the_api_promises_is_counted() -> None:
    tally = stream(sse((None, "no json"), (None, {"type": "message_delta", "usage": {"output_tokens": "many"}})))
    assert tally.unread_frames == 2
    assert tally.terminator is False


def test_an_html_page_served_as_a_stream_is_known() -> None:
    assert stream(b"<!DOCTYPE html><html></html>").html


def test_a_json_answer_is_read_at_its_end() -> None:
    tally = whole(
        {
            "type": "message",
            "id": "msg_1",
            "model": "claude-test-1",
            "stop_reason": "tool_use",
            "content": [
                {"type": "text", "text": " I will. "},
                {"type": "tool_use", "id": "toolu_3", "name": "Bash", "input": {"command": ["bash", "-lc", "ls -l"]}},
            ],
            "usage": {"input_tokens": 3, "output_tokens": 4, "cache_creation_input_tokens": 9},
        }
    )
    assert (tally.terminator, tally.output_tokens, tally.cache_write_tokens) == (True, 4, 9)
    assert tally.text_digest == text_digest("I will.")
    assert tally.tool_calls[0].text_digest == digest("ls -l")


def test_count_tokens_and_models_are_whole_when_they_are_readable() -> None:
    counted = whole({"input_tokens": 77}, operation="count_tokens")
    assert (counted.terminator, counted.input_tokens) == (True, 77)
    assert whole({"data": []}, operation="models").terminator is True
    assert whole(b"", operation="hello").terminator is True


def test_error_bodies_give_type_and_recognised_words() -> None:
    tally = whole(
        {"type": "error", "error": {"type": "rate_limit_error", "message": "exceed your organization's spend limit"}},
        status=429,
    )
    assert (tally.error_type, tally.error_names, tally.error_in_stream) == (
        "rate_limit_error",
        ["spend", "per_key"],
        False,
    )
    assert whole(b"<html>bad gateway</html>", status=502).html
    assert whole({"error": "just words"}, status=500).error_type == "error"
    late = whole({"type": "error", "error": {"type": "api_error", "message": "x"}})
    assert (late.error_in_stream, late.error_type, late.terminator) == (True, "api_error", False)


def block(index: int, content: dict[str, object], *deltas: dict[str, object]) -> list[dict[str, object]]:
    """A content block with its deltas, begun and ended."""
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


FALLBACK: dict[str, object] = {
    "type": "fallback",
    "from": {"model": "claude-large"},
    "to": {"model": "claude-other-1"},
    "trigger": {"type": "refusal", "category": "x"},
}


def test_a_fallback_block_hands_the_reply_over_to_the_other_model() -> None:
    """The block has no deltas; what the first model asked of tools, whole or begun, is nobody's."""
    tools = block(1, {"type": "tool_use", "id": "toolu_a", "name": "Bash", "input": {}})
    tally = stream(
        sse(
            *typed(
                {"type": "message_start", "message": {"id": "msg_1", "model": "claude-large", "usage": {}}},
                *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Begun, "}),
                *tools,
                {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_b"}},
                *block(3, FALLBACK),
                *block(4, {"type": "text", "text": ""}, {"type": "text_delta", "text": "ended."}),
                *block(5, {"type": "tool_use", "id": "toolu_c", "name": "Bash", "input": {}}),
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}},
                {"type": "message_stop"},
            )
        )
    )
    assert (tally.declined_model, tally.model) == ("claude-large", "claude-other-1")
    assert [use.id for use in tally.tool_calls] == ["toolu_c"]
    assert (tally.open_tool_calls, tally.terminator, tally.unread_frames) == (0, True, 0)
    assert tally.text_digest == text_digest("Begun, ended.")


def test_a_fallback_block_in_a_json_answer_is_the_same() -> None:
    tally = whole(
        {
            "type": "message",
            "model": "claude-other-1",
            "content": [{"type": "tool_use", "id": "toolu_a", "name": "Bash"}, FALLBACK, {"type": "text", "text": "x"}],
            "usage": {"input_tokens": 1, "output_tokens": 2, "iterations": [{"type": "fallback_message"}]},
        }
    )
    assert (tally.declined_model, tally.model, tally.tool_calls) == ("claude-large", "claude-other-1", [])
    assert (tally.terminator, tally.output_tokens) == (True, 2)


@pytest.mark.parametrize("broken", [{}, {"from": None, "to": None}, {"from": {}, "to": {"model": None}}])
def test_a_fallback_block_that_names_nobody_is_one_all_the_same(broken: dict[str, object]) -> None:
    tally = whole({"type": "message", "model": "m", "content": [{"type": "fallback", **broken}], "usage": {}})
    assert (tally.declined_model, tally.model) == ("unknown", "m")


def test_thinking_is_content_and_a_signature_alone_is_none() -> None:
    def read(*deltas: dict[str, object]) -> Tally:
        return stream(sse(*typed(*block(0, {"type": "thinking", "thinking": ""}, *deltas))), size=1)

    signed = read({"type": "signature_delta", "signature": "EqQ"})
    thought = read({"type": "thinking_delta", "thinking": "Hm"}, {"type": "signature_delta", "signature": "EqQ"})
    assert (signed.started_content, signed.first_token_ns) == (False, None)
    assert (thought.started_content, thought.first_token_ns is not None) == (True, True)
    assert signed.text_digest is thought.text_digest is None
    redacted = stream(sse(*typed(*block(0, {"type": "redacted_thinking", "data": "xyz"}))))
    assert (redacted.started_content, redacted.unread_frames) == (False, 0)


@pytest.mark.parametrize("field", ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"])
def test_each_usage_field_is_restated_by_the_last_that_is_not_null(field: str) -> None:
    """T25, T26, T27, T29: overwritten, never added; null is no value."""
    first = {field: 1, "output_tokens": 1}
    tally = stream(
        sse(
            *typed(
                {"type": "message_start", "message": {"usage": first}},
                {"type": "message_delta", "delta": {}, "usage": {field: 7, "output_tokens": 3}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {field: None}},
            )
        )
    )
    counts = (tally.input_tokens, tally.cache_read_tokens, tally.cache_write_tokens)
    assert [count for count in counts if count is not None] == [7]
    assert tally.output_tokens == 3
