"""Turns a scripted step into an answer of the API that was asked: one JSON body, or the frames of a stream.

In: `Asked` and `Step`. Out: `Answer`. Pure: the same request and step give the same answer apart from the ids that must
differ per attempt, which come in as `unique`. Errors of the three APIs are shaped here too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from fairtrial.middleware.demo.asked import Api, Asked, Tool, shell_arguments
from fairtrial.middleware.demo.script import Step, Usage

CREATED_S = 1_760_000_000  # answers carry a fixed creation time, so that a run can be compared with another
PIECE_CHARS = 12
BYTES_PER_TOKEN = 4

_CHAT_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class NoSuchTool(Exception):
    """The script wants a tool that the client does not offer; the message names those that it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """One tool call of a turn."""

    id: str
    tool: Tool
    arguments: Mapping[str, object]

    @property
    def json(self) -> str:
        """The arguments as JSON text."""
        return msgspec.json.encode(self.arguments).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A step made concrete for one request."""

    asked: Asked
    text: str | None
    uses: tuple[ToolUse, ...]
    stop_reason: str
    usage: Usage
    unique: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer.

    `frames` are complete SSE frames, one event each, in order; empty when no stream was asked for.
    """

    body: bytes
    frames: tuple[bytes, ...]
    usage: Usage


