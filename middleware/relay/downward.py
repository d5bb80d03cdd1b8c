"""Upstream -> client: bytes pass first, then what has passed is looked at.

In: reads of the upstream.  Out: the same bytes to the client at once; then records for the observer, and what only a
response can decide: whether a tunnel opens, whether held requests go on, whether a refusal is due.  Looking fails open:
a fault in it turns this side blind, and no byte waits for it.  The pieces of a stream are looked at many at a time.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.relay.framing import Blind, BodyData, MessageEnd, Tunnel
from fairtrial.middleware.relay.heads import Body, ResponseHead
from fairtrial.middleware.relay.pair import Pause
from fairtrial.middleware.relay.upward import Upward
from fairtrial.middleware.wire.feed import Flag, Kind

_SMALL_BYTES: Final = 4096
"""Reads of a stream under this size are looked at together: larger ones would hold memory meanwhile."""

_RESPONSE_HEAD: Final = int(Kind.RESPONSE_HEAD)
_RESPONSE_DATA: Final = int(Kind.RESPONSE_DATA)
"""Looked up once: an enum's attribute costs more than the record."""


class Downward(Upward):
    """The way of the responses, and sight of them."""

    __slots__ = ()

    def _upstream_data(self, data: bytes, t_ns: int) -> None:
        try:
            self._client.write(data)  # bytes pass first
            account = self.account
            account.upstream_last_ns = t_ns
            account.bytes_down += len(data)
        except Exception as error:  # noqa: BLE001 - outermost frame
            self._fault(error)
            return
        try:
            self._relay.look_at_lag(t_ns)
            if self._responses.chunked is not None and len(data) < _SMALL_BYTES:
                self._look_later(data, t_ns)
            elif self._unseen:
                self._unseen.append((data, t_ns))
                self.catch_up()
            else:
                self._look(data, t_ns)
        except Exception as error:  # noqa: BLE001 - observing fails open
            self._unseen.clear()
            self._swallow(error)

    def _look_later(self, data: bytes, t_ns: int) -> None:
        """A piece of a stream: many are looked at together, when the feed is handed over next."""
        self._unseen.append((data, t_ns))
        if len(self._unseen) > 1:
            return
        if self._paused or self._requests.holding:
            self._relay.observe_soon(self)
        else:
            self._relay.observe_with_feed(self)  # nothing of ours waits for what this read says

    def catch_up(self) -> None:
        """Look at what has passed already: whatever decides by the state of the framing calls this first."""
        while self._unseen:
            unseen, self._unseen = self._unseen, []
            for data, t_ns in unseen:
                self._look(data, t_ns)

    def _look(self, data: bytes, t_ns: int) -> None:
        if self._tunnel:
            self._record(Kind.TUNNEL_DOWN, data, self._tunnel, 0, t_ns)
        elif not self._down_blind:
            try:
                self._observe_response(data, t_ns)
            except Exception as error:  # noqa: BLE001 - observing fails open
                self._swallow(error)

    def _swallow(self, error: Exception) -> None:
        """Observing failed: the bytes go on, nobody looks any more."""
        self._relay.swallow(error)
        try:
            self._go_down_blind(f"fault in observing: {type(error).__name__}")
        except Exception as second:  # noqa: BLE001 - outermost frame
            self._fault(second)

    def _observe_response(self, data: bytes, t_ns: int) -> None:
        responses = self._responses
        if responses.chunked is not None:
            piece = responses.take_chunk(data)
            if piece is not None:
                self._record(_RESPONSE_DATA, piece, responses.fifo[0].msg if responses.fifo else 0, 0, t_ns)
                return
        if self._up_blind and responses.idle:
            return
        fifo = responses.fifo
        msg, may_tunnel = (fifo[0].msg, fifo[0].may_tunnel) if fifo else (0, False)
        head_bytes = responses.take_whole(data)
        if head_bytes:
            self._record_whole(_RESPONSE_HEAD, data, head_bytes, self.conn, msg, t_ns)
            if may_tunnel and msg == self._msg:
                self._no_tunnel(t_ns)
            if self._paused or self._queue is not None:
                self._response_ended()
            return
        payload: list[bytes] = []
        for event in responses.feed(data):
            if isinstance(event, BodyData):
                payload.append(event.payload)
                continue
            if payload:
                self._record(_RESPONSE_DATA, b"".join(payload), msg, 0, t_ns)
                payload.clear()
            if isinstance(event, ResponseHead):
                msg = event.msg
                self._record(Kind.RESPONSE_HEAD, event.raw, msg, Flag.INTERIM if event.interim else 0, t_ns)
                if event.msg == self._msg and not event.interim and event.body is not Body.TUNNEL:
                    self._no_tunnel(t_ns)
            elif isinstance(event, MessageEnd):
                self._record(
                    Kind.RESPONSE_END,
                    b'{"wire_bytes":%d,"complete":true,"how":"framed"}' % event.wire_bytes,
                    event.msg,
                    0,
                    t_ns,
                )
                self._response_ended()
            elif isinstance(event, Tunnel):
                self._open_tunnel(event, t_ns)
            else:
                assert isinstance(event, Blind)
                self._counters.blind += 1
                self._go_down_blind(event.reason)
        if payload:
            self._record(_RESPONSE_DATA, payload[0] if len(payload) == 1 else b"".join(payload), msg, 0, t_ns)

    # ------------------------------------------------------------------ what a response decides

    def _response_ended(self) -> None:
        if self._paused & Pause.PIPELINE and len(self._responses.fifo) <= self._settings.pipeline_depth // 2:
            self._resume(Pause.PIPELINE)
        if self._refusing is not None:
            self._refuse_if_due()
        if self._queue is not None:
            self._switch_soon()

    def _no_tunnel(self, t_ns: int) -> None:
        """No tunnel comes of the last request: what was held behind it, if anything, are requests like any other."""
        if self._queued_bytes:
            return
        if not self._requests.holding:
            self._requests.no_tunnel()
            return
        self._take_requests(self._requests.release_to_http(), t_ns)
        self._resume(Pause.HELD)
        if self._eof_pending and self._upstream is not None and not self._queued_bytes:
            self._upstream.finish()

    def _open_tunnel(self, event: Tunnel, t_ns: int) -> None:
        self._tunnel = event.msg or self._msg or 1
        self._client.watch_fin = False
        held = self._requests.release_to_tunnel()
        if self._queue is not None:
            held = self._queue.give_up() + held
        if held:
            self._to_upstream(held)
        self._record(Kind.RESPONSE_END, b'{"wire_bytes":0,"complete":true,"how":"tunnel"}', event.msg, 0, t_ns)
        if held:
            self._record(Kind.TUNNEL_UP, held, self._tunnel, 0, t_ns)
        if event.rest:
            self._record(Kind.TUNNEL_DOWN, event.rest, self._tunnel, 0, t_ns)
        if self._paused:
            self._client.pause()  # watches anew, without FIN
        self._resume(Pause.HELD | Pause.PIPELINE | Pause.SWITCH)
        if self._eof_pending and self._upstream is not None:
            self._upstream.finish()

    def _go_down_blind(self, reason: str) -> None:
        self._down_blind = True
        self._json(Kind.BLIND, {"side": "response", "reason": reason}, self._msg)
        waiting = list(self._responses.fifo)
        self._responses.fifo.clear()
        for request in waiting:
            self._json(Kind.RESPONSE_END, {"wire_bytes": None, "complete": None, "how": "blind"}, request.msg)
        if self._requests.holding and not self._queued_bytes:  # whether a tunnel opened cannot be told any more
            if self._settings.refuse_bad_heads:  # and nothing passes a shared door unjudged
                self._note_first("fairtrial", "abort", None, f"refused: held behind an upgrade; {reason}")
                self._abort()
                return
            held = self._requests.release_to_tunnel()
            self._up_blind = True
            if held:
                self._to_upstream(held)
        self._resume(Pause.HELD | Pause.PIPELINE)
        self._refuse_if_due()
