"""The engine: one client connection coupled to one upstream connection of the same lifetime.

In: an accepted socket and a `Route` (where it leads, which head lines change).  Out: the same bytes on the
other side, the same ending on the other side, and records for the observer.  Bytes pass first: what came
from the upstream is written to the client before anybody looks at it.  No pool, no retry, no cache, no
status of our own, except what a shared door refuses.

Here both sides are connected: the client at once, the upstream by a dial at the first request.  What then passes is in
`upward.py` and `downward.py`, how it ends in `endings.py`, what is told of it in `account.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic_ns
from typing import Final

from fairtrial.middleware.relay.dial import DialFailed, DialReport
from fairtrial.middleware.relay.downward import Downward
from fairtrial.middleware.relay.editing import Edits
from fairtrial.middleware.relay.ends import Link
from fairtrial.middleware.relay.listening import of_this_machine
from fairtrial.middleware.relay.pair import Pause
from fairtrial.middleware.relay.route import DoorPolicy, HeadRefused, Owner, Route
from fairtrial.middleware.relay.switch import Queue
from fairtrial.middleware.wire.feed import Kind

ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
"""The one answer of ours that is no refusal: without it no client begins its tunnel."""

__all__ = ("DoorPolicy", "HeadRefused", "Owner", "Pair", "Route")


class Pair(Downward):
    """One client connection and its upstream."""

    __slots__ = ()

    def __init__(
        self, relay: Owner, route: Route, client: Link, conn: int, peer: str, container: str | None = None
    ) -> None:
        """`container`: whose the client is, where its door knows (`gateway.py`)."""
        super().__init__(relay, route, client, conn)
        self.peer = peer
        if route.lead is not None:
            self._queue = Queue(route.lead)
        elif route.editor is not None:
            self._edits = Edits(route.editor)
        client.watch_fin = route.policy.client_eof != "half"
        client.on_data = self._client_data
        client.on_eof = self._guard(self._client_eof)
        client.on_error = self._guard(self._client_error)
        client.on_write_failed = self._guard(self._client_write_failed)
        client.on_blocked = self._guard(self._client_blocked)
        client.on_drained = self._guard(self._client_drained)
        client.on_hangup = self._guard(self._client_hangup)
        client.on_closed = self._closed
        opened: dict[str, object] = {"door": route.label, "upstream": route.upstream.url, "peer": peer}
        self._json(Kind.OPEN, opened if container is None else {**opened, "container": container})
        client.resume()

    def _start_dial(self) -> None:
        self._dial_task = self._loop.create_task(self._dial(), name=f"fairtrial-dial-{self.conn}")

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
        self._counters.dial_failed += 1
        self._json(Kind.DIAL, report.as_json(), self._msg)
        self._note_first("upstream", "dial", report.errno, f"{report.stage}: {report.error}")
        self._client.read_now()  # the rest of the request, for the record
        self._settle()
        self._client.reset_when_delivered()  # an upstream before this one may have answered

    def _say_sender(self) -> None:
        """Tell who is at the client's end: the request has been passed on, and nothing of an answer was read yet, so
        the client is there still."""
        try:
            sender = self._relay.senders.of(*self._client.ends())
        except OSError:
            return
        if sender is not None:
            self._json(Kind.SENDER, sender)

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
        if self._route.policy.connect:
            self._answer_connect()
        with suppress(OSError):
            self.account.far = of_this_machine(*link.ends())
        self._say_sender()
        self._resume(Pause.DIALLING)
        if not self._client.blocked:  # by a response of the upstream before this one
            link.resume()
        link.start()

    def _answer_connect(self) -> None:
        """Say that the tunnel stands, as if its upstream had said so: what then passes is the client's and its own."""
        self._upstream_data(ESTABLISHED, monotonic_ns())
        self.account.upstream_last_ns = None
        self.account.bytes_down -= len(ESTABLISHED)
