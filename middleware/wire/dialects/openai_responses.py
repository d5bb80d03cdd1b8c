"""OpenAI Responses: `POST …/responses`, JSON and SSE, with `/responses/compact` and `/responses/input_tokens`.

In and out: see `base.py`.  The terminator of a stream is one of `response.completed`, `response.incomplete`,
`response.cancelled`; `response.failed` and `error` end it as an error inside a 200.  A JSON body is whole by its
`status`.  Usage stands in the terminal event only, with cached tokens included in `input_tokens`, and is kept so.  Tool
calls are the items that the client has to carry out (function, custom, local shell, shell, patch, computer), told by
their `call_id`; tools that run at the server are none.

One turn of the assistant is a run of items in the history (reasoning, text, calls).  With `previous_response_id` or
`conversation` the history is at the server: its length, turns and digests are then not observed.  `…/compact`, and what
Codex says is a compaction, is a chat without tools, which is how `steps/roles.py` knows one.  Codex's `client_metadata`
differs from attempt to attempt in nothing but its order; the body's digest leaves it out.  Not read: stored responses
that are fetched again (`GET …/responses/{id}`), as background work is.  `GET …/responses` opens a WebSocket: a greeting
here, its calls are read by `responses_socket.py`.  A request with `generate: false` warms up and asks for nothing.

An item or usage of another form than promised costs itself only, never the terminator around it.

**Source:** reference pages model-api.md section 1.2, harnesses.md section 3; OpenAI API reference, streaming events of
Responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import RequestFacts, ToolUse
from fairtrial.middleware.wire.dialects import base, calls
from fairtrial.middleware.wire.dialects.base import JsonReply, ReplyReader, SseReply
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.dialects.texts import ReplyText, TextDigest
from fairtrial.middleware.wire.http1 import RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest

MAX_TOOL_CALLS: Final = 512

_PATH: Final = "/responses"
_COMPACT_PATH: Final = "/responses/compact"
_COUNT_PATH: Final = "/responses/input_tokens"

_CLIENT_CALLS: Final = frozenset(
    {"function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call", "computer_call"}
)
_SPOKEN: Final = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
        "response.mcp_call_arguments.delta",
        "response.code_interpreter_call_code.delta",
    }
)
_TERMINAL: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
)
_PINGS: Final = frozenset({"keepalive", "ping", "response.heartbeat"})
_OF_THE_WAY: Final = frozenset({"client_metadata", "type", "stream_id"})
"""Keys that differ from attempt to attempt, or between HTTP and WebSocket, for one and the same wish."""
_PURPOSES: Final = frozenset({"compaction", "memory", "prewarm"})
"""Of Codex's `request_kind`; "turn" is what all others are."""
_OURS: Final = frozenset({"reasoning", "item_reference", "mcp_list_tools", "mcp_approval_request"})


class _Item(msgspec.Struct):
    """An item of a history or an output; what it says stays undecoded."""

    type: str | None = None
    role: str | None = None
    id: str | None = None
    call_id: str | None = None
    status: str | None = None
    name: str | None = None
    content: msgspec.Raw = msgspec.Raw()
    arguments: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    action: msgspec.Raw = msgspec.Raw()

    @property
    def kind(self) -> str:
        return self.type or "message"

    @property
    def is_assistants(self) -> bool:
        return self.role == "assistant" or self.kind in _OURS or self.kind.endswith("_call")


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    kind: str | None = msgspec.field(default=None, name="object")
    model: str | None = None
    status: str | None = None
    error: object = None
    incomplete_details: object = None
    output: msgspec.Raw = msgspec.Raw()
    usage: msgspec.Raw = msgspec.Raw()
    input_tokens: int | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    delta: object = None
    output_index: object = None
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: object = None
    code: object = None
    message: object = None


_ITEM: Final = msgspec.json.Decoder(_Item)
_USAGE: Final = msgspec.json.Decoder(_Usage)
_RESPONSE: Final = msgspec.json.Decoder(_Response)
_EVENT: Final = msgspec.json.Decoder(_Event)


