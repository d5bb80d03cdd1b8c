"""One answer on its way: head, body or chunks, or the same as messages of a WebSocket.

In: a link to the client, the call that is answered.  Out: bytes, and on the call what was sent.  What the answer says
is in `answers.py`, how it fails in `sending.py`.
"""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from fairtrial.middleware.demo.answers import error_body
from fairtrial.middleware.demo.calls import Call
from fairtrial.middleware.demo.link import Head, Link
from fairtrial.middleware.demo.script import Scenario
from fairtrial.middleware.demo.sockets import ServerSide

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests", 529: ""}


class Reply:
    """Writes one answer: head, body or chunks, and notes on the call what was sent."""

    def __init__(self, link: Link, call: Call, head: Head, scenario: Scenario, unique: str) -> None:
        self._link = link
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
        await self._link.send(data)
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


class SocketReply(Reply):
    """The same answer as messages of a WebSocket: an event each, and an error event for a refusal."""

    def __init__(self, link: Link, call: Call, head: Head, scenario: Scenario, unique: str, side: ServerSide) -> None:
        super().__init__(link, call, head, scenario, unique)
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
        fields = json_object(body)
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
        fields = json_object(data)
        if fields.get("type") == "error":
            # Over a WebSocket the error is an object, and has the status that HTTP would have had.
            error = {"type": fields.get("code"), "code": fields.get("code"), "message": fields.get("message")}
            data = msgspec.json.encode({"type": "error", "status": 503, "error": error})
        return self._side.text(data)


def json_object(body: bytes) -> Mapping[str, object]:
    """The body as a JSON object; an empty one for anything else."""
    try:
        value: object = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
