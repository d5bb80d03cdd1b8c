"""Feed records as the relay would write them for one connection, and bodies of the two APIs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from fairtrial.middleware.core.claims import Assigns
from fairtrial.middleware.core.clock import Instant
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    Host,
    Observation,
    Value,
    decode,
)
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.edges import Edge
from fairtrial.middleware.wire.exchange import ExchangeTracker
from fairtrial.middleware.wire.feed import Kind
from fairtrial.middleware.wire.session import KeyDigest

WALL_NS = 1_790_000_000_000_000_000
MONO_NS = 5_000_000_000
TOKEN = "tok-" + "a" * 32
TRIAL = "trial-1"


class Wire:
    """Writes records into a tracker; `ms` is the relay's clock since the first record."""

    def __init__(
        self,
        *,
        door: str = "model:anthropic",
        conn: int = 1,
        assigns: Assigns | None = None,
        keys: KeyDigest | None = None,
    ) -> None:
        self.observations: list[Observation] = []
        self.edges: list[Edge] = []
        self.ms = 0.0
        self.conn = conn
        self.msg = 0
        source = Source("door.model", self.observations.append, host=Host(name="node"), trial=TRIAL)
        self.tracker = ExchangeTracker(
            source,
            trial_of_token={TOKEN: TRIAL},
            assigns=assigns,
            keys=keys,
            on_call_edge=self.edges.append,
            at=Instant(WALL_NS, MONO_NS),
        )
        self.json(Kind.OPEN, {"door": door, "upstream": "https://api.test:443/base", "peer": "127.0.0.1:1"})

    @property
    def now_ns(self) -> int:
        return MONO_NS + round(self.ms * 1e6)

    def write(self, kind: Kind, payload: bytes, flags: int = 0) -> None:
        self.tracker.take(feed.Record(kind, flags, self.conn, self.msg, self.now_ns, payload))

    def json(self, kind: Kind, value: dict[str, object]) -> None:
        self.write(kind, json.dumps(value).encode())

    def dial(self, **facts: object) -> None:
        self.json(
            Kind.DIAL,
            {"ok": True, "dns_s": 0.001, "connect_s": 0.002, "tls_s": 0.003, "remote": "192.0.2.1:443"} | facts,
        )

    def request(
        self,
        body: bytes = b"",
        *,
        path: str = "/v1/messages?beta=true",
        method: str = "POST",
        token: str | None = TOKEN,
        headers: Sequence[str] = (),
        cuts: int = 1,
    ) -> None:
        self.msg += 1
        prefix = "" if token is None else f"/t/{token}"
        lines = [f"{method} {prefix}{path} HTTP/1.1", "Host: 127.0.0.1:9", "x-api-key: sk-secret", *headers]
        self.write(Kind.REQUEST_HEAD, "\r\n".join([*lines, "", ""]).encode())
        self.ms += 1
        for piece in pieces(body, cuts):
            self.write(Kind.REQUEST_DATA, piece)
        self.json(Kind.REQUEST_END, {"wire_bytes": len(body) + 300, "complete": True})

    def head(self, status: int = 200, *, media: str = "text/event-stream", headers: Sequence[str] = ()) -> None:
        self.ms += 10
        lines = [f"HTTP/1.1 {status} X", f"Content-Type: {media}", "Request-Id: req_1", *headers, "", ""]
        self.write(Kind.RESPONSE_HEAD, "\r\n".join(lines).encode())

    def data(self, payload: bytes, *, after_ms: float = 1.0, flags: int = 0) -> None:
        self.ms += after_ms
        self.write(Kind.RESPONSE_DATA, payload, flags)

    def end(self, *, after_ms: float = 1.0) -> None:
        self.ms += after_ms
        self.json(Kind.RESPONSE_END, {"wire_bytes": 1000, "complete": True, "how": "framed"})

    def broken(
        self,
        how: str,
        first: str,
        *,
        close: str = "rst",
        errno: int | None = 104,
        after_ms: float = 1.0,
        **more: object,
    ) -> None:
        self.ms += after_ms
        facts: dict[str, object] = {"first": first, "errno": errno, "text": "x", "first_ns": self.now_ns, **more}
        self.json(Kind.RESPONSE_END, {"wire_bytes": 10, "complete": False, "how": how, "close_how": close, **facts})
        self.json(Kind.CLOSE, {"how": close, **facts})

    def values(self) -> list[Value]:
        return [value for o in self.observations if (value := decode(o)) is not None]

    def ended(self) -> list[AttemptEnded]:
        return [value for value in self.values() if isinstance(value, AttemptEnded)]

    def started(self) -> list[AttemptStarted]:
        return [value for value in self.values() if isinstance(value, AttemptStarted)]


