"""Amazon Bedrock runtime: `POST /model/{id}/invoke`, `…/converse`, their streams, and `…/count-tokens`.

In and out: see `base.py`.  Streams are AWS event streams (`wire/eventstream.py`) whose checksums are compared; after a
wrong one nothing more is read and nothing is said about the end.  Terminators: `messageStop` of a converse stream; for
Claude's invoke stream the `message_stop` (or stop reason) inside its chunks, read by Anthropic's dialect; for other
models' invoke streams the invocation metrics of the last chunk, and their absence says nothing, since the form of their
chunks is not known here.  An exception message in the stream is an error inside a 200.  Bedrock sends no pings: long
silence is normal.  Errors are typed by `x-amzn-errortype`, requests named by `x-amzn-requestid`.

A signature (SigV4) covers host, path, headers and body, so fairtrial never gives a Bedrock client another address;
what is read here came through a door that the user led there, or a copy whose host the client signed for.

**Source:** reference page model-api.md section 1.3; Bedrock API reference "ConverseStream", "ResponseStream".
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

import msgspec

from fairtrial.middleware.core.observations import RequestFacts, ToolUse
from fairtrial.middleware.wire.dialects import base, calls
from fairtrial.middleware.wire.dialects.anthropic_messages import AnthropicMessages
from fairtrial.middleware.wire.dialects.base import JsonReply, ReplyReader
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import ReplyText, TextDigest
from fairtrial.middleware.wire.eventstream import EventStreamFramer, Message
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest

MAX_TOOL_CALLS: Final = 512

_PATH: Final = re.compile(
    r"/model/([^/]+)/(invoke|invoke-with-response-stream|converse|converse-stream|count-tokens)\Z"
)
_MESSAGES: Final = AnthropicMessages()
_CLAUDE: Final = ("anthropic", "claude")
_JSON_HEAD: Final = ResponseHead(200, Headers((("content-type", "application/json"),)))


class _ToolUse(msgspec.Struct, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class _Block(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: _ToolUse | None = None
    tool_result: _ToolUse | None = None


class _Message(msgspec.Struct):
    role: str = ""
    content: list[msgspec.Raw] = []


class _Usage(msgspec.Struct, rename="camel"):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _Output(msgspec.Struct):
    message: _Message | None = None


class _Answer(msgspec.Struct, rename="camel"):
    output: _Output | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    input_tokens: int | None = None


class _Delta(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: object = None


class _Event(msgspec.Struct, rename="camel"):
    content_block_index: int = 0
    start: _Delta | None = None
    delta: _Delta | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Metrics(msgspec.Struct, rename="camel"):
    input_token_count: int | None = None
    output_token_count: int | None = None


class _Chunk(msgspec.Struct):
    metrics: _Metrics | None = msgspec.field(default=None, name="amazon-bedrock-invocationMetrics")


class _Wrapped(msgspec.Struct):
    bytes: str = ""


_MESSAGE: Final = msgspec.json.Decoder(_Message)
_BLOCK: Final = msgspec.json.Decoder(_Block)
_ANSWER: Final = msgspec.json.Decoder(_Answer)
_EVENT: Final = msgspec.json.Decoder(_Event)
_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_WRAPPED: Final = msgspec.json.Decoder(_Wrapped)


class Bedrock:
    """The dialect."""

    name = "bedrock"
    provider = "bedrock"

    def claims(self, method: str, path: str) -> bool:
        """Invocations, conversations and counts."""
        return method == "POST" and _PATH.search(path) is not None

    def read_request(self, head: RequestHead, path: str, body: bytes) -> RequestFacts:
        """Facts of path and body; the body of a model whose form is not known keeps its digest only."""
        found = _PATH.search(path)
        if found is None:
            return base.bare_facts(head, "other")
        model, method = unquote(found[1])[:200], found[2]
        stream = method.endswith("-stream")
        if method == "count-tokens":
            return base.bare_facts(head, "count_tokens", model=model, stream=False, raw_digest=digest(body))
        if method.startswith("invoke"):
            if _is_claude(model) or _names_version(body):
                facts = _MESSAGES.read_request(head, "/v1/messages", body)
                return msgspec.structs.replace(facts, model=model, stream=stream)
            return base.bare_facts(head, "chat", model=model, stream=stream, raw_digest=digest(body))
        try:
            return _facts(head, model, base.read_object(body), body, stream=stream)
        except base.UNREADABLE as error:
            why = type(error).__name__
            return base.bare_facts(head, "chat", model=model, stream=stream, raw_digest=digest(body), unreadable=why)

    def read_reply(self, head: ResponseHead, request: RequestFacts) -> ReplyReader:
        """An event stream when it says so, else one body."""
        tally = _head_tally(head)
        if head.status < 400 and tally.content_type == "application/vnd.amazon.eventstream":
            return _StreamReply(tally, head, request)
        kind = head.headers.get("x-amzn-errortype")
        return _BodyReply(tally, status=head.status, request=request, error_type=kind)


def _head_tally(head: ResponseHead) -> Tally:
    tally = base.head_tally(head, "x-amzn-requestid")
    tally.request_id = base.as_text(head.headers.get("x-amzn-requestid")) or tally.request_id
    return tally


def _is_claude(model: str) -> bool:
    return any(name in model for name in _CLAUDE)


def _names_version(body: bytes) -> bool:
    """Whether a body is Anthropic's by its own word, where the model is an ARN that names nobody."""
    try:
        return "anthropic_version" in base.read_object(body)
    except base.UNREADABLE:
        return False


