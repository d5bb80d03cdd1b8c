"""Calls over a WebSocket: attempts of their own inside the exchange whose 101 opened it.

In: the tunnel's bytes of an exchange, as the feed brings them.  Out: inner exchanges, begun and finished through two
callbacks.  What this module does not do: read frames or messages (`dialects/responses_socket.py`), report anything.

When the socket cannot be read any more its open calls end as ones of which the rest was not seen.
"""

from __future__ import annotations

from collections.abc import Callable

from fairtrial.middleware.core.ids import new_id
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.dialects.openai_responses import OpenAIResponses
from fairtrial.middleware.wire.dialects.responses_socket import ResponsesSocket, SocketCall
from fairtrial.middleware.wire.feed import Flag, Kind
from fairtrial.middleware.wire.http1 import ResponseHead
from fairtrial.middleware.wire.passing import CALL_OVER, Conn, Ending, Exchange
from fairtrial.middleware.wire.stalls import Stalls


class SocketCalls:
    """`begin` announces an inner exchange, `finish` reports it, `fault` counts what went wrong."""

    def __init__(
        self,
        *,
        begin: Callable[[Conn, Exchange], None],
        finish: Callable[[Conn, Exchange, Ending, int], None],
        fault: Callable[[str], None],
    ) -> None:
        self._begin = begin
        self._finish = finish
        self._fault = fault

    def handshake(self, exchange: Exchange, head: ResponseHead) -> None:
        """The head of a response: a 101 of an API that speaks over a WebSocket opens one."""
        if head.status == 101 and isinstance(exchange.dialect, OpenAIResponses):
            extensions = head.headers.joined("sec-websocket-extensions")
            exchange.socket = ResponsesSocket(exchange.head, exchange.path, extensions)

    def take(self, conn: Conn, tunnel: Exchange, record: feed.Record) -> None:
        """Bytes of the tunnel, either way; nothing where no known API speaks over it."""
        socket = tunnel.socket
        if socket is None:
            return
        if record.flags & Flag.DROPPED or tunnel.holed:
            socket.fail("the feed dropped a part of it")
        try:
            if record.kind == Kind.TUNNEL_UP:
                for call in socket.up(record.payload):
                    self._call_begins(conn, tunnel, call, record.t_ns)
            else:
                for call, spoken in socket.down(record.payload, record.t_ns):
                    self._call_is_told(conn, tunnel, call, record.t_ns, spoken=spoken)
        except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
            self._fault(f"websocket: {type(error).__name__}: {error}")
            socket.fail(type(error).__name__)
        if socket.failed is not None:
            self._give_up(conn, tunnel, socket.failed, record.t_ns)

    def _call_begins(self, conn: Conn, tunnel: Exchange, call: SocketCall, t_ns: int) -> None:
        tunnel.socket_count += 1
        inner = Exchange(
            id=new_id(),
            conn=tunnel.conn,
            msg=tunnel.msg + tunnel.socket_count,
            started_ns=t_ns,
            head=tunnel.head,
            path=tunnel.path,
            dialect=tunnel.dialect,
            stalls=Stalls(t_ns),
            facts=call.request,
            request_end_ns=t_ns,
            bytes_up=call.body_bytes,
            status=call.status,
            reader=call.reader,
        )
        if call.request.unreadable is not None:
            inner.give_up(f"request: {call.request.unreadable}", "partial")
        tunnel.socket_calls[id(call)] = (call, inner)
        self._begin(conn, inner)

    def _call_is_told(self, conn: Conn, tunnel: Exchange, call: SocketCall, t_ns: int, *, spoken: bool) -> None:
        inner = tunnel.socket_calls[id(call)][1]
        inner.bytes_down = call.events_bytes
        inner.status = call.status
        inner.stalls.came(t_ns, spoken=spoken)
        if call.over:
            del tunnel.socket_calls[id(call)]
            self._finish(conn, inner, CALL_OVER, t_ns)

    def _give_up(self, conn: Conn, tunnel: Exchange, why: str, t_ns: int) -> None:
        tunnel.socket = None
        tunnel.give_up(f"websocket: {why}")
        for _, inner in tunnel.socket_calls.values():
            # How it went on is not known: that it did not end must not be read from this.
            inner.holed = True
            inner.give_up(f"websocket: {why}", "partial")
            self._finish(conn, inner, CALL_OVER, t_ns)
        tunnel.socket_calls.clear()
