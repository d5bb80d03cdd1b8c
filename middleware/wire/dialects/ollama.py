"""Ollama's own API: `POST /api/chat` and `/api/generate`, as lines of JSON or as one body.

In and out: see `base.py`.  A stream (the default, also when `stream` is not said) is complete with the line that has
`done: true`; token counts stand there, and the prompt's is left out when the prompt was cached.  An `error` in any line
of a 200 is an error.  Calls of tools come whole; older servers give them no ids, and they are then numbered by turn,
name and order.  With `context` in a generate request the history is encoded there, and not observed.

Not read: embeddings, model management, and the imitations of other APIs under `/v1`, which their own dialects read.

**Source:** reference page model-api.md section 1.3; Ollama API reference "chat" and "generate".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import base, calls
from fairtrial.middleware.wire.dialects.base import JsonReply, ReplyReader
from fairtrial.middleware.wire.dialects.framed import FramedReply
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import ReplyText, TextDigest
from fairtrial.middleware.wire.http1 import RequestHead, ResponseHead
from fairtrial.middleware.wire.ndjson import LineFramer
from fairtrial.middleware.wire.redact import digest

MAX_TOOL_CALLS: Final = 512

_CHAT_PATHS: Final = ("/api/chat", "/api/generate")


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw()


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    role: str | None = None
    content: object = None
    thinking: object = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None


class _Line(msgspec.Struct):
    model: str | None = None
    message: _Message | None = None
    response: object = None
    thinking: object = None
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: object = None


_MESSAGE: Final = msgspec.json.Decoder(_Message)
_LINE: Final = msgspec.json.Decoder(_Line)


class Ollama:
    """The dialect."""

    name = "ollama"
    provider = "ollama"

    def claims(self, method: str, path: str) -> bool:
        """Chats and generations, and the list of models."""
        if method == "GET":
            return path.endswith("/api/tags")
        return method == "POST" and path.endswith(_CHAT_PATHS)

    def read_request(self, head: RequestHead, path: str, body: bytes) -> RequestFacts:
        """Facts of the body; one that cannot be read keeps its raw digest and says why."""
        if head.method == "GET":
            return base.bare_facts(head, "models")
        try:
            return _facts(head, base.read_object(body), body, chat=path.endswith(_CHAT_PATHS[0]))
        except base.UNREADABLE as error:
            return base.bare_facts(head, "chat", raw_digest=digest(body), unreadable=type(error).__name__)

    def read_reply(self, head: ResponseHead, request: RequestFacts) -> ReplyReader:
        """Lines when they say so or were asked for, else one body."""
        tally = base.head_tally(head, None)
        lines = tally.content_type == "application/x-ndjson" or (
            request.stream is True and tally.content_type not in {"application/json", "text/html"}
        )
        if head.status < 400 and lines:
            return _LinesReply(tally, request.assistant_turns)
        return _BodyReply(tally, status=head.status, request=request)


# --- requests -------------------------------------------------------------------------------------------------------


def _facts(head: RequestHead, fields: dict[str, msgspec.Raw], body: bytes, *, chat: bool) -> RequestFacts:
    raws = base.read_list(fields.get("messages"))
    if not chat:
        raws = [fields["prompt"]] if "prompt" in fields else []
    messages = [_MESSAGE.decode(raw) for raw in raws] if chat else [_Message(role="user") for _ in raws]
    roles = [message.role or "" for message in messages]
    tools = base.read_list(fields.get("tools"))
    last = max((i for i, role in enumerate(roles) if role == "assistant"), default=-1)
    text = TextDigest()
    if last >= 0 and isinstance(messages[last].content, str):
        text.add(str(messages[last].content))
    text_digest, text_chars = text.result()
    system = fields.get("system")
    if system is None:
        system = next((raw for raw, role in zip(raws, roles, strict=True) if role == "system"), None)
    stream = base.as_bool(base.read_scalar(fields.get("stream")))
    facts: dict[str, object] = {
        "operation": "chat",
        **base.identity_fields(head),
        "model": base.as_text(base.read_scalar(fields.get("model"))),
        "stream": True if stream is None else stream,
        "max_tokens": _limit(fields.get("options")),
        "has_tools": bool(tools),
        "tool_count": len(tools),
        "body_digest": base.body_digest(fields),
        "raw_digest": digest(body),
        "tools_digest": base.canonical_digest(bytes(fields["tools"])) if tools else None,
        "system_digest": None if system is None else base.canonical_digest(bytes(system)),
        "last_assistant_digest": text_digest,
        "last_assistant_chars": text_chars,
        "tool_result_ids": _result_ids(messages, roles, last),
    }
    if "context" not in fields:
        facts |= base.history_facts(raws, roles)
    return RequestFacts(**facts)  # type: ignore[arg-type]  # names and types are RequestFacts' own


def _limit(raw: msgspec.Raw | None) -> int | None:
    value: object = None if raw is None else msgspec.json.decode(raw)
    return base.as_int(value.get("num_predict")) if isinstance(value, dict) else None


def _result_ids(messages: Sequence[_Message], roles: Sequence[str], last: int) -> list[str]:
    """Results name their call, or its tool, or stand in the order of the calls."""
    asked = (messages[last].tool_calls or []) if last >= 0 else []
    turn = sum(role == "assistant" for role in roles) - 1
    numbering = calls.Numbering(turn)
    ids: list[str] = []
    for position, message in enumerate(m for m in messages[last + 1 :] if m.role == "tool"):
        name = message.tool_name
        if name is None and position < len(asked):
            function = asked[position].function
            name = None if function is None else function.name
        number = numbering.next(name)
        ids.append(message.tool_call_id or number)
    return calls.result_ids(ids)


# --- replies --------------------------------------------------------------------------------------------------------


class _Reading:
    """What one reply says, line by line."""

    def __init__(self, tally: Tally, text: TextDigest, turn: int | None) -> None:
        self._tally = tally
        self._text = text
        self._numbering = calls.Numbering(turn)

    def take(self, data: bytes) -> bool:
        """Read one line; True when it held content.  May raise `msgspec.DecodeError`."""
        line = _LINE.decode(data)
        tally = self._tally
        error = line.error
        if error is not None:
            base.note_error(tally, error, in_stream=True)
            return False
        tally.model = line.model or tally.model
        message = line.message or _Message()
        spoke = bool(message.thinking or line.thinking)
        for said in (message.content, line.response):
            if isinstance(said, str) and said:
                self._text.add(said)
                spoke = True
        for call in message.tool_calls or []:
            self._call(call)
            spoke = True
        if line.done:
            tally.terminator = True
            tally.stop_reason = line.done_reason or tally.stop_reason
            tally.input_tokens = line.prompt_eval_count
            tally.output_tokens = line.eval_count
            tally.usage_partial = line.eval_count is None
        return spoke

    def close(self) -> None:
        """The body is over."""
        if not self._tally.terminator and self._tally.started_content:
            self._tally.usage_partial = True

    def _call(self, call: _Call) -> None:
        function = call.function or _Function()
        number = self._numbering.next(function.name)
        if len(self._tally.tool_calls) < MAX_TOOL_CALLS:
            command = base.arguments_digest(bytes(function.arguments))
            self._tally.tool_calls.append(calls.tool_use(call.id or number, function.name, command))


class _BodyReply(JsonReply):
    def __init__(self, tally: Tally, *, status: int, request: RequestFacts) -> None:
        super().__init__(tally, status=status)
        self._operation = request.operation
        self._turn = request.assistant_turns

    def _read(self, body: bytes) -> bool:
        if self._operation == "models":
            base.read_object(body)
            return True
        tally = self.tally
        text = ReplyText()
        tally.started_content = _Reading(tally, text, self._turn).take(body)
        text.note(tally)
        return bool(tally.terminator)


class _LinesReply(FramedReply):
    def __init__(self, tally: Tally, turn: int | None) -> None:
        super().__init__(tally, LineFramer())
        self._reading = _Reading(tally, self._text, turn)

    def _value(self, value: bytes, t_ns: int) -> None:
        if self._reading.take(value):
            self._spoke(t_ns)

    def _close(self) -> None:
        self._reading.close()