def _speaks_messages(request: RequestFacts) -> bool:
    """Whether the chunks of an invoke reply are Anthropic's; only such bodies have a history that could be read."""
    return request.history_len is not None or _is_claude(request.model or "")


# --- requests -------------------------------------------------------------------------------------------------------


def _facts(head: RequestHead, model: str, fields: dict[str, msgspec.Raw], body: bytes, *, stream: bool) -> RequestFacts:
    raws = base.read_list(fields.get("messages"))
    messages = [_MESSAGE.decode(raw) for raw in raws]
    roles = [message.role for message in messages]
    last = max((i for i, role in enumerate(roles) if role == "assistant"), default=-1)
    text = TextDigest()
    for block in _blocks(messages[last : last + 1] if last >= 0 else []):
        if block.text:
            text.add(block.text)
    text_digest, text_chars = text.result()
    config = base.read_object(bytes(fields["toolConfig"])) if "toolConfig" in fields else {}
    tools = base.read_list(config.get("tools"))
    limits = base.read_object(bytes(fields["inferenceConfig"])) if "inferenceConfig" in fields else {}
    results = [block.tool_result for block in _blocks(messages[last + 1 :])]
    system = fields.get("system")
    facts: dict[str, object] = {
        "operation": "chat",
        **base.identity_fields(head),
        **base.history_facts(raws, roles),
        "model": model,
        "stream": stream,
        "max_tokens": base.as_int(base.read_scalar(limits.get("maxTokens"))),
        "has_tools": bool(tools),
        "tool_count": len(tools),
        # All limits are in one object: a retry that changes one of them changes all of it.
        "body_digest": base.body_digest({name: raw for name, raw in fields.items() if name != "inferenceConfig"}),
        "raw_digest": digest(body),
        "tools_digest": base.canonical_digest(bytes(config["tools"])) if tools else None,
        "system_digest": None if system is None else base.canonical_digest(bytes(system)),
        "last_assistant_digest": text_digest,
        "last_assistant_chars": text_chars,
        "tool_result_ids": calls.result_ids(result.tool_use_id for result in results if result is not None),
    }
    return RequestFacts(**facts)  # type: ignore[arg-type]  # names and types are RequestFacts' own


def _blocks(messages: Sequence[_Message]) -> list[_Block]:
    blocks: list[_Block] = []
    for raw in (raw for message in messages for raw in message.content):
        try:
            blocks.append(_BLOCK.decode(raw))
        except base.UNREADABLE:
            continue
    return blocks


