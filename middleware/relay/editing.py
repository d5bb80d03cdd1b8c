"""The one hook that edits a body: hold one request whole, let the door look, send it as it was or with another body.

In: request events of a door that has an `Editor` (the Docker door: `containers/create` and an exec's create).  Out: the
same events in the same order, and where the editor gave another body, that one with a Content-Length of its own.
What is held is bounded: a body over `MAX_BODY_BYTES`, one that breaks off and one that the client sends only when it is
asked for (`Expect: 100-continue`: nobody would ask, with its head held here) pass as they are, and are counted.

While the door thinks (it may have to ask the engine) the client is not read, and what it sent behind waits its turn.
Everything else of the connection is as if this were not there; faults in here pass the bytes as they were.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import groupby
from typing import Final

from fairtrial.middleware.relay.framing import BadRequest, BodyData, MessageEnd, RequestEvent
from fairtrial.middleware.relay.heads import Body, RequestHead, with_length
from fairtrial.middleware.relay.pair import Pause
from fairtrial.middleware.relay.route import Editor, Thinking
from fairtrial.middleware.relay.switch import wire_of
from fairtrial.middleware.relay.switching import Switching

MAX_BODY_BYTES: Final = 1 << 20

Timed = tuple[RequestEvent, int]
"""An event, and when it was read."""


class Edits:
    """What one connection holds back.  Of the events that are put in, `run` gives out those that may pass."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._waiting: deque[Timed] = deque()
        self._held: list[Timed] = []
        """The request whose body is gathered, or thought about."""
        self._body_bytes = 0
        self.task: asyncio.Task[None] | None = None
        """Thinks about what is held; nothing passes meanwhile."""

    @property
    def held_bytes(self) -> int:
        """How much was read from the client and has not left."""
        return sum(len(wire_of(event)) for event, _ in (*self._held, *self._waiting))

    def put(self, events: list[RequestEvent], t_ns: int) -> None:
        """Behind everything that waits."""
        self._waiting.extend((event, t_ns) for event in events)

    def run(self) -> tuple[list[Timed], Thinking | None]:
        """What may pass now, and what must be thought about before anything more may."""
        passing: list[Timed] = []
        while self._waiting and self.task is None:
            event, t_ns = self._waiting.popleft()
            if self._held and isinstance(event, BadRequest):
                passing += self.give_up("its framing breaks off")
            if isinstance(event, RequestHead) and self._may_hold(event):
                self._held = [(event, t_ns)]
                self._body_bytes = 0
            elif self._held:
                self._held.append((event, t_ns))
                if isinstance(event, MessageEnd):
                    thinking = self._ask()
                    if thinking is not None:
                        return passing, thinking
                    passing += self._release()
                elif isinstance(event, BodyData):
                    self._body_bytes += len(event.payload)
                    if self._body_bytes > MAX_BODY_BYTES:
                        passing += self.give_up(f"it is longer than {MAX_BODY_BYTES} bytes")
            else:
                passing.append((event, t_ns))
        return passing, None

    def answer(self, body: bytes | None) -> list[Timed]:
        """It was thought: what is held, with this body where there is one, may pass before all that waits."""
        self.task = None
        held = self._release()
        if body is None:
            return held
        head, end = held[0][0], held[-1]
        assert isinstance(head, RequestHead)
        head.sent = with_length(head, len(body))
        said = self._payload(held)
        # The observer is told what the client sent; the wire carries the other.
        return [(head, held[0][1]), (BodyData(body, said), end[1]), end]

    def give_up(self, why: str) -> list[Timed]:
        """What was gathered so far, as it was sent: it will not be looked at."""
        if not self._held or self.task is not None:
            return []
        self._editor.not_edited(why)
        return self._release()

    def _may_hold(self, head: RequestHead) -> bool:
        if not self._editor.wants(head) or head.body is Body.NONE:
            return False
        why = _cannot_wait(head)
        if why is not None:
            self._editor.not_edited(why)
        return why is None

    def _ask(self) -> Thinking | None:
        head = self._held[0][0]
        assert isinstance(head, RequestHead)
        return self._editor.edit(head, self._payload(self._held))

    @staticmethod
    def _payload(held: list[Timed]) -> bytes:
        return b"".join(event.payload for event, _ in held if isinstance(event, BodyData))

    def _release(self) -> list[Timed]:
        held, self._held = self._held, []
        return held


def _cannot_wait(head: RequestHead) -> str | None:
    low = head.raw.lower()
    if head.body is Body.LENGTH and head.length_bytes > MAX_BODY_BYTES:
        return f"it is longer than {MAX_BODY_BYTES} bytes"
    if b"\r\nexpect:" in low:
        return "its client waits to be asked for it (Expect)"
    if head.may_tunnel:
        return "its client asks for an upgrade"
    if b"\r\ncontent-encoding:" in low or b"\r\ntrailer:" in low:
        return "it is compressed or has trailers"
    return None


class Editing(Switching):
    """Hold, think, pass on."""

    __slots__ = ()

    def _pass_edits(self, edits: Edits) -> None:
        """What need not wait passes; thinking is done by a task."""
        passing, thinking = edits.run()
        self._pass_timed(passing)
        if thinking is not None:
            self._pause(Pause.EDITING)
            edits.task = self._loop.create_task(self._think(edits, thinking), name=f"fairtrial-edit-{self.conn}")

    async def _think(self, edits: Edits, thinking: Thinking) -> None:
        body: bytes | None = None
        try:
            body = await thinking()
        except Exception as error:  # noqa: BLE001 - it passes as it was
            self._relay.swallow(error)
        self._guard(self._thought)(edits, body)

    def _thought(self, edits: Edits, body: bytes | None) -> None:
        if self._finished or self._client.closed:
            edits.answer(None)
            return
        self._pass_timed(edits.answer(body))
        self._pass_edits(edits)
        if edits.task is None:
            self._resume(Pause.EDITING)
            if self._eof_pending and self._upstream is not None and not self._held_bytes:
                self._upstream.finish()

    def _pass_timed(self, passing: list[Timed]) -> None:
        for t_ns, run in groupby(passing, key=lambda timed: timed[1]):
            if self._refusing is not None or self._client.closed:
                return
            self._pass_requests([event for event, _ in run], t_ns)

    def _edit_no_more(self, why: str) -> None:
        """The client sends no more: an unfinished body goes on as far as it came."""
        if self._edits is not None:
            self._pass_timed(self._edits.give_up(why))
