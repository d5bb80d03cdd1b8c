"""The tracker: records of the feed become attempts of model calls.

In: `feed.Record`s of one relay process in the order in which it wrote them.  Out: `attempt.started`, `attempt.ended`
and `coverage.gap` observations and notes through a `Source`, and a callback at the edges of main-agent calls.  Sans-IO:
all times come with the records.  What this module does not do: fold attempts (`steps/attempts.py`), decode the feed's
byte stream (`feed.py`, `app.py`), look at NOTE, CHILD or MUTATION records.  Its counterpart is `relay/coupled.py`.

It fails open: a dialect that raises is given up for that message (`parse` "none", with the reason, counted in
`faults`), and a record that makes no sense is counted and skipped.  What the feed lost is never taken for something
that did not happen: an exchange with a hole has no terminator to miss.

Memory: request bodies are gathered up to 64 MiB each and 256 MiB together, read when they end, and let go; of responses
at most one unfinished frame, one JSON body (32 MiB) or the arguments of open tool calls are held.

**Source:** design page DESIGN.md section 3; reference page model-api.md sections 5.3 and 6.4.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.ids import new_id
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    GapSeen,
    Note,
    ReplyFacts,
    RequestFacts,
    Subject,
)
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire import feed, lenient
from fairtrial.middleware.wire.decode import BodyDecoder, decode_whole
from fairtrial.middleware.wire.dialects import UNKNOWN, choose
from fairtrial.middleware.wire.dialects.base import Dialect, ReplyReader, Tally, bare_facts
from fairtrial.middleware.wire.dialects.openai_responses import OpenAIResponses
from fairtrial.middleware.wire.dialects.responses_socket import ResponsesSocket, SocketCall
from fairtrial.middleware.wire.feed import Flag, Kind
from fairtrial.middleware.wire.http1 import Headers, RequestHead, ResponseHead, parse_request_head, parse_response_head
from fairtrial.middleware.wire.redact import digest, safe_path
from fairtrial.middleware.wire.session import split_token

MAX_REQUEST_BODY_BYTES: Final = 64 << 20
MAX_BODIES_BYTES: Final = 256 << 20
BLOCKED_GRACE_NS: Final = 100_000_000
"""An end this shortly after the client read again is still one that it met while it did not read."""

Edge = Literal["call_started", "call_ended"]
Outcome = Literal["ok", "error", "truncated", "client_disconnect", "proxy_shutdown"]
Party = Literal["client", "upstream", "fairtrial"]

_PARTIES: Final[Mapping[object, Party]] = {"client": "client", "upstream": "upstream", "fairtrial": "fairtrial"}
_NO_HEAD: Final = RequestHead(method="", target="", headers=Headers())
_FAMILIES: Final = ["model_api"]


class Ending(msgspec.Struct, kw_only=True):
    """What RESPONSE_END and CLOSE say about an end; all optional."""

    wire_bytes: int | None = None
    complete: bool | None = None
    how: str | None = None
    first: str | None = None
    close_how: str | None = None
    errno: int | str | None = None
    text: str | None = None
    first_ns: int | None = None
    client_last_ns: int | None = None
    upstream_last_ns: int | None = None
    lag_max_s: float | None = None


_CALL_OVER: Final = Ending(how="framed", complete=True)


class _Dial(msgspec.Struct, kw_only=True):
    ok: bool = False
    stage: str | None = None
    dns_s: float | None = None
    connect_s: float | None = None
    tls_s: float | None = None
    remote: str | None = None
    via_proxy: str | None = None
    status: int | None = None
    errno: int | str | None = None
    error: str | None = None


class _Opened(msgspec.Struct, kw_only=True):
    door: str = ""
    upstream: str | None = None


@dataclass(slots=True)
class _Conn:
    door: str = ""
    provider: str | None = None
    upstream_host: str | None = None
    dialled: bool = False
    blind: str | None = None
    blind_since_ns: int | None = None
    """Wall ns since which calls of a trial may pass on it unseen."""
    ours: bool = False
    """It carried a request with a known token."""
    closing: bool = False
    """A head on it said that the connection ends with its message."""
    open: dict[int, _Exchange] = field(default_factory=dict["int", "_Exchange"])
    broken: list[tuple[_Exchange, Ending, int]] = field(default_factory=list["tuple[_Exchange, Ending, int]"])
    """Ended before their time, and not yet reported: what CLOSE and the last BLOCKED say belongs to them."""


@dataclass(slots=True)
class _Exchange:
    """One request and its response, while they pass."""

    id: str
    conn: int
    msg: int
    started_ns: int
    head: RequestHead
    path: str
    trial: str | None
    dialect: Dialect
    request: RequestFacts = field(default_factory=RequestFacts)
    parts: list[bytes] = field(default_factory=list[bytes])
    body_bytes: int = 0
    body_lost: str | None = None
    announced: bool = False
    is_main: bool = False
    said_ended: bool = False
    request_end_ns: int | None = None
    request_whole: bool | None = None
    after_close: bool = False
    bytes_up: int | None = None
    bytes_down: int | None = None
    dial: _Dial | None = None
    first_byte_ns: int | None = None
    last_byte_ns: int | None = None
    last_spoken_ns: int | None = None
    status: int | None = None
    reader: ReplyReader | None = None
    decoder: BodyDecoder | None = None
    max_gap_ns: int = 0
    max_gap_with_pings_ns: int = 0
    blocked_ns: int = 0
    blocked_last: tuple[int, int] | None = None
    """The last time in which the client did not read: since, until."""
    lag_s: float = 0.0
    parse: Literal["full", "partial", "none"] = "full"
    parse_why: str | None = None
    holed: bool = False
    """Bytes of the response are missing from the copy."""

    facts: RequestFacts | None = None
    """Of a call that came over a WebSocket: read already."""
    socket: ResponsesSocket | None = None
    socket_calls: dict[int, tuple[SocketCall, _Exchange]] = field(
        default_factory=dict["int", "tuple[SocketCall, _Exchange]"]
    )
    """Calls over this WebSocket that have not ended, by the call's identity."""
    socket_count: int = 0

    def give_up(self, why: str, parse: Literal["partial", "none"] = "none") -> None:
        if self.parse == "full" or parse == "none":
            self.parse = parse
        self.parse_why = self.parse_why or why