class OpenAIResponses:
    """The dialect."""

    name = "openai_responses"
    provider = "openai"

    def claims(self, method: str, path: str) -> bool:
        """Responses made, compacted or counted, and the handshake of a WebSocket; stored ones are left to `unknown`."""
        if method == "GET":
            return path.endswith(_PATH)
        return method == "POST" and path.endswith((_PATH, _COMPACT_PATH, _COUNT_PATH))

    def read_request(self, head: RequestHead, path: str, body: bytes) -> RequestFacts:
        """Facts of the body; one that cannot be read keeps its raw digest and says why."""
        if head.method == "GET":
            # What is asked for over the WebSocket comes later (`responses_socket.py`).
            return base.bare_facts(head, "hello")
        operation = "count_tokens" if path.endswith(_COUNT_PATH) else "chat"
        try:
            return _facts(head, operation, base.read_object(body), body, compacts=path.endswith(_COMPACT_PATH))
        except base.UNREADABLE as error:
            return base.bare_facts(head, operation, raw_digest=digest(body), unreadable=type(error).__name__)

    def read_reply(self, head: ResponseHead, request: RequestFacts) -> ReplyReader:
        """An event stream or one JSON body, as `base.is_stream` tells."""
        tally = base.head_tally(head, "x-request-id")
        if head.status == 101:
            return _Handshake(tally)
        if base.is_stream(tally, head.status, request):
            return ResponsesStream(tally)
        return _BodyReply(tally, status=head.status, operation=request.operation)


# --- requests -------------------------------------------------------------------------------------------------------


def _facts(
    head: RequestHead, operation: str, fields: dict[str, msgspec.Raw], body: bytes, *, compacts: bool
) -> RequestFacts:
    raws, items = _history(fields.get("input"))
    at_server = any(_given(fields.get(name)) for name in ("previous_response_id", "conversation"))
    tools = base.read_list(fields.get("tools"))
    over_socket = base.read_scalar(fields.get("type")) == "response.create"
    turn = _turn_metadata(head, fields.get("client_metadata"), over_socket=over_socket)
    if base.read_scalar(fields.get("generate")) is False:
        operation = "other"
    compacts = compacts or turn.get("request_kind") == "compaction"
    last = max((i for i, item in enumerate(items) if item.is_assistants), default=-1)
    text_digest, text_chars = _last_text(items, last)
    roles = ["assistant" if item.is_assistants else item.role or "" for item in items]
    instructions = fields["instructions"] if _given(fields.get("instructions")) else None
    if instructions is None:
        instructions = next((r for r, role in zip(raws, roles, strict=True) if role in {"system", "developer"}), None)
    facts: dict[str, object] = {
        "operation": operation,
        **base.identity_fields(head),
        "model": base.as_text(base.read_scalar(fields.get("model"))),
        "stream": over_socket or base.as_bool(base.read_scalar(fields.get("stream"))) or False,
        "max_tokens": base.as_int(base.read_scalar(fields.get("max_output_tokens"))),
        "has_tools": bool(tools) and not compacts,
        "tool_count": len(tools),
        "body_digest": base.body_digest({name: raw for name, raw in fields.items() if name not in _OF_THE_WAY}),
        "raw_digest": digest(body),
        "tools_digest": base.canonical_digest(bytes(fields["tools"])) if tools else None,
        "system_digest": None if instructions is None else base.canonical_digest(bytes(instructions)),
        "last_assistant_digest": text_digest,
        "last_assistant_chars": text_chars,
        "tool_result_ids": calls.result_ids(_result_id(item) for item in items[last + 1 :]),
    }
    if not at_server:
        facts |= base.history_facts(raws, roles)
        facts["assistant_turns"] = _turns(items)
    _name_session(facts, head, turn, fields)
    if compacts:
        # Where the history is at the server, its length does not tell.
        facts["purpose"] = "compaction"
    return RequestFacts(**facts)  # type: ignore[arg-type]  # names and types are RequestFacts' own


