"""The stand-in model API: answers at once, streams, holds, stays silent or stops reading, as the query asks.

In: an `Api` on the bench's own loop.  Out: ports, and the times at which connections ended that were kept waiting.
It shares the loop with the clients: two processes on the core that the proxy leaves would cost half as much again in
switches, and neither may be what is measured.  Raw protocols, and TLS by hand, for the same reason.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import time
from typing import Final, Self, cast

from tests.bench.messages import STREAM_END, STREAM_HEAD, STREAM_START, agent_answer, stamped, tool_id, whole_answer

EVENTS: Final = 200
EVENT_INTERVAL_S: Final = 0.005
AGENT_TTFT_S: Final = 0.6
AGENT_EVENT_S: Final = 0.03
AGENT_PIECES: Final = 60
SHORT_EVENTS: Final = 20
_KEPT: Final = frozenset(("silence", "paused", "flow"))
_REPLY: Final = whole_answer()
_TLS_READ: Final = 1 << 18


class Api:
    """One upstream; with a context it speaks TLS.  Lives within a running loop."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.context = context
        self.open = 0
        """Connections."""
        self.seen = 0
        """Requests that are kept waiting, since the start."""
        self.gone_s: list[float] = []
        """When their connections ended (monotonic clock)."""
        self.loop = asyncio.get_running_loop()
        self._hangups = select.epoll()
        self._watched = dict[int, tuple[socket.socket, "Connection"]]()

    async def __aenter__(self) -> Self:
        self.loop.add_reader(self._hangups.fileno(), self._hung_up)
        self._server = await self.loop.create_server(lambda: Connection(self), "127.0.0.1", 0, backlog=1024)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.loop.remove_reader(self._hangups.fileno())
        self._hangups.close()
        for entry in self._watched.values():
            entry[0].close()

    def watch(self, connection: Connection) -> None:
        """A transport whose reading is paused does not notice that its peer has gone: the kernel is asked."""
        found = connection.transport.get_extra_info("socket")
        twin = socket.socket(fileno=os.dup(found.fileno()))
        self._watched[twin.fileno()] = (twin, connection)
        self._hangups.register(twin.fileno(), select.EPOLLRDHUP)

    def _hung_up(self) -> None:
        for number, _ in self._hangups.poll(0):
            twin, connection = self._watched.pop(number)
            self._hangups.unregister(number)
            twin.close()
            connection.ended()
            connection.transport.abort()


class Connection(asyncio.Protocol):
    """One connection; what it says is decided by the query of each request's target."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.left = 0
        self.mode = ""
        self.kept = False
        self.timer: asyncio.TimerHandle | None = None
        self.tls: ssl.SSLObject | None = None
        if api.context is not None:
            self.encrypted, self.answered = ssl.MemoryBIO(), ssl.MemoryBIO()
            self.tls = api.context.wrap_bio(self.encrypted, self.answered, server_side=True)
            self.shaking = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.api.open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.api.open -= 1
        if self.timer is not None:
            self.timer.cancel()
        self.ended()

    def ended(self) -> None:
        """A connection that was kept waiting has ended."""
        if self.kept:
            self.kept = False
            self.api.gone_s.append(time.monotonic())

    # ------------------------------------------------------------------ bytes

    def data_received(self, data: bytes) -> None:
        if self.tls is None:
            self.asked(data)
            return
        self.encrypted.write(data)
        try:
            if self.shaking:
                self.tls.do_handshake()
                self.shaking = False
            while True:
                plain = self.tls.read(_TLS_READ)
                if not plain:
                    self.transport.close()
                    return
                self.asked(plain)
                if not self.encrypted.pending:
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self.transport.abort()
            return
        if self.answered.pending:
            self.transport.write(self.answered.read())

    def write(self, data: bytes) -> None:
        if self.tls is None:
            self.transport.write(data)
        else:
            self.tls.write(data)
            self.transport.write(self.answered.read())

    # ------------------------------------------------------------------ requests

    def asked(self, data: bytes) -> None:
        """Bytes of requests; one request at a time, each head in one read."""
        if not self.left:
            end = data.index(b"\r\n\r\n")
            at = data.index(b"ontent-Length: ", 0, end) + 15
            self.left = int(data[at : data.index(b"\r", at)]) + end + 4
            query = data.find(b"?", 0, 90)
            self.mode = data[query + 1 : data.index(b" ", query)].decode() if query != -1 else ""
            if self.mode in _KEPT:
                self.keep()
        self.left -= len(data)
        if not self.left:
            self.answer()

    def keep(self) -> None:
        """The bench waits for the end of this connection."""
        self.kept = True
        self.api.seen += 1
        if self.mode == "paused":
            self.transport.pause_reading()
            self.api.watch(self)

    def answer(self) -> None:
        """The request is here whole."""
        mode = self.mode
        if not mode:
            self.write(_REPLY)
        elif mode == "first":
            self.write(STREAM_HEAD + STREAM_START + stamped(time.monotonic_ns()) + STREAM_END)
        elif mode == "held":
            self.write(STREAM_HEAD + STREAM_START + stamped(time.monotonic_ns()))
        elif mode == "stream":
            self.write(STREAM_HEAD + STREAM_START)
            self.event(EVENTS)
        elif mode == "flow":
            self.write(STREAM_HEAD + STREAM_START)
            self.event(1 << 30)
        elif mode == "short":
            half = [stamped(time.monotonic_ns()) for _ in range(SHORT_EVENTS // 2)]
            self.write(STREAM_HEAD + STREAM_START + b"".join(half))
            self.timer = self.api.loop.call_later(EVENT_INTERVAL_S, self.write, b"".join(half) + STREAM_END)
        elif mode not in _KEPT:
            pace, trial, step = mode.split(".")
            answer = list(agent_answer(tool_id(int(trial), int(step)), AGENT_PIECES))[::-1]
            if pace == "agent":
                self.timer = self.api.loop.call_later(AGENT_TTFT_S, self.speak, answer)
            else:
                self.write(b"".join(answer[::-1]))

    def event(self, left: int) -> None:
        """One stamped event now, the next ones on time."""
        if left:
            self.write(stamped(time.monotonic_ns()))
            self.timer = self.api.loop.call_later(EVENT_INTERVAL_S, self.event, left - 1)
        else:
            self.write(STREAM_END)

    def speak(self, left: list[bytes]) -> None:
        """The next piece of an answer whose pieces stand in reverse."""
        self.write(left.pop())
        if left:
            self.timer = self.api.loop.call_later(AGENT_EVENT_S, self.speak, left)
