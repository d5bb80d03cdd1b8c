"""Gemini: `POST …/models/{model}:generateContent`, `:streamGenerateContent`, `:countTokens`, here and at Vertex.

In and out: see `base.py`.  The model stands in the path, and so does whether a stream was asked for.  A stream is SSE
(`alt=sse`) or one JSON array sent piece by piece; neither has an end mark: it is complete when a candidate had its
`finishReason`, or the prompt was blocked, and the body then ends.  `usageMetadata` is on every chunk and the last wins;
cached tokens are included in the input, as the API says it, and thoughts are added to the output, which leaves them
out.  Calls of functions come whole; without ids of their own they are numbered by turn, name and order.

An error has its type in `status` (RESOURCE_EXHAUSTED) and the wait in a RetryInfo detail instead of a header.  A 429
with a short wait speaks of "quota" in any case: its words are only kept when a quota per day is named, or no wait.
Not read: embeddings, the Live API, batches, files, cached contents.

**Source:** reference page model-api.md section 1.3; Gemini API reference "generateContent", google.rpc.RetryInfo.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import base, calls
from fairtrial.middleware.wire.dialects.base import JsonReply, ReplyReader, SseReply
from fairtrial.middleware.wire.dialects.framed import FramedReply
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import ReplyText, TextDigest
from fairtrial.middleware.wire.http1 import RequestHead, ResponseHead
from fairtrial.middleware.wire.jsonarray import JsonArrayFramer
from fairtrial.middleware.wire.redact import digest

MAX_TOOL_CALLS: Final = 512

_PATH: Final = re.compile(
    r"/(?:models|tunedModels|endpoints)/([^/:]+):(generateContent|streamGenerateContent|countTokens)\Z"
)
_MODELS: Final = re.compile(r"/v1beta\d*/models(/[^/:]+)?\Z")
_SECONDS: Final = re.compile(r"(\d+(?:\.\d+)?)s\Z")
_LIMITS: Final = frozenset(
    {"maxOutputTokens", "max_output_tokens", "temperature", "topP", "topK", "top_p", "top_k", "seed"}
)


class _Call(msgspec.Struct):
    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw()


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _Call | None = None
    function_response: _Call | None = None


class _Content(msgspec.Struct):
    role: str | None = None
    parts: list[msgspec.Raw] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    prompt_feedback: _Feedback | None = None
    model_version: str | None = None
    response_id: str | None = None
    total_tokens: int | None = None
    error: object = None


_CONTENT: Final = msgspec.json.Decoder(_Content)
_PART: Final = msgspec.json.Decoder(_Part)
_CHUNK: Final = msgspec.json.Decoder(_Chunk)


class Gemini:
    """The dialect."""

    name = "gemini"
    provider = "gemini"

    def claims(self, method: str, path: str) -> bool:
        """Content made or counted, and the list of models under `/v1beta`."""
        if method == "GET":
            return _MODELS.search(path) is not None
        return method == "POST" and _PATH.search(path) is not None

    def read_request(self, head: RequestHead, path: str, body: bytes) -> RequestFacts:
        """Facts of path and body; a body that cannot be read keeps its raw digest and says why."""
        found = _PATH.search(path)
        if found is None:
            return base.bare_facts(head, "models")
        model, method = found.groups()
        stream = method == "streamGenerateContent"
        operation = "count_tokens" if method == "countTokens" else "chat"
        try:
            return _facts(head, operation, model, base.read_object(body), body, stream=stream)
        except base.UNREADABLE as error:
            why = type(error).__name__
            return base.bare_facts(
                head, operation, model=model[:200], stream=stream, raw_digest=digest(body), unreadable=why
            )

    def read_reply(self, head: ResponseHead, request: RequestFacts) -> ReplyReader:
        """SSE when it says so, an array when a stream was asked for, else one JSON body."""
        tally = base.head_tally(head, None)
        if head.status < 400 and tally.content_type == "text/event-stream":
            return _StreamReply(tally, request.assistant_turns)
        if head.status < 400 and request.stream and tally.content_type != "text/html":
            return _ArrayReply(tally, request.assistant_turns)
        return _BodyReply(tally, status=head.status, request=request)


# --- requests -------------------------------------------------------------------------------------------------------


def _facts(
    head: RequestHead, operation: str, model: str, fields: dict[str, msgspec.Raw], body: bytes, *, stream: bool
) -> RequestFacts:
    if "generateContentRequest" in fields:
        # countTokens may wrap a whole request.
        fields = base.read_object(bytes(fields["generateContentRequest"]))
    raws = base.read_list(fields.get("contents"))
    contents = [_CONTENT.decode(raw) for raw in raws]
    parts = [_parts(content) for content in contents]
    roles = ["assistant" if content.role == "model" else content.role or "user" for content in contents]
    tools = base.read_list(fields.get("tools"))
    last = max((i for i, role in enumerate(roles) if role == "assistant"), default=-1)
    turns = _turns(roles)
    text_digest, text_chars = _last_text(roles, parts, last)
    system = fields.get("systemInstruction", fields.get("system_instruction"))
    config = _config(fields.get("generationConfig", fields.get("generation_config")))
    limit = config.get("maxOutputTokens", config.get("max_output_tokens"))
    kept = {name: raw for name, raw in fields.items() if name not in {"generationConfig", "generation_config"}}
    settings = {name: value for name, value in config.items() if name not in _LIMITS}
    kept["generationConfig"] = msgspec.Raw(msgspec.json.encode(settings, order="deterministic"))
    facts: dict[str, object] = {
        "operation": operation,
        **base.identity_fields(head),
        **base.history_facts(raws, roles),
        "assistant_turns": turns,
        "model": model[:200],
        "stream": stream,
        "max_tokens": base.as_int(limit),
        "has_tools": bool(tools),
        "tool_count": _tool_count(tools),
        "body_digest": base.body_digest(kept),
        "raw_digest": digest(body),
        "tools_digest": base.canonical_digest(bytes(fields["tools"])) if tools else None,
        "system_digest": None if system is None else base.canonical_digest(bytes(system)),
        "last_assistant_digest": text_digest,
        "last_assistant_chars": text_chars,
        "tool_result_ids": _result_ids(turns, parts[last + 1 :]),
    }
    return RequestFacts(**facts)  # type: ignore[arg-type]  # names and types are RequestFacts' own


def _parts(content: _Content) -> list[_Part]:
    parts: list[_Part] = []
    for raw in content.parts or []:
        try:
            parts.append(_PART.decode(raw))
        except base.UNREADABLE:
            continue
    return parts


def _turns(roles: Sequence[str]) -> int:
    """Runs of the model's contents: clients may store a streamed turn as several."""
    return sum(role == "assistant" and (i == 0 or roles[i - 1] != "assistant") for i, role in enumerate(roles))