def _given(raw: msgspec.Raw | None) -> bool:
    """Whether there is a value, and another one than null."""
    return raw is not None and bytes(memoryview(raw)[:4]) not in {b"", b"null"}


def _history(raw: msgspec.Raw | None) -> tuple[list[msgspec.Raw], list[_Item]]:
    if raw is None:
        return [], []
    if bytes(memoryview(raw)[:1]) == b'"':
        return [raw], [_Item(role="user", content=raw)]
    raws = base.read_list(raw)
    return raws, [_item(each) or _Item(type="unreadable") for each in raws]


def _item(raw: bytes | msgspec.Raw) -> _Item | None:
    try:
        return _ITEM.decode(raw)
    except base.UNREADABLE:
        return None


def _turns(items: Sequence[_Item]) -> int:
    """Runs of assistant items: one turn may be reasoning, text and several calls."""
    turns, within = 0, False
    for item in items:
        turns += item.is_assistants and not within
        within = item.is_assistants
    return turns


def _last_text(items: Sequence[_Item], last: int) -> tuple[str | None, int | None]:
    """Digest of the texts of the last run of assistant items."""
    first = last
    while first > 0 and items[first - 1].is_assistants:
        first -= 1
    text = TextDigest()
    for item in items[max(0, first) : last + 1]:
        _add_text(text, item)
    return text.result()


def _add_text(text: TextDigest, item: _Item) -> None:
    if item.kind != "message" or not _given(item.content):
        return
    content: object = msgspec.json.decode(item.content)
    for part in content if isinstance(content, list) else [content]:
        said = part.get("text") if isinstance(part, dict) else part
        if isinstance(said, str) and said:
            text.add(said)


def _result_id(item: _Item) -> str | None:
    # The output of a local shell call may name the call by `id`.
    return (item.call_id or item.id) if item.kind.endswith("_call_output") else None


def _turn_metadata(head: RequestHead, raw: msgspec.Raw | None, *, over_socket: bool) -> dict[str, object]:
    """What Codex says about the turn, in the body (newer, and current over a WebSocket) or a header of its own.

    Over a WebSocket the header is the handshake's: its ids hold, what that turn was for does not.
    """
    client: object = None if raw is None else msgspec.json.decode(raw)
    said = client.get("x-codex-turn-metadata") if isinstance(client, dict) else None
    of_this_turn = isinstance(said, str)
    said = said if isinstance(said, str) else head.headers.get("x-codex-turn-metadata")
    try:
        value: object = None if said is None else msgspec.json.decode(said)
    except base.UNREADABLE:
        return {}
    turn = {str(name): each for name, each in value.items()} if isinstance(value, dict) else {}
    if over_socket and not of_this_turn:
        turn.pop("request_kind", None)
    return turn


def _name_session(
    facts: dict[str, object], head: RequestHead, turn: dict[str, object], fields: dict[str, msgspec.Raw]
) -> None:
    """Codex sends `session-id` and `thread-id` (another thread is a subagent's), or turn metadata; others the body."""
    session = head.headers.get("session-id") or turn.get("session_id")
    if facts["session"] is None and isinstance(session, str) and session:
        facts["session_kind"], facts["session"] = "x-codex-turn-metadata", digest(session)
    thread = head.headers.get("thread-id") or turn.get("thread_id")
    if facts["agent"] is None and isinstance(thread, str) and isinstance(session, str) and thread != session:
        facts["agent"] = digest(thread)
    parent = turn.get("parent_thread_id")
    if facts["parent_agent"] is None and isinstance(parent, str) and parent:
        facts["parent_agent"] = digest(parent)
    kind = turn.get("request_kind")
    if facts["purpose"] is None and isinstance(kind, str) and kind in _PURPOSES:
        facts["purpose"] = kind
    facts["previous_response"] = base.as_text(base.read_scalar(fields.get("previous_response_id")))
    if facts["session"] is None:
        for name in ("conversation", "prompt_cache_key"):
            raw = fields.get(name)
            value: object = msgspec.json.decode(raw) if raw is not None else None
            value = value.get("id") if isinstance(value, dict) else value
            if isinstance(value, str) and value:
                facts["session_kind"], facts["session"] = name, digest(value)
                return


