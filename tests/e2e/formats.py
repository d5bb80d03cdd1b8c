"""A model server that speaks what the stand-in does not: Gemini, Ollama, Vertex and Bedrock, as each is streamed.

In: nothing. Out: `running_formats()`, an address and the requests so far. A request whose history holds no tool result
is answered with one call of the tool `bash` (by the client's own spelling), any other with `FINAL`; every answer counts
`USAGE` tokens. A token of Google's is given to who asks for one; what is only asked for (GET) is not there.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import zstandard

FINAL = "Done."
CHATGPT_ACCOUNT = {
    "id": "acc-1",
    "name": "me",
    "structure": "personal",
    "plan_type": "pro",
    "is_deactivated": False,
    "can_access_with_session": True,
    "is_fedramp_compliant_workspace": False,
    "workspace_backend_origin": "https://chatgpt.com",
    "account_routing_override": "us",
}
"""What ChatGPT tells Codex of the account that it is logged in with."""
TOKEN = "ya29.of-the-stand-in"
"""What it gives to who logs in as a service account of Google's."""
USAGE = (26, 7)
"""Input and output tokens of each answer."""


@dataclass(slots=True)
class Running:
    """`url` has no path. `seen` are (path with query, headers, body) of all requests."""

    url: str
    seen: list[tuple[str, list[tuple[str, str]], dict[str, Any]]] = field(default_factory=list)
    cut: bool = False
    """Set: streams end in the middle of their second piece."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(host, method and path) of the requests that are not model calls."""


@contextlib.contextmanager
def running_formats(
    *, cut: bool = False, tls: tuple[Path, Path] | None = None, socket: Path | None = None
) -> Generator[Running, None, None]:
    """Serve until the block ends: on a loopback port, or on a unix socket, which is there in any network namespace.
    `tls`: certificate chain and key."""
    running = Running(url="", cut=cut)

    class Handler(_Handler):
        state = running

    with _server(Handler, socket) as server:
        if socket is None:
            running.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()


def _server(handler: type[_Handler], socket: Path | None) -> socketserver.TCPServer:
    if socket is None:
        return http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server = _UnixServer(str(socket), handler)
    server.daemon_threads = True
    return server


class _UnixServer(socketserver.ThreadingUnixStreamServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves early is no failure of the server's."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Running

    def do_GET(self) -> None:
        self.state.asked.append((self.headers["host"], f"GET {self.path}"))
        if self.path == "/backend-api/wham/accounts/check":
            self._whole({"accounts": [CHATGPT_ACCOUNT], "default_account_id": CHATGPT_ACCOUNT["id"]})
        else:
            self.send_error(426 if "upgrade" in self.headers else 404)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"]))
        path, _, query = self.path.partition("?")
        if path == "/token":
            self.state.asked.append((self.headers["host"], "POST /token"))
            self._whole({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})
            return
        if self.headers["content-encoding"] == "zstd":  # Codex with a login of ChatGPT's
            content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
        body = json.loads(content)
        if path.endswith("/mcp"):
            self.send_error(404)
            return
        self.state.seen.append((self.path, self.headers.items(), body))
        told = json.dumps(body)
        history = json.dumps(body.get("messages"))
        again = any(word in history for word in ('"role": "tool"', "tool_result", "toolResult"))
        if "contents" in body:  # Gemini, whose programs speak of such words elsewhere
            again = any("functionResponse" in part for content in body["contents"] for part in content["parts"])
        shell = "Bash" if '"name": "Bash"' in told else "bash"
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
            events = ((event["type"], json.dumps(event)) for event in messages(again, shell))
            self._stream("text/event-stream", (f"event: {kind}\ndata: {text}\n\n".encode() for kind, text in events))
        elif path.endswith("/invoke-with-response-stream"):
            pieces = [json.dumps(event) for event in bedrock_messages(again, shell)]
            packed = ({"bytes": base64.b64encode(piece.encode()).decode()} for piece in pieces)
            self._stream("application/vnd.amazon.eventstream", (aws_message("chunk", each) for each in packed))
        elif path.endswith("/responses"):
            events = ((event["type"], json.dumps(event)) for event in responses(body))
            self._stream("text/event-stream", (f"event: {kind}\ndata: {text}\n\n".encode() for kind, text in events))
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


def messages(again: bool, tool: str = "bash") -> list[dict[str, Any]]:
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
        start = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": {}}
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


def bedrock_messages(again: bool, tool: str = "bash") -> list[dict[str, Any]]:
    """The same with what Bedrock adds to the last event."""
    metrics = {"inputTokenCount": USAGE[0], "outputTokenCount": USAGE[1], "invocationLatency": 9, "firstByteLatency": 3}
    *events, last = messages(again, tool)
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


def responses(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of OpenAI's Responses that a client acts by."""
    again = any(item.get("type") == "function_call_output" for item in body["input"])
    item: dict[str, Any] = {"type": "message", "id": "msg_1", "role": "assistant"}
    item["content"] = [{"type": "output_text", "text": FINAL, "annotations": []}]
    if not again:
        arguments = json.dumps({"cmd": "echo hello", "command": "echo hello"})
        name = next(t["name"] for t in body["tools"] if t.get("name") in ("exec_command", "shell_command"))
        item = {"type": "function_call", "id": "fc_1", "call_id": "c_1", "name": name, "arguments": arguments}
    usage = {"input_tokens": USAGE[0], "output_tokens": USAGE[1], "total_tokens": sum(USAGE)}
    whole = {"id": "resp_1", "object": "response", "model": body["model"], "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {**whole, "output": [], "usage": None, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**whole, "status": "completed"}},
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
