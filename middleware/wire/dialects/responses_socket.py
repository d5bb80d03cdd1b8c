"""Responses over a WebSocket: the messages of one tunnel become calls, as if each had been a request of its own.

In: what client and server sent after the 101 of `GET …/responses`, in any pieces.  Out: a `SocketCall` when a
`response.create` message is whole, and each event of the server given to the call that it belongs to.  A call has the
terminators of the event stream (`openai_responses.py`); the connection outlives it, so its end is no call's end unless
one is open.  What this module does not do: time, judge, or observe (`wire/exchange.py`), or read `response.steer`.

A message continues an earlier response by `previous_response_id` and sends only what is new.  Where that response went
over this socket, the history before it is known: turns, items and the first words are added to what the message says.
Events belong to the call of their `stream_id`, else to the oldest call that is open.  Bounds: client messages of
32 MiB, events of 1 MiB (`wire/sse.py`), 64 responses remembered, 64 calls open.

**Source:** OpenAI API reference "WebSocket events" of Responses; seen of Codex 0.171.0, which prefers it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import base
from fairtrial.middleware.wire.dialects.openai_responses import OpenAIResponses, ResponsesStream
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.http1 import RequestHead

MAX_CLIENT_MESSAGE_BYTES: Final = 32 << 20
MAX_EVENT_BYTES: Final = 4 << 20
MAX_REMEMBERED: Final = 64
MAX_OPEN: Final = 64

_DIALECT: Final = OpenAIResponses()


class _Asked(msgspec.Struct):
    type: str | None = None
    stream_id: str | None = None
    previous_response_id: str | None = None


class _Said(msgspec.Struct):
    type: str | None = None
    stream_id: str | None = None
    status: object = None
    status_code: object = None
    headers: object = None


_ASKED: Final = msgspec.json.Decoder(_Asked)
_SAID: Final = msgspec.json.Decoder(_Said)


@dataclass(slots=True)
class SocketCall:
    """One response that was asked for; `status` is 101, or what an error event names."""

    request: RequestFacts
    stream_id: str | None
    body_bytes: int
    reader: ResponsesStream = field(default_factory=lambda: ResponsesStream(Tally()))
    status: int = 101
    events_bytes: int = 0
    items: int = 0

    @property
    def over(self) -> bool:
        """Its terminal event, or an error, has come."""
        return bool(self.reader.tally.terminator) or self.reader.tally.error_in_stream


class ResponsesSocket:
    """Both directions of one tunnel; `head` and `path` are those of its handshake."""

    def __init__(self, head: RequestHead, path: str, extensions: str | None) -> None:
        # Loaded here: wsproto would cost every run some 40 ms of its start, and few open a WebSocket.
        from fairtrial.middleware.wire.websocket import MessageReader

        self._head = head
        self._path = path
        self._up = MessageReader(from_client=True, extensions=extensions, max_bytes=MAX_CLIENT_MESSAGE_BYTES)
        self._down = MessageReader(from_client=False, extensions=extensions, max_bytes=MAX_EVENT_BYTES)
        self._open: list[SocketCall] = []
        self._known: dict[str, RequestFacts] = {}
        self._why: str | None = None

    @property
    def failed(self) -> str | None:
        """Why nothing more is read; None while all is well."""
        return self._why or self._up.failed or self._down.failed

    def fail(self, why: str) -> None:
        """Bytes are missing: what follows cannot be framed."""
        self._why = self._why or why

    def up(self, data: bytes) -> list[SocketCall]:
        """Bytes of the client; the calls that they ask for."""
        calls: list[SocketCall] = []
        if self.failed is not None:
            return calls
        for message in self._up.feed(data):
            try:
                asked = _ASKED.decode(message)
            except base.UNREADABLE:
                continue
            if asked.type != "response.create":
                continue
            call = SocketCall(self._facts(message, asked), asked.stream_id, len(message))
            calls.append(call)
            self._open.append(call)
            if len(self._open) > MAX_OPEN:
                self.fail(f"more than {MAX_OPEN} calls are open")
        if self._up.skipped:
            # Whose events come next cannot be told.
            self.fail("a message of the client is too long to be read")
        return calls

    def down(self, data: bytes, t_ns: int) -> list[tuple[SocketCall, bool]]:
        """Bytes of the server; each call that was spoken to, once, and whether it was with more than pings.

        A call that is `over` has been forgotten here.
        """
        said: dict[int, tuple[SocketCall, bool]] = {}
        if self.failed is not None:
            return []
        for message in self._down.feed(data):
            try:
                event = _SAID.decode(message)
            except base.UNREADABLE:
                event = _Said()
            call = self._call_of(event.stream_id)
            if call is None:
                continue
            call.events_bytes += len(message)
            call.items += event.type == "response.output_item.done"
            # A line break inside JSON is white space, and would end the line of the event.
            line = message.replace(b"\n", b" ").replace(b"\r", b" ")
            spoke = call.reader.feed(b"data: " + line + b"\n\n", t_ns)
            said[id(call)] = (call, spoke or said.get(id(call), (call, False))[1])
            if call.over:
                self._note_end(call, event)
        if self._down.skipped:
            self.fail("an event is too long to be read")
        return list(said.values())

    def forget(self) -> list[SocketCall]:
        """The calls that are still open, when the reading failed."""
        still, self._open = self._open, []
        return still

    def _call_of(self, stream_id: str | None) -> SocketCall | None:
        for call in self._open:
            if stream_id is None or call.stream_id == stream_id:
                return call
        return None

    def _note_end(self, call: SocketCall, event: _Said) -> None:
        self._open.remove(call)
        tally = call.reader.tally
        if tally.error_in_stream:
            for value in (event.status, event.status_code):
                if isinstance(value, int) and 400 <= value < 600:
                    call.status = value
            headers = event.headers if isinstance(event.headers, dict) else {}
            named = {str(name).lower(): value for name, value in headers.items()}
            wait = named.get("retry-after")
            if isinstance(wait, str | int | float) and str(wait).replace(".", "", 1).isdecimal():
                tally.retry_after = float(wait)
            return
        request, name = call.request, tally.response_id
        if name is None or request.history_len is None:
            return
        # What a message that continues this response has before its own input.
        self._known[name] = msgspec.structs.replace(
            request,
            history_len=request.history_len + call.items,
            # A warm-up brings no items, and is no turn.
            assistant_turns=(request.assistant_turns or 0) + (call.items > 0),
        )
        while len(self._known) > MAX_REMEMBERED:
            del self._known[next(iter(self._known))]

    def _facts(self, message: bytes, asked: _Asked) -> RequestFacts:
        head = RequestHead("POST", self._head.target, self._head.headers)
        facts = _DIALECT.read_request(head, self._path, message)
        before = self._known.get(asked.previous_response_id or "")
        if before is None or before.history_len is None or facts.unreadable is not None:
            return facts
        fields = base.read_object(message)
        del fields["previous_response_id"]
        new = _DIALECT.read_request(head, self._path, msgspec.json.encode(fields))
        return msgspec.structs.replace(
            facts,
            history_len=before.history_len + (new.history_len or 0),
            assistant_turns=(before.assistant_turns or 0) + (new.assistant_turns or 0),
            first_user_digest=before.first_user_digest or new.first_user_digest,
            message_digests=new.message_digests,
            # The same wish is sent whole after a reconnect: a digest of its last part would say that it has changed.
            body_digest=None,
        )
