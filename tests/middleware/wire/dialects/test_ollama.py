"""Ollama is read line by line; `done: true` is its end mark."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import choose
from fairtrial.middleware.wire.dialects.ollama import Ollama
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import TextDigest
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest
from tests.middleware.wire.traffic import Wire

DIALECT = Ollama()
PATH = "/api/chat"

Json = dict[str, object]

MESSAGES: list[Json] = [
    {"role": "system", "content": "You are a test."},
    {"role": "user", "content": "do it"},
    {
        "role": "assistant",
        "content": "I will.",
        "tool_calls": [{"function": {"name": "shell", "arguments": {"command": "ls"}}}],
    },
    {"role": "tool", "tool_name": "shell", "content": "a b"},
]


def request(**changes: object) -> bytes:
    fields: Json = {
        "model": "llama-test",
        "messages": MESSAGES,
        "tools": [{"type": "function", "function": {"name": "shell"}}],
        "options": {"num_predict": 100},
    }
    return json.dumps(fields | changes).encode()


def read(body: bytes, path: str = PATH) -> RequestFacts:
    return DIALECT.read_request(RequestHead("POST", path, Headers()), path, body)


def line(content: str = "", **more: object) -> Json:
    return {"model": "llama-test", "message": {"role": "assistant", "content": content}, "done": False} | more


CALLS: Json = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"function": {"name": "shell", "arguments": {"command": "make test"}}},
        {"id": "call_2", "function": {"name": "shell", "arguments": {"command": "ls"}}},
    ],
}
LINES: list[Json] = [
    line("Grüße, "),
    line("Welt.\u0085"),
    line(message=CALLS),
    line(done=True, done_reason="stop", prompt_eval_count=20, eval_count=7, total_duration=5),
]
BODY = b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in LINES)


def reply(
    body: bytes, media: str = "application/x-ndjson", *, status: int = 200, stream: bool = True, size: int = 1 << 20
) -> Tally:
    asked = RequestFacts(operation="chat", stream=stream, assistant_turns=1)
    reader = DIALECT.read_reply(ResponseHead(status, Headers((("content-type", media),))), asked)
    for i in range(0, len(body), size):
        reader.feed(body[i : i + size], 1000 + i)
    reader.finish(whole=True)
    return reader.tally


def text_digest(text: str) -> str | None:
    state = TextDigest()
    state.add(text)
    return state.result()[0]


def test_a_request_gives_counts_and_digests_and_streams_unless_it_says_no() -> None:
    seen = read(request())
    assert (seen.operation, seen.model, seen.stream, seen.max_tokens) == ("chat", "llama-test", True, 100)
    assert (seen.history_len, seen.assistant_turns, seen.has_tools, seen.tool_count) == (4, 1, True, 1)
    assert (seen.tool_result_ids, seen.last_assistant_digest) == (["0:shell#0"], text_digest("I will."))
    assert seen.system_digest is not None
    assert read(request(stream=False)).stream is False


def test_a_result_that_names_nothing_stands_in_the_order_of_the_calls() -> None:
    two = MESSAGES[2] | {"tool_calls": [{"function": {"name": "a"}}, {"function": {"name": "b"}}]}
    bare: Json = {"role": "tool", "content": ""}
    seen = read(request(messages=[*MESSAGES[:2], two, bare, bare, bare]))
    assert seen.tool_result_ids == ["0:a#0", "0:b#0", "0:#0"]
    named = bare | {"tool_call_id": "call_9"}
    assert read(request(messages=[*MESSAGES[:3], named])).tool_result_ids == ["call_9"]


def test_a_generation_is_a_chat_of_one_message() -> None:
    body = json.dumps({"model": "m", "prompt": "do it", "system": "s"}).encode()
    seen = read(body, "/api/generate")
    assert (seen.operation, seen.history_len, seen.assistant_turns) == ("chat", 1, 0)
    assert seen.first_user_digest is not None
    encoded = json.dumps({"model": "m", "prompt": "do it", "context": [1, 2]}).encode()
    assert read(encoded, "/api/generate").history_len is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": 3}', b'{"messages": [3]}', b'{"options": []}'])
def test_a_body_that_is_no_request_gives_fewer_facts_and_no_exception(body: bytes) -> None:
    assert read(body).raw_digest == digest(body)


def test_paths_decide() -> None:
    assert choose("POST", "/api/generate").name == "ollama"
    assert choose("GET", "/api/tags").name == "ollama"
    assert choose("POST", "/api/embed").name == "unknown"


def test_a_whole_stream_gives_usage_stop_reason_text_and_tools() -> None:
    tally = reply(BODY)
    assert (tally.terminator, tally.stop_reason, tally.model) == (True, "stop", "llama-test")
    assert (tally.input_tokens, tally.output_tokens, tally.usage_partial) == (20, 7, False)
    assert tally.text_digest == text_digest("Grüße, Welt.")
    assert [(tool.id, tool.text_digest) for tool in tally.tool_calls] == [
        ("1:shell#0", digest("make test")),
        ("call_2", digest("ls")),
    ]
    assert (tally.events, tally.unread_frames) == (4, 0)


@given(size=st.integers(1, 500))
def test_any_cut_gives_the_same_tally_but_for_times(size: int) -> None:
    cut, uncut = reply(BODY, size=size), reply(BODY)
    cut.first_token_ns = uncut.first_token_ns
    assert cut == uncut


@given(end=st.integers(0, len(BODY)))
def test_a_stream_cut_anywhere_before_its_last_line_is_not_whole(end: int) -> None:
    assert reply(BODY[:end]).terminator is (end >= len(BODY) - 1)


def test_a_cut_stream_has_partial_usage() -> None:
    assert reply(BODY[: BODY.index(b"\n") + 1]).usage_partial is True


def test_an_error_line_is_an_error_inside_a_200() -> None:
    tally = reply(BODY[: BODY.index(b"\n") + 1] + b'{"error": "model runner has unexpectedly stopped"}\n')
    assert (tally.error_in_stream, tally.error_type, tally.terminator) == (True, "error", False)


def test_one_body_is_read_at_its_end() -> None:
    last = LINES[-1] | {"message": {"role": "assistant", "content": "all"}}
    tally = reply(json.dumps(last).encode(), "application/json", stream=False)
    assert (tally.terminator, tally.output_tokens, tally.text_chars) == (True, 7, 3)
    generated = {"response": "all", "thinking": "hm", "done": True, "done_reason": "length"}
    assert reply(json.dumps(generated).encode(), "application/json", stream=False).stop_reason == "length"
    assert reply(b"{}", "application/json", stream=False).terminator is False
    missing = reply(b'{"error": "model \'x\' not found"}', "application/json", status=404)
    assert (missing.error_type, missing.error_in_stream) == ("error", False)


@given(junk=st.binary(max_size=200))
def test_junk_never_raises_and_completes_nothing(junk: bytes) -> None:
    assert reply(junk + b"\n" + junk).terminator is False


@given(junk=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_values_of_any_other_type_never_raise(junk: object) -> None:
    for name in ("messages", "tools", "options", "system", "stream", "model"):
        read(request(**{name: junk}))
    for name in ("message", "done", "done_reason", "eval_count", "error"):
        reply(json.dumps(LINES[-1] | {name: junk}).encode())


def test_the_tracker_tells_a_whole_and_a_cut_stream_apart() -> None:
    wire = Wire(door="model:ollama")
    for body in (BODY, BODY[:-30]):
        wire.request(request(), path=PATH)
        wire.head(media="application/x-ndjson")
        wire.data(body)
        wire.end()
    assert [(each.dialect, each.outcome) for each in wire.ended()] == [("ollama", "ok"), ("ollama", "truncated")]