def pieces(body: bytes, count: int) -> list[bytes]:
    """The body in about `count` pieces."""
    if not body:
        return []
    size = max(1, len(body) // count)
    return [body[i : i + size] for i in range(0, len(body), size)]


def anthropic_request(**changes: object) -> bytes:
    """A second turn: one tool call made and answered."""
    fields: dict[str, object] = {
        "model": "claude-test",
        "max_tokens": 32000,
        "stream": True,
        "system": [{"type": "text", "text": "You are a test."}],
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": json.dumps({"device_id": "d", "session_id": "s-1"})},
        "messages": [
            {"role": "user", "content": "do it"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I will."},
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a b"}]},
        ],
    }
    return json.dumps(fields | changes).encode()


def openai_request(**changes: object) -> bytes:
    """A second turn: one tool call made and answered."""
    fields: dict[str, object] = {
        "model": "gpt-test",
        "max_completion_tokens": 100,
        "stream": True,
        "tools": [{"type": "function", "function": {"name": "bash"}}],
        "messages": [
            {"role": "system", "content": "You are a test."},
            {"role": "user", "content": "do it"},
            {
                "role": "assistant",
                "content": "I will.",
                "tool_calls": [{"id": "call_1", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a b"},
        ],
    }
    return json.dumps(fields | changes).encode()


def sse(*events: tuple[str | None, object]) -> bytes:
    """Frames of an event stream; a string is written as it is, anything else as JSON."""
    return b"".join(frame(event, data) for event, data in events)


def frame(event: str | None, data: object) -> bytes:
    """One frame."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    head = "" if event is None else f"event: {event}\n"
    return f"{head}data: {text}\n\n".encode()


def typed(*values: dict[str, object]) -> Iterable[tuple[str, object]]:
    """Anthropic's events, named by their type."""
    return [(str(value["type"]), value) for value in values]


ANTHROPIC_STREAM = sse(
    *typed(
        {
            "type": "message_start",
            "message": {
                "type": "message",
                "id": "msg_1",
                "model": "claude-test-1",
                "content": [],
                "usage": {"input_tokens": 11, "cache_read_input_tokens": 5, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grüße, "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Welt \u0085 ok. "}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {}},
        },
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"comm'}},
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": 'and":"make test"}'},
        },
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 42, "input_tokens": None},
        },
        {"type": "message_stop"},
    )
)

OPENAI_STREAM = sse(
    (None, {"id": "c1", "model": "gpt-test-1", "choices": [{"index": 0, "delta": {"role": "assistant"}}]}),
    (None, {"id": "c1", "choices": [{"index": 0, "delta": {"content": "Grüße, "}}], "usage": None}),
    (None, {"id": "c1", "choices": [{"index": 0, "delta": {"content": "Welt."}}]}),
    (
        None,
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {
                        "tool_calls": [
                            {"index": 0, "id": "call_2", "function": {"name": "bash", "arguments": '{"command":'}}
                        ]
                    },
                }
            ]
        },
    ),
    (
        None,
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": '"make test"}'}}]}}]},
    ),
    (None, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
    (
        None,
        {
            "choices": [],
            "usage": {"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}},
        },
    ),
    (None, "[DONE]"),
)


def one_call(wire: Wire, *, cuts: int = 1) -> Wire:
    """A whole call that goes well, its bytes in so many pieces."""
    wire.request(anthropic_request(), cuts=cuts)
    wire.dial()
    wire.head()
    for piece in pieces(ANTHROPIC_STREAM, cuts):
        wire.data(piece)
    wire.end()
    return wire
