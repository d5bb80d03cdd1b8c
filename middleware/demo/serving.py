"""One connection of the stand-in: reads HTTP/1.1 requests, answers them by script, fails them by fault.

In: a pair of asyncio streams and a `Host` that knows scenario, calls and spent faults. Out: bytes, and a filled-in
`Call` per request. What fails how is in `sending.py`, bytes are in `link.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterable
from typing import Protocol

import msgspec

from fairtrial.middleware.demo.answers import NoSuchTool, answer, error_body
from fairtrial.middleware.demo.asked import Api, Route, read_request, route_of
from fairtrial.middleware.demo.calls import Call, masked
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.link import ClientGone, Head, Link, decoded
from fairtrial.middleware.demo.reply import Reply, SocketReply, json_object
from fairtrial.middleware.demo.script import Scenario, Step
from fairtrial.middleware.demo.sending import instead, send_json, send_stream
from fairtrial.middleware.demo.sockets import ServerSide


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


class Connection:
    """Serves one client connection until either side ends it."""

    def __init__(self, host: Host, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._number = number
        self._link = Link(reader, writer)

    async def serve(self) -> None:
        """Answer requests one after the other. Returns when the connection has ended; raises only CancelledError."""
        try:
            while (head := await self._link.read_head()) is not None and await self._one(head):
                pass
        except (ClientGone, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._link.close()

    async def _one(self, head: Head) -> bool:
        """Answer one request; True when the connection may go on."""
        route, prefix = route_of(head.method, head.path.partition("?")[0])
        if self._host.scenario.websockets and head.get("upgrade").lower() == "websocket":
            return await self._over_websocket(head)
        call = self._call(head, route, prefix)
        unique = self._unique(call)
        reply = Reply(self._link, call, head, self._host.scenario, unique)
        await self._answer(call, reply, head)
        return call.ended in ("complete", "short") and head.get("connection").lower() != "close"

    def _call(self, head: Head, route: Route, prefix: str) -> Call:
        call = Call(
            index=-1,
            connection=self._number,
            peer_port=self._link.peer_port,
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

    async def _answer(self, call: Call, reply: Reply, head: Head, message: bytes | None = None) -> None:
        """Read the request (a `message` was read already), answer it, and note how that ended."""
        try:
            wire_body = await self._link.read_body(head) if message is None else message
            call.body_bytes = len(wire_body)
            call.body = decoded(wire_body, head.get("content-encoding"))
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

    async def _over_websocket(self, head: Head) -> bool:
        """Answer each message of a WebSocket as a call of its own, until either side ends the connection."""
        side = ServerSide(head.get("sec-websocket-key"), head.get("sec-websocket-extensions"))
        await self._link.send(side.head)
        prefix = head.path.partition("?")[0].removesuffix("/responses").removesuffix("/v1")
        while not side.closed and (data := await self._link.take_some()):
            messages = side.receive(data)
            if side.replies:
                await self._link.send(bytes(side.replies))
                side.replies.clear()
            for message in messages:
                call = self._call(head, "responses", prefix)
                reply = SocketReply(self._link, call, head, self._host.scenario, self._unique(call), side)
                await self._answer(call, reply, head, message)
                if call.ended != "complete":
                    return False
        return False

    async def _route(self, call: Call, reply: Reply) -> None:
        match call.route:
            case "messages" | "chat" | "responses" as api:
                await self._model_call(api, call, reply)
            case "count_tokens":
                asked = read_request("messages", json_object(call.body))
                await reply.whole(200, msgspec.json.encode({"input_tokens": -(-asked.content_bytes // 4)}))
            case "models":
                await reply.whole(200, _models(self._host.scenario.models))
            case "otlp":
                await reply.whole(200, b"{}")
            case "hello":
                await reply.whole(200, b"")
            case "unknown":
                await reply.whole(404, error_body("messages", "not_found_error", "Not found", call.request_id))

    async def _model_call(self, api: Api, call: Call, reply: Reply) -> None:
        body = json_object(call.body)
        if isinstance(reply, SocketReply):
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
            await self._link.pause(step.head_delay_s)
        if fault is not None and await instead(self._link, fault, asked, call, reply):
            return
        if asked.stream:
            await send_stream(self._link, ready, fault, asked, step, call, reply)
        else:
            await send_json(self._link, ready, fault, call, reply)


def _models(names: Iterable[str]) -> bytes:
    entries = [
        {"type": "model", "object": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}
        for name in names
    ]
    return msgspec.json.encode({"object": "list", "data": entries, "has_more": False})