# --- replies --------------------------------------------------------------------------------------------------------


def _take_usage(tally: Tally, usage: _Usage | None) -> None:
    if usage is None:
        return
    tally.input_tokens, tally.output_tokens = usage.input_tokens, usage.output_tokens
    tally.cache_read_tokens, tally.cache_write_tokens = usage.cache_read_input_tokens, usage.cache_write_input_tokens
    tally.usage_partial = usage.output_tokens is None


class _BodyReply(JsonReply):
    def __init__(self, tally: Tally, *, status: int, request: RequestFacts, error_type: str | None) -> None:
        super().__init__(tally, status=status)
        self._request = request
        self._error_type = (error_type or "").partition(":")[0] or None

    def _read(self, body: bytes) -> bool:
        tally = self.tally
        answer = _ANSWER.decode(body)
        if self._request.operation == "count_tokens":
            tally.input_tokens = answer.input_tokens
            return answer.input_tokens is not None
        if answer.output is None or answer.output.message is None:
            return self._read_invoked(body)
        tally.stop_reason = answer.stop_reason
        _take_usage(tally, answer.usage)
        text = ReplyText()
        for block in _blocks([answer.output.message]):
            if block.text:
                text.add(block.text)
            if block.tool_use is not None and len(tally.tool_calls) < MAX_TOOL_CALLS:
                use = block.tool_use
                command = base.arguments_digest(bytes(use.input))
                tally.tool_calls.append(calls.tool_use(use.tool_use_id, use.name, command))
        text.note(tally)
        tally.started_content = bool(answer.output.message.content)
        return True

    def _read_invoked(self, body: bytes) -> bool:
        """The answer of a model itself: Anthropic's form is read, another is whole when it is JSON."""
        if not _speaks_messages(self._request):
            return True
        reader = _MESSAGES.read_reply(_JSON_HEAD, self._request)
        reader.feed(body, 0)
        reader.finish(whole=True)
        _take_over(self.tally, reader.tally)
        return reader.tally.terminator is True

    def _read_error(self, body: bytes) -> None:
        try:
            value: object = msgspec.json.decode(body[: base.MAX_ARGUMENT_BYTES])
        except base.UNREADABLE:
            value = None
        fields = value if isinstance(value, dict) else {}
        kind = self._error_type
        if kind is None and isinstance(fields.get("__type"), str):
            kind = str(fields["__type"]).rpartition("#")[2]
        if kind is not None or fields:
            message = fields.get("message", fields.get("Message"))
            base.note_error(self.tally, {"type": kind, "message": message}, in_stream=False)


def _take_over(tally: Tally, other: Tally) -> None:
    """What an inner reader found, beside what the head of the response said."""
    for name in (
        "model",
        "declined_model",
        "response_id",
        "stop_reason",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
        "usage_partial",
        "tool_calls",
        "text_digest",
        "text_chars",
        "started_content",
        "error_type",
        "error_in_stream",
        "error_names",
    ):
        setattr(tally, name, getattr(other, name))


def _exception_text(payload: bytes) -> str | None:
    try:
        value: object = msgspec.json.decode(payload)
    except base.UNREADABLE:
        return None
    said = value.get("message") if isinstance(value, dict) else None
    return said if isinstance(said, str) else None


