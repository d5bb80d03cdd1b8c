"""The tracker: records of the feed become attempts of model calls.

In: `feed.Record`s of one relay process in the order in which it wrote them.  Out: `attempt.started`, `attempt.ended`
and `coverage.gap` observations and notes through a `Source`, and a callback at the edges of main-agent calls.  Sans-IO:
all times come with the records.  What this module does not do: fold attempts (`steps/attempts.py`), decode the feed's
byte stream (`feed.py`, `app.py`), look at NOTE, CHILD or MUTATION records.  Its counterpart is `relay/coupled.py`.

Bodies are read in `bodies.py`, calls over a WebSocket in `socket_calls.py`, silences measured in `stalls.py`, attempts
put into words in `outcome.py` and said in `emission.py`, trials asked for in `whose.py`, edges told in `edges.py`;
`passing.py` holds what is known meanwhile.

It fails open: a record that makes no sense is counted and skipped.  What the feed lost is never taken for something
that did not happen: an exchange with a hole has no terminator to miss.

**Source:** design page DESIGN.md section 3; reference page model-api.md sections 3.1, 5.3 and 6.4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.claims import Assigns
from fairtrial.middleware.core.ids import new_id
from fairtrial.middleware.core.observations import Sender
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.bodies import Bodies
from fairtrial.middleware.wire.dialects import UNKNOWN, choose
from fairtrial.middleware.wire.edges import Edge, Edges
from fairtrial.middleware.wire.emission import Emission
from fairtrial.middleware.wire.feed import Flag, Kind
from fairtrial.middleware.wire.http1 import Headers, RequestHead, parse_request_head, parse_response_head
from fairtrial.middleware.wire.passing import NO_HEAD, SHUTDOWN, Conn, Dial, Ending, Exchange, Opened, peer_host
from fairtrial.middleware.wire.session import KeyDigest, short_key, split_token
from fairtrial.middleware.wire.socket_calls import SocketCalls
from fairtrial.middleware.wire.stalls import Stalls
from fairtrial.middleware.wire.whose import Whose


class ExchangeTracker:
    """Feed it records with `take`; `close` ends what is still open.

    `trial_of_token`: trial token → trial id.  A request without a known token gets `Subject(trial=None)`, unless
    `assigns` decides: it is asked once about each request, when its head and body are known.  `keys` must be the object
    that made the digests of its aliases.  `providers`: door name → provider ("anthropic", "openai"), where the name
    itself is not one.  `on_call_edge` is told when a main-agent call begins and ends, so that collectors can read their
    counters.
    """

    def __init__(
        self,
        source: Source,
        *,
        trial_of_token: Mapping[str, str],
        assigns: Assigns | None = None,
        keys: KeyDigest | None = None,
        providers: Mapping[str, str] | None = None,
        on_call_edge: Callable[[Edge], None] | None = None,
        at: clock.Instant | None = None,
    ) -> None:
        self._emission = Emission(source, at if at is not None else clock.now())
        self._whose = Whose(trial_of_token, assigns, keys)
        self._keys = keys
        self._edges = Edges(on_call_edge)
        self._providers = dict(providers or {})
        self._conns: dict[int, Conn] = {}
        self._bodies = Bodies()
        self._sockets = SocketCalls(begin=self._begin_inner, finish=self._finish, fault=self._bodies.fault)
        self._takers: dict[int, Callable[[feed.Record], None]] = {
            Kind.HELLO: self._hello,
            Kind.OPEN: self._open,
            Kind.DIAL: self._dial,
            Kind.SENDER: self._sender,
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

    @property
    def faults(self) -> int:
        """Dialects given up and records that made no sense."""
        return self._bodies.faults

    @property
    def last_fault(self) -> str | None:
        """What went wrong last."""
        return self._bodies.last_fault

    @property
    def held_bytes(self) -> int:
        """Bytes of request bodies that are kept for reading."""
        return self._bodies.held_bytes

    def take(self, record: feed.Record) -> None:
        """Handle one record; never raises."""
        taker = self._takers.get(record.kind)
        if taker is None:
            return
        try:
            taker(record)
        except Exception as error:  # noqa: BLE001 - one record of foreign bytes must not end the observing
            self._bodies.fault(f"record {record.kind}: {type(error).__name__}: {error}")

    def close(self) -> None:
        """The observing ends: what is still open is reported as `proxy_shutdown`."""
        self._shut(clock.mono_ns())
        self._conns.clear()

    def _shut(self, now_ns: int) -> None:
        for conn in self._conns.values():
            self._emission.blind_no_more(conn, now_ns)
            self._end_all(conn, SHUTDOWN, now_ns)

    # --- connections --------------------------------------------------------------------------------------------------

    def _hello(self, record: feed.Record) -> None:
        said = record.json()
        wall_ns, mono_ns = said.get("wall_ns"), said.get("mono_ns")
        if isinstance(wall_ns, int) and isinstance(mono_ns, int):
            self._emission.clock = clock.Instant(wall_ns, mono_ns)

    def _open(self, record: feed.Record) -> None:
        said = msgspec.json.decode(record.payload, type=Opened)
        name = said.door.rpartition(":")[2]
        host = None
        if said.upstream is not None:
            host = said.upstream.split("://", 1)[-1].partition("/")[0].rpartition("@")[2] or None
        before = self._conns.get(record.conn)
        if before is not None:
            # Another relay counts from 1 again: what the first one had open ended with it.
            self._emission.blind_no_more(before, record.t_ns)
            self._end_all(before, SHUTDOWN, record.t_ns)
        self._conns[record.conn] = Conn(
            door=said.door,
            provider=self._providers.get(name, name or None),
            upstream_host=host,
            peer=peer_host(said.peer),
            container=said.container,
        )

    def _dial(self, record: feed.Record) -> None:
        dial = msgspec.json.decode(record.payload, type=Dial)
        conn = self._conn(record.conn)
        conn.dialled = True
        for exchange in conn.open.values():
            # The oldest request without an answer is the one that waited for this dial.
            if exchange.status is None:
                exchange.dial = dial
                return

    def _sender(self, record: feed.Record) -> None:
        self._conn(record.conn).sender = msgspec.json.decode(record.payload, type=Sender)

    def _conn(self, number: int) -> Conn:
        conn = self._conns.get(number)
        if conn is None:
            # Its OPEN was lost: what still comes is better than nothing.
            conn = self._conns[number] = Conn()
        return conn

    def _exchange(self, record: feed.Record) -> Exchange | None:
        conn = self._conns.get(record.conn)
        return None if conn is None else conn.open.get(record.msg)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _request_head(self, record: feed.Record) -> None:
        self._begin(self._conn(record.conn), record, parse_request_head(record.payload))

    def _begin(self, conn: Conn, record: feed.Record, head: RequestHead | None) -> Exchange:
        token, target = split_token(head.target) if head is not None else (None, "")
        path = target.partition("?")[0]
        known = head if head is not None else NO_HEAD
        exchange = Exchange(
            id=new_id(),
            conn=record.conn,
            msg=record.msg,
            started_ns=record.t_ns,
            head=known,
            path=path,
            dialect=choose(known.method, path, conn.provider) if head is not None else UNKNOWN,
            stalls=Stalls(record.t_ns, lag_before_s=conn.lag_max_s),
            after_close=conn.closing,
            key=None if self._keys is None or head is None else short_key(self._keys.of_request(head)),
        )
        conn.closing = conn.closing or _says_close(known.headers)
        if (trial := self._whose.at_once(conn, token)) is not None:
            conn.add_trial(trial)
        if head is None:
            exchange.give_up("the request's head was not in the copy")
        if conn.blind is not None:
            exchange.give_up(conn.blind)
        before = conn.open.get(record.msg)
        if before is not None:
            before.give_up("its records make no sense", "partial")
            self._finish(conn, before, SHUTDOWN, max(record.t_ns, before.started_ns))
        conn.open[record.msg] = exchange
        return exchange

    def _request_data(self, record: feed.Record) -> None:
        exchange = self._exchange(record)
        if exchange is None or exchange.announced:
            return
        if record.flags & Flag.DROPPED:
            self._bodies.lose(exchange, "the feed dropped a part of the body")
        else:
            self._bodies.gather(exchange, record.payload)

    def _request_end(self, record: feed.Record) -> None:
        exchange = self._exchange(record)
        if exchange is None:
            return
        said = msgspec.json.decode(record.payload, type=Ending)
        exchange.request_end_ns = record.t_ns
        exchange.request_whole = said.complete
        exchange.bytes_up = said.wire_bytes
        exchange.stalls.asked(record.t_ns)
        if said.complete is False:
            exchange.body_lost = exchange.body_lost or "the request was not sent whole"
        self._announce(exchange)

    def _announce(self, exchange: Exchange) -> None:
        """Read the request, let its body go, tell whose it is, and say that the attempt began."""
        if exchange.announced:
            return
        exchange.announced = True
        exchange.request = self._bodies.read_request(exchange)
        self._bodies.release(exchange)
        conn = self._conn(exchange.conn)
        exchange.assigned = self._whose.ask(conn, exchange)
        if exchange.assigned.trial is not None:
            conn.add_trial(exchange.assigned.trial)
        self._emission.started(conn, exchange)
        self._edges.began(exchange)

    # --- responses ----------------------------------------------------------------------------------------------------

    def _response_head(self, record: feed.Record) -> None:
        conn = self._conn(record.conn)
        exchange = conn.open.get(record.msg)
        if exchange is None:
            exchange = self._begin(conn, record, None)
        exchange.stalls.came(record.t_ns, spoken=True)
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
        self._bodies.begin_reply(exchange, head)
        self._sockets.handshake(exchange, head)

    def _response_data(self, record: feed.Record) -> None:
        exchange = self._exchange(record)
        if exchange is None:
            return
        spoken = True
        if record.flags & Flag.DROPPED:
            exchange.holed = True
            exchange.give_up("the feed dropped a part of the response", "partial")
        else:
            spoken = self._bodies.feed_reply(exchange, record.payload, record.t_ns)
        exchange.stalls.came(record.t_ns, spoken=spoken)

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
            self._edges.ended(exchange)
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
            exchange.stalls.came(record.t_ns, spoken=True)
        self._sockets.take(self._conn(record.conn), exchange, record)

    def _begin_inner(self, conn: Conn, inner: Exchange) -> None:
        """A call over a WebSocket begins: an attempt of its own, beside the handshake's."""
        inner.stalls.lag_before_s = conn.lag_max_s
        conn.open[inner.msg] = inner
        self._announce(inner)

    # --- what the relay says about itself -----------------------------------------------------------------------------

    def _blind(self, record: feed.Record) -> None:
        said = record.json()
        conn = self._conn(record.conn)
        conn.blind = f"{said.get('side')} side not framed: {said.get('reason')}"
        for exchange in conn.open.values():
            exchange.holed = True
            exchange.give_up(conn.blind)
        self._emission.blind(record.conn, conn, record.t_ns)

    def _blocked(self, record: feed.Record) -> None:
        said = record.json()
        since_ns, until_ns = said.get("since_ns"), said.get("until_ns")
        if not isinstance(since_ns, int) or not isinstance(until_ns, int):
            return
        conn = self._conn(record.conn)
        concerned = [(exchange, until_ns) for exchange in conn.open.values()]
        concerned += [(exchange, at_ns) for exchange, _, at_ns in conn.broken]
        for exchange, at_ns in concerned:
            span = (exchange.started_ns, at_ns)
            if said.get("side") == "client":
                exchange.stalls.client_blocked(since_ns, until_ns, counted=span)
            elif exchange.request_end_ns is None or exchange.request_end_ns >= since_ns:
                exchange.stalls.upstream_blocked(since_ns, until_ns, counted=span)

    def _lag(self, record: feed.Record) -> None:
        lag_s = record.json().get("lag_s")
        if not isinstance(lag_s, int | float):
            return
        for conn in self._conns.values():
            conn.lag_max_s = max(conn.lag_max_s, float(lag_s))
            for exchange in (*conn.open.values(), *(broken for broken, _, _ in conn.broken)):
                exchange.stalls.lagged(record.t_ns, float(lag_s))

    def _lost(self, record: feed.Record) -> None:
        for conn in self._conns.values():
            for exchange in conn.open.values():
                exchange.holed = True
                exchange.give_up("the feed lost records", "partial")
        self._emission.lost(record)

    def _bye(self, record: feed.Record) -> None:
        self._shut(record.t_ns)

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _close(self, record: feed.Record) -> None:
        conn = self._conns.pop(record.conn, None)
        if conn is not None:
            self._emission.blind_no_more(conn, record.t_ns)
        if conn is None or not (conn.open or conn.broken):
            return
        try:
            said = msgspec.json.decode(record.payload, type=Ending)
        except msgspec.DecodeError as error:
            self._bodies.fault(f"record {record.kind}: {type(error).__name__}: {error}")
            self._end_all(conn, SHUTDOWN, record.t_ns)
            return
        how = {"client": "client_gone", "upstream": "cut", "fairtrial": "aborted"}.get(said.first or "", "cut")
        ending = msgspec.structs.replace(said, close_how=said.how, how=how, complete=False, wire_bytes=None)
        self._end_all(conn, ending, record.t_ns)

    def _end_all(self, conn: Conn, ending: Ending, t_ns: int) -> None:
        """Report what broke before, then what is still open."""
        broken, conn.broken = conn.broken, []
        for exchange, own, at_ns in broken:
            own.suspend_gap_s = ending.suspend_gap_s
            if ending.far_listens is False:  # a server that is being ended may close what it holds one by one
                own.far_listens = False
            self._finish(conn, exchange, own, at_ns)
        for exchange in tuple(conn.open.values()):
            self._finish(conn, exchange, ending, max(t_ns, exchange.started_ns))

    def _finish(self, conn: Conn, exchange: Exchange, ending: Ending, t_ns: int) -> None:
        conn.open.pop(exchange.msg, None)
        self._announce(exchange)
        tally = self._bodies.finish_reply(exchange, whole=bool(ending.complete))
        ended_ns = t_ns
        if not ending.complete and ending.first_ns and exchange.started_ns <= ending.first_ns <= t_ns:
            ended_ns = ending.first_ns
        exchange.stalls.ended_late(ended_ns, now_s=ending.lag_now_s, connection_s=ending.lag_max_s)
        if not ending.complete:
            exchange.stalls.broke_off(ended_ns)
        value = self._emission.ended(conn, exchange, tally, ending, ended_ns)
        self._whose.ended(exchange, tally, whole=value.outcome == "ok")
        self._edges.ended(exchange)


def _says_close(headers: Headers, *, old: bool = False) -> bool:
    """Whether a head ends the connection with its message; `old`: of HTTP/1.0, where that is the rule."""
    said = {option.strip().lower() for option in (headers.joined("connection") or "").split(",")}
    return "close" in said or (old and "keep-alive" not in said)
