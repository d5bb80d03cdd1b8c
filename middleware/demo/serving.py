"""One connection of the stand-in: reads HTTP/1.1 requests, answers them by script, fails them by fault.

In: a pair of asyncio streams and a `Host` that knows scenario, calls and spent faults. Out: bytes, and a filled-in
`Call` per request. Bare streams and not an HTTP library, because the faults need what libraries rightly forbid: half
a chunk, a declared length that is not kept, a reset instead of an end. It is a test server: requests are read
leniently.
"""

from __future__ import annotations

import asyncio
import fcntl
import gzip
import hashlib
import os
import socket
import struct
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import msgspec

from fairtrial.middleware.demo.answers import (
    Answer,
    NoSuchTool,
    answer,
    error_body,
    error_frame,
    failed_frame,
    ping_frame,
)
from fairtrial.middleware.demo.asked import Api, Asked, Route, read_request, route_of
from fairtrial.middleware.demo.calls import Call, masked
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import Scenario, Step
from fairtrial.middleware.demo.sockets import ServerSide

HEAD_LIMIT_BYTES = 256 * 1024
_SIOCOUTQ = 0x5411  # linux/sockios.h: bytes in the socket's send queue
_GARBAGE = "<html>\n<head><title>Welcome</title></head>\n<body><h1>It works!</h1></body>\n</html>\n"
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests", 529: ""}


class ClientGone(Exception):
    """The client closed or reset the connection before its answer was whole, or sent what is no HTTP."""


class Host(Protocol):
    """What a connection needs from its server."""

    scenario: Scenario
    seed: str
    """Makes ids differ between servers."""

    def begin(self, call: Call) -> None:
        """A request head was read."""
        ...

    def attempt(self, call: Call) -> int:
        """How many calls this prefix has made at this step, this one included."""
        ...

    def take_fault(self, call: Call) -> Fault | None:
        """The fault that hits this call, counted as used; None when it is to go well."""
        ...

    def finish(self, call: Call) -> None:
        """The call's fields are final."""
        ...


@dataclass(slots=True)
class _Head:
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


