"""One scripted call in each family of routes: what the client asks, what the server streams, and how it may fail.

The pieces of a stream are what a server sends in one write each.  A stream cut behind `cut` pieces has spoken and has
not ended; what usage it had told by then, and what it tells when whole, is given beside it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from typing import Final

from tests.middleware.wire.awsmessages import event, exception
from tests.middleware.wire.traffic import ANTHROPIC_STREAM, OPENAI_STREAM, anthropic_request, openai_request, sse, typed

Json = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Family:
    """One route of one API.  Token counts are (input, output); None: not told yet."""

    name: str
    dialect: str
    path: str
    body: bytes
    media: str
    pieces: tuple[bytes, ...]
    cut: int
    usage: tuple[int, int]
    usage_at_cut: tuple[int | None, int | None]
    error: bytes
    error_type: str
    unary_path: str
    unary_body: bytes
    unary: bytes


def dumped(value: object) -> bytes:
    """A value as JSON."""
    return json.dumps(value, ensure_ascii=False).encode()


def _frames(stream: bytes) -> tuple[bytes, ...]:
    return tuple(part + b"\n\n" for part in stream.split(b"\n\n") if part)


def _data(value: object) -> bytes:
    return b"data: " + dumped(value) + b"\n\n"


_ANTHROPIC_BODY: Final[Json] = {
    "type": "message",
    "id": "msg_1",
    "model": "claude-test-1",
    "content": [{"type": "text", "text": "Grüße"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 11, "output_tokens": 42},
}
_ANTHROPIC_ERROR: Final = sse(*typed({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}))

MESSAGES: Final = Family(
    name="messages",
    dialect="anthropic_messages",
    path="/v1/messages?beta=true",
    body=anthropic_request(),
    media="text/event-stream; charset=utf-8",
    pieces=_frames(ANTHROPIC_STREAM),
    cut=5,
    usage=(11, 42),
    usage_at_cut=(11, None),
    error=_ANTHROPIC_ERROR,
    error_type="overloaded_error",
    unary_path="/v1/messages",
    unary_body=anthropic_request(stream=False),
    unary=dumped(_ANTHROPIC_BODY),
)

CHAT: Final = Family(
    name="chat",
    dialect="openai_chat",
    path="/v1/chat/completions",
    body=openai_request(),
    media="text/event-stream",
    pieces=_frames(OPENAI_STREAM),
    cut=3,
    usage=(20, 7),
    usage_at_cut=(None, None),
    error=_data({"error": {"type": "server_error", "message": "The server had an error", "code": None}}),
    error_type="server_error",
    unary_path="/v1/chat/completions",
    unary_body=openai_request(stream=False),
    unary=dumped(
        {
            "id": "c1",
            "model": "gpt-test-1",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Grüße"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 7},
        }
    ),
)

_RESPONSE: Final[Json] = {
    "id": "resp_1",
    "object": "response",
    "model": "gpt-test-1",
    "status": "completed",
    "error": None,
    "output": [
        {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Grüße"}]}
    ],
    "usage": {"input_tokens": 20, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 4}},
}
_RESPONSES_ASKED: Final[Json] = {"model": "gpt-test", "input": "do it", "tools": [{"type": "function", "name": "sh"}]}


def response_event(kind: str, **more: object) -> bytes:
    """One event of the Responses API that carries the response so far."""
    status = kind.removeprefix("response.").replace("created", "in_progress")
    return sse(*typed({"type": kind, "response": _RESPONSE | {"status": status} | more}))


RESPONSES: Final = Family(
    name="responses",
    dialect="openai_responses",
    path="/v1/responses",
    body=dumped(_RESPONSES_ASKED | {"stream": True}),
    media="text/event-stream",
    pieces=(
        response_event("response.created", output=[], usage=None),
        *(
            sse(*typed({"type": "response.output_text.delta", "output_index": 0, "delta": text}))
            for text in ("Grü", "ße")
        ),
        response_event("response.completed"),
    ),
    cut=2,
    usage=(20, 7),
    usage_at_cut=(None, None),
    error=response_event(
        "response.failed", output=[], usage=None, error={"code": "server_error", "message": "An error occurred"}
    ),
    error_type="server_error",
    unary_path="/v1/responses",
    unary_body=dumped(_RESPONSES_ASKED),
    unary=dumped(_RESPONSE),
)

_GEMINI_ASKED: Final = dumped({"contents": [{"role": "user", "parts": [{"text": "do it"}]}]})
_GEMINI: Final[tuple[Json, ...]] = (
    {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Grü"}]}}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 2},
    },
    {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "ße"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 7},
    },
)
_GEMINI_ERROR: Final[Json] = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
_GEMINI_UNARY: Final = dumped(
    {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "Grüße"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 7},
    }
)

GEMINI: Final = Family(
    name="gemini",
    dialect="gemini",
    path="/v1beta/models/gemini-test:streamGenerateContent?alt=sse",
    body=_GEMINI_ASKED,
    media="text/event-stream",
    pieces=tuple(_data(chunk) for chunk in _GEMINI),
    cut=1,
    usage=(20, 7),
    usage_at_cut=(20, 2),
    error=_data(_GEMINI_ERROR),
    error_type="UNAVAILABLE",
    unary_path="/v1beta/models/gemini-test:generateContent",
    unary_body=_GEMINI_ASKED,
    unary=_GEMINI_UNARY,
)

GEMINI_ARRAY: Final = Family(
    name="gemini_array",
    dialect="gemini",
    path="/v1beta/models/gemini-test:streamGenerateContent",
    body=_GEMINI_ASKED,
    media="application/json; charset=UTF-8",
    pieces=(b"[" + dumped(_GEMINI[0]), b",\r\n" + dumped(_GEMINI[1]), b"]"),
    cut=1,
    usage=(20, 7),
    usage_at_cut=(20, 2),
    error=b",\r\n" + dumped(_GEMINI_ERROR),
    error_type="UNAVAILABLE",
    unary_path="/v1beta/models/gemini-test:generateContent",
    unary_body=_GEMINI_ASKED,
    unary=_GEMINI_UNARY,
)

_OLLAMA_ASKED: Final[Json] = {"model": "llama-test", "messages": [{"role": "user", "content": "do it"}]}
_OLLAMA_DONE: Final[Json] = {"done": True, "done_reason": "stop", "prompt_eval_count": 20, "eval_count": 7}


def _ollama(text: str, **more: object) -> bytes:
    said: Json = {"model": "llama-test", "message": {"role": "assistant", "content": text}, "done": False}
    return dumped(said | more) + b"\n"


OLLAMA: Final = Family(
    name="ollama",
    dialect="ollama",
    path="/api/chat",
    body=dumped(_OLLAMA_ASKED),
    media="application/x-ndjson",
    pieces=(_ollama("Grü"), _ollama("ße"), _ollama("", **_OLLAMA_DONE)),
    cut=2,
    usage=(20, 7),
    usage_at_cut=(None, None),
    error=dumped({"error": "an error was encountered while running the model"}) + b"\n",
    error_type="error",
    unary_path="/api/chat",
    unary_body=dumped(_OLLAMA_ASKED | {"stream": False}),
    unary=_ollama("Grüße", **_OLLAMA_DONE),
)


def _said(kind: str, **payload: object) -> bytes:
    return event(kind, dumped(payload))


_BEDROCK_ASKED: Final = dumped({"messages": [{"role": "user", "content": [{"text": "do it"}]}]})
_AWS: Final = "application/vnd.amazon.eventstream"
_THROTTLED: Final = exception("throttlingException", b'{"message":"Too many requests"}')

CONVERSE: Final = Family(
    name="bedrock_converse",
    dialect="bedrock",
    path="/model/anthropic.claude-test-v1%3A0/converse-stream",
    body=_BEDROCK_ASKED,
    media=_AWS,
    pieces=(
        _said("messageStart", role="assistant"),
        _said("contentBlockDelta", contentBlockIndex=0, delta={"text": "Grüße"}),
        _said("contentBlockStop", contentBlockIndex=0),
        _said("messageStop", stopReason="end_turn"),
        _said("metadata", usage={"inputTokens": 20, "outputTokens": 7}, metrics={}),
    ),
    cut=3,
    usage=(20, 7),
    usage_at_cut=(None, None),
    error=_THROTTLED,
    error_type="throttlingException",
    unary_path="/model/anthropic.claude-test-v1%3A0/converse",
    unary_body=_BEDROCK_ASKED,
    unary=dumped(
        {
            "output": {"message": {"role": "assistant", "content": [{"text": "Grüße"}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 20, "outputTokens": 7},
        }
    ),
)

INVOKE: Final = Family(
    name="bedrock_invoke",
    dialect="bedrock",
    path="/model/anthropic.claude-test-v1%3A0/invoke-with-response-stream",
    body=anthropic_request(),
    media=_AWS,
    pieces=tuple(
        event("chunk", dumped({"bytes": b64encode(part.partition(b"data: ")[2].strip()).decode()}))
        for part in _frames(ANTHROPIC_STREAM)
        if b"ping" not in part
    ),
    cut=4,
    usage=(11, 42),
    usage_at_cut=(11, None),
    error=_THROTTLED,
    error_type="throttlingException",
    unary_path="/model/anthropic.claude-test-v1%3A0/invoke",
    unary_body=anthropic_request(stream=False),
    unary=dumped(_ANTHROPIC_BODY),
)

_VERTEX: Final = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-test@1"

VERTEX: Final = Family(
    name="vertex",
    dialect="vertex_claude",
    path=f"{_VERTEX}:streamRawPredict",
    body=anthropic_request(model=None, anthropic_version="vertex-2023-10-16"),
    media="text/event-stream",
    pieces=_frames(ANTHROPIC_STREAM),
    cut=5,
    usage=(11, 42),
    usage_at_cut=(11, None),
    error=_ANTHROPIC_ERROR,
    error_type="overloaded_error",
    unary_path=f"{_VERTEX}:rawPredict",
    unary_body=anthropic_request(model=None, stream=False, anthropic_version="vertex-2023-10-16"),
    unary=dumped(_ANTHROPIC_BODY),
)

FAMILIES: Final = (MESSAGES, CHAT, RESPONSES, GEMINI, GEMINI_ARRAY, OLLAMA, CONVERSE, INVOKE, VERTEX)
