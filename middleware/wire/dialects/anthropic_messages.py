"""Anthropic Messages: `POST /v1/messages`, JSON and SSE, with its side paths.

In and out: see `base.py`.  The base path of an upstream may stand before `/v1/…`, so paths are matched at their end.
Usage: `message_start` holds input and cache tokens (its output count is a placeholder and is not taken),
`message_delta` holds cumulative counts that may restate the input; each field's last non-null value wins.
`input_tokens` is as the API says it, without cached tokens.  Server-side tools are no tool calls of the agent.  A
`fallback` block (no deltas) marks where a model declined and another one goes on at the server: the reply is then the
second one's, and the first one's tool calls are nobody's.  Thinking counts as content, a `signature_delta` alone not.

**Source:** reference page model-api.md section 1.1; Anthropic API reference "streaming" and "errors".
"""

from __future__ import annotations

from typing import Final

import msgspec

from fairtrial.middleware.core.observations import RequestFacts, ToolUse
from fairtrial.middleware.wire.dialects import base, calls
from fairtrial.middleware.wire.dialects.base import JsonReply, ReplyReader, SseReply
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import ReplyText, TextDigest
from fairtrial.middleware.wire.http1 import RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest

_CHAT_PATH: Final = "/v1/messages"
_COUNT_PATH: Final = "/v1/messages/count_tokens"
_HELLO_PATHS: Final = ("/api/hello",)


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Model(msgspec.Struct):
    model: str | None = None


class _Block(msgspec.Struct, rename={"from_": "from"}):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    from_: _Model | None = None
    to: _Model | None = None


class _Message(msgspec.Struct):
    type: str | None = None
    id: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    content: list[_Block] = []
    usage: _Usage | None = None
    error: object = None
    input_tokens: int | None = None


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: object = None


_EVENT: Final = msgspec.json.Decoder(_Event)
_MESSAGE: Final = msgspec.json.Decoder(_Message)


class _Content(msgspec.Struct):
    content: str | list[msgspec.Raw] | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None
    tool_use_id: str | None = None


_CONTENT: Final = msgspec.json.Decoder(_Content)
_PART: Final = msgspec.json.Decoder(_Part)


class AnthropicMessages:
    """The dialect."""

    name = "anthropic_messages"
    provider = "anthropic"

    def claims(self, method: str, path: str) -> bool:
        """Messages, count_tokens, models, greetings; batches and files are left to `unknown`."""
        return _operation(method, path) is not None

    def read_request(self, head: RequestHead, path: str, body: bytes) -> RequestFacts:
        """Facts of the body; one that cannot be read keeps its raw digest and says why."""
        operation = _operation(head.method, path) or "other"
        if operation not in {"chat", "count_tokens"}:
            return base.bare_facts(head, operation)
        try:
            fields = base.read_object(body)
            return _facts(head, operation, fields, body)
        except base.UNREADABLE as error:
            return base.bare_facts(head, operation, raw_digest=digest(body), unreadable=type(error).__name__)

    def read_reply(self, head: ResponseHead, request: RequestFacts) -> ReplyReader:
        """An event stream or one JSON body, as `base.is_stream` tells."""
        tally = base.head_tally(head, "request-id")
        if base.is_stream(tally, head.status, request):
            return _StreamReply(tally)
        return _BodyReply(tally, status=head.status, operation=request.operation)


def _operation(method: str, path: str) -> str | None:
    if method == "POST":
        if path.endswith(_CHAT_PATH):
            return "chat"
        if path.endswith(_COUNT_PATH):
            return "count_tokens"
        return None
    if method == "HEAD" or path.endswith(_HELLO_PATHS):
        return "hello"
    if method == "GET" and (path.endswith("/v1/models") or "/v1/models/" in path):
        return "models"
    return None


