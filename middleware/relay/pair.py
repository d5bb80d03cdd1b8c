"""What a pair is: its two sides, how far each was framed, why the client is not read.

The state of one coupled connection, and what can be asked of it.  What is done with it lies in the modules above, each
one idea: `endings.py`, `switching.py`, `upward.py`, `downward.py`; `coupled.py` puts them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, Literal

from fairtrial.middleware.relay.account import Account
from fairtrial.middleware.relay.again import Said
from fairtrial.middleware.relay.ends import Link
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.framing import RequestEvent, RequestFramer, ResponseFramer
from fairtrial.middleware.relay.opaque import Opaque
from fairtrial.middleware.relay.route import Owner, Route
from fairtrial.middleware.relay.switch import Queue
from fairtrial.middleware.relay.tally import Tally

if TYPE_CHECKING:
    from fairtrial.middleware.relay.editing import Edits

UPSTREAM_FLUSH_S: Final = 60.0
"""How long an upstream whose client is gone may take to accept what was already read from the client."""

LESSONS: Final = 4
"""So many heads in a row that are not the one before: then the client never says the same again."""


class Pause:
    """Why the client is not read: bits of a plain int, because IntFlag costs microseconds per operation."""

    DIALLING = 1
    UPSTREAM_FULL = 2
    HELD = 4
    PIPELINE = 8
    REFUSING = 16
    UPSTREAM_DEAD = 32
    SWITCH = 64
    EDITING = 128


def _account(route: Route, feed: FeedSender, conn: int) -> Account:
    """What is told of a connection depends on its door."""
    if route.policy.docker:
        return Tally(feed, conn)
    return Opaque(feed, conn) if route.policy.connect else Account(feed, conn)


class PairState:
    """One client connection and its upstream.  Slots: a read of either side looks up a dozen of these."""

    __slots__ = (
        "_client", "_counters", "_dial_task", "_dialler", "_down_blind", "_edits", "_eof_pending", "_finished", "_json",
        "_lessons", "_loop", "_msg", "_note_first", "_open_request", "_opened_ns", "_paused", "_pending",
        "_pending_bytes", "_queue", "_record", "_record_whole", "_refusing", "_refusing_as", "_relay", "_requests",
        "_responses", "_route", "_said", "_settings", "_switching", "_timer", "_trial", "_tunnel", "_unseen",
        "_up_blind", "_upstream", "account", "conn", "peer",
    )  # fmt: skip

    def __init__(self, relay: Owner, route: Route, client: Link, conn: int) -> None:
        self._relay = relay
        self._loop = relay.loop
        self.account = account = _account(route, relay.feed, conn)
        self._record = account.record
        self._json = account.json
        self._record_whole = relay.feed.record_whole
        self._note_first = account.note_first
        self._settings = relay.settings
        self._counters = relay.counters
        self._route = route
        self.conn = conn
        self.peer = ""
        """The client's address, as OPEN tells it."""
        self._client = client
        self._dialler = route.dialler
        self._queue: Queue | None = None
        self._edits: Edits | None = None
        self._switching = False
        self._upstream: Link | None = None
        self._requests = RequestFramer(docker=route.policy.docker, patient=not relay.settings.refuse_bad_heads)
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
        self._said: Said | None = None
        self._lessons = LESSONS
        self._unseen: list[tuple[bytes, int]] = []
        """Reads of the upstream that have passed and were not looked at, and when they came."""

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
        """What waits for another upstream, or for an edit."""
        if self._edits is not None:
            return self._edits.held_bytes
        return 0 if self._queue is None else self._queue.held_bytes

    @property
    def _held_bytes(self) -> int:
        """What was read from the client and has not left."""
        return self._requests.held_bytes + self._queued_bytes

    @property
    def has_upstream(self) -> bool:
        """Whether its upstream was ever connected."""
        return self._upstream is not None

    @property
    def quiet_since_ns(self) -> int:
        """When either side was last heard, else when it was accepted."""
        return max(self._opened_ns, self.account.client_last_ns or 0, self.account.upstream_last_ns or 0)

    def _pause(self, why: int) -> None:
        if not self._paused:
            self._client.pause()
        self._paused |= why

    def _resume(self, why: int) -> None:
        if self._paused & why:
            self._paused &= ~why
            if not self._paused:
                self._client.resume()

    # ------------------------------------------------------------------ said here, done above

    def catch_up(self) -> None:
        """Look at what has passed already: whatever decides by the state of the framing calls this first."""
        raise NotImplementedError

    def _closed(self) -> None:
        raise NotImplementedError

    def _guard(self, act: Callable[..., None]) -> Callable[..., None]:
        raise NotImplementedError

    def _may_switch(self) -> bool:
        raise NotImplementedError

    def _switch_soon(self) -> None:
        raise NotImplementedError

    def _edit_no_more(self, why: str) -> None:
        raise NotImplementedError

    def _pass_requests(self, events: list[RequestEvent], t_ns: int) -> None:
        raise NotImplementedError

    def _start_dial(self) -> None:
        raise NotImplementedError
