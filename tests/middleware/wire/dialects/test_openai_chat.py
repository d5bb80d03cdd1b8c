"""Chat Completions is read as OpenAI and its imitators write it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects.openai_chat import OpenAIChat
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest
from tests.middleware.wire.traffic import OPENAI_STREAM, openai_request, sse

DIALECT = OpenAIChat()
PATH = "/v1/chat/completions"
HEAD = RequestHead("POST", PATH, Headers())


def facts(**changes: object) -> RequestFacts:
    return DIALECT.read_request(HEAD, PATH, openai_request(**changes))


def stream(body: bytes, *, size: int = 1 << 20) -> Tally:
    reader = DIALECT.read_reply(
        ResponseHead(200, Headers((("content-type", "text/event-stream"), ("x-request-id", "r")))),
        RequestFacts(operation="chat"),
    )
    for i in range(0, len(body), size):
        reader.feed(body[i : i + size], 1000 + i)
    reader.finish(whole=True)
    return reader.tally


def whole(body: object, *, status: int = 200) -> Tally:
    reader = DIALECT.read_reply(
        ResponseHead(status, Headers((("content-type", "application/json"),))), RequestFacts(operation="chat")
    )
    reader.feed(json.dumps(body).encode(), 1)
    reader.finish(whole=True)
    return reader.tally


def chunk(**delta: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": delta}]}


def test_a_request_gives_counts_and_digests() -> None:
    seen = facts()
    assert (seen.operation, seen.model, seen.stream, seen.max_tokens) == ("chat", "gpt-test", True, 100)
    assert (seen.history_len, seen.assistant_turns, seen.has_tools, seen.tool_count) == (4, 1, True, 1)
    assert seen.tool_result_ids == ["call_1"]
    assert seen.last_assistant_chars == 7
    assert seen.system_digest is not None
    assert seen.session is None


def test_streaming_and_limits_do_not_change_the_body_digest() -> None:
    assert facts(stream=False).body_digest == facts().body_digest
    assert facts(max_completion_tokens=1).body_digest == facts().body_digest
    assert facts(tools=[]).body_digest != facts().body_digest


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": {}}', b'{"messages": [3]}'])
def test_a_body_that_is_no_request_gives_fewer_facts_and_no_exception(body: bytes) -> None:
    assert DIALECT.read_request(HEAD, PATH, body).raw_digest == digest(body)


def test_paths_are_matched_at_their_end() -> None:
    assert DIALECT.claims("POST", "/api/paas/v4/chat/completions")
    assert DIALECT.claims("GET", "/v1/models")
    assert not DIALECT.claims("POST", "/v1/responses")


def test_a_whole_stream_gives_usage_stop_reason_text_and_tools() -> None:
    tally = stream(OPENAI_STREAM)
    assert (tally.terminator, tally.stop_reason, tally.model, tally.response_id) == (
        True,
        "tool_calls",
        "gpt-test-1",
        "c1",
    )
    assert (tally.input_tokens, tally.output_tokens, tally.cache_read_tokens) == (20, 7, 4)
    assert (tally.usage_partial, tally.text_chars, tally.provider_id) == (False, 12, True)
    (tool,) = tally.tool_calls
    assert (tool.id, tool.name, tool.text_digest) == ("call_2", "bash", digest("make test"))


@given(size=st.integers(1, 700))
def test_any_cut_gives_the_same_tally_but_for_times(size: int) -> None:
    cut, uncut = stream(OPENAI_STREAM, size=size), stream(OPENAI_STREAM)
    cut.first_token_ns = uncut.first_token_ns
    assert cut == uncut


def test_a_finish_reason_completes_a_stream_whose_server_leaves_done_out() -> None:
    body = sse((None, chunk(content="x")), (None, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    tally = stream(body)
    assert (tally.terminator, tally.usage_partial) == (True, None)


def test_a_stream_that_stops_early_has_open_tool_calls_and_partial_usage() -> None:
    tally = stream(OPENAI_STREAM[: OPENAI_STREAM.index(b"finish_reason") - 40])
    assert (tally.terminator, tally.open_tool_calls, tally.usage_partial) == (False, 1, True)
    assert tally.tool_calls[0].text_digest is None


def test_an_error_in_a_chunk_of_a_200_is_an_error() -> None:
    tally = stream(sse((None, chunk(content="x")), (None, {"error": {"message": "no", "type": "server_error"}})))
    assert (tally.error_in_stream, tally.error_type) == (True, "server_error")


def test_tool_calls_are_told_apart_by_id_then_index_then_order() -> None:
    """T63: indexes are left out or repeated."""

    def called(**call: object) -> tuple[None, dict[str, object]]:
        return None, chunk(tool_calls=[call])

    tally = stream(
        sse(
            called(index=0, id="a", function={"name": "bash", "arguments": '{"command":'}),
            called(index=0, id="b", function={"name": "bash", "arguments": '{"cmd":"two"}'}),
            called(id="a", function={"arguments": '"one"}'}),
            called(id="c", function={"name": "other"}),
            called(function={"arguments": "{}"}),
            (None, "[DONE]"),
        )
    )
    assert [(t.id, t.text_digest) for t in tally.tool_calls] == [
        ("a", digest("one")),
        ("b", digest("two")),
        ("c", None),
    ]


def test_reasoning_counts_as_the_first_token() -> None:
    assert stream(sse((None, chunk(reasoning_content="hm")))).first_token_ns == 1000
    assert stream(sse((None, chunk(role="assistant", content="")))).first_token_ns is None


def test_a_json_answer_is_read_at_its_end() -> None:
    tally = whole(
        {
            "id": "c",
            "model": "m",
            "choices": [
                {
                    "finish_reason": "tool_calls",
                    "message": {
                        "content": None,
                        "tool_calls": [{"id": "x", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}],
                    },
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        }
    )
    assert (tally.terminator, tally.stop_reason, tally.output_tokens) == (True, "tool_calls", 2)
    assert tally.tool_calls[0].text_digest == digest("ls")


def test_quota_errors_are_recognised() -> None:
    tally = whole({"error": {"message": "You exceeded", "type": "x", "code": "insufficient_quota"}}, status=429)
    assert (tally.error_type, tally.error_names) == ("x", ["quota"])
    assert whole({"object": "nothing"}).terminator is False


def test_usage_that_vllm_counts_in_every_chunk_is_partial_until_the_end() -> None:
    counted = [(None, chunk(content="x") | {"usage": {"prompt_tokens": 9, "completion_tokens": n}}) for n in (1, 2)]
    last = (None, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "metrics": {"queue_time_ms": 1.0}})
    cut, whole_stream = stream(sse(*counted)), stream(sse(*counted, last))
    assert (cut.usage_partial, cut.output_tokens, cut.terminator) == (True, 2, False)
    assert (whole_stream.usage_partial, whole_stream.output_tokens) == (False, 2)


METRICS = {"time_to_first_token_ms": 85.2, "queue_time_ms": 12.3, "generation_time_ms": 1.0, "mean_itl_ms": 9.1}


def test_vllms_own_times_are_kept_beside_ours() -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "metrics": METRICS}
    streamed = stream(sse((None, chunk(content="x")), (None, last), (None, "[DONE]")))
    answer = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}], "metrics": METRICS}
    for tally in (streamed, whole(answer)):
        assert (tally.server_first_token, tally.server_queue, tally.terminator) == (0.0852, 0.0123, True)


@pytest.mark.parametrize("metrics", [None, [], "x", 5, {"queue_time_ms": "soon"}, {"time_to_first_token_ms": None}])
def test_metrics_of_another_form_cost_nothing_else(metrics: object) -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "metrics": metrics}
    tally = stream(sse((None, last)))
    assert (tally.server_first_token, tally.server_queue) == (None, None)
    assert (tally.terminator, tally.unread_frames) == (True, 0)


def test_keys_that_the_words_ask_for_are_told_streamed_and_whole() -> None:
    """As Harbor's terminus-2 has its models answer."""
    text = json.dumps({"commands": [{"keystrokes": "make test\n", "duration": 1.0}]})
    streamed = stream(sse(*((None, chunk(content=text[at : at + 5])) for at in range(0, len(text), 5))))
    answered = whole({"choices": [{"finish_reason": "stop", "message": {"content": text}}]})
    assert streamed.typed_digests == answered.typed_digests == [digest("make test\n")]
    assert streamed.tool_calls == answered.tool_calls == []
