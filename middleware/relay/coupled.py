"""The engine: one client connection coupled to one upstream connection of the same lifetime.

In: an accepted socket and a `Route` (where it leads, which head lines change).  Out: the same bytes on the
other side, the same ending on the other side, and records for the observer.  Bytes pass first: what came
from the upstream is written to the client before anybody looks at it.  No pool, no retry, no cache, no
status of our own, except the 400 of a shared door (`refuse_bad_heads`).

The rules for ends are DESIGN section 3, "Ends"; every handler below names the one that it carries out.
Whatever raises in here closes both sides (`_fault`): a pair is never left half alive.
What is told of a pair is kept in `account.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final, Literal, Protocol

from fairtrial.middleware.relay.account import Account, trial_note
from fairtrial.middleware.relay.dial import DialFailed, Dialler, DialReport
from fairtrial.middleware.relay.ends import Link
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.framing import (
    BadRequest,
    Blind,
    BodyData,
    InFlight,
    MessageEnd,
    RequestEvent,
    RequestFramer,
    ResponseFramer,
    Tunnel,
)
from fairtrial.middleware.relay.heads import Body, RequestHead, ResponseHead
from fairtrial.middleware.relay.settings import Counters, RelaySettings, Upstream
from fairtrial.middleware.relay.switch import Queue
from fairtrial.middleware.wire.feed import Flag, Kind

_UPSTREAM_FLUSH_S: Final = 60.0
"""How long an upstream whose client is gone may take to accept what was already read from the client."""

_SMALL_BYTES: Final = 4096
"""Reads of a stream under this size are looked at together: larger ones would hold memory meanwhile."""

_REQUEST_KINDS: Final = (int(Kind.REQUEST_HEAD), int(Kind.REQUEST_DATA), int(Kind.REQUEST_END))
_RESPONSE_KINDS: Final = (int(Kind.RESPONSE_HEAD), int(Kind.RESPONSE_DATA), int(Kind.RESPONSE_END))
_RESPONSE_DATA: Final = int(Kind.RESPONSE_DATA)
"""Looked up once: an enum's attribute costs more than the record."""


@dataclass(frozen=True, slots=True)
class DoorPolicy:
    """What differs between doors.

    `client_eof`: what a client's FIN means while a request is in flight: `gone` (TCP model door), `half` (TCP
    Docker door), `unix` (POLLHUP tells the two apart).  `docker`: its unframed 200 opens a tunnel.
    """

    client_eof: Literal["gone", "half", "unix"] = "gone"
    docker: bool = False


class HeadRefused(Exception):
    """A door does not take this request.  `status`: code and phrase of the answer."""

    def __init__(self, reason: str, status: str = "400 Bad Request") -> None:
        super().__init__(reason)
        self.status = status


class Route(Protocol):
    """What a door tells the engine."""

    label: str
    upstream: Upstream
    dialler: Dialler
    policy: DoorPolicy

    @property
    def lead(self) -> Callable[[RequestHead], Dialler] | None:
        """Where each request names its upstream (plain egress proxy): the dialler, one object for one upstream."""
        ...

    def rewrite(self, head: RequestHead) -> tuple[bytes, str | None]:
        """The head as it goes upstream, and the trial that its token names (None: no known token).

        Raises `HeadRefused`, at the doors of a `serve` only.
        """
        ...

    def rewrite_loosely(self, rest: bytes) -> bytes:
        """The same for bytes that are no good head: change what can be recognised, else nothing."""
        ...


class Owner(Protocol):
    """What a pair needs of the relay that accepted it."""

    feed: FeedSender
    settings: RelaySettings
    counters: Counters

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that both sockets are on."""
        ...

    def forget(self, pair: Pair) -> None:
        """Both sides are closed."""

    def swallow(self, error: Exception) -> None:
        """Count a fault of ours."""

    def overdue_s(self) -> float:
        """How late the loop is at this moment."""
        ...

    def observe_soon(self, pair: Pair) -> None:
        """Call the pair's `catch_up` at the end of this turn of the loop."""

    def observe_with_feed(self, pair: Pair) -> None:
        """Call the pair's `catch_up` when the feed is handed over next, at most some 2 ms from now."""