class ExchangeTracker:
    """Feed it records with `take`; `close` ends what is still open.

    `trial_of_token`: trial token → trial id.  A request without a known token gets `Subject(trial=None)`.  `providers`:
    door name → provider ("anthropic", "openai"), where the name itself is not one.  `on_call_edge` is told when a
    main-agent call begins and ends, so that collectors can read their counters.
    """

    def __init__(
        self,
        source: Source,
        *,
        trial_of_token: Mapping[str, str],
        providers: Mapping[str, str] | None = None,
        on_call_edge: Callable[[Edge], None] | None = None,
        at: clock.Instant | None = None,
    ) -> None:
        self._source = source
        self._trials = trial_of_token
        self._providers = dict(providers or {})
        self._on_edge = on_call_edge
        self._clock = at if at is not None else clock.now()
        self._conns: dict[int, _Conn] = {}
        self._bodies_bytes = 0
        self._tools_seen: set[tuple[str | None, str | None]] = set()
        self.faults = 0
        """Dialects given up and records that made no sense."""
        self.last_fault: str | None = None
        self._takers: dict[int, Callable[[feed.Record], None]] = {
            Kind.HELLO: self._hello,
            Kind.OPEN: self._open,
            Kind.DIAL: self._dial,
            Kind.REQUEST_HEAD: self._request_head,
            Kind.REQUEST_DATA: self._request_data,
            Kind.REQUEST_END: self._request_end,
            Kind.RESPONSE_HEAD: self._response_head,
            Kind.RESPONSE_DATA: self._response_data,
            Kind.RESPONSE_END: self._response_end,
            Kind.TUNNEL_UP: self._tunnel,
            Kind.TUNNEL_DOWN: self._tunnel,
            Kind.BLIND: self._blind,
            Kind.CLOSE: self._close,
            Kind.BLOCKED: self._blocked,
            Kind.LAG: self._lag,
            Kind.LOST: self._lost,
            Kind.BYE: self._bye,
        }

    @property
    def open_attempts(self) -> int:
        """Requests whose response has not ended."""
        return sum(len(conn.open) for conn in self._conns.values())

    def take(self, record: feed.Record) -> None:
        """Handle one record; never raises."""
        taker = self._takers.get(record.kind)
        if taker is None:
            return
        try:
            taker(record)
        except Exception as error:  # noqa: BLE001 - one record of foreign bytes must not end the observing
            self._fault(f"record {record.kind}: {type(error).__name__}: {error}")

    def close(self) -> None:
        """The observing ends: what is still open is reported as `proxy_shutdown`."""
        now_ns = clock.mono_ns()
        for conn in self._conns.values():
            self._end_blind(conn, now_ns)
            self._end_all(conn, Ending(how="shutdown", complete=False), now_ns)
        self._conns.clear()

    # --- connections ----------------------------------------------------------------------------------------------

    def _hello(self, record: feed.Record) -> None:
        said = record.json()
        wall_ns, mono_ns = said.get("wall_ns"), said.get("mono_ns")
        if isinstance(wall_ns, int) and isinstance(mono_ns, int):
            self._clock = clock.Instant(wall_ns, mono_ns)

    def _open(self, record: feed.Record) -> None:
        said = msgspec.json.decode(record.payload, type=_Opened)
        name = said.door.rpartition(":")[2]
        host = None
        if said.upstream is not None:
            host = said.upstream.split("://", 1)[-1].partition("/")[0].rpartition("@")[2] or None
        self._conns[record.conn] = _Conn(
            door=said.door, provider=self._providers.get(name, name or None), upstream_host=host
        )

    def _dial(self, record: feed.Record) -> None:
        dial = msgspec.json.decode(record.payload, type=_Dial)
        conn = self._conn(record.conn)
        conn.dialled = True
        for exchange in conn.open.values():
            # The oldest request without an answer is the one that waited for this dial.
            if exchange.status is None:
                exchange.dial = dial
                return

    def _conn(self, number: int) -> _Conn:
        conn = self._conns.get(number)
        if conn is None:
            # Its OPEN was lost: what still comes is better than nothing.
            conn = self._conns[number] = _Conn()
        return conn

    def _exchange(self, record: feed.Record) -> _Exchange | None:
        conn = self._conns.get(record.conn)
        return None if conn is None else conn.open.get(record.msg)

    # --- requests -------------------------------------------------------------------------------------------------

    def _request_head(self, record: feed.Record) -> None:
        conn = self._conn(record.conn)
        head = parse_request_head(record.payload)
        self._begin(conn, record, head)

    def _begin(self, conn: _Conn, record: feed.Record, head: RequestHead | None) -> _Exchange:
        token, target = split_token(head.target) if head is not None else (None, "")
        path = target.partition("?")[0]
        known = head if head is not None else _NO_HEAD
        dialect = choose(known.method, path, conn.provider) if head is not None else UNKNOWN
        exchange = _Exchange(
            id=new_id(),
            conn=record.conn,
            msg=record.msg,
            started_ns=record.t_ns,
            head=known,
            path=path,
            trial=self._trials.get(token) if token is not None else None,
            dialect=dialect,
            after_close=conn.closing,
        )
        conn.closing = conn.closing or _says_close(known.headers)
        conn.ours = conn.ours or exchange.trial is not None
        if head is None:
            exchange.give_up("the request's head was not in the copy")
        if conn.blind is not None:
            exchange.give_up(conn.blind)
        conn.open[record.msg] = exchange
        return exchange

    def _request_data(self, record: feed.Record) -> None:
        exchange = self._exchange(record)
        if exchange is None or exchange.announced:
            return
        if record.flags & Flag.DROPPED:
            exchange.body_lost = "the feed dropped a part of the body"
            self._release(exchange)
        if exchange.body_lost is not None:
            return
        size = len(record.payload)
        if exchange.body_bytes + size > MAX_REQUEST_BODY_BYTES or self._bodies_bytes + size > MAX_BODIES_BYTES:
            exchange.body_lost = "the body is larger than what is kept for reading"
            self._release(exchange)
            return
        exchange.parts.append(record.payload)
        exchange.body_bytes += size
        self._bodies_bytes += size

    def _release(self, exchange: _Exchange) -> None:
        self._bodies_bytes -= exchange.body_bytes
        exchange.body_bytes = 0
        exchange.parts.clear()

    def _request_end(self, record: feed.Record) -> None:
        exchange = self._exchange(record)
        if exchange is None:
            return
        said = msgspec.json.decode(record.payload, type=Ending)
        exchange.request_end_ns = record.t_ns
        exchange.request_whole = said.complete
        exchange.bytes_up = said.wire_bytes
        if said.complete is False and exchange.body_lost is None:
            exchange.body_lost = "the request was not sent whole"
        self._announce(exchange)

    def _announce(self, exchange: _Exchange) -> None:
        """Read the request, let its body go, and say that the attempt began."""
        if exchange.announced:
            return
        exchange.announced = True
        exchange.request = exchange.facts if exchange.facts is not None else self._read_request(exchange)
        self._release(exchange)
        exchange.is_main = self._looks_main(exchange.request)
        conn = self._conn(exchange.conn)
        self._source.emit(
            AttemptStarted(
                attempt=exchange.id,
                conn=exchange.conn,
                msg=exchange.msg,
                door=conn.door,
                provider=exchange.dialect.provider or conn.provider,
                dialect=exchange.dialect.name,
                upstream_host=conn.upstream_host,
                method=exchange.head.method or None,
                path=safe_path(split_token(exchange.head.target)[1]) if exchange.head.target else None,
                request=exchange.request,
            ),
            subject=Subject(trial=exchange.trial),
            wall_ns=self._clock.wall_at(exchange.started_ns),
            mono_ns=exchange.started_ns,
        )
        if exchange.is_main and exchange.trial is not None:
            self._edge("call_started")

    def _read_request(self, exchange: _Exchange) -> RequestFacts:
        head = exchange.head
        why = exchange.body_lost
        try:
            if why is None:
                body, why = decode_whole(b"".join(exchange.parts), head.headers.get("content-encoding"))
                if body is not None:
                    facts = self._facts(exchange, body)
                    if facts.unreadable is not None:
                        exchange.give_up(f"request: {facts.unreadable}", "partial")
                    return facts
            facts = exchange.dialect.read_request(head, exchange.path, b"")
            exchange.give_up(f"request: {why}", "partial")
            unseen = exchange.request_whole is not False
            return msgspec.structs.replace(facts, unreadable=why, raw_digest=None, unseen=unseen)
        except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
            self._fault(f"{exchange.dialect.name}: {type(error).__name__}: {error}")
            exchange.give_up(f"request: {type(error).__name__}")
            raw = digest(b"".join(exchange.parts)) if exchange.parts else None
            return bare_facts(head, "other", raw_digest=raw, unreadable=type(error).__name__)

    def _facts(self, exchange: _Exchange, body: bytes) -> RequestFacts:
        """Facts of a body; what our strict reader refuses is read as lenient readers do."""
        facts = exchange.dialect.read_request(exchange.head, exchange.path, body)
        tidy = lenient.tidied(body) if facts.unreadable is not None else None
        if tidy is None or tidy == body:
            return facts
        again = exchange.dialect.read_request(exchange.head, exchange.path, tidy)
        return facts if again.unreadable is not None else msgspec.structs.replace(again, raw_digest=facts.raw_digest)

    def _looks_main(self, request: RequestFacts) -> bool:
        """Good enough for reading counters in time; `steps/roles.py` decides at the end, seeing all calls."""
        if request.operation != "chat" or request.max_tokens == 1:
            return False
        key = (request.session_kind, request.session)
        if request.has_tools:
            self._tools_seen.add(key)
            return True
        return key not in self._tools_seen

    def _edge(self, edge: Edge) -> None:
        if self._on_edge is not None:
            self._on_edge(edge)

    # --- responses ------------------------------------------------------------------------------------------------

    def _response_head(self, record: feed.Record) -> None:
        conn = self._conn(record.conn)
        exchange = conn.open.get(record.msg)
        if exchange is None:
            exchange = self._begin(conn, record, None)
        self._bytes_came(exchange, record.t_ns, spoken=True)
        if record.flags & Flag.INTERIM:
            return
        self._announce(exchange)
        head = parse_response_head(record.payload)
        if head is None:
            exchange.give_up("the response's head cannot be read")
            return
        exchange.status = head.status
        if _says_close(head.headers, old=record.payload.startswith(b"HTTP/1.0")):
            conn.closing = True
            for behind in conn.open.values():
                behind.after_close = behind.after_close or behind.msg > exchange.msg
        self._read_reply(exchange, head)

    def _read_reply(self, exchange: _Exchange, head: ResponseHead) -> None:
        try:
            exchange.reader = exchange.dialect.read_reply(head, exchange.request)
        except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
            self._fault(f"{exchange.dialect.name}: {type(error).__name__}: {error}")
            exchange.give_up(f"response: {type(error).__name__}")
            exchange.reader = UNKNOWN.read_reply(head, exchange.request)
        exchange.decoder = BodyDecoder(head.headers.joined("content-encoding"))
        if head.status == 101 and isinstance(exchange.dialect, OpenAIResponses):
            extensions = head.headers.joined("sec-websocket-extensions")
            exchange.socket = ResponsesSocket(exchange.head, exchange.path, extensions)

    def _bytes_came(self, exchange: _Exchange, t_ns: int, *, spoken: bool) -> None:
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = exchange.last_byte_ns = exchange.last_spoken_ns = t_ns
            return
        last, last_spoken = exchange.last_byte_ns, exchange.last_spoken_ns
        if last is not None and t_ns - last > exchange.max_gap_with_pings_ns:
            exchange.max_gap_with_pings_ns = t_ns - last
        exchange.last_byte_ns = t_ns
        if spoken:
            if last_spoken is not None and t_ns - last_spoken > exchange.max_gap_ns:
                exchange.max_gap_ns = t_ns - last_spoken
            exchange.last_spoken_ns = t_ns

    def _response_data(self, record: feed.Record) -> None:
        conn = self._conns.get(record.conn)
        exchange = None if conn is None else conn.open.get(record.msg)
        if exchange is None:
            return
        if record.flags & Flag.DROPPED:
            self._bytes_came(exchange, record.t_ns, spoken=True)
            exchange.holed = True
            exchange.give_up("the feed dropped a part of the response", "partial")
            return
        spoken = True
        reader, decoder = exchange.reader, exchange.decoder
        if reader is not None and decoder is not None and not exchange.holed and exchange.parse != "none":
            try:
                if decoder.plain:
                    spoken = reader.feed(record.payload, record.t_ns)
                else:
                    spoken = False
                    for piece in decoder.feed(record.payload):
                        spoken = reader.feed(piece, record.t_ns) or spoken
                    if decoder.failed is not None:
                        exchange.holed = True
                        exchange.give_up(f"response: {decoder.failed}", "partial")
            except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
                self._fault(f"{exchange.dialect.name}: {type(error).__name__}: {error}")
                exchange.give_up(f"response: {type(error).__name__}")
                spoken = True
        self._bytes_came(exchange, record.t_ns, spoken=spoken)

    def _response_end(self, record: feed.Record) -> None:
        conn = self._conns.get(record.conn)
        exchange = None if conn is None else conn.open.get(record.msg)
        if conn is None or exchange is None:
            return
        ending = msgspec.json.decode(record.payload, type=Ending)
        exchange.bytes_down = ending.wire_bytes
        if ending.how == "tunnel":
            # The bytes that follow belong to the same attempt, which ends with its connection.
            if exchange.socket is None:
                exchange.give_up("a tunnel was opened")
            return
        if ending.complete is False:
            del conn.open[exchange.msg]
            conn.broken.append((exchange, ending, record.t_ns))
            self._announce(exchange)
            self._say_ended(exchange)
            return
        self._finish(conn, exchange, ending, record.t_ns)

    def _tunnel(self, record: feed.Record) -> None:
        exchange = self._exchange(record)
        if exchange is None:
            return
        size = int.from_bytes(record.payload, "big") if record.flags & Flag.DROPPED else len(record.payload)
        if record.kind == Kind.TUNNEL_UP:
            exchange.bytes_up = (exchange.bytes_up or 0) + size
        else:
            exchange.bytes_down = (exchange.bytes_down or 0) + size
            self._bytes_came(exchange, record.t_ns, spoken=True)
        if exchange.socket is not None:
            self._over_socket(self._conn(record.conn), exchange, exchange.socket, record)

    def _over_socket(self, conn: _Conn, tunnel: _Exchange, socket: ResponsesSocket, record: feed.Record) -> None:
        """Calls over a WebSocket are attempts of their own, beside the handshake's."""
        if record.flags & Flag.DROPPED or tunnel.holed:
            socket.fail("the feed dropped a part of it")
        try:
            if record.kind == Kind.TUNNEL_UP:
                for call in socket.up(record.payload):
                    self._begin_call(conn, tunnel, call, record.t_ns)
            else:
                for call, spoken in socket.down(record.payload, record.t_ns):
                    inner = tunnel.socket_calls[id(call)][1]
                    inner.bytes_down = call.events_bytes
                    inner.status = call.status
                    self._bytes_came(inner, record.t_ns, spoken=spoken)
                    if call.over:
                        del tunnel.socket_calls[id(call)]
                        self._finish(conn, inner, _CALL_OVER, record.t_ns)
        except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
            self._fault(f"websocket: {type(error).__name__}: {error}")
            socket.fail(type(error).__name__)
        if socket.failed is not None:
            tunnel.socket = None
            tunnel.give_up(f"websocket: {socket.failed}")
            for _, inner in tunnel.socket_calls.values():
                # How it went on is not known: that it did not end must not be read from this.
                inner.holed = True
                inner.give_up(f"websocket: {socket.failed}", "partial")
                self._finish(conn, inner, _CALL_OVER, record.t_ns)
            tunnel.socket_calls.clear()

    def _begin_call(self, conn: _Conn, tunnel: _Exchange, call: SocketCall, t_ns: int) -> None:
        tunnel.socket_count += 1
        inner = _Exchange(
            id=new_id(),
            conn=tunnel.conn,
            msg=tunnel.msg + tunnel.socket_count,
            started_ns=t_ns,
            head=tunnel.head,
            path=tunnel.path,
            trial=tunnel.trial,
            dialect=tunnel.dialect,
            facts=call.request,
            request_end_ns=t_ns,
            bytes_up=call.body_bytes,
            status=call.status,
            reader=call.reader,
        )
        if call.request.unreadable is not None:
            inner.give_up(f"request: {call.request.unreadable}", "partial")
        conn.open[inner.msg] = inner
        tunnel.socket_calls[id(call)] = (call, inner)
        self._announce(inner)

    # --- what the relay says about itself -------------------------------------------------------------------------

    def _blind(self, record: feed.Record) -> None:
        said = record.json()
        conn = self._conn(record.conn)
        conn.blind = f"{said.get('side')} side not framed: {said.get('reason')}"
        for exchange in conn.open.values():
            exchange.holed = True
            exchange.give_up(conn.blind)
        wall_ns = self._clock.wall_at(record.t_ns)
        self._source.emit(
            Note(event="blind", text=conn.blind, fields={"conn": record.conn, "door": conn.door}),
            wall_ns=wall_ns,
            mono_ns=record.t_ns,
        )
        if conn.ours:
            conn.blind_since_ns = wall_ns

    def _end_blind(self, conn: _Conn, t_ns: int) -> None:
        """A gap ends with its connection.  One that never carried a token had no call of a trial to hide."""
        if conn.blind_since_ns is None:
            return
        until_ns = self._clock.wall_at(t_ns)
        self._source.emit(
            GapSeen(source="door", families=_FAMILIES, since_ns=conn.blind_since_ns, until_ns=until_ns, why=conn.blind),
            wall_ns=until_ns,
            mono_ns=t_ns,
        )
        conn.blind_since_ns = None

    def _blocked(self, record: feed.Record) -> None:
        said = record.json()
        since_ns, until_ns = said.get("since_ns"), said.get("until_ns")
        if said.get("side") != "client" or not isinstance(since_ns, int) or not isinstance(until_ns, int):
            return
        conn = self._conn(record.conn)
        for exchange in conn.open.values():
            exchange.blocked_ns += max(0, until_ns - max(since_ns, exchange.started_ns))
            exchange.blocked_last = (since_ns, until_ns)
        for exchange, _, at_ns in conn.broken:
            exchange.blocked_ns += max(0, min(until_ns, at_ns) - max(since_ns, exchange.started_ns))
            exchange.blocked_last = (since_ns, until_ns)

    def _lag(self, record: feed.Record) -> None:
        lag_s = record.json().get("lag_s")
        if isinstance(lag_s, int | float):
            for conn in self._conns.values():
                for exchange in conn.open.values():
                    exchange.lag_s = max(exchange.lag_s, float(lag_s))

    def _lost(self, record: feed.Record) -> None:
        said = record.json()
        records, size = said.get("records"), said.get("bytes")
        since_ns, until_ns = said.get("since_ns"), said.get("until_ns")
        for conn in self._conns.values():
            for exchange in conn.open.values():
                exchange.holed = True
                exchange.give_up("the feed lost records", "partial")
        self._source.emit(
            GapSeen(
                source="feed",
                families=_FAMILIES,
                since_ns=self._clock.wall_at(since_ns) if isinstance(since_ns, int) else None,
                until_ns=self._clock.wall_at(until_ns) if isinstance(until_ns, int) else None,
                why="the feed to the observer overran",
                lost_records=records if isinstance(records, int) else None,
                lost_bytes=size if isinstance(size, int) else None,
            ),
            wall_ns=self._clock.wall_at(record.t_ns),
            mono_ns=record.t_ns,
        )

    def _bye(self, record: feed.Record) -> None:
        for conn in self._conns.values():
            self._end_blind(conn, record.t_ns)
            self._end_all(conn, Ending(how="shutdown", complete=False), record.t_ns)

    # --- ends -----------------------------------------------------------------------------------------------------

    def _close(self, record: feed.Record) -> None:
        conn = self._conns.pop(record.conn, None)
        if conn is not None:
            self._end_blind(conn, record.t_ns)
        if conn is None or not (conn.open or conn.broken):
            return
        said = msgspec.json.decode(record.payload, type=Ending)
        how = {"client": "client_gone", "upstream": "cut", "fairtrial": "aborted"}.get(said.first or "", "cut")
        ending = msgspec.structs.replace(said, close_how=said.how, how=how, complete=False, wire_bytes=None)
        self._end_all(conn, ending, record.t_ns)

    def _end_all(self, conn: _Conn, ending: Ending, t_ns: int) -> None:
        """Report what broke before, then what is still open."""
        broken, conn.broken = conn.broken, []
        for exchange, own, at_ns in broken:
            self._finish(conn, exchange, own, at_ns)
        for exchange in tuple(conn.open.values()):
            self._finish(conn, exchange, ending, max(t_ns, exchange.started_ns))

    def _finish(self, conn: _Conn, exchange: _Exchange, ending: Ending, t_ns: int) -> None:
        conn.open.pop(exchange.msg, None)
        self._announce(exchange)
        tally = self._finish_reply(exchange, whole=bool(ending.complete))
        ended_ns = t_ns
        if not ending.complete and ending.first_ns and exchange.started_ns <= ending.first_ns <= t_ns:
            ended_ns = ending.first_ns
        silence_ns = ended_ns - max(
            exchange.last_byte_ns or 0, exchange.request_end_ns or exchange.started_ns, exchange.started_ns
        )
        if not ending.complete and exchange.last_byte_ns is not None:
            exchange.max_gap_with_pings_ns = max(exchange.max_gap_with_pings_ns, ended_ns - exchange.last_byte_ns)
            exchange.max_gap_ns = max(exchange.max_gap_ns, ended_ns - (exchange.last_spoken_ns or ended_ns))
        known = exchange.dialect is not UNKNOWN
        outcome = judge(exchange.status, tally, ending, known=known)
        dial = exchange.dial
        failed = dial if dial is not None and not dial.ok else None
        first = _PARTIES.get(ending.first)
        refused = outcome == "error" and exchange.status is not None
        fin_before = first == "upstream" and ending.first_ns is not None and ending.first_ns <= exchange.started_ns
        self._source.emit(
            AttemptEnded(
                attempt=exchange.id,
                conn=exchange.conn,
                msg=exchange.msg,
                door=conn.door,
                provider=exchange.dialect.provider or conn.provider,
                dialect=exchange.dialect.name,
                upstream_host=conn.upstream_host,
                method=exchange.head.method or None,
                path=safe_path(split_token(exchange.head.target)[1]) if exchange.head.target else None,
                request=exchange.request,
                reply=reply_facts(exchange.status, tally),
                outcome=outcome,
                started_ns=exchange.started_ns,
                started_wall_ns=self._clock.wall_at(exchange.started_ns),
                ended_ns=ended_ns,
                dns=dial.dns_s if dial is not None else None,
                connect=dial.connect_s if dial is not None else None,
                tls=dial.tls_s if dial is not None else None,
                reused=dial is None if conn.dialled else None,
                request_sent=_seconds(exchange.started_ns, exchange.request_end_ns),
                ttfb=_seconds(exchange.started_ns, exchange.first_byte_ns),
                first_token=_seconds(exchange.started_ns, tally.first_token_ns),
                duration=_seconds(exchange.started_ns, ended_ns),
                max_gap=None if exchange.first_byte_ns is None else round(exchange.max_gap_ns / 1e9, 6),
                max_gap_with_pings=(
                    None if exchange.first_byte_ns is None else round(exchange.max_gap_with_pings_ns / 1e9, 6)
                ),
                silence_at_end=round(max(0, silence_ns) / 1e9, 6),
                downstream_blocked=round(exchange.blocked_ns / 1e9, 6),
                blocked_before_end=_blocked_before(exchange, ended_ns),
                request_whole=_request_whole(exchange),
                after_close=exchange.after_close or fin_before,
                our_lag=round(max(exchange.lag_s, ending.lag_max_s or 0.0), 6),
                bytes_up=exchange.bytes_up,
                bytes_down=exchange.bytes_down,
                first_failure=("upstream" if failed is not None or refused else first) if outcome != "ok" else None,
                closed_by=first if first is not None else ("upstream" if ending.how == "close_delimited" else None),
                close_kind=ending.close_how or ending.how,
                errno=_errno_name(
                    ending.errno if ending.errno is not None else (failed.errno if failed is not None else None)
                ),
                dial_stage=failed.stage if failed is not None else None,
                dial_error=failed.error[:200] if failed is not None and failed.error else None,
                proxy_status=dial.status if dial is not None else None,
                via_proxy=dial.via_proxy if dial is not None else None,
                remote=dial.remote if dial is not None else None,
                parse=exchange.parse if known else "none",
                parse_why=exchange.parse_why or (None if known else "no dialect reads it"),
            ),
            subject=Subject(trial=exchange.trial),
            wall_ns=self._clock.wall_at(ended_ns),
            mono_ns=ended_ns,
        )
        self._say_ended(exchange)

    def _say_ended(self, exchange: _Exchange) -> None:
        if exchange.is_main and exchange.trial is not None and not exchange.said_ended:
            exchange.said_ended = True
            self._edge("call_ended")

    def _finish_reply(self, exchange: _Exchange, *, whole: bool) -> Tally:
        reader = exchange.reader
        if reader is None:
            return Tally()
        tally = reader.tally
        if exchange.parse != "none":
            try:
                reader.finish(whole=whole)
            except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
                self._fault(f"{exchange.dialect.name}: {type(error).__name__}: {error}")
                exchange.give_up(f"response: {type(error).__name__}")
        if tally.unread_frames and exchange.parse == "full":
            exchange.give_up(f"response: {tally.unread_frames} frames could not be read", "partial")
        if exchange.holed or exchange.parse == "none":
            # With a hole in the copy a mark that was not seen may have been there.
            tally.terminator = True if tally.terminator else None
        return tally

    def _fault(self, what: str) -> None:
        self.faults += 1
        self.last_fault = what[:300]


