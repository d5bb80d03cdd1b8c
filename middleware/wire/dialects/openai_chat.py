"""OpenAI Chat Completions: `POST …/chat/completions`, JSON and SSE, spoken by many servers.

In and out: see `base.py`.  A stream is complete at `[DONE]` or at a finish_reason (some servers leave `[DONE]` out);
usage comes in one more chunk with `choices: []`, or with the last one, and never for a client that did not ask for it.
An error object in any chunk of a 200 is an error.  Tool calls are told apart by id, then by index, then by order,
because servers leave either out.  `prompt_tokens` includes cached tokens here, and is kept as the API says it.  vLLM's
own times (`metrics`) are kept beside ours; with `continuous_usage_stats` usage is on every chunk, and the last wins.

**Source:** reference page model-api.md section 1.2; OpenAI API reference "chat/streaming".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import base, calls
from fairtrial.middleware.wire.dialects.base import JsonReply, ReplyReader, SseReply
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import ReplyText, TextDigest
from fairtrial.middleware.wire.http1 import RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest

_CHAT_PATH: Final = "/chat/completions"


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Spoken(msgspec.Struct):
    content: object = None
    reasoning_content: object = None
    reasoning: object = None
    refusal: object = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Spoken | None = None
    message: _Spoken | None = None
    finish_reason: str | None = None


class _Metrics(msgspec.Struct):
    time_to_first_token_ms: float | None = None
    queue_time_ms: float | None = None


class _Chunk(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    metrics: msgspec.Raw = msgspec.Raw()
    error: object = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_METRICS: Final = msgspec.json.Decoder(_Metrics)


class _Said(msgspec.Struct):
    content: object = None
    tool_call_id: str | None = None


_SAID: Final = msgspec.json.Decoder(_Said)


class OpenAIChat:
    """The dialect."""

    name = "openai_chat"
    provider = "openai"

    def claims(self, method: str, path: str) -> bool:
        """Chat completions and model lists; everything else is left to `unknown`."""
        return _operation(method, path) is not None

    def read_request(self, head: RequestHead, path: str, body: bytes) -> RequestFacts:
        """Facts of the body; one that cannot be read keeps its raw digest and says why."""
        operation = _operation(head.method, path) or "other"
        if operation != "chat":
            return base.bare_facts(head, operation)
        try:
            return _facts(head, base.read_object(body), body)
        except base.UNREADABLE as error:
            return base.bare_facts(head, operation, raw_digest=digest(body), unreadable=type(error).__name__)

    def read_reply(self, head: ResponseHead, request: RequestFacts) -> ReplyReader:
        """An event stream or one JSON body, as `base.is_stream` tells."""
        tally = base.head_tally(head, "x-request-id")
        if base.is_stream(tally, head.status, request):
            return _StreamReply(tally)
        return _BodyReply(tally, status=head.status, operation=request.operation)


def _operation(method: str, path: str) -> str | None:
    if method == "POST" and path.endswith(_CHAT_PATH):
        return "chat"
    if method == "GET" and (path.endswith("/models") or "/models/" in path):
        return "models"
    return "hello" if method == "HEAD" else None


def _facts(head: RequestHead, fields: dict[str, msgspec.Raw], body: bytes) -> RequestFacts:
    messages = base.read_list(fields.get("messages"))
    roles = base.read_roles(messages)
    tools = base.read_list(fields.get("tools")) or base.read_list(fields.get("functions"))
    last = max((i for i, role in enumerate(roles) if role == "assistant"), default=-1)
    text_digest, text_chars = _text_of(_SAID.decode(messages[last]).content) if last >= 0 else (None, None)
    system = next((m for m, role in zip(messages, roles, strict=True) if role in {"system", "developer"}), None)
    limit = base.read_scalar(fields.get("max_completion_tokens")) or base.read_scalar(fields.get("max_tokens"))
    results = [_SAID.decode(m).tool_call_id for m, r in zip(messages, roles, strict=True) if r == "tool"]
    after = sum(1 for role in roles[last + 1 :] if role == "tool")
    facts: dict[str, object] = {
        "operation": "chat",
        **base.identity_fields(head),
        **base.history_facts(messages, roles),
        "model": base.as_text(base.read_scalar(fields.get("model"))),
        "stream": base.as_bool(base.read_scalar(fields.get("stream"))) or False,
        "max_tokens": base.as_int(limit),
        "has_tools": bool(tools),
        "tool_count": len(tools),
        "body_digest": base.body_digest(fields),
        "raw_digest": digest(body),
        "tools_digest": base.canonical_digest(bytes(fields["tools"])) if tools and "tools" in fields else None,
        "system_digest": None if system is None else base.canonical_digest(bytes(system)),
        "last_assistant_digest": text_digest,
        "last_assistant_chars": text_chars,
        "tool_result_ids": calls.result_ids(results[len(results) - after :]),
    }
    return RequestFacts(**facts)  # type: ignore[arg-type]  # names and types are RequestFacts' own


def _text_of(content: object) -> tuple[str | None, int | None]:
    text = TextDigest()
    for part in content if isinstance(content, list) else [content]:
        said = part.get("text") if isinstance(part, dict) else part
        if isinstance(said, str) and said:
            text.add(said)
    return text.result()


# --- replies --------------------------------------------------------------------------------------------------------


def _take_usage(tally: Tally, usage: _Usage | None) -> None:
    if usage is None:
        return
    if usage.prompt_tokens is not None:
        tally.input_tokens = usage.prompt_tokens
    if usage.completion_tokens is not None:
        tally.output_tokens = usage.completion_tokens
    details = usage.prompt_tokens_details
    if details is not None and details.cached_tokens is not None:
        tally.cache_read_tokens = details.cached_tokens
    if details is not None and details.cache_write_tokens is not None:
        tally.cache_write_tokens = details.cache_write_tokens
    tally.usage_partial = False


def _take_metrics(tally: Tally, raw: msgspec.Raw) -> None:
    """What vLLM says of its own times when asked to: another server may mean something else by the word."""
    try:
        metrics = _METRICS.decode(raw) if bytes(memoryview(raw)[:1]) == b"{" else _Metrics()
    except base.UNREADABLE:
        return
    if metrics.time_to_first_token_ms is not None:
        tally.server_first_token = round(metrics.time_to_first_token_ms / 1000, 6)
    if metrics.queue_time_ms is not None:
        tally.server_queue = round(metrics.queue_time_ms / 1000, 6)


class _BodyReply(JsonReply):
    def __init__(self, tally: Tally, *, status: int, operation: str) -> None:
        super().__init__(tally, status=status)
        self._operation = operation

    def _read(self, body: bytes) -> bool:
        if self._operation == "hello":
            return True
        reply = _CHUNK.decode(body)
        tally = self.tally
        error = reply.error
        if error is not None:
            base.note_error(tally, error, in_stream=True)
            return False
        if self._operation == "models":
            return True
        tally.model, tally.response_id = reply.model, reply.id
        _take_usage(tally, reply.usage)
        _take_metrics(tally, reply.metrics)
        text = ReplyText()
        for choice in reply.choices or []:
            tally.stop_reason = tally.stop_reason or choice.finish_reason
            if choice.message is None:
                continue
            if isinstance(choice.message.content, str):
                text.add(choice.message.content)
            for call in (choice.message.tool_calls or [])[: calls.MAX_CALLS - len(tally.tool_calls)]:
                function = call.function or _Function()
                command = base.arguments_digest(function.arguments) if function.arguments else None
                tally.tool_calls.append(calls.tool_use(call.id, function.name, command))
        text.note(tally)
        tally.started_content = bool(tally.text_chars or tally.tool_calls)
        return bool(reply.choices)


@dataclass(slots=True)
class _Calling:
    """A tool call while its arguments come in."""

    number: int
    id: str | None
    name: str | None = None


class _StreamReply(SseReply):
    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._calls: list[_Calling] = []
        self._by_id: dict[str, _Calling] = {}
        self._by_index: dict[int, _Calling] = {}
        self._arguments = calls.Arguments()

    def _event(self, event: bytes | None, data: bytes, t_ns: int) -> bool:
        tally = self.tally
        if data.startswith(b"[DONE]"):
            tally.terminator = True
            return True
        if event == b"ping":
            return False
        chunk = _CHUNK.decode(data)
        error = chunk.error
        if error is not None:
            base.note_error(tally, error, in_stream=True)
            return True
        if event == b"error":
            base.note_error(tally, None, in_stream=True)
            return True
        tally.model = tally.model or chunk.model
        tally.response_id = tally.response_id or chunk.id
        _take_usage(tally, chunk.usage)
        _take_metrics(tally, chunk.metrics)
        for choice in chunk.choices or []:
            if choice.delta is not None:
                self._delta(choice.delta, t_ns)
            if choice.finish_reason is not None:
                tally.stop_reason = choice.finish_reason
                tally.terminator = True
        return True

    def _delta(self, delta: _Spoken, t_ns: int) -> None:
        content = delta.content
        spoke = False
        if isinstance(content, str) and content:
            self._text.add(content)
            spoke = True
        elif delta.reasoning_content or delta.reasoning or delta.refusal:
            spoke = True
        for call in delta.tool_calls or []:
            spoke = self._called(call) or spoke
        if spoke:
            self.tally.started_content = True
            if self.tally.first_token_ns is None and t_ns:
                self.tally.first_token_ns = t_ns

    def _called(self, call: _ToolCall) -> bool:
        """Take a piece of a call; True when it brought something."""
        calling = self._calling(call)
        function = call.function
        if function is None:
            return False
        if calling is not None:
            calling.name = calling.name or base.as_text(function.name or None)
            if function.arguments:
                self._arguments.add(calling.number, function.arguments)
        return bool(function.name or function.arguments)

    def _calling(self, call: _ToolCall) -> _Calling | None:
        name = base.as_text(call.id) or None
        if name is not None:
            known = self._by_id.get(name)
        elif call.index is not None:
            known = self._by_index.get(call.index)
        else:
            known = self._calls[-1] if self._calls else None
        if known is not None or len(self._calls) >= calls.MAX_CALLS:
            return known
        begun = _Calling(len(self._calls), name)
        self._calls.append(begun)
        if name is not None:
            self._by_id[name] = begun
        if call.index is not None:
            self._by_index[call.index] = begun
        return begun

    def _close(self) -> None:
        tally = self.tally
        done = bool(tally.terminator)
        tally.open_tool_calls = 0 if done else len(self._calls)
        for call in self._calls:
            command = self._arguments.take(call.number)
            tally.tool_calls.append(calls.tool_use(call.id, call.name, command if done else None))
        if not done and tally.started_content:
            # vLLM counts in every chunk when asked to: what a cut stream had counted is not all.
            tally.usage_partial = True
        self._calls.clear()
        self._arguments.clear()