class _StreamReply:
    """Reads the messages of an event stream; those of Claude are handed on as the SSE events that they would be."""

    def __init__(self, tally: Tally, head: ResponseHead, request: RequestFacts) -> None:
        self._inner: ReplyReader | None = None
        if _speaks_messages(request):
            self._inner = _MESSAGES.read_reply(head, msgspec.structs.replace(request, stream=True))
        if self._inner is not None:
            self._inner.tally.request_id, self._inner.tally.provider_id = tally.request_id, tally.provider_id
            tally = self._inner.tally
        self.tally = tally
        tally.events = tally.pings = 0
        self._framer = EventStreamFramer()
        self._text = ReplyText()
        self._tools: dict[int, ToolUse] = {}
        self._arguments = calls.Arguments()
        self._chunks = False

    def feed(self, piece: bytes, t_ns: int) -> bool:
        """Frame and read; every message speaks."""
        for message in self._framer.feed(piece):
            try:
                self._message(message, t_ns)
            except (*base.UNREADABLE, ValueError):
                self.tally.unread_frames += 1
        return True

    def finish(self, *, whole: bool) -> None:
        """Close what is open."""
        tally, framer = self.tally, self._framer
        if self._chunks and self._inner is not None:
            self._inner.finish(whole=whole)
        else:
            self._text.note(tally)
            tally.open_tool_calls = len(self._tools)
            tally.tool_calls += self._tools.values()
            self._tools.clear()
            if tally.terminator is None and not self._chunks:
                tally.terminator = False
        lost = framer.skipped + (framer.failed is not None)
        tally.unread_frames += lost
        if not tally.terminator and not tally.error_in_stream:
            if lost:
                tally.terminator = None
            if tally.started_content and tally.output_tokens is None:
                tally.usage_partial = True

    def _message(self, message: Message, t_ns: int) -> None:
        tally = self.tally
        kind = message.headers.get(":message-type", "event")
        if kind != "event":
            said = message.headers.get(":error-message")
            if kind == "exception":
                said = _exception_text(message.payload)
            name = message.headers.get(":exception-type") or message.headers.get(":error-code")
            base.note_error(tally, {"type": name, "message": said}, in_stream=True)
            return
        name = message.headers.get(":event-type")
        if name == "chunk":
            self._chunk(b64decode(_WRAPPED.decode(message.payload).bytes, validate=True), t_ns)
            return
        tally.events = (tally.events or 0) + 1
        event = _EVENT.decode(message.payload)
        match name:
            case "contentBlockStart":
                if event.start is not None and event.start.tool_use is not None:
                    self._spoke(t_ns)
                    if len(self._tools) + len(tally.tool_calls) < MAX_TOOL_CALLS:
                        use = event.start.tool_use
                        self._tools[event.content_block_index] = calls.tool_use(use.tool_use_id, use.name)
            case "contentBlockDelta":
                if event.delta is not None:
                    self._delta(event.content_block_index, event.delta, t_ns)
            case "contentBlockStop":
                self._stop(event.content_block_index)
            case "messageStop":
                tally.stop_reason = event.stop_reason
                tally.terminator = True
            case "metadata":
                _take_usage(tally, event.usage)
            case _:
                pass

    def _chunk(self, data: bytes, t_ns: int) -> None:
        tally = self.tally
        self._chunks = True
        if self._inner is not None:
            # A line break inside JSON is white space, and would end the line of the event.
            self._inner.feed(b"data: " + data.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n\n", t_ns)
            return
        tally.events = (tally.events or 0) + 1
        chunk = _CHUNK.decode(data)
        self._spoke(t_ns)
        if chunk.metrics is not None:
            tally.terminator = True
            tally.input_tokens, tally.output_tokens = chunk.metrics.input_token_count, chunk.metrics.output_token_count
            tally.usage_partial = tally.output_tokens is None

    def _spoke(self, t_ns: int) -> None:
        self.tally.started_content = True
        if self.tally.first_token_ns is None and t_ns:
            self.tally.first_token_ns = t_ns

    def _delta(self, index: int, delta: _Delta, t_ns: int) -> None:
        if delta.text:
            self._text.add(delta.text)
        if delta.text or delta.reasoning_content or delta.tool_use is not None:
            self._spoke(t_ns)
        piece: object = None
        if delta.tool_use is not None and bytes(delta.tool_use.input):
            piece = msgspec.json.decode(delta.tool_use.input)
        if isinstance(piece, str) and piece and index in self._tools:
            self._arguments.add(index, piece)

    def _stop(self, index: int) -> None:
        use = self._tools.pop(index, None)
        command = self._arguments.take(index)
        if use is not None:
            self.tally.tool_calls.append(msgspec.structs.replace(use, text_digest=command))