def judge(status: int | None, tally: Tally, ending: Ending, *, known: bool) -> Outcome:
    """The outcome of an attempt from its status, what its reply said, and how it ended.

    The end mark beats the end of the connection: a client that hangs up behind it has its answer.  A 200 whose content
    is an error, HTML, or a JSON body that cannot be read is an error; a stream that ends well framed without its end
    mark is truncated.  `known`: a dialect that has an end mark read the reply.
    """
    broken: Outcome | None = None
    if not ending.complete and ending.how != "blind":
        match ending.how:
            case "client_gone":
                broken = "client_disconnect"
            case "aborted" | "shutdown":
                broken = "proxy_shutdown"
            case _:
                broken = "truncated"
    if status is None:
        return "error" if broken is None or broken == "truncated" else broken
    if status >= 400 or tally.error_in_stream:
        return "error"
    if tally.terminator:
        return "ok"
    if broken is not None:
        return broken
    if not known or tally.terminator is None:
        return "ok"
    if tally.html:
        return "error"
    return "truncated" if tally.events is not None else "error"


def reply_facts(status: int | None, tally: Tally) -> ReplyFacts:
    """A finished tally as the observation holds it."""
    return ReplyFacts(
        status=status,
        content_type=tally.content_type,
        html=tally.html,
        provider_id=tally.provider_id,
        request_id=tally.request_id,
        retry_after=tally.retry_after,
        should_retry=tally.should_retry,
        error_type=tally.error_type,
        error_in_stream=tally.error_in_stream,
        error_names=tally.error_names,
        model=tally.model[:200] if tally.model else None,
        response_id=tally.response_id[:200] if tally.response_id else None,
        stop_reason=tally.stop_reason[:100] if tally.stop_reason else None,
        input_tokens=tally.input_tokens,
        output_tokens=tally.output_tokens,
        cache_read_tokens=tally.cache_read_tokens,
        cache_write_tokens=tally.cache_write_tokens,
        usage_partial=tally.usage_partial,
        tool_calls=tally.tool_calls,
        open_tool_calls=tally.open_tool_calls,
        text_digest=tally.text_digest,
        text_chars=tally.text_chars,
        terminator=tally.terminator,
        started_content=tally.started_content,
        events=tally.events,
        pings=tally.pings,
    )