class Connection:
    """Serves one client connection until either side ends it."""

    def __init__(self, host: Host, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._number = number
        self._reader = reader
        self._writer = writer
        self._early = bytearray()  # read while watching for the client's end during a pause

    async def serve(self) -> None:
        """Answer requests one after the other. Returns when the connection has ended; raises only CancelledError."""
        try:
            while (head := await self._read_head()) is not None and await self._one(head):
                pass
        except (ClientGone, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writer.close()

    # ---- reading ----

    async def _fill(self) -> bool:
        """Read more bytes; False at the client's end."""
        got = await self._reader.read(65536)
        self._early += got
        return bool(got)

    async def _take(self, size: int) -> bytes:
        while len(self._early) < size:
            if not await self._fill():
                raise ClientGone
        taken = bytes(self._early[:size])
        del self._early[:size]
        return taken

    async def _take_through(self, mark: bytes) -> bytes:
        while (end := self._early.find(mark)) < 0:
            if len(self._early) > HEAD_LIMIT_BYTES or not await self._fill():
                raise ClientGone
        return await self._take(end + len(mark))

    async def _read_head(self) -> _Head | None:
        while not self._early:
            if not await self._fill():
                return None
        first, *lines = (await self._take_through(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        path = rest.rpartition(" ")[0]
        pairs = (line.partition(":") for line in lines)
        return _Head(method, path, tuple((name, value.strip()) for name, _, value in pairs))

    async def _read_body(self, head: _Head) -> bytes:
        if head.get("expect").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if "chunked" in head.get("transfer-encoding").lower():
            body = bytearray()
            while size := _size((await self._take_through(b"\r\n")).split(b";")[0].decode("latin-1"), 16):
                body += await self._take(size)
                await self._take(2)
            while await self._take_through(b"\r\n") != b"\r\n":
                pass
            return bytes(body)
        return await self._take(_size(head.get("content-length") or "0", 10))

    # ---- one request ----

    async def _one(self, head: _Head) -> bool:
        """Answer one request; True when the connection may go on."""
        route, prefix = route_of(head.method, head.path.partition("?")[0])
        if self._host.scenario.websockets and head.get("upgrade").lower() == "websocket":
            return await self._over_websocket(head)
        call = self._call(head, route, prefix)
        unique = self._unique(call)
        reply = _Reply(self, call, head, self._host.scenario, unique)
        await self._answer(call, reply, head)
        return call.ended in ("complete", "short") and head.get("connection").lower() != "close"

    def _call(self, head: _Head, route: Route, prefix: str) -> Call:
        peer = self._writer.get_extra_info("peername")
        call = Call(
            index=-1,
            connection=self._number,
            peer_port=peer[1] if isinstance(peer, tuple) else None,
            method=head.method,
            path=head.path,
            prefix=prefix,
            route=route,
            headers=tuple((name, masked(name, value)) for name, value in head.headers),
            started_ns=time.monotonic_ns(),
        )
        self._host.begin(call)
        return call

    def _unique(self, call: Call) -> str:
        return hashlib.sha256(f"{self._host.seed}/{call.index}".encode()).hexdigest()[:20]

    async def _answer(self, call: Call, reply: _Reply, head: _Head, message: bytes | None = None) -> None:
        """Read the request (a `message` was read already), answer it, and note how that ended."""
        try:
            wire_body = await self._read_body(head) if message is None else message
            call.body_bytes = len(wire_body)
            call.body = _decoded(wire_body, head.get("content-encoding"))
            call.asked_ns = time.monotonic_ns()
            await self._route(call, reply)
            if call.ended == "open":
                call.ended = "complete"
        except (ClientGone, ConnectionError):
            call.ended = "client_gone"
        except asyncio.CancelledError:
            call.ended = "stopped"
            raise
        finally:
            call.ended_ns = time.monotonic_ns()
            self._host.finish(call)

    async def _over_websocket(self, head: _Head) -> bool:
        """Answer each message of a WebSocket as a call of its own, until either side ends the connection."""
        side = ServerSide(head.get("sec-websocket-key"), head.get("sec-websocket-extensions"))
        await self.send(side.head)
        prefix = head.path.partition("?")[0].removesuffix("/responses").removesuffix("/v1")
        while not side.closed and (self._early or await self._fill()):
            data = bytes(self._early)
            self._early.clear()
            messages = side.receive(data)
            if side.replies:
                await self.send(bytes(side.replies))
                side.replies.clear()
            for message in messages:
                call = self._call(head, "responses", prefix)
                reply = _SocketReply(self, call, head, self._host.scenario, self._unique(call), side)
                await self._answer(call, reply, head, message)
                if call.ended != "complete":
                    return False
        return False

    async def _route(self, call: Call, reply: _Reply) -> None:
        match call.route:
            case "messages" | "chat" | "responses" as api:
                await self._model_call(api, call, reply)
            case "count_tokens":
                asked = read_request("messages", _object(call.body))
                await reply.whole(200, msgspec.json.encode({"input_tokens": -(-asked.content_bytes // 4)}))
            case "models":
                await reply.whole(200, _models(self._host.scenario.models))
            case "otlp":
                await reply.whole(200, b"{}")
            case "hello":
                await reply.whole(200, b"")
            case "unknown":
                await reply.whole(404, error_body("messages", "not_found_error", "Not found", call.request_id))

    async def _model_call(self, api: Api, call: Call, reply: _Reply) -> None:
        body = _object(call.body)
        if isinstance(reply, _SocketReply):
            body = {**body, "stream": True}
        if body.get("generate") is False:
            await reply.warmed_up()
            return
        asked = read_request(api, body)
        scenario = self._host.scenario
        call.step, call.model, call.stream = asked.step, asked.model, asked.stream
        call.tools = tuple(tool.name for tool in asked.tools)
        call.side = not asked.tools and scenario.side_text is not None
        call.attempt = self._host.attempt(call)
        fault = self._host.take_fault(call)
        call.fault = fault.kind if fault else None
        step = Step(text=scenario.side_text) if call.side else scenario.step_at(asked.step)
        try:
            ready = answer(asked, step, reply.unique)
        except NoSuchTool as missing:
            await reply.whole(400, error_body(api, "invalid_request_error", str(missing), call.request_id))
            return
        if step.head_delay_s:
            await self.pause(step.head_delay_s)
        if fault is not None and await self._instead(fault, asked, call, reply):
            return
        if asked.stream:
            await self._stream(ready, fault, asked, step, call, reply)
        else:
            await self._json(ready, fault, call, reply)

    async def _instead(self, fault: Fault, asked: Asked, call: Call, reply: _Reply) -> bool:
        """Carry out a fault that replaces the answer or delays its head; True when nothing is left to send."""
        match fault.kind:
            case "close":
                call.ended = "fin"
            case "rst":
                await self.end("rst")
                call.ended = "rst"
            case "stall_headers":
                await self.pause(fault.duration_s)
                return False
            case "garbage":
                page = (fault.body or _GARBAGE).encode()
                await reply.whole(fault.shown_status, page, fault.headers, "text/html; charset=utf-8")
            case "http":
                body = error_body(asked.api, fault.shown_type, fault.shown_message, call.request_id)
                await reply.whole(fault.shown_status, body, fault.headers)
            case "json_error":
                await reply.whole(200, error_body(asked.api, fault.shown_type, fault.shown_message, call.request_id))
            case "error_event" | "failed" if not asked.stream:
                await reply.whole(200, error_body(asked.api, fault.shown_type, fault.shown_message, call.request_id))
            case _:
                return False
        return True

    async def _json(self, ready: Answer, fault: Fault | None, call: Call, reply: _Reply) -> None:
        kind = fault.kind if fault else None
        if fault is None or kind not in {"stall", "cut", "slow"}:
            await reply.whole(200, ready.body)
            call.usage = ready.usage
            return
        body = await reply.head_for_whole(200, ready.body)
        if kind == "slow":
            size = max(1, -(-len(body) // 16))
            for start in range(0, len(body), size):
                await reply.write(body[start : start + size])
                await self.pause(fault.interval_s)
        else:
            half = len(body) // 2
            await reply.write(body[:half])
            if kind == "cut":
                await self.end(fault.ending)
                call.ended = fault.ending
                return
            await self.pause(fault.duration_s)
            await reply.write(body[half:])
        call.usage = ready.usage

    async def _stream(
        self, ready: Answer, fault: Fault | None, asked: Asked, step: Step, call: Call, reply: _Reply
    ) -> None:
        await reply.head_for_stream()
        gap_s = fault.interval_s if fault and fault.kind == "slow" else step.event_gap_s
        at = fault.after_events if fault else -1
        for number, frame in enumerate((*ready.frames, b"")):
            if fault is not None and number == min(at, len(ready.frames)):
                match fault.kind:
                    case "stall":
                        await self.pause(fault.duration_s)
                    case "pings":
                        async for _ in self._every(fault.interval_s, fault.duration_s):
                            await reply.chunk(ping_frame(asked.api))
                    case "error_event":
                        await reply.chunk(error_frame(asked.api, fault.shown_type, fault.shown_message, number))
                        await reply.end_of_stream()
                        return
                    case "failed":
                        said = (fault.shown_type, fault.shown_message, number)
                        await reply.chunk(failed_frame(asked, *said, reply.unique))
                        await reply.end_of_stream()
                        return
                    case "short":
                        await reply.end_of_stream()
                        call.ended = "short"
                        return
                    case "cut":
                        await reply.half_chunk(frame)
                        await self.end(fault.ending)
                        call.ended = fault.ending
                        return
                    case _:
                        pass
            if not frame:
                break
            if number and gap_s:
                await self.pause(gap_s)
            await reply.chunk(frame)
            call.events_sent += 1
        await reply.end_of_stream()
        call.usage = ready.usage

    async def _every(self, interval_s: float, duration_s: float | None) -> AsyncIterator[None]:
        """Yield now and after each interval until the duration is over (None: until the client leaves)."""
        started = time.monotonic()
        while duration_s is None or time.monotonic() - started < duration_s:
            yield
            await self.pause(interval_s)

    # ---- pauses and ends ----

    async def pause(self, duration_s: float | None) -> None:
        """Be silent for so long, or until the client leaves when None. Raises ClientGone at the client's end."""
        deadline = None if duration_s is None else time.monotonic() + duration_s
        while True:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            try:
                if not await asyncio.wait_for(self._fill(), left_s):
                    raise ClientGone
            except TimeoutError:
                return

    async def send(self, data: bytes) -> None:
        """Write and wait until the transport has taken it. Raises ClientGone."""
        if self._writer.transport.is_closing():
            raise ClientGone
        self._writer.write(data)
        try:
            await self._writer.drain()
        except ConnectionError as gone:
            raise ClientGone from gone

    async def end(self, how: Literal["fin", "rst", "ragged"]) -> None:
        """End the connection now; all that was written before has left this host."""
        # A twin of the descriptor: loops hand out sockets that may not be configured, and options belong to both.
        with socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno())) as twin:
            for _ in range(200):
                if self._writer.transport.get_write_buffer_size() == 0 and _unsent_bytes(twin) == 0:
                    break
                await asyncio.sleep(0.005)
            if how == "rst":
                twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "fin":
            self._writer.close()
        else:
            self._writer.transport.abort()


class _Reply:
    """Writes one answer: head, body or chunks, and notes on the call what was sent."""

    def __init__(self, connection: Connection, call: Call, head: _Head, scenario: Scenario, unique: str) -> None:
        self._connection = connection
        self._call = call
        self._is_head = head.method == "HEAD"
        self.unique = unique
        call.request_id = f"req_01{unique}" if scenario.request_ids else None
        self._gzip = scenario.gzip_replies and "gzip" in head.get("accept-encoding").lower()
        self._deflate = zlib.compressobj(wbits=31) if self._gzip else None

    async def write(self, data: bytes) -> None:
        """Send bytes of the answer."""
        if self._call.first_byte_ns is None:
            self._call.first_byte_ns = time.monotonic_ns()
        await self._connection.send(data)
        self._call.sent_bytes += len(data)

    def _head(self, status: int, own: Iterable[tuple[str, str]], more: Mapping[str, str]) -> bytes:
        self._call.status = status
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", "server: fairtrial-stand-in"]
        lines += [f"{name}: {value}" for name, value in own]
        if self._call.request_id is not None:
            if self._call.route in {"chat", "responses"}:
                lines += [
                    f"x-request-id: {self._call.request_id}",
                    "openai-processing-ms: 5",
                    "openai-version: 2020-10-01",
                ]
            else:
                lines.append(f"request-id: {self._call.request_id}")
        lines += [f"{name}: {value}" for name, value in more.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    async def head_for_whole(
        self, status: int, body: bytes, more: Mapping[str, str] | None = None, kind: str = "application/json"
    ) -> bytes:
        """Send the head that declares the whole body; returns the body as it goes over the wire."""
        own = [("content-type", kind)]
        if self._gzip and body:
            body = gzip.compress(body, mtime=0)
            own.append(("content-encoding", "gzip"))
        own.append(("content-length", str(len(body))))
        await self.write(self._head(status, own, more or {}))
        return body

    async def whole(
        self, status: int, body: bytes, more: Mapping[str, str] | None = None, kind: str = "application/json"
    ) -> None:
        """Send a whole answer."""
        wire_body = await self.head_for_whole(status, body, more, kind)
        if wire_body and not self._is_head:
            await self.write(wire_body)

    async def head_for_stream(self) -> None:
        """Send the head of an event stream."""
        own = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]
        if self._gzip:
            own.append(("content-encoding", "gzip"))
        await self.write(self._head(200, [*own, ("transfer-encoding", "chunked")], {}))

    def _coded(self, frame: bytes) -> bytes:
        if self._deflate is None:
            return frame
        return self._deflate.compress(frame) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    async def chunk(self, frame: bytes) -> None:
        """Send one event as one chunk."""
        coded = self._coded(frame)
        await self.write(b"%x\r\n%b\r\n" % (len(coded), coded))

    async def half_chunk(self, frame: bytes) -> None:
        """Declare a whole chunk and send half of it (nothing when no event is left)."""
        coded = self._coded(frame) if frame else b""
        if coded:
            await self.write(b"%x\r\n%b" % (len(coded), coded[: len(coded) // 2]))

    async def warmed_up(self) -> None:
        """Answer a request that asks for nothing (over a WebSocket only)."""
        await self.whole(400, error_body("responses", "invalid_request_error", "generate", self._call.request_id))

    async def end_of_stream(self) -> None:
        """Send the last chunk."""
        tail = self._deflate.flush() if self._deflate is not None else b""
        last = b"%x\r\n%b\r\n" % (len(tail), tail) if tail else b""
        await self.write(last + b"0\r\n\r\n")


class _SocketReply(_Reply):
    """The same answer as messages of a WebSocket: an event each, and an error event for a refusal."""

    def __init__(
        self, connection: Connection, call: Call, head: _Head, scenario: Scenario, unique: str, side: ServerSide
    ) -> None:
        super().__init__(connection, call, head, scenario, unique)
        self._side = side
        call.status = 101

    async def head_for_stream(self) -> None:
        """The socket is open already."""

    async def whole(
        self,
        status: int,
        body: bytes,
        more: Mapping[str, str] | None = None,
        kind: str = "application/json",  # noqa: ARG002 - messages have no type
    ) -> None:
        """Send a refusal as an error event; what is no JSON goes as it is."""
        fields = _object(body)
        if fields:
            body = msgspec.json.encode({"type": "error", "status": status, "headers": more or {}} | dict(fields))
        await self.write(self._side.text(body))

    async def chunk(self, frame: bytes) -> None:
        """Send the data of one event as one message."""
        await self.write(self._message(frame))

    async def half_chunk(self, frame: bytes) -> None:
        """Send half of a message."""
        if frame:
            whole = self._message(frame)
            await self.write(whole[: len(whole) // 2])

    async def end_of_stream(self) -> None:
        """The last event was the end."""

    async def warmed_up(self) -> None:
        """Answer a request that asks for nothing; its id counts no turn."""
        response = {"id": f"resp_w_{self.unique}", "object": "response", "output": []}
        for kind, status in (("created", "in_progress"), ("completed", "completed")):
            event = {"type": f"response.{kind}", "response": response | {"status": status}}
            await self.write(self._side.text(msgspec.json.encode(event)))

    def _message(self, frame: bytes) -> bytes:
        data = frame.partition(b"data: ")[2].strip() or b'{"type": "keepalive"}'
        fields = _object(data)
        if fields.get("type") == "error":
            # Over a WebSocket the error is an object, and has the status that HTTP would have had.
            error = {"type": fields.get("code"), "code": fields.get("code"), "message": fields.get("message")}
            data = msgspec.json.encode({"type": "error", "status": 503, "error": error})
        return self._side.text(data)


def _size(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise ClientGone from None


def _unsent_bytes(sock: socket.socket) -> int:
    """Bytes in the kernel's send queue that the peer has not acknowledged; 0 when the socket is gone."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), _SIOCOUTQ, b"\0\0\0\0"))[0])
    except OSError:
        return 0


def _decoded(body: bytes, encoding: str) -> bytes:
    """The request body without its content coding; as it is when the coding is unknown or broken."""
    try:
        if encoding == "gzip":
            return gzip.decompress(body)
        if encoding == "zstd":
            import zstandard

            return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    except (OSError, EOFError, zlib.error, ValueError):
        return body
    return body


def _object(body: bytes) -> Mapping[str, object]:
    """The body as a JSON object; an empty one for anything else."""
    try:
        value: object = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _models(names: Iterable[str]) -> bytes:
    entries = [
        {"type": "model", "object": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
        for name in names
    ]
    return msgspec.json.encode({"object": "list", "data": entries, "has_more": False})