def _last_text(roles: Sequence[str], parts: Sequence[list[_Part]], last: int) -> tuple[str | None, int | None]:
    first = last
    while first > 0 and roles[first - 1] == "assistant":
        first -= 1
    text = TextDigest()
    for each in parts[max(0, first) : last + 1]:
        for part in each:
            if part.text and not part.thought:
                text.add(part.text)
    return text.result()


def _config(raw: msgspec.Raw | None) -> dict[str, object]:
    value: object = None if raw is None else msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {}


def _tool_count(tools: Sequence[msgspec.Raw]) -> int:
    """Functions, each declared in some entry; other entries (search, code) count as one."""
    count = 0
    for raw in tools:
        value: object = msgspec.json.decode(raw)
        declared = None
        if isinstance(value, dict):
            declared = value.get("functionDeclarations", value.get("function_declarations"))
        count += len(declared) if isinstance(declared, list) else 1
    return count


def _result_ids(turns: int, contents: Sequence[list[_Part]]) -> list[str]:
    numbering = calls.Numbering(turns - 1)
    results = [part.function_response for parts in contents for part in parts if part.function_response is not None]
    numbers = [numbering.next(result.name) for result in results]
    return calls.result_ids(result.id or number for result, number in zip(results, numbers, strict=True))


# --- replies --------------------------------------------------------------------------------------------------------


def note_error(tally: Tally, error: object, *, in_stream: bool) -> None:
    """Keep the status name, the recognised words, and the wait that a RetryInfo asks for."""
    fields = error if isinstance(error, dict) else {}
    details = fields.get("details")
    wait_s, per_day = None, False
    for detail in details if isinstance(details, list) else []:
        if not isinstance(detail, dict):
            continue
        delay = detail.get("retryDelay")
        found = _SECONDS.match(delay[:32]) if isinstance(delay, str) else None
        wait_s = float(found[1]) if found is not None else wait_s
        violations = detail.get("violations")
        for violation in violations if isinstance(violations, list) else []:
            name = violation.get("quotaId") if isinstance(violation, dict) else None
            per_day = per_day or (isinstance(name, str) and "PerDay" in name)
    if tally.retry_after is None:
        tally.retry_after = wait_s
    message = fields.get("message") if fields else error
    if wait_s is not None and not per_day:
        message = None
    base.note_error(tally, {"type": fields.get("status"), "message": message}, in_stream=in_stream)