def _says_close(headers: Headers, *, old: bool = False) -> bool:
    """Whether a head ends the connection with its message; `old`: of HTTP/1.0, where that is the rule."""
    said = {option.strip().lower() for option in (headers.joined("connection") or "").split(",")}
    return "close" in said or (old and "keep-alive" not in said)


def _request_whole(exchange: _Exchange) -> bool | None:
    """A request of which no end was seen is unfinished, unless the copy itself has holes."""
    if exchange.request_end_ns is not None:
        return exchange.request_whole
    return None if exchange.holed or exchange.head is _NO_HEAD else False


def _blocked_before(exchange: _Exchange, ended_ns: int) -> float:
    """How long the client had not been reading at the end, s."""
    if exchange.blocked_last is None:
        return 0.0
    since_ns, until_ns = exchange.blocked_last
    if not since_ns <= ended_ns <= until_ns + BLOCKED_GRACE_NS:
        return 0.0
    return round((ended_ns - max(since_ns, exchange.started_ns)) / 1e9, 6)


def _seconds(begin_ns: int, end_ns: int | None) -> float | None:
    return None if end_ns is None else round(max(0, end_ns - begin_ns) / 1e9, 6)


def _errno_name(code: int | str | None) -> str | None:
    if isinstance(code, int):
        return errno.errorcode.get(code, str(code)) if code else None
    return code[:64] if code else None
