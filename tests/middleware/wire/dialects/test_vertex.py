"""Claude at Vertex is Anthropic Messages with the model in the path and Google's refusals."""

import json

import pytest

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import choose
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.vertex import VertexClaude
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, Wire, anthropic_request

DIALECT = VertexClaude()
MODELS = "/v1/projects/p/locations/l/publishers/anthropic/models"
PATH = f"{MODELS}/claude-test@1:streamRawPredict"


def read(body: bytes, path: str = PATH) -> RequestFacts:
    return DIALECT.read_request(RequestHead("POST", path, Headers()), path, body)


def reply(body: bytes, media: str, *, status: int = 200) -> Tally:
    asked = read(anthropic_request())
    reader = DIALECT.read_reply(ResponseHead(status, Headers((("content-type", media),))), asked)
    reader.feed(body, 1000)
    reader.finish(whole=True)
    return reader.tally


def test_the_path_names_model_and_stream() -> None:
    body = anthropic_request(model=None, stream=False, anthropic_version="vertex-2023-10-16")
    seen = read(body)
    assert (seen.operation, seen.model, seen.stream) == ("chat", "claude-test@1", True)
    assert (seen.assistant_turns, seen.tool_result_ids, seen.session) == (1, ["toolu_1"], digest("s-1"))
    assert read(body, f"{MODELS}/claude-test:rawPredict").stream is False
    assert read(body, f"{MODELS}/claude-test%401%3AstreamRawPredict").model == "claude-test@1"


def test_counting_tokens_is_no_chat() -> None:
    seen = read(anthropic_request(), f"{MODELS}/count-tokens:rawPredict")
    assert (seen.operation, seen.model) == ("count_tokens", "claude-test")


def test_other_publishers_are_left_to_others() -> None:
    assert choose("POST", PATH).name == "vertex_claude"
    assert choose("POST", "/v1/projects/p/locations/l/publishers/google/models/g:generateContent").name == "gemini"
    assert choose("POST", "/v1/projects/p/locations/l/publishers/mistral/models/m:rawPredict").name == "unknown"


def test_a_stream_is_anthropics_and_needs_no_request_id() -> None:
    tally = reply(ANTHROPIC_STREAM, "text/event-stream")
    assert (tally.terminator, tally.stop_reason, tally.output_tokens) == (True, "tool_use", 42)
    assert (tally.provider_id, tally.tool_calls[0].text_digest) == (None, digest("make test"))
    assert reply(ANTHROPIC_STREAM[:900], "text/event-stream").terminator is False


@pytest.mark.parametrize(
    "body, kind, wait_s",
    [
        (
            {
                "error": {
                    "code": 429,
                    "message": "Quota exceeded",
                    "status": "RESOURCE_EXHAUSTED",
                    "details": [{"retryDelay": "7s"}],
                }
            },
            "RESOURCE_EXHAUSTED",
            7.0,
        ),
        ([{"error": {"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED"}}], "RESOURCE_EXHAUSTED", None),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, "overloaded_error", None),
    ],
)
def test_refusals_of_both_houses_are_typed(body: object, kind: str, wait_s: float | None) -> None:
    tally = reply(json.dumps(body).encode(), "application/json", status=429)
    assert (tally.error_type, tally.retry_after, tally.error_in_stream) == (kind, wait_s, False)
    assert reply(b"{", "application/json", status=500).error_type is None
    assert reply(b"<html>", "text/html", status=502).html


def test_the_tracker_tells_a_whole_and_a_cut_stream_apart() -> None:
    wire = Wire(door="model:vertex")
    for body in (ANTHROPIC_STREAM, ANTHROPIC_STREAM[:900]):
        wire.request(anthropic_request(), path=PATH)
        wire.head()
        wire.data(body)
        wire.end()
    assert [(each.dialect, each.outcome) for each in wire.ended()] == [
        ("vertex_claude", "ok"),
        ("vertex_claude", "truncated"),
    ]