class _Reading:
    """What one reply says, chunk by chunk, whatever its framing."""

    def __init__(self, tally: Tally, text: TextDigest, turn: int | None) -> None:
        self._tally = tally
        self._text = text
        self._numbering = calls.Numbering(turn)

    def take(self, data: bytes) -> bool:
        """Read one chunk; True when it held content.  May raise `msgspec.DecodeError`."""
        chunk = _CHUNK.decode(data)
        tally = self._tally
        error = chunk.error
        if error is not None:
            note_error(tally, error, in_stream=True)
            return False
        tally.model = chunk.model_version or tally.model
        tally.response_id = chunk.response_id or tally.response_id
        self._usage(chunk.usage_metadata)
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason is not None:
            tally.stop_reason = chunk.prompt_feedback.block_reason
            tally.terminator = True
        spoke = False
        for candidate in chunk.candidates or []:
            if candidate.content is not None:
                for part in _parts(candidate.content):
                    spoke = self._part(part) or spoke
            if candidate.finish_reason is not None:
                tally.stop_reason = candidate.finish_reason
                tally.terminator = True
        return spoke

    def close(self) -> None:
        """The body is over."""
        if not self._tally.terminator and self._tally.started_content:
            self._tally.usage_partial = True

    def _usage(self, usage: _Usage | None) -> None:
        if usage is None:
            return
        tally = self._tally
        if usage.prompt_token_count is not None:
            tally.input_tokens = usage.prompt_token_count + (usage.tool_use_prompt_token_count or 0)
        if usage.candidates_token_count is not None or usage.thoughts_token_count is not None:
            tally.output_tokens = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        if usage.cached_content_token_count is not None:
            tally.cache_read_tokens = usage.cached_content_token_count
        tally.usage_partial = tally.output_tokens is None

    def _part(self, part: _Part) -> bool:
        if part.function_call is not None:
            call = part.function_call
            number = self._numbering.next(call.name)
            if len(self._tally.tool_calls) < MAX_TOOL_CALLS:
                command = base.arguments_digest(bytes(call.args))
                self._tally.tool_calls.append(calls.tool_use(call.id or number, call.name, command))
            return True
        if part.text and not part.thought:
            self._text.add(part.text)
        return bool(part.text)


class _BodyReply(JsonReply):
    def __init__(self, tally: Tally, *, status: int, request: RequestFacts) -> None:
        super().__init__(tally, status=status)
        self._operation = request.operation
        self._turn = request.assistant_turns

    def _read(self, body: bytes) -> bool:
        tally = self.tally
        if self._operation != "chat":
            chunk = _CHUNK.decode(body)
            error = chunk.error
            if error is not None:
                note_error(tally, error, in_stream=True)
                return False
            tally.input_tokens = chunk.total_tokens
            return self._operation == "models" or chunk.total_tokens is not None
        text = ReplyText()
        tally.started_content = _Reading(tally, text, self._turn).take(body)
        text.note(tally)
        return bool(tally.terminator or tally.started_content)

    def _read_error(self, body: bytes) -> None:
        try:
            value: object = msgspec.json.decode(body[: base.MAX_ARGUMENT_BYTES])
        except base.UNREADABLE:
            return
        # A refused stream without `alt=sse` is an array of one error.
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, dict):
            note_error(self.tally, value.get("error", value), in_stream=False)


class _StreamReply(SseReply):
    def __init__(self, tally: Tally, turn: int | None) -> None:
        super().__init__(tally)
        self._reading = _Reading(tally, self._text, turn)

    def _event(self, event: bytes | None, data: bytes, t_ns: int) -> bool:  # noqa: ARG002 - Gemini names no events
        if self._reading.take(data):
            self.tally.started_content = True
            if self.tally.first_token_ns is None and t_ns:
                self.tally.first_token_ns = t_ns
        return True

    def _close(self) -> None:
        tally = self.tally
        if not tally.terminator and not tally.error_in_stream and self._framer.skipped:
            tally.terminator = None
        self._reading.close()


class _ArrayReply(FramedReply):
    def __init__(self, tally: Tally, turn: int | None) -> None:
        super().__init__(tally, JsonArrayFramer())
        self._reading = _Reading(tally, self._text, turn)

    def _value(self, value: bytes, t_ns: int) -> None:
        if self._reading.take(value):
            self._spoke(t_ns)

    def _close(self) -> None:
        self._reading.close()
