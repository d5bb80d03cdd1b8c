"""Client -> upstream: requests leave with the head lines of their door, everything else of them verbatim.

In: reads of the client.  Out: bytes to the upstream, or to what waits for its dial; then records for the observer.
A head that was said before, with its body in the same read, takes the short path: one comparison, one write.
What cannot be framed goes blind (`run`) or is refused behind the responses in flight (`serve`, DESIGN section 3).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.relay.account import trial_note
from fairtrial.middleware.relay.again import Said, can_be_said_again
from fairtrial.middleware.relay.editing import Editing
from fairtrial.middleware.relay.framing import BadRequest, BodyData, InFlight, MessageEnd, RequestEvent
from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.pair import LESSONS, UPSTREAM_FLUSH_S, Pause
from fairtrial.middleware.relay.route import HeadRefused
from fairtrial.middleware.wire.feed import Kind

_REQUEST_HEAD: Final = int(Kind.REQUEST_HEAD)
"""Looked up once: an enum's attribute costs more than the record."""


class Upward(Editing):
    """The way of the requests."""

    __slots__ = ()

    def _client_data(self, data: bytes, t_ns: int) -> None:
        try:
            if self._unseen:
                self.catch_up()
            account = self.account
            account.client_last_ns = t_ns
            account.bytes_up += len(data)
            said = self._said
            if said is not None and self._requests.ready and said.generation == self._relay.generation:
                try:
                    new = said.again(data)
                except Exception as error:  # noqa: BLE001 - the general way does not need it
                    new = self._said = None
                    self._relay.swallow(error)
                if new is not None:
                    self._lessons = LESSONS
                    self._take_whole_request(said.method, new)
                    self._tell_whole_request(said.trial, data, said.head_bytes, t_ns)
                    return
            self._take_client_data(data, t_ns)
        except Exception as error:  # noqa: BLE001 - outermost frame
            self._fault(error)

    def _take_whole_request(self, method: bytes, new: bytes) -> None:
        """One read, one request: head and body leave in one write."""
        msg = self._msg = self._requests.msg = self._msg + 1
        fifo = self._responses.fifo
        if not self._down_blind:
            fifo.append(InFlight(msg, method))
        upstream = self._upstream
        if upstream is not None:
            upstream.write(new)
        else:
            self._to_upstream(new)
        if len(fifo) > self._settings.pipeline_depth:
            self._pause(Pause.PIPELINE)

    def _tell_whole_request(self, trial: str | None, data: bytes, head_bytes: int, t_ns: int) -> None:
        try:
            self._counters.requests += 1
            if trial != self._trial:
                self._trial = trial
                self._record(Kind.NOTE, trial_note(trial), self._msg, 0, t_ns)
            self._record_whole(_REQUEST_HEAD, data, head_bytes, self.conn, self._msg, t_ns)
        except Exception as error:  # noqa: BLE001 - observing fails open: the bytes have passed
            self._relay.swallow(error)

    def _take_client_data(self, data: bytes, t_ns: int) -> None:
        if self._tunnel or self._up_blind:
            self._to_upstream(data)
            if self._tunnel:
                self._record(Kind.TUNNEL_UP, data, self._tunnel, 0, t_ns)
            return
        if self._refusing is not None:
            return
        framer = self._requests
        if self._queue is None and self._edits is None and self._take_new_request(data, t_ns):
            return
        self._take_requests(framer.feed(data), t_ns)
        if framer.holding:
            if framer.held_bytes > self._settings.held_bytes:
                self._pause(Pause.HELD)
        elif framer.head_pending:
            self._watch_dawdling()

    def _take_new_request(self, data: bytes, t_ns: int) -> bool:
        """One read, one request, whose head was not said before; False if it is none."""
        try:
            head = self._requests.take_whole(data)
        except Exception as error:  # noqa: BLE001 - the long way says what becomes of it
            self._relay.swallow(error)
            return False
        if head is None:
            return False
        try:
            new, trial = self._route.rewrite(head)
        except HeadRefused as refused:
            self._msg += 1
            self._counters.requests += 1
            self._refuse_head(refused)
            return True
        head_bytes = len(head.raw)
        self._take_whole_request(head.method, new + data[head_bytes:])
        try:
            if self._lessons and can_be_said_again(head):
                self._lessons -= 1
                self._said = Said(head, new, trial, self._relay.generation, self._said)
        except Exception as error:  # noqa: BLE001 - observing fails open
            self._relay.swallow(error)
        self._tell_whole_request(trial, data, head_bytes, t_ns)
        return True

    def _take_requests(self, events: list[RequestEvent], t_ns: int) -> None:
        if self._edits is not None:
            self._edits.put(events, t_ns)
            self._pass_edits(self._edits)
        elif self._queue is None:
            self._pass_requests(events, t_ns)
        else:
            self._queue.put(events, t_ns)
            self._pass_queue(self._queue)

    def _pass_requests(self, events: list[RequestEvent], t_ns: int) -> None:
        out: list[bytes] = []
        notes: list[tuple[int, bytes, int]] = []
        bad: BadRequest | None = None
        refused: HeadRefused | None = None
        for event in events:
            if isinstance(event, BodyData):
                out.append(event.wire)
                if event.payload:
                    notes.append((Kind.REQUEST_DATA, event.payload, self._msg))
            elif isinstance(event, RequestHead):
                self._msg += 1
                self._counters.requests += 1
                try:
                    head, trial = self._route.rewrite(event)
                except HeadRefused as error:
                    refused = error
                    break
                out.append(head)
                if not self._down_blind:
                    self._responses.fifo.append(InFlight(self._msg, event.method, event.may_tunnel))
                self._open_request = self._msg
                if trial != self._trial:
                    self._trial = trial
                    notes.append((Kind.NOTE, trial_note(trial), self._msg))
                notes.append((Kind.REQUEST_HEAD, event.raw, self._msg))
            elif isinstance(event, MessageEnd):
                self._open_request = 0
                notes.append((Kind.REQUEST_END, b'{"wire_bytes":%d,"complete":true}' % event.wire_bytes, self._msg))
            else:
                bad = event
        if out:
            self._to_upstream(out[0] if len(out) == 1 else b"".join(out))
        for kind, payload, msg in notes:
            self._record(kind, payload, msg, 0, t_ns)
        if len(self._responses.fifo) > self._settings.pipeline_depth:
            self._pause(Pause.PIPELINE)
        if refused is not None:
            self._refuse_head(refused)
        elif bad is not None:
            self._take_bad(bad)

    def _to_upstream(self, data: bytes) -> None:
        upstream = self._upstream
        if upstream is not None:
            upstream.write(data)
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > self._settings.held_bytes:
            self._pause(Pause.DIALLING)
        if self._dial_task is None and not self._finished:
            self._start_dial()

    # ------------------------------------------------------------------ what cannot be framed, or is refused

    def _take_bad(self, bad: BadRequest) -> None:
        """The request side cannot be framed: `serve` refuses, `run` becomes a blind tunnel.

        A fault of ours in the framing is no other case: what was read is passed on, its head rewritten loosely.
        """
        self._said = None
        if bad.fault is not None:
            self._relay.swallow(bad.fault)
        if self._settings.refuse_bad_heads or self._route.policy.connect:  # there is nowhere to pass it on to blindly
            self._counters.refused += 1
            self._json(Kind.NOTE, {"event": "refused", "reason": bad.reason, "in_body": bad.in_body})
            if bad.in_body:
                self._note_first("fairtrial", "abort", None, f"refused: {bad.reason}")
                self._abort()
            else:
                self._refuse(bad.reason)
            return
        self._counters.blind += 1
        self._json(Kind.BLIND, {"side": "request", "reason": bad.reason}, self._msg)
        self._up_blind = True
        self._client.watch_fin = False
        self._to_upstream(bad.rest if bad.in_body else self._route.rewrite_loosely(bad.rest))

    def _refuse_head(self, refused: HeadRefused) -> None:
        self._counters.refused += 1
        self._json(Kind.NOTE, {"event": "refused", "reason": str(refused), "in_body": False})
        self._refuse(str(refused), refused.status)

    def _refuse(self, reason: str, status: str = "400 Bad Request") -> None:
        self._refusing, self._refusing_as = reason, status
        self._said = None
        self._pause(Pause.REFUSING)
        self._refuse_if_due()

    def _refuse_if_due(self) -> None:
        """The answer comes behind the responses in flight, never into one: where their end cannot be told, there is
        none, and both sides are aborted.
        """
        if self._refusing is not None and self._down_blind:
            self._note_first("fairtrial", "abort", None, f"refused: {self._refusing}")
            self._abort()
        if self._refusing is None or not self._responses.idle or self._client.closed:
            return
        self._note_first("fairtrial", "fin", None, f"refused: {self._refusing}")
        body = f"fairtrial refused this request: {self._refusing}\n".encode()
        self._client.write(
            b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            % (self._refusing_as.encode(), len(body))
            + body
        )
        self._cancel_dial()
        if self._upstream is not None:
            self._upstream.finish_and_close(UPSTREAM_FLUSH_S)
        self._client.finish_and_discard()

    def _watch_dawdling(self) -> None:
        if self._settings.refuse_bad_heads and self._timer is None:
            msg = self._msg
            self._timer = self._loop.call_later(self._settings.head_timeout_s, self._guard(self._dawdled), msg)

    def _dawdled(self, msg: int) -> None:
        self._timer = None
        if self._requests.head_pending and self._refusing is None and not self._finished:
            if msg == self._msg:
                self._counters.refused += 1
                self._json(Kind.NOTE, {"event": "refused", "reason": "a head that dawdles", "in_body": False})
                self._refuse("a head that dawdles")
            else:
                self._watch_dawdling()