def _facts(head: RequestHead, operation: str, fields: dict[str, msgspec.Raw], body: bytes) -> RequestFacts:
    messages = base.read_list(fields.get("messages"))
    roles = base.read_roles(messages)
    tools = base.read_list(fields.get("tools"))
    last = max((i for i, role in enumerate(roles) if role == "assistant"), default=-1)
    text_digest, text_chars = _text_of(messages[last]) if last >= 0 else (None, None)
    system = fields.get("system")
    facts: dict[str, object] = {
        "operation": operation,
        **base.identity_fields(head),
        **base.history_facts(messages, roles),
        "model": base.as_text(base.read_scalar(fields.get("model"))),
        "stream": base.as_bool(base.read_scalar(fields.get("stream"))) or False,
        "max_tokens": base.as_int(base.read_scalar(fields.get("max_tokens"))),
        "has_tools": bool(tools),
        "tool_count": len(tools),
        "body_digest": base.body_digest(fields),
        "raw_digest": digest(body),
        "tools_digest": base.canonical_digest(bytes(fields["tools"])) if tools else None,
        "system_digest": None if system is None else base.canonical_digest(bytes(system)),
        "last_assistant_digest": text_digest,
        "last_assistant_chars": text_chars,
        "tool_result_ids": calls.result_ids(i for message in messages[last + 1 :] for i in _result_ids(message)),
    }
    if facts["session"] is None:
        facts["session_kind"], facts["session"] = _body_session(fields.get("metadata"))
    return RequestFacts(**facts)  # type: ignore[arg-type]  # names and types are RequestFacts' own


def _parts(message: msgspec.Raw) -> list[_Part]:
    content = _CONTENT.decode(message).content
    if isinstance(content, str):
        return [_Part(type="text", text=content)]
    parts: list[_Part] = []
    for raw in content or []:
        try:
            parts.append(_PART.decode(raw))
        except base.UNREADABLE:
            continue
    return parts


def _text_of(message: msgspec.Raw) -> tuple[str | None, int | None]:
    text = TextDigest()
    for part in _parts(message):
        if part.type == "text" and part.text:
            text.add(part.text)
    return text.result()


def _result_ids(message: msgspec.Raw) -> list[str]:
    return [part.tool_use_id for part in _parts(message) if part.type == "tool_result" and part.tool_use_id]


def _body_session(metadata: msgspec.Raw | None) -> tuple[str | None, str | None]:
    """The session that Claude Code writes into `metadata.user_id`: a JSON string, in older builds `…_session_<id>`."""
    if metadata is None:
        return None, None
    value: object = msgspec.json.decode(metadata)
    user = value.get("user_id") if isinstance(value, dict) else None
    if not isinstance(user, str):
        return None, None
    if user.startswith("{"):
        try:
            inner: object = msgspec.json.decode(user)
        except base.UNREADABLE:
            return None, None
        session = inner.get("session_id") if isinstance(inner, dict) else None
    else:
        session = user.rpartition("_session_")[2] if "_session_" in user else None
    return ("metadata.user_id", digest(session)) if isinstance(session, str) and session else (None, None)


# --- replies --------------------------------------------------------------------------------------------------------


def _take_usage(tally: Tally, usage: _Usage | None, *, final: bool) -> None:
    if usage is None:
        return
    if usage.input_tokens is not None:
        tally.input_tokens = usage.input_tokens
    if usage.cache_read_input_tokens is not None:
        tally.cache_read_tokens = usage.cache_read_input_tokens
    if usage.cache_creation_input_tokens is not None:
        tally.cache_write_tokens = usage.cache_creation_input_tokens
    if final and usage.output_tokens is not None:
        tally.output_tokens = usage.output_tokens
    tally.usage_partial = tally.output_tokens is None


def _hand_over(tally: Tally, block: _Block) -> None:
    """A model declined and another goes on at the server: what the first one asked of tools is not carried out."""
    tally.declined_model = base.as_text(block.from_.model if block.from_ is not None else None) or "unknown"
    tally.model = (block.to.model if block.to is not None else None) or tally.model
    tally.tool_calls.clear()


