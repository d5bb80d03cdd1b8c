"""Requests and answers of the Messages API as the benches send them: bytes, made once, valid, so that all is read.

The mode that a request asks of the stand-in upstream (`relay_upstream.py`) is the query of its target: `?held`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

Json = dict[str, object]

MODEL: Final = "claude-sonnet-4-5"
SYSTEM: Final = "You are a careful engineer. Work in small steps and check each of them. "
STAMP: Final = b'"text":"@'
"""What stands before the 20 digits of the time (ns of the monotonic clock) at which an event was sent."""
USAGE: Final = {"input_tokens": 1200, "cache_read_input_tokens": 900, "output_tokens": 1}


def event(name: str, **facts: object) -> bytes:
    """One SSE event, in a chunk of its own."""
    data = json.dumps({"type": name} | facts, separators=(",", ":"))
    return chunk(f"event: {name}\ndata: {data}\n\n".encode())


def chunk(content: bytes) -> bytes:
    """Framed for `Transfer-Encoding: chunked`."""
    return b"%x\r\n%b\r\n" % (len(content), content)


def text_event(text: str) -> bytes:
    """A piece of the answer's first block."""
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_START: Final = event(
    "message_start",
    message={
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "usage": USAGE,
    },
) + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
STREAM_END: Final = b"".join(
    (
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 200}),
        event("message_stop"),
        b"0\r\n\r\n",
    )
)
_TEMPLATE: Final = text_event("@" + "0" * 20).replace(b"0" * 20, b"%020d")


def stamped(now_ns: int) -> bytes:
    """An event that carries its time."""
    return _TEMPLATE % now_ns


def whole_answer(length: int = 2000) -> bytes:
    """A JSON answer, head included."""
    body: Json = {
        "id": "msg_bench",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{"type": "text", "text": ""}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
    }
    body["content"] = [{"type": "text", "text": "x" * (length - len(json.dumps(body)))}]
    content = json.dumps(body).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
    return head + content


def request(prefix: str, mode: str, body: bytes, *lines: str) -> bytes:
    """As an SDK would send it.  `prefix`: the path of the door, or ""."""
    head = [
        f"POST {prefix}/v1/messages?{mode} HTTP/1.1",
        "Host: 127.0.0.1",
        "Accept: application/json",
        "Accept-Encoding: gzip, deflate",
        "User-Agent: bench/1",
        "X-Api-Key: k",
        "Anthropic-Version: 2023-06-01",
        "Content-Type: application/json",
        *lines,
        f"Content-Length: {len(body)}",
    ]
    return ("\r\n".join(head) + "\r\n\r\n").encode() + body


def call_body(length: int = 8000, *, stream: bool = False) -> bytes:
    """A call of one turn whose prompt makes up the length."""
    said = f"{SYSTEM * (length // len(SYSTEM))}"
    asked: Json = {"model": MODEL, "max_tokens": 1024, "stream": stream}
    return json.dumps(asked | {"messages": [{"role": "user", "content": said}]}).encode()


def agent_body(trial: int, step: int, length: int = 76_000) -> bytes:
    """The call of one step as Claude Code makes it: 76 KB of tools and system prompt, and a history that grows."""
    messages: list[Json] = [{"role": "user", "content": f"Trial {trial}: fix the failing test."}]
    for done in range(step):
        use: Json = {
            "type": "tool_use",
            "id": tool_id(trial, done),
            "name": "Bash",
            "input": {"command": f"make test{done}"},
        }
        result: Json = {"type": "tool_result", "tool_use_id": tool_id(trial, done), "content": f"ok {done}"}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "Next."}, use]})
        messages.append({"role": "user", "content": [result]})
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    tools = [
        {"name": name, "description": SYSTEM * (length // 1400), "input_schema": schema}
        for name in ("Bash", "Read", "Edit", "Write", "Grep", "Glob", "Task", "WebFetch", "TodoWrite", "Skill")
    ]
    asked: Json = {"model": MODEL, "max_tokens": 32_000, "stream": True, "tools": tools}
    asked["system"] = [{"type": "text", "text": SYSTEM * (length // 200), "cache_control": {"type": "ephemeral"}}]
    return json.dumps(asked | {"messages": messages}).encode()


def tool_id(trial: int, step: int) -> str:
    """The id of the tool call of a step."""
    return f"toolu_{trial:04d}_{step:04d}"


def agent_answer(use_id: str, pieces: int) -> Sequence[bytes]:
    """The events of an answer with text and one tool call, to be sent one by one."""
    return tuple(_agent_answer(use_id, pieces))


def _agent_answer(use_id: str, pieces: int) -> Iterator[bytes]:
    yield STREAM_HEAD + STREAM_START + event("ping")
    yield from (text_event("I will look. ") for _ in range(pieces))
    block = {"type": "tool_use", "id": use_id, "name": "Bash", "input": {}}
    yield event("content_block_stop", index=0) + event("content_block_start", index=1, content_block=block)
    for piece in ('{"command": ', '"make ', 'test"}'):
        yield event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": piece})
    ending = {"stop_reason": "tool_use", "stop_sequence": None}
    yield event("content_block_stop", index=1) + event("message_delta", delta=ending, usage={"output_tokens": 60})
    yield event("message_stop") + b"0\r\n\r\n"