# --- replies --------------------------------------------------------------------------------------------------------


def _take_usage(tally: Tally, raw: msgspec.Raw) -> None:
    if not _given(raw):
        return
    try:
        usage = _USAGE.decode(raw)
    except base.UNREADABLE:
        tally.unread_frames += 1
        return
    if usage.input_tokens is not None:
        tally.input_tokens = usage.input_tokens
    if usage.output_tokens is not None:
        tally.output_tokens = usage.output_tokens
    details = usage.input_tokens_details
    if details is not None and details.cached_tokens is not None:
        tally.cache_read_tokens = details.cached_tokens
    if details is not None and details.cache_write_tokens is not None:
        tally.cache_write_tokens = details.cache_write_tokens
    tally.usage_partial = tally.output_tokens is None


def _take_end(tally: Tally, response: _Response, status: str | None) -> bool:
    """How a response ended; True when that is a whole answer."""
    if status == "failed" or response.error is not None:
        base.note_error(tally, response.error, in_stream=True)
        return False
    details = response.incomplete_details
    reason = details.get("reason") if isinstance(details, dict) else None
    tally.stop_reason = base.as_text(reason) or status
    return True


def _tool_use(item: _Item, *, whole: bool = True) -> ToolUse:
    name = item.name or item.kind.removesuffix("_call")
    return calls.tool_use(item.call_id or item.id, name, _command_digest(item) if whole else None)


def _command_digest(item: _Item) -> str | None:
    match item.kind:
        case "function_call":
            value = _value(item.arguments)
            return base.arguments_digest(value) if isinstance(value, str) else base.command_digest(value)
        case "custom_tool_call":
            value = _value(item.input)
            return digest(value) if isinstance(value, str) and value else None
        case "local_shell_call":
            return base.command_digest(_value(item.action))
        case "shell_call":
            value = _value(item.action)
            commands = value.get("commands") if isinstance(value, dict) else None
            # Several commands are several executions: one digest would match none of them.
            single = isinstance(commands, list) and len(commands) == 1
            return base.command_digest({"command": commands}) if single else None
        case _:
            return None


def _value(raw: msgspec.Raw) -> object:
    return msgspec.json.decode(raw) if _given(raw) else None


class _BodyReply(JsonReply):
    def __init__(self, tally: Tally, *, status: int, operation: str) -> None:
        super().__init__(tally, status=status)
        self._operation = operation

    def _read(self, body: bytes) -> bool:
        response = _RESPONSE.decode(body)
        tally = self.tally
        if self._operation == "count_tokens" and response.error is None:
            tally.input_tokens = response.input_tokens
            return response.input_tokens is not None
        tally.model, tally.response_id = response.model, response.id
        _take_usage(tally, response.usage)
        text = ReplyText()
        outputs = base.read_list(response.output)
        for raw in outputs:
            item = _item(raw)
            if item is None:
                tally.unread_frames += 1
                continue
            _add_text(text, item)
            if item.kind in _CLIENT_CALLS and len(tally.tool_calls) < MAX_TOOL_CALLS:
                whole = item.status != "incomplete"
                tally.open_tool_calls += not whole
                tally.tool_calls.append(_tool_use(item, whole=whole))
        text.note(tally)
        tally.started_content = bool(outputs)
        whole = response.status is not None or response.kind == "response.compaction"
        return _take_end(tally, response, response.status) and whole