class _BodyReply(JsonReply):
    def __init__(self, tally: Tally, *, status: int, operation: str) -> None:
        super().__init__(tally, status=status)
        self._operation = operation

    def _read(self, body: bytes) -> bool:
        if self._operation == "hello":
            return True
        message = _MESSAGE.decode(body)
        tally = self.tally
        error = message.error
        if error is not None or message.type == "error":
            base.note_error(tally, error, in_stream=True)
            return False
        if self._operation == "count_tokens":
            tally.input_tokens = message.input_tokens
            return message.input_tokens is not None
        if self._operation == "models":
            return True
        if message.type != "message" and message.usage is None:
            return False
        tally.model, tally.response_id, tally.stop_reason = message.model, message.id, message.stop_reason
        _take_usage(tally, message.usage, final=True)
        text = ReplyText()
        for block in message.content:
            if block.type == "text" and block.text:
                text.add(block.text)
            elif block.type == "tool_use":
                if len(tally.tool_calls) < calls.MAX_CALLS:
                    command = base.arguments_digest(bytes(block.input))
                    tally.tool_calls.append(calls.tool_use(block.id, block.name, command))
            elif block.type == "fallback":
                _hand_over(tally, block)
        text.note(tally)
        tally.started_content = bool(message.content)
        return True


class _StreamReply(SseReply):
    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._arguments = calls.Arguments()
        self._tools: dict[int, ToolUse] = {}

    def _event(self, event: bytes | None, data: bytes, t_ns: int) -> bool:
        if event == b"ping":
            return False
        said = _EVENT.decode(data)
        tally = self.tally
        match said.type:
            case "content_block_delta":
                if said.delta is not None:
                    self._delta(said.index or 0, said.delta, t_ns)
            case "ping":
                return False
            case "message_start":
                if said.message is not None:
                    tally.model, tally.response_id = said.message.model, said.message.id
                    _take_usage(tally, said.message.usage, final=False)
            case "content_block_start":
                if said.content_block is not None:
                    self._start(said.index or 0, said.content_block, t_ns)
            case "content_block_stop":
                self._stop(said.index or 0)
            case "message_delta":
                if said.delta is not None and said.delta.stop_reason is not None:
                    tally.stop_reason = said.delta.stop_reason
                    tally.terminator = True
                _take_usage(tally, said.usage, final=True)
            case "message_stop":
                tally.terminator = True
            case "error":
                base.note_error(tally, said.error, in_stream=True)
            case _:
                # The list of events is open by contract.
                pass
        return True

    def _start(self, index: int, block: _Block, t_ns: int) -> None:
        if block.type == "tool_use":
            self._content(t_ns)
            if len(self._tools) + len(self.tally.tool_calls) < calls.MAX_CALLS:
                self._tools[index] = calls.tool_use(block.id, block.name)
        elif block.type == "fallback":
            self._tools.clear()
            self._arguments.clear()
            _hand_over(self.tally, block)

    def _content(self, t_ns: int) -> None:
        self.tally.started_content = True
        if self.tally.first_token_ns is None and t_ns:
            self.tally.first_token_ns = t_ns

    def _delta(self, index: int, delta: _Delta, t_ns: int) -> None:
        if delta.text:
            self._content(t_ns)
            self._text.add(delta.text)
        elif delta.partial_json:
            self._content(t_ns)
            self._arguments.add(index, delta.partial_json)
        elif delta.thinking:
            self._content(t_ns)

    def _stop(self, index: int) -> None:
        use = self._tools.pop(index, None)
        command = self._arguments.take(index)
        if use is not None:
            self.tally.tool_calls.append(msgspec.structs.replace(use, text_digest=command))

    def _close(self) -> None:
        self.tally.open_tool_calls = len(self._tools)
        self.tally.tool_calls += [self._tools[index] for index in sorted(self._tools)]
        self._tools.clear()
        self._arguments.clear()
