"""Gemini is read from SSE, from an array sent piece by piece, and from one body; it has no end mark but its reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import base, choose
from fairtrial.middleware.wire.dialects.gemini import Gemini
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import TextDigest
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest
from tests.middleware.wire.traffic import Wire, sse

DIALECT = Gemini()
PATH = "/v1beta/models/gemini-test:streamGenerateContent"

Json = dict[str, object]

CONTENTS: list[Json] = [
    {"role": "user", "parts": [{"text": "do it"}]},
    {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True},
            {"text": "I will."},
            {"functionCall": {"name": "shell", "args": {"command": "ls"}}},
        ],
    },
    {"role": "user", "parts": [{"functionResponse": {"name": "shell", "response": {"output": "a b"}}}]},
]


def request(**changes: object) -> bytes:
    fields: Json = {
        "contents": CONTENTS,
        "systemInstruction": {"parts": [{"text": "You are a test."}]},
        "tools": [{"functionDeclarations": [{"name": "shell"}, {"name": "other"}]}, {"googleSearch": {}}],
        "generationConfig": {"maxOutputTokens": 100, "temperature": 0, "candidateCount": 1},
    }
    return json.dumps(fields | changes).encode()


def read(body: bytes, path: str = PATH) -> RequestFacts:
    return DIALECT.read_request(RequestHead("POST", path, Headers()), path, body)


def facts(**changes: object) -> RequestFacts:
    return read(request(**changes))


def part(*parts: Json, finish: str | None = None, **more: object) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-test-1", "responseId": "r1"} | more


def usage(out: int, **more: int) -> Json:
    return {"promptTokenCount": 20, "candidatesTokenCount": out, "totalTokenCount": 20 + out, **more}


CHUNKS: list[Json] = [
    part({"text": "hm", "thought": True}, usageMetadata={"promptTokenCount": 20}),
    part({"text": "Grüße, "}, usageMetadata=usage(3)),
    part({"text": 'Welt "{[\\'}, usageMetadata=usage(5)),
    part({"functionCall": {"name": "shell", "args": {"command": "make test"}}}),
    part(
        {"functionCall": {"name": "shell", "args": {"command": "ls"}}},
        finish="STOP",
        usageMetadata=usage(7, thoughtsTokenCount=4, cachedContentTokenCount=6),
    ),
]
SSE = sse(*((None, chunk) for chunk in CHUNKS))
ARRAY = json.dumps(CHUNKS, ensure_ascii=False, indent=2).encode()


def reply(body: bytes, media: str, *, status: int = 200, stream: bool = True, size: int = 1 << 20) -> Tally:
    asked = RequestFacts(operation="chat", stream=stream, assistant_turns=1)
    reader = DIALECT.read_reply(ResponseHead(status, Headers((("content-type", media),))), asked)
    for i in range(0, len(body), size):
        reader.feed(body[i : i + size], 1000 + i)
    reader.finish(whole=True)
    return reader.tally


def as_sse(body: bytes = SSE, *, size: int = 1 << 20) -> Tally:
    return reply(body, "text/event-stream", size=size)


def as_array(body: bytes = ARRAY, *, size: int = 1 << 20) -> Tally:
    return reply(body, "application/json; charset=UTF-8", size=size)


def text_digest(text: str) -> str | None:
    state = TextDigest()
    state.add(text)
    return state.result()[0]


def test_a_request_gives_its_model_from_the_path_and_counts_and_digests() -> None:
    seen = facts()
    assert (seen.operation, seen.model, seen.stream, seen.max_tokens) == ("chat", "gemini-test", True, 100)
    assert (seen.history_len, seen.assistant_turns, seen.has_tools, seen.tool_count) == (3, 1, True, 3)
    assert (seen.last_assistant_digest, seen.last_assistant_chars) == (text_digest("I will."), 7)
    assert seen.system_digest is not None
    assert read(request(), PATH.replace("streamGenerate", "generate")).stream is False
    vertex = "/v1/projects/p/locations/l/publishers/google/models/gemini-x:generateContent"
    assert read(request(), vertex).model == "gemini-x"


def test_a_result_without_an_id_is_numbered_as_its_call_was() -> None:
    first = RequestFacts(operation="chat", stream=True, assistant_turns=0)
    reader = DIALECT.read_reply(ResponseHead(200, Headers((("content-type", "text/event-stream"),))), first)
    reader.feed(SSE, 1)
    reader.finish(whole=True)
    asked = [tool.id for tool in reader.tally.tool_calls]
    results: list[Json] = [{"functionResponse": {"name": "shell", "response": {}}} for _ in range(2)]
    contents = [*CONTENTS[:2], {"role": "user", "parts": results}]
    assert facts(contents=contents).tool_result_ids == asked == ["0:shell#0", "0:shell#1"]


def test_ids_of_calls_are_kept_where_there_are_any() -> None:
    answered: Json = {"role": "user", "parts": [{"functionResponse": {"id": "x", "name": "shell", "response": {}}}]}
    assert facts(contents=[*CONTENTS[:2], answered]).tool_result_ids == ["x"]
    tally = as_sse(sse((None, part({"functionCall": {"id": "y", "name": "shell"}}, finish="STOP"))))
    assert [tool.id for tool in tally.tool_calls] == ["y"]


def test_limits_do_not_change_the_body_digest() -> None:
    same = facts().body_digest
    assert facts(generationConfig={"candidateCount": 1, "maxOutputTokens": 9}).body_digest == same
    assert facts(generationConfig={"candidateCount": 2}).body_digest != same


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"contents": 3}', b'{"contents": [3]}', b'{"contents": [{"parts": [3]}]}']
)
def test_a_body_that_is_no_request_gives_fewer_facts_and_no_exception(body: bytes) -> None:
    assert read(body).raw_digest == digest(body)
    assert read(body).model == "gemini-test"


def test_paths_decide_and_the_door_breaks_ties() -> None:
    assert choose("POST", PATH).name == "gemini"
    assert choose("GET", "/v1beta/models", "gemini").name == "gemini"
    assert choose("POST", "/v1beta/models/x:embedContent").name == "unknown"
    assert choose("POST", "/v1/projects/p/publishers/anthropic/models/c:rawPredict").name != "gemini"


def test_both_framings_of_a_stream_give_the_same_tally() -> None:
    for tally in (as_sse(), as_array()):
        assert (tally.terminator, tally.stop_reason, tally.model, tally.response_id) == (
            True,
            "STOP",
            "gemini-test-1",
            "r1",
        )
        assert (tally.input_tokens, tally.output_tokens, tally.cache_read_tokens) == (20, 11, 6)
        assert (tally.usage_partial, tally.text_digest) == (False, text_digest('Grüße, Welt "{[\\'))
        assert [tool.text_digest for tool in tally.tool_calls] == [digest("make test"), digest("ls")]
        assert (tally.events, tally.unread_frames, tally.started_content) == (5, 0, True)


@given(size=st.integers(1, 700))
def test_any_cut_gives_the_same_tally_but_for_times(size: int) -> None:
    for read_as in (as_sse, as_array):
        cut, uncut = read_as(size=size), read_as()
        cut.first_token_ns = uncut.first_token_ns
        assert cut == uncut


@pytest.mark.parametrize("count", range(len(CHUNKS)))
def test_a_stream_without_a_finish_reason_is_not_whole(count: int) -> None:
    begun = CHUNKS[:count]
    for tally in (as_sse(sse(*((None, each) for each in begun))), as_array(json.dumps(begun).encode()[:-1])):
        assert tally.terminator is False
        assert tally.usage_partial is (True if count else None)


def test_a_blocked_prompt_is_a_whole_answer() -> None:
    tally = as_sse(sse((None, {"promptFeedback": {"blockReason": "SAFETY"}})))
    assert (tally.terminator, tally.stop_reason) == (True, "SAFETY")


EXHAUSTED: Json = {
    "code": 429,
    "message": "You exceeded your current quota, please check your plan and billing details.",
    "status": "RESOURCE_EXHAUSTED",
    "details": [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": "RequestsPerMinute"}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.07s"},
    ],
}


@pytest.mark.parametrize("wrapped", [{"error": EXHAUSTED}, [{"error": EXHAUSTED}]])
def test_a_refusal_names_its_status_and_its_wait(wrapped: object) -> None:
    tally = reply(json.dumps(wrapped).encode(), "application/json", status=429)
    assert (tally.error_type, tally.retry_after, tally.error_names) == ("RESOURCE_EXHAUSTED", 34.07, [])
    assert tally.error_in_stream is False


def test_a_quota_of_the_day_is_a_quota() -> None:
    daily = EXHAUSTED | {"details": [{"violations": [{"quotaId": "RequestsPerDayPerModel"}]}, {"retryDelay": "3s"}]}
    tally = reply(json.dumps({"error": daily}).encode(), "application/json", status=429)
    assert tally.error_names == ["quota", "billing"]


def test_an_error_inside_a_stream_is_an_error() -> None:
    error: Json = {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}
    for tally in (as_sse(SSE[:200] + b"\n\n" + sse((None, error))), as_array(json.dumps([CHUNKS[0], error]).encode())):
        assert (tally.error_in_stream, tally.error_type) == (True, "UNAVAILABLE")


def test_one_body_is_read_at_its_end() -> None:
    tally = reply(json.dumps(CHUNKS[-1]).encode(), "application/json", stream=False)
    assert (tally.terminator, tally.stop_reason, tally.output_tokens, len(tally.tool_calls)) == (True, "STOP", 11, 1)
    assert reply(b"{}", "application/json", stream=False).terminator is False
    assert reply(b"<html>", "text/html").html


def test_counts_have_a_form_of_their_own() -> None:
    counted = read(b'{"generateContentRequest": {"contents": []}}', "/v1beta/models/m:countTokens")
    assert (counted.operation, counted.history_len) == ("count_tokens", 0)
    reader = DIALECT.read_reply(ResponseHead(200, Headers()), counted)
    reader.feed(b'{"totalTokens": 31}', 1)
    reader.finish(whole=True)
    assert (reader.tally.terminator, reader.tally.input_tokens) == (True, 31)


@given(junk=st.binary(max_size=200))
def test_junk_never_raises_and_completes_nothing(junk: bytes) -> None:
    assert as_sse(b"data: " + junk + b"\n\n" + junk).terminator is False
    assert as_array(b"[" + junk).terminator is False


@given(junk=st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5))
def test_values_of_any_other_type_never_raise(junk: object) -> None:
    for name in ("contents", "tools", "systemInstruction", "generationConfig"):
        facts(**{name: junk})
    for name in ("candidates", "usageMetadata", "promptFeedback", "error"):
        as_sse(sse((None, CHUNKS[-1] | {name: junk})))


def test_an_array_element_that_is_too_long_may_have_been_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairtrial.middleware.wire.jsonarray.MAX_ELEMENT_BYTES", 300)
    tally = as_array(json.dumps([CHUNKS[1], part({"text": "x" * 400}, finish="STOP")]).encode())
    assert (tally.terminator, tally.unread_frames) == (None, 1)


def test_the_tracker_tells_a_whole_and_a_cut_stream_apart() -> None:
    wire = Wire(door="model:gemini")
    for body, media in ((SSE, "text/event-stream"), (ARRAY, "application/json"), (ARRAY[:-200], "application/json")):
        wire.request(request(), path=f"{PATH}?key=secret")
        wire.head(media=media)
        wire.data(body)
        wire.end()
    assert [(each.dialect, each.outcome, each.parse) for each in wire.ended()] == [
        ("gemini", "ok", "full"),
        ("gemini", "ok", "full"),
        ("gemini", "truncated", "full"),
    ]
    assert all("secret" not in (each.path or "") for each in wire.ended())
    assert base.numbered_call(None, None, 0) == ":#0"