def answer(asked: Asked, step: Step, unique: str) -> Answer:
    """The answer to `asked` by `step`; `unique` makes message and response ids differ between attempts.

    Tool call ids depend on the history only: a retried turn gets the same ones. Raises NoSuchTool.
    """
    uses = tuple(_tool_uses(asked, step))
    text = None if step.text is None else step.text.replace("{task}", asked.task)
    spoken = len(text or "") + sum(len(use.json) for use in uses)
    usage = Usage(
        input_tokens=step.input_tokens if step.input_tokens is not None else -(-asked.content_bytes // BYTES_PER_TOKEN),
        output_tokens=step.output_tokens if step.output_tokens is not None else max(1, -(-spoken // BYTES_PER_TOKEN)),
        cache_read_tokens=step.cache_read_tokens,
        cache_write_tokens=step.cache_write_tokens,
    )
    stop_reason = step.stop_reason or ("tool_use" if uses else "end_turn")
    turn = Turn(asked=asked, text=text, uses=uses, stop_reason=stop_reason, usage=usage, unique=unique)
    build_body, build_frames = _BUILDERS[asked.api]
    frames = tuple(build_frames(turn)) if asked.stream else ()
    return Answer(body=_encode(build_body(turn)), frames=frames, usage=usage)


def _tool_uses(asked: Asked, step: Step) -> Iterator[ToolUse]:
    prefix = "toolu_01" if asked.api == "messages" else "call_"
    digest = hashlib.sha256(asked.history.encode())
    if step.tool is not None:
        tool = next((tool for tool in asked.tools if tool.name == step.tool), None)
        wanted = f"a tool named {step.tool}"
        calls: list[Mapping[str, object]] = [step.arguments]
    else:
        tool = asked.shell_tool
        wanted = "a shell tool"
        commands = [command.replace("{task}", asked.task) for command in step.commands]
        calls = [shell_arguments(tool, command) for command in commands] if tool else [{}] * len(step.commands)
    for index, arguments in enumerate(calls):
        if tool is None:
            offered = ", ".join(tool.name for tool in asked.tools) or "none"
            raise NoSuchTool(
                f"the stand-in's script wants {wanted} at step {asked.step}; the request offers: {offered}"
            )
        digest.update(str(index).encode())
        yield ToolUse(id=prefix + digest.hexdigest()[:22], tool=tool, arguments=arguments)


def error_body(api: Api, error_type: str, message: str, request_id: str | None) -> bytes:
    """An error in the shape of the API. The OpenAI shape carries the type as its code too."""
    if api == "messages":
        body: dict[str, object] = {"type": "error", "error": {"type": error_type, "message": message}}
        if request_id is not None:
            body["request_id"] = request_id
        return _encode(body)
    return _encode({"error": {"message": message, "type": error_type, "param": None, "code": error_type}})


def error_frame(api: Api, error_type: str, message: str, sequence: int) -> bytes:
    """An error inside a running stream; `sequence` is the number of events before it."""
    if api == "messages":
        return _event("error", {"type": "error", "error": {"type": error_type, "message": message}})
    if api == "responses":
        event = {"type": "error", "code": error_type, "message": message, "param": None, "sequence_number": sequence}
        return _event("error", event)
    return b"data: " + error_body(api, error_type, message, None) + b"\n\n"


def failed_frame(asked: Asked, error_type: str, message: str, sequence: int, unique: str) -> bytes:
    """The end of a Responses stream that failed; other APIs have an error event only."""
    if asked.api != "responses":
        return error_frame(asked.api, error_type, message, sequence)
    response = {
        "id": f"resp_s{asked.step}_{unique}",
        "object": "response",
        "created_at": CREATED_S,
        "status": "failed",
        "error": {"code": error_type, "message": message},
        "model": asked.model,
        "output": [],
        "usage": None,
    }
    return _event("response.failed", {"type": "response.failed", "sequence_number": sequence, "response": response})


def ping_frame(api: Api) -> bytes:
    """What keeps a silent stream open: a ping event in Messages, an SSE comment elsewhere."""
    return _event("ping", {"type": "ping"}) if api == "messages" else b": keep-alive\n\n"


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value)


def _event(name: str, data: Mapping[str, object]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + _encode(data) + b"\n\n"


def _pieces(text: str) -> list[str]:
    return [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]


# ---- Messages ----------------------------------------------------------------------------------------------------


def _messages_usage(usage: Usage, output_tokens: int) -> dict[str, object]:
    return {
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def _messages_body(turn: Turn) -> dict[str, object]:
    content: list[Mapping[str, object]] = []
    if turn.text is not None:
        content.append({"type": "text", "text": turn.text})
    content += [
        {"type": "tool_use", "id": use.id, "name": use.tool.name, "input": dict(use.arguments)} for use in turn.uses
    ]
    return {
        "id": f"msg_01{turn.unique}",
        "type": "message",
        "role": "assistant",
        "model": turn.asked.model,
        "content": content,
        "stop_reason": turn.stop_reason,
        "stop_sequence": None,
        "usage": _messages_usage(turn.usage, turn.usage.output_tokens),
    }


def _messages_frames(turn: Turn) -> Iterator[bytes]:
    message = _messages_body(turn) | {"content": [], "stop_reason": None, "usage": _messages_usage(turn.usage, 1)}
    yield _event("message_start", {"type": "message_start", "message": message})
    blocks: list[tuple[Mapping[str, object], list[Mapping[str, object]]]] = []
    if turn.text is not None:
        spoken = [{"type": "text_delta", "text": piece} for piece in _pieces(turn.text)]
        blocks.append(({"type": "text", "text": ""}, [*spoken]))
    for use in turn.uses:
        typed = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(use.json))]
        blocks.append(({"type": "tool_use", "id": use.id, "name": use.tool.name, "input": {}}, [*typed]))
    for index, (block, deltas) in enumerate(blocks):
        yield _event("content_block_start", {"type": "content_block_start", "index": index, "content_block": block})
        if index == 0:
            yield ping_frame("messages")
        for delta in deltas:
            yield _event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
        yield _event("content_block_stop", {"type": "content_block_stop", "index": index})
    ending = {"stop_reason": turn.stop_reason, "stop_sequence": None}
    usage = {"output_tokens": turn.usage.output_tokens}
    yield _event("message_delta", {"type": "message_delta", "delta": ending, "usage": usage})
    yield _event("message_stop", {"type": "message_stop"})


# ---- Chat Completions --------------------------------------------------------------------------------------------


def _chat_usage(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.all_input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.all_input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _chat_body(turn: Turn) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": turn.text, "refusal": None}
    if turn.uses:
        message["tool_calls"] = [
            {"id": use.id, "type": "function", "function": {"name": use.tool.name, "arguments": use.json}}
            for use in turn.uses
        ]
    finish = _CHAT_FINISH[turn.stop_reason]
    return {
        "id": f"chatcmpl-{turn.unique}",
        "object": "chat.completion",
        "created": CREATED_S,
        "model": turn.asked.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": _chat_usage(turn.usage),
        "service_tier": "default",
    }


def _chat_frames(turn: Turn) -> Iterator[bytes]:
    frame: dict[str, object] = {
        "id": f"chatcmpl-{turn.unique}",
        "object": "chat.completion.chunk",
        "created": CREATED_S,
        "model": turn.asked.model,
    }
    if turn.asked.include_usage:
        frame["usage"] = None

    def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + _encode(frame | {"choices": [choice]}) + b"\n\n"

    yield chunk({"role": "assistant", "content": "" if turn.text is not None else None, "refusal": None})
    for piece in _pieces(turn.text or ""):
        yield chunk({"content": piece})
    for index, use in enumerate(turn.uses):
        start = {"index": index, "id": use.id, "type": "function", "function": {"name": use.tool.name, "arguments": ""}}
        yield chunk({"tool_calls": [start]})
        for piece in _pieces(use.json):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _CHAT_FINISH[turn.stop_reason])
    if turn.asked.include_usage:
        yield b"data: " + _encode(frame | {"choices": [], "usage": _chat_usage(turn.usage)}) + b"\n\n"
    yield b"data: [DONE]\n\n"


# ---- Responses ---------------------------------------------------------------------------------------------------


def _responses_usage(usage: Usage) -> dict[str, object]:
    return {
        "input_tokens": usage.all_input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.all_input_tokens + usage.output_tokens,
    }


def _message_item(turn: Turn, text: str) -> dict[str, object]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": f"msg_{turn.unique}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def _call_item(turn: Turn, index: int, use: ToolUse) -> dict[str, object]:
    item: dict[str, object] = {"id": f"fc_{turn.unique}{index}", "call_id": use.id, "status": "completed"}
    if use.tool.kind == "local_shell":
        command = use.arguments["command"]
        argv = command if isinstance(command, list) else ["bash", "-lc", command]
        return item | {"type": "local_shell_call", "action": {"type": "exec", "command": argv, "env": {}}}
    return item | {"type": "function_call", "name": use.tool.name, "arguments": use.json}


def _responses_items(turn: Turn) -> list[dict[str, object]]:
    items = [] if turn.text is None else [_message_item(turn, turn.text)]
    return items + [_call_item(turn, index, use) for index, use in enumerate(turn.uses)]


def _responses_body(turn: Turn) -> dict[str, object]:
    cut_short = turn.stop_reason == "max_tokens"
    return {
        "id": f"resp_s{turn.asked.step}_{turn.unique}",
        "object": "response",
        "created_at": CREATED_S,
        "status": "incomplete" if cut_short else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut_short else None,
        "instructions": None,
        "metadata": {},
        "model": turn.asked.model,
        "output": _responses_items(turn),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": _responses_usage(turn.usage),
    }


def _responses_frames(turn: Turn) -> Iterator[bytes]:
    whole = _responses_body(turn)
    begun = whole | {"status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    events: list[dict[str, object]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(_responses_items(turn)):
        where: dict[str, object] = {"item_id": item["id"], "output_index": index}
        kind = item["type"]
        added = item | {"status": "in_progress"}
        if kind == "message":
            added["content"] = []
        elif kind == "function_call":
            added["arguments"] = ""
        events.append({"type": "response.output_item.added", "output_index": index, "item": added})
        if kind == "message":
            part = where | {"content_index": 0}
            text = turn.text or ""
            blank = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            events.append(part | {"type": "response.content_part.added", "part": blank})
            events += [
                part | {"type": "response.output_text.delta", "delta": piece, "logprobs": []} for piece in _pieces(text)
            ]
            events.append(part | {"type": "response.output_text.done", "text": text, "logprobs": []})
            events.append(part | {"type": "response.content_part.done", "part": blank | {"text": text}})
        elif kind == "function_call":
            arguments = str(item["arguments"])
            events += [
                where | {"type": "response.function_call_arguments.delta", "delta": piece}
                for piece in _pieces(arguments)
            ]
            done = {"type": "response.function_call_arguments.done", "arguments": arguments, "name": item["name"]}
            events.append(where | done)
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    ending = "response.incomplete" if whole["status"] == "incomplete" else "response.completed"
    events.append({"type": ending, "response": whole})
    for number, event in enumerate(events):
        yield _event(str(event["type"]), event | {"sequence_number": number})


_BUILDERS = {
    "messages": (_messages_body, _messages_frames),
    "chat": (_chat_body, _chat_frames),
    "responses": (_responses_body, _responses_frames),
}
