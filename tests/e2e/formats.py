"""A model server that speaks what the stand-in does not: Gemini, Ollama, Vertex and Bedrock, as each is streamed.

In: nothing. Out: `running_formats()`, an address and the requests so far. A request whose history holds no tool result
is answered with one call of the tool `bash`, any other with `FINAL`; every answer counts `USAGE` tokens.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import struct
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

FINAL = "Done."
USAGE = (26, 7)
"""Input and output tokens of each answer."""


@dataclass(slots=True)
class Running:
    """`url` has no path. `seen` are (path with query, headers, body) of all requests."""

    url: str
    seen: list[tuple[str, list[tuple[str, str]], dict[str, Any]]] = field(default_factory=list)
    cut: bool = False
    """Set: streams end in the middle of their second piece."""


@contextlib.contextmanager
def running_formats(*, cut: bool = False) -> Generator[Running, None, None]:
    """Serve on a loopback port until the block ends."""
    running = Running(url="", cut=cut)

    class Handler(_Handler):
        state = running

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Running

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.state.seen.append((self.path, self.headers.items(), body))
        path, _, query = self.path.partition("?")
        told = json.dumps(body)
        again = any(word in told for word in ('"role": "tool"', "tool_result", "toolResult"))
        if "contents" in body:  # Gemini, whose programs speak of such words elsewhere
            again = any("functionResponse" in part for content in body["contents"] for part in content["parts"])
        if path.endswith(":generateContent"):
            self._whole(gemini(again)[-1])
        elif path.endswith(":streamGenerateContent"):
            tool = "run_shell_command" if "run_shell_command" in told else "bash"  # what Gemini CLI calls its shell
            chunks = [json.dumps(chunk) for chunk in gemini(again, tool)]
            if "alt=sse" in query:
                self._stream("text/event-stream", (f"data: {chunk}\r\n\r\n".encode() for chunk in chunks))
            else:
                pieces = [("[" if at == 0 else ",\r\n") + chunk for at, chunk in enumerate(chunks)]
                self._stream("application/json", (piece.encode() for piece in (*pieces, "]")))
        elif path.endswith("/api/chat"):
            lines = ollama(again)
            if body.get("stream", True):
                self._stream("application/x-ndjson", (json.dumps(line).encode() + b"\n" for line in lines))
            else:
                self._whole(lines[-1] | {"message": lines[0]["message"]})
        elif path.endswith(":streamRawPredict"):
            events = ((event["type"], json.dumps(event)) for event in messages(again))
            self._stream("text/event-stream", (f"event: {kind}\ndata: {text}\n\n".encode() for kind, text in events))
        elif path.endswith("/invoke-with-response-stream"):
            pieces = [json.dumps(event) for event in bedrock_messages(again)]
            packed = ({"bytes": base64.b64encode(piece.encode()).decode()} for piece in pieces)
            self._stream("application/vnd.amazon.eventstream", (aws_message("chunk", each) for each in packed))
        elif path.endswith("/converse-stream"):
            named = converse(again)
            self._stream("application/vnd.amazon.eventstream", (aws_message(name, each) for name, each in named))
        else:
            self.send_error(404)

    def _whole(self, value: object) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, kind: str, pieces: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for at, piece in enumerate(pieces):
            if self.state.cut and at == 1:
                self.wfile.write(b"%x\r\n" % len(piece) + piece[: len(piece) // 2])
                self.wfile.flush()
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.flush()
            time.sleep(0.01)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class calls it
        """Tests print nothing."""


def gemini(again: bool, tool: str = "bash") -> list[dict[str, Any]]:
    """The chunks of a stream; the last alone is a whole answer."""
    part = {"text": FINAL} if again else {"functionCall": {"name": tool, "args": {"command": "echo hello"}}}
    usage = {"promptTokenCount": USAGE[0], "candidatesTokenCount": USAGE[1], "totalTokenCount": sum(USAGE)}
    more = {"usageMetadata": usage, "modelVersion": "gemini-3-pro", "responseId": "r1"}
    first = {"candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "index": 0}], **more}
    last = {"candidates": [{"content": {"parts": [part], "role": "model"}, "finishReason": "STOP", "index": 0}], **more}
    return [first, last]


def ollama(again: bool) -> list[dict[str, Any]]:
    """The lines of a stream."""
    call = {"function": {"name": "bash", "arguments": {"command": "echo hello"}}}
    message: dict[str, Any] = (
        {"role": "assistant", "content": FINAL} if again else {"role": "assistant", "content": "", "tool_calls": [call]}
    )
    head = {"model": "llama3.2", "created_at": "2026-11-30T08:00:00.000000Z"}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": USAGE[0], "eval_count": USAGE[1]}
    counted = {"total_duration": 5_000_000, "load_duration": 1, "prompt_eval_duration": 1, "eval_duration": 1}
    empty = {"role": "assistant", "content": ""}
    return [{**head, "message": message, "done": False}, {**head, "message": empty, **end, **counted}]


def messages(again: bool) -> list[dict[str, Any]]:
    """The events of Anthropic's stream, as Vertex sends them."""
    message: dict[str, Any] = {
        "id": "msg_vrtx_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-8",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": USAGE[0], "output_tokens": 1},
    }
    start: dict[str, Any] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": FINAL}
    if not again:
        start = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": '{"command": "echo hello"}'}
    reason = "end_turn" if again else "tool_use"
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": USAGE[1]},
        },
        {"type": "message_stop"},
    ]


def bedrock_messages(again: bool) -> list[dict[str, Any]]:
    """The same with what Bedrock adds to the last event."""
    metrics = {"inputTokenCount": USAGE[0], "outputTokenCount": USAGE[1], "invocationLatency": 9, "firstByteLatency": 3}
    *events, last = messages(again)
    return [*events, {**last, "amazon-bedrock-invocationMetrics": metrics}]


def converse(again: bool) -> list[tuple[str, dict[str, Any]]]:
    """The events of Bedrock's Converse stream."""
    use = {"start": {"toolUse": {"toolUseId": "t1", "name": "bash"}}, "contentBlockIndex": 0}
    arguments = {"toolUse": {"input": '{"command": "echo hello"}'}}
    usage = {"inputTokens": USAGE[0], "outputTokens": USAGE[1], "totalTokens": sum(USAGE)}
    return [
        ("messageStart", {"role": "assistant"}),
        *([] if again else [("contentBlockStart", use)]),
        ("contentBlockDelta", {"delta": {"text": FINAL} if again else arguments, "contentBlockIndex": 0}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("messageStop", {"stopReason": "end_turn" if again else "tool_use"}),
        ("metadata", {"usage": usage, "metrics": {"latencyMs": 9}}),
    ]


def aws_message(event: str, value: object) -> bytes:
    """One message of `application/vnd.amazon.eventstream`, with its two checksums."""
    pairs = ((":event-type", event), (":content-type", "application/json"), (":message-type", "event"))
    headers = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(text)) + text.encode()
        for name, text in pairs
    )
    payload = json.dumps(value).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    body = prelude + struct.pack(">I", crc32(prelude)) + headers + payload
    return body + struct.pack(">I", crc32(body))