class Pause:
    """Why the client is not read: bits of a plain int, because IntFlag costs microseconds per operation."""

    DIALLING = 1
    UPSTREAM_FULL = 2
    HELD = 4
    PIPELINE = 8
    REFUSING = 16
    UPSTREAM_DEAD = 32
    SWITCH = 64


class Pair:
    """One client connection and its upstream."""

    def __init__(self, relay: Owner, route: Route, client: Link, conn: int, peer: str) -> None:
        self._relay = relay
        self._loop = relay.loop
        self.account = account = Account(relay.feed, conn)
        self._record = account.record
        self._json = account.json
        self._note_first = account.note_first
        self._settings = relay.settings
        self._route = route
        self.conn = conn
        self._client = client
        self._dialler = route.dialler
        self._queue = Queue(route.lead) if route.lead is not None else None
        self._switching = False
        self._upstream: Link | None = None
        self._requests = RequestFramer(docker=route.policy.docker)
        self._responses = ResponseFramer(docker=route.policy.docker)
        self._msg = 0
        self._open_request = 0
        self._trial: str | Literal[False] | None = False
        self._tunnel = 0
        self._up_blind = False
        self._down_blind = False
        self._paused = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._eof_pending = False
        self._refusing: str | None = None
        self._refusing_as = ""
        self._dial_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._finished = False
        self._opened_ns = monotonic_ns()
        self._unseen: list[tuple[bytes, int, RequestHead | None]] = []
        """What has passed and was not looked at: (a read, when, None) or (a request's body, when, its head)."""
        client.watch_fin = route.policy.client_eof != "half"
        client.on_data = self._client_data
        client.on_eof = self._guard(self._client_eof)
        client.on_error = self._guard(self._client_error)
        client.on_write_failed = self._guard(self._client_write_failed)
        client.on_blocked = self._guard(self._client_blocked)
        client.on_drained = self._guard(self._client_drained)
        client.on_hangup = self._guard(self._client_hangup)
        client.on_closed = self._closed
        self._json(Kind.OPEN, {"door": route.label, "upstream": route.upstream.url, "peer": peer})
        client.resume()

    # ------------------------------------------------------------------ faults of ours, and looking at what has passed

    def _guard(self, act: Callable[..., None]) -> Callable[..., None]:
        def guarded(*args: object) -> None:
            try:
                self.catch_up()
                act(*args)
            except Exception as error:  # noqa: BLE001 - outermost frame: a fault of ours ends the pair, and is counted
                self._fault(error)

        return guarded

    def _fault(self, error: Exception) -> None:
        self._relay.swallow(error)
        self._note_first("fairtrial", "abort", None, f"{type(error).__name__}: {error}")
        self._abort()

    def catch_up(self) -> None:
        """Look at what has passed already.

        Looking is put off to the end of the loop's turn, so that bytes of all connections pass before any is
        looked at, and for the events of a stream to the next hand-over of the feed; whatever decides by the state
        of the framing calls this first.
        """
        while self._unseen:
            unseen, self._unseen = self._unseen, []
            for data, t_ns, head in unseen:
                if head is not None:
                    raw = head.raw
                    end = b'{"wire_bytes":%d,"complete":true}' % (len(raw) + len(data))
                    self.account.message(_REQUEST_KINDS, (raw, data, end), head.msg, t_ns)
                elif self._tunnel:
                    self._record(Kind.TUNNEL_DOWN, data, self._tunnel, 0, t_ns)
                elif not self._down_blind:
                    try:
                        self._observe_response(data, t_ns)
                    except Exception as error:  # noqa: BLE001 - observing fails open
                        self._swallow(error)
        if self._queue is not None and self._queue.waiting_for is not None:
            self._switch_soon()

    def _swallow(self, error: Exception) -> None:
        """Observing failed: the bytes go on, nobody looks any more."""
        self._relay.swallow(error)
        try:
            self._go_down_blind(f"fault in observing: {type(error).__name__}")
        except Exception as second:  # noqa: BLE001 - outermost frame
            self._fault(second)

    # ------------------------------------------------------------------ client -> upstream

    def _client_data(self, data: bytes, t_ns: int) -> None:
        try:
            if self._unseen:
                self.catch_up()
            account = self.account
            account.client_last_ns = t_ns
            account.bytes_up += len(data)
            if self._tunnel or self._up_blind:
                self._to_upstream(data)
                if self._tunnel:
                    self._record(Kind.TUNNEL_UP, data, self._tunnel, 0, t_ns)
                return
            if self._refusing is not None:
                return
            framer = self._requests
            head = framer.take_whole(data) if self._queue is None else None
            if head is not None:
                self._take_whole_request(head, data, t_ns)
                return
            self._take_requests(framer.feed(data), t_ns)
            if framer.holding:
                if framer.held_bytes > self._settings.held_bytes:
                    self._pause(Pause.HELD)
            elif framer.head_pending:
                self._watch_dawdling()
        except Exception as error:  # noqa: BLE001 - outermost frame
            self._fault(error)

    def _take_whole_request(self, head: RequestHead, data: bytes, t_ns: int) -> None:
        """One read, one request: head and body leave in one write."""
        msg = self._msg = self._msg + 1
        self._relay.counters.requests += 1
        head.msg = msg
        try:
            new, trial = self._route.rewrite(head)
        except HeadRefused as refused:
            self._refuse_head(refused)
            return
        fifo = self._responses.fifo
        if not self._down_blind:
            fifo.append(InFlight(msg, head.method))
        body = data[len(head.raw) :]
        self._to_upstream(new + body)
        if trial != self._trial:
            self._trial = trial
            self._record(Kind.NOTE, trial_note(trial), msg, 0, t_ns)
        if not self._unseen:
            self._relay.observe_soon(self)
        self._unseen.append((body, t_ns, head))
        if len(fifo) > self._settings.pipeline_depth:
            self._pause(Pause.PIPELINE)

    def _take_requests(self, events: list[RequestEvent], t_ns: int) -> None:
        if self._queue is None:
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
                self._relay.counters.requests += 1
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
            self._dial_task = self._loop.create_task(self._dial(), name=f"fairtrial-dial-{self.conn}")

    def _take_bad(self, bad: BadRequest) -> None:
        """The request side cannot be framed: `serve` refuses, `run` becomes a blind tunnel."""
        if self._settings.refuse_bad_heads:
            self._relay.counters.refused += 1
            self._json(Kind.NOTE, {"event": "refused", "reason": bad.reason, "in_body": bad.in_body})
            if bad.in_body:
                self._note_first("fairtrial", "abort", None, f"refused: {bad.reason}")
                self._abort()
            else:
                self._refuse(bad.reason)
            return
        self._relay.counters.blind += 1
        self._json(Kind.BLIND, {"side": "request", "reason": bad.reason}, self._msg)
        self._up_blind = True
        self._client.watch_fin = False
        self._to_upstream(bad.rest if bad.in_body else self._route.rewrite_loosely(bad.rest))

    def _refuse_head(self, refused: HeadRefused) -> None:
        self._relay.counters.refused += 1
        self._json(Kind.NOTE, {"event": "refused", "reason": str(refused), "in_body": False})
        self._refuse(str(refused), refused.status)

    def _refuse(self, reason: str, status: str = "400 Bad Request") -> None:
        self._refusing, self._refusing_as = reason, status
        self._pause(Pause.REFUSING)
        self._refuse_if_due()

    def _refuse_if_due(self) -> None:
        """The answer comes behind the responses in flight, never into one."""
        if self._refusing is None or not (self._responses.idle or self._down_blind):
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
            self._upstream.finish_and_close(_UPSTREAM_FLUSH_S)
        self._client.finish_and_discard()

    # ------------------------------------------------------------------ another upstream

    def _pass_queue(self, queue: Queue) -> None:
        """What is for the upstream in use passes; the rest waits until the responses before it have ended."""
        while True:
            for event, t_ns in queue.run():
                self._pass_requests([event], t_ns)
                if self._refusing is not None or self._client.closed:
                    return
            if queue.waiting_for is None:
                self._resume(Pause.SWITCH)
                if self._eof_pending and self._upstream is not None:
                    self._upstream.finish()
                return
            if queue.in_use is not None:
                break
            queue.in_use = self._dialler = queue.waiting_for
        if queue.held_bytes > self._settings.held_bytes or queue.framing_ended:
            self._pause(Pause.SWITCH)
        self._switch_soon()

    @property
    def _may_switch(self) -> bool:
        """A request waits for another upstream, and nothing of the one in use is still to come."""
        return (
            self._queue is not None
            and self._queue.waiting_for is not None
            and self._responses.idle
            and not (self._tunnel or self._up_blind or self._down_blind)
            and self.account.first is None
        )

    def _switch_soon(self) -> None:
        """Not within a handler of the upstream that is to be left."""
        if not self._switching and self._may_switch:
            self._switching = True
            self._loop.call_soon(self._guard(self._leave))

    def _leave(self) -> None:
        """FIN to the upstream in use, then a dial to the one that the next request names."""
        upstream = self._upstream
        if not self._may_switch:
            self._switching = False
        elif upstream is None:
            self._left()
        else:
            upstream.release()
            upstream.on_closed = self._guard(self._left)
            upstream.finish_and_close(_UPSTREAM_FLUSH_S)

    def _left(self) -> None:
        queue = self._queue
        self._switching = False
        if queue is None or self.account.first is not None:  # the pair has ended meanwhile
            self._closed()
            return
        assert queue.waiting_for is not None
        self._upstream = None
        queue.in_use = self._dialler = queue.waiting_for
        self._responses = ResponseFramer(docker=self._route.policy.docker)
        self.account.unblocked("upstream", self._msg)
        self._resume(Pause.UPSTREAM_FULL | Pause.UPSTREAM_DEAD)
        self._pass_queue(queue)

    # ------------------------------------------------------------------ refusing

    def _watch_dawdling(self) -> None:
        if self._settings.refuse_bad_heads and self._timer is None:
            msg = self._msg
            self._timer = self._loop.call_later(self._settings.head_timeout_s, self._guard(self._dawdled), msg)

    def _dawdled(self, msg: int) -> None:
        self._timer = None
        if self._requests.head_pending and self._refusing is None and not self._finished:
            if msg == self._msg:
                self._relay.counters.refused += 1
                self._json(Kind.NOTE, {"event": "refused", "reason": "a head that dawdles", "in_body": False})
                self._refuse("a head that dawdles")
            else:
                self._watch_dawdling()

    def _pause(self, why: int) -> None:
        if not self._paused:
            self._client.pause()
        self._paused |= why

    def _resume(self, why: int) -> None:
        if self._paused & why:
            self._paused &= ~why
            if not self._paused:
                self._client.resume()

    # ------------------------------------------------------------------ the dial

    async def _dial(self) -> None:
        began_ns = monotonic_ns()
        try:
            link, report = await self._dialler.dial()
        except DialFailed as failed:
            self._guard(self._dial_failed)(failed.report)
        except asyncio.CancelledError:
            spent_s = (monotonic_ns() - began_ns) / 1e9
            report = DialReport(stage="cancelled", error="the client was gone before the upstream answered")
            self._json(Kind.DIAL, report.as_json() | {"spent_s": spent_s}, self._msg)
        except Exception as error:  # noqa: BLE001 - outermost frame of this task
            self._fault(error)
        else:
            if self._finished or self._client.closed:
                link.reset()
            else:
                self._guard(self._dialled)(link, report)
        finally:
            self._dial_task = None
            self._closed()

    def _dial_failed(self, report: DialReport) -> None:
        """A failed dial is shown as a reset without a byte; the reason is in the record."""
        self._relay.counters.dial_failed += 1
        self._json(Kind.DIAL, report.as_json(), self._msg)
        self._note_first("upstream", "dial", report.errno, f"{report.stage}: {report.error}")
        self._settle()
        self._client.reset_when_delivered()  # an upstream before this one may have answered

    def _dialled(self, link: Link, report: DialReport) -> None:
        self._upstream = link
        link.on_data = self._upstream_data
        link.on_eof = self._guard(self._upstream_eof)
        link.on_error = self._guard(self._upstream_error)
        link.on_write_failed = self._guard(self._upstream_write_failed)
        link.on_blocked = self._guard(self._upstream_blocked)
        link.on_drained = self._guard(self._upstream_drained)
        link.on_hangup = self._guard(self._upstream_hangup)
        link.on_closed = self._closed
        pending, self._pending = self._pending, []
        self._pending_bytes = 0
        link.write(pending[0] if len(pending) == 1 else b"".join(pending))
        if self._eof_pending and not self._held_bytes:
            link.finish()
        self._json(Kind.DIAL, report.as_json(), self._msg)
        self._resume(Pause.DIALLING)
        if not self._client.blocked:  # by a response of the upstream before this one
            link.resume()
        link.start()

    def _cancel_dial(self) -> None:
        if self._dial_task is not None:
            self._dial_task.add_done_callback(self._dial_never_began)
            self._dial_task.cancel()

    def _dial_never_began(self, task: asyncio.Task[None]) -> None:
        """Cancelled in the very turn that made it, a task runs not one line of `_dial`, its `finally` included."""
        if self._dial_task is task:
            self._dial_task = None
            self._closed()

    # ------------------------------------------------------------------ upstream -> client

    def _upstream_data(self, data: bytes, t_ns: int) -> None:
        try:
            self._client.write(data)  # bytes pass first
            account = self.account
            account.upstream_last_ns = t_ns
            account.bytes_down += len(data)
        except Exception as error:  # noqa: BLE001 - outermost frame
            self._fault(error)
            return
        first = not self._unseen
        self._unseen.append((data, t_ns, None))
        if not first:
            return
        try:
            if (
                self._responses.chunked is not None
                and len(data) < _SMALL_BYTES
                and not self._paused
                and not self._requests.holding
            ):
                self._relay.observe_with_feed(self)  # nothing of ours waits for what this read says
            else:
                self._relay.observe_soon(self)
        except Exception as error:  # noqa: BLE001 - observing fails open
            self._unseen.clear()
            self._swallow(error)

    def _observe_response(self, data: bytes, t_ns: int) -> None:
        responses = self._responses
        if responses.chunked is not None:
            piece = responses.take_chunk(data)
            if piece is not None:
                self._record(_RESPONSE_DATA, piece, responses.fifo[0].msg if responses.fifo else 0, 0, t_ns)
                return
        if self._up_blind and responses.idle:
            return
        head = responses.take_whole(data)
        if head is not None:
            self.account.message(
                _RESPONSE_KINDS,
                (head.raw, data[len(head.raw) :], b'{"wire_bytes":%d,"complete":true,"how":"framed"}' % len(data)),
                head.msg,
                t_ns,
            )
            if self._requests.holding and head.msg == self._msg and not self._queued_bytes:
                self._release_to_http(t_ns)
            self._response_ended()
            return
        payload: list[bytes] = []
        msg = responses.fifo[0].msg if responses.fifo else 0
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
                decided = not event.interim and event.body is not Body.TUNNEL
                if decided and self._requests.holding and event.msg == self._msg and not self._queued_bytes:
                    self._release_to_http(t_ns)
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
                self._relay.counters.blind += 1
                self._go_down_blind(event.reason)
        if payload:
            self._record(_RESPONSE_DATA, payload[0] if len(payload) == 1 else b"".join(payload), msg, 0, t_ns)

    def _response_ended(self) -> None:
        if self._paused & Pause.PIPELINE and len(self._responses.fifo) <= self._settings.pipeline_depth // 2:
            self._resume(Pause.PIPELINE)
        if self._refusing is not None:
            self._refuse_if_due()

    def _release_to_http(self, t_ns: int) -> None:
        """No tunnel came of the upgrade: what was held are requests like any other."""
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
        if (
            self._requests.holding and not self._queued_bytes
        ):  # whether a tunnel opened cannot be told any more: bytes pass
            held = self._requests.release_to_tunnel()
            self._up_blind = True
            if held:
                self._to_upstream(held)
        self._resume(Pause.HELD | Pause.PIPELINE)
        self._refuse_if_due()

    # ------------------------------------------------------------------ back-pressure

    def _client_blocked(self) -> None:
        self.account.blocked("client")
        if self._upstream is not None:
            self._upstream.pause()

    def _client_drained(self) -> None:
        self.account.unblocked("client", self._msg)
        if self._upstream is not None:
            self._upstream.resume()

    def _upstream_blocked(self) -> None:
        self.account.blocked("upstream")
        self._pause(Pause.UPSTREAM_FULL)

    def _upstream_drained(self) -> None:
        self.account.unblocked("upstream", self._msg)
        self._resume(Pause.UPSTREAM_FULL)

    # ------------------------------------------------------------------ ends of the client

    @property
    def idle(self) -> bool:
        """Nothing is in flight in either direction."""
        self.catch_up()
        return (
            not self._tunnel
            and not self._up_blind
            and not self._down_blind
            and self._refusing is None
            and not self._queued_bytes
            and self._requests.at_boundary
            and self._responses.idle
        )

    @property
    def _queued_bytes(self) -> int:
        """What waits for another upstream."""
        return 0 if self._queue is None else self._queue.held_bytes

    @property
    def _held_bytes(self) -> int:
        """What was read from the client and has not left."""
        return self._requests.held_bytes + self._queued_bytes

    def _client_eof(self, _ragged: bool) -> None:
        upstream = self._upstream
        if upstream is not None and upstream.read_ended:  # the second EOF closes both
            self._note_first("client", "fin", None, None)
            self._settle()
            upstream.finish_and_close(_UPSTREAM_FLUSH_S)
            self._client.finish_and_close()
        elif self._tunnel or self._up_blind:  # half-close is forwarded
            self._half_close()
        elif self.idle or (upstream is None and self._dial_task is None):
            self._note_first("client", "fin", None, None)
            if upstream is not None:
                upstream.finish_and_close(_UPSTREAM_FLUSH_S)
            self._client.finish_and_close()
        elif self._route.policy.client_eof == "gone" or self._refusing is not None or self._client.vanished():
            self._client_gone("fin", None, None)
        else:
            self._half_close()

    def _half_close(self) -> None:
        if self._tunnel or self._up_blind:  # elsewhere a half-close is no ending
            self._note_first("client", "fin", None, "half-close")
        if self._upstream is None or self._held_bytes:
            self._eof_pending = True
        else:
            self._upstream.finish()

    def _client_gone(self, how: str, code: int | None, text: str | None) -> None:
        """Nobody is there to answer: the upstream is aborted at once."""
        self._note_first("client", how, code, text)
        self._settle()
        self._cancel_dial()
        upstream = self._upstream
        if upstream is not None:
            if how == "fin" and not upstream.unsent_bytes:
                upstream.close()
            else:
                upstream.reset()
        self._client.reset()

    def _client_error(self, error: OSError) -> None:
        """RST of the client: at once, but in a tunnel behind what it had sent before."""
        if (self._tunnel or self._up_blind or self._route.policy.client_eof != "gone") and self._upstream is not None:
            self._note_first("client", "rst", error.errno, error.strerror)
            self._settle()
            self._upstream.reset_when_delivered(_UPSTREAM_FLUSH_S)
            self._client.close()
        else:
            self._client_gone("rst", error.errno, error.strerror)

    def _client_write_failed(self, error: OSError) -> None:
        if self._tunnel or self._up_blind or self._route.policy.client_eof != "gone":
            self._note_first("client", "rst", error.errno, error.strerror)
            self._client.resume()  # read what it had sent; the error comes behind it
        else:
            self._client_gone("rst", error.errno, error.strerror)

    def _client_hangup(self, code: int | None) -> None:
        """Seen by the watch while the client was not read (paused upload, full dial, held upgrade)."""
        if code is not None:
            self._client_write_failed(OSError(code, "connection reset while not being read"))
        elif not (self._tunnel or self._up_blind) and (
            self._route.policy.client_eof == "gone" or self._client.vanished()
        ):  # half-closed unix clients stay
            self._client_gone("fin", None, None)

    # ------------------------------------------------------------------ ends of the upstream

    def _upstream_eof(self, ragged: bool) -> None:
        assert self._upstream is not None
        if self._may_switch:  # it was about to be left
            self._switch_soon()
            return
        until_close = not self._tunnel and self._responses.until_close
        if until_close and not ragged:
            end = self._responses.eof()
            if end is not None:
                payload = b'{"wire_bytes":%d,"complete":true,"how":"close_delimited"}' % end.wire_bytes
                self._record(Kind.RESPONSE_END, payload, end.msg)
        self._note_first("upstream", "tls_ragged" if ragged else "fin", None, None)
        self._settle()
        if ragged and (until_close or self._tunnel):  # the client could not tell this end from a clean one
            self._upstream.finish_and_close(_UPSTREAM_FLUSH_S)
            self._client.reset_when_delivered()
        elif self._client.read_ended:  # the second EOF closes both
            self._upstream.finish_and_close(_UPSTREAM_FLUSH_S)
            self._client.finish_and_close()
        else:
            self._client.finish()
            if self._refusing is not None:
                self._upstream.finish_and_close(_UPSTREAM_FLUSH_S)
                self._client.finish_and_discard()
            elif not self._tunnel:
                self._arm_half_open()

    def _arm_half_open(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seen = self.account.client_last_ns
        self._timer = self._loop.call_later(self._settings.half_open_s, self._guard(self._half_open_over), seen)

    def _half_open_over(self, seen_ns: int | None) -> None:
        """A client that keeps a connection whose upstream is gone: its kernel would not have kept it either."""
        self._timer = None
        if self._finished:
            return
        if seen_ns == self.account.client_last_ns and not self._client.unsent_bytes:
            if self._upstream is not None:
                self._upstream.finish_and_close(_UPSTREAM_FLUSH_S)
            self._client.finish_and_close()
        else:
            self._arm_half_open()

    def _upstream_error(self, error: OSError) -> None:
        """RST → RST, behind everything that the upstream had sent."""
        assert self._upstream is not None
        if self._may_switch:
            self._switch_soon()
            return
        self._note_first("upstream", "rst", error.errno, error.strerror)
        self._settle()
        self._upstream.close()
        self._client.reset_when_delivered()

    def _upstream_write_failed(self, error: OSError) -> None:
        """It takes no more; what it had answered is still read, then the error comes."""
        if self._may_switch:
            self._switch_soon()
            return
        self._note_first("upstream", "rst", error.errno, error.strerror)
        self._pause(Pause.UPSTREAM_DEAD)

    def _upstream_hangup(self, code: int | None) -> None:
        if code is not None:
            self._note_first("upstream", "rst", code, "reset while the client was slow to read")

    # ------------------------------------------------------------------ the end of the pair

    def _settle(self) -> None:
        """Every attempt that cannot complete any more gets its one end, with who failed first."""
        self.catch_up()
        self.account.note_lag(self._relay.overdue_s())
        if self._open_request:
            self._json(Kind.REQUEST_END, {"wire_bytes": None, "complete": False}, self._open_request)
            self._open_request = 0
        waiting = list(self._responses.fifo)
        self._responses.fifo.clear()
        self.account.responses_cut(waiting, self._responses.wire_bytes)

    def abort(self, text: str) -> None:
        """End both sides now, as fairtrial's doing (shutdown)."""
        self._note_first("fairtrial", "abort", None, text)
        self._abort()

    @property
    def has_upstream(self) -> bool:
        """Whether its upstream was ever connected."""
        return self._upstream is not None

    @property
    def quiet_since_ns(self) -> int:
        """When either side was last heard, else when it was accepted."""
        return max(self._opened_ns, self.account.client_last_ns or 0, self.account.upstream_last_ns or 0)

    def retire(self) -> bool:
        """End a connection that carries nothing, to make room; False when a request has just come."""
        if self._client.readable():
            return False
        self.close_idle("ended while idle, since descriptors ran short")
        return True

    def close_idle(self, text: str = "shutdown") -> None:
        """FIN both ways, for a pair that carries nothing."""
        self._note_first("fairtrial", "fin", None, text)
        if self._upstream is not None:
            self._upstream.finish_and_close(_UPSTREAM_FLUSH_S)
        self._client.finish_and_close()

    def _abort(self) -> None:
        self._settle()
        self._cancel_dial()
        if self._upstream is not None:
            self._upstream.reset()
        self._client.reset()

    def _closed(self) -> None:
        """One side is closed for good; the pair is over when both are and no dial runs."""
        upstream = self._upstream
        if self._finished or not self._client.closed:
            if not self._finished and upstream is not None and upstream.closed and self.account.first is None:
                self._fault(RuntimeError("the upstream was closed without a reason"))
            return
        if self._dial_task is not None:
            return
        if upstream is not None and not upstream.closed:
            if not upstream.closing:
                upstream.finish_and_close(_UPSTREAM_FLUSH_S)
            return
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
        self._settle()
        self.account.close(self._msg)
        self._relay.forget(self)