class _Handshake:
    """A WebSocket was opened: that is the whole answer to a greeting."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        tally.terminator = True

    def feed(self, piece: bytes, t_ns: int) -> bool:  # noqa: ARG002 - a 101 has no body
        return True

    def finish(self, *, whole: bool) -> None:
        pass


class ResponsesStream(SseReply):
    """Reads the events of one response."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._open: dict[object, ToolUse] = {}
        self._closed: set[str | None] = set()

    def _event(self, event: bytes | None, data: bytes, t_ns: int) -> bool:
        if data.startswith(b"[DONE]"):
            # Imitators close like Chat Completions; OpenAI itself does not, so it completes nothing.
            return True
        said = _EVENT.decode(data)
        kind = said.type or (event or b"").decode("latin-1")
        if kind in _SPOKEN:
            self._spoke(t_ns)
            if kind == "response.output_text.delta" and isinstance(said.delta, str):
                self._text.add(said.delta)
        elif kind in _PINGS:
            return False
        elif kind == "response.created":
            self._name(self._response(said))
        elif kind == "response.output_item.added":
            item = _item(said.item)
            if item is not None and item.kind in _CLIENT_CALLS and len(self._open) < MAX_TOOL_CALLS:
                self._open[_place(said.output_index, item)] = _tool_use(item, whole=False)
                self._spoke(t_ns)
        elif kind == "response.output_item.done":
            item = _item(said.item)
            if item is not None:
                self._item_done(_place(said.output_index, item), item)
        elif kind in _TERMINAL:
            self._end(kind, self._response(said))
        elif kind == "error" or said.error is not None:
            error = said.error if said.error is not None else {"code": said.code, "message": said.message}
            base.note_error(self.tally, error, in_stream=True)
        return True

    def _response(self, said: _Event) -> _Response:
        if not _given(said.response):
            return _Response()
        try:
            return _RESPONSE.decode(said.response)
        except base.UNREADABLE:
            self.tally.unread_frames += 1
            return _Response()

    def _spoke(self, t_ns: int) -> None:
        self.tally.started_content = True
        if self.tally.first_token_ns is None and t_ns:
            self.tally.first_token_ns = t_ns

    def _name(self, response: _Response) -> None:
        self.tally.model = response.model or self.tally.model
        self.tally.response_id = response.id or self.tally.response_id

    def _item_done(self, place: object, item: _Item) -> None:
        if item.kind not in _CLIENT_CALLS:
            return
        self.tally.started_content = True
        if item.status == "incomplete":
            if len(self._open) < MAX_TOOL_CALLS:
                self._open.setdefault(place, _tool_use(item, whole=False))
            return
        self._open.pop(place, None)
        name = base.as_text(item.call_id or item.id)
        if name in self._closed or len(self.tally.tool_calls) >= MAX_TOOL_CALLS:
            return
        self._closed.add(name)
        self.tally.tool_calls.append(_tool_use(item))

    def _end(self, kind: str, response: _Response) -> None:
        tally = self.tally
        self._name(response)
        _take_usage(tally, response.usage)
        status = response.status or kind.removeprefix("response.")
        if kind == "response.failed":
            status = "failed"
        tally.terminator = _take_end(tally, response, status)
        # What came without events of its own (some servers send the terminal event only) stands in the output.
        silent = self._text.result()[1] is None
        for index, raw in enumerate(base.read_list(response.output)):
            item = _item(raw)
            if item is not None:
                self._item_done(_place(index, item), item)
                if silent:
                    _add_text(self._text, item)

    def _close(self) -> None:
        tally = self.tally
        tally.open_tool_calls = len(self._open)
        tally.tool_calls += list(self._open.values())[: MAX_TOOL_CALLS - len(tally.tool_calls)]
        self._open.clear()
        if not tally.terminator and not tally.error_in_stream:
            if self._framer.skipped:
                # The terminal event repeats instructions and output: it may have been the one that was too long.
                tally.terminator = None
            if tally.usage_partial is None and tally.started_content:
                tally.usage_partial = True


def _place(index: object, item: _Item) -> object:
    return index if isinstance(index, int) else base.as_text(item.call_id or item.id)
