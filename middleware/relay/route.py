"""What the engine asks of a door (`Route`) and of the relay that accepted a client (`Owner`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.senders import Senders
from fairtrial.middleware.relay.settings import Counters, RelaySettings, Upstream

if TYPE_CHECKING:
    from fairtrial.middleware.relay.pair import PairState


@dataclass(frozen=True, slots=True)
class DoorPolicy:
    """What differs between doors.

    `client_eof`: what a client's FIN means while a request is in flight: `gone` (TCP model door), `half` (TCP
    Docker door), `unix` (POLLHUP tells the two apart).  `docker`: its unframed 200 opens a tunnel.  `connect`: each
    connection is a CONNECT that the door itself answers once its upstream is dialled.
    """

    client_eof: Literal["gone", "half", "unix"] = "gone"
    docker: bool = False
    connect: bool = False


class HeadRefused(Exception):
    """A door does not take this request.  `status`: code and phrase of the answer."""

    def __init__(self, reason: str, status: str = "400 Bad Request") -> None:
        super().__init__(reason)
        self.status = status


Thinking = Callable[[], Coroutine[Any, Any, bytes | None]]
"""Begun by calling it."""


class Editor(Protocol):
    """What a door that edits bodies tells (`editing.py`)."""

    def wants(self, head: RequestHead) -> bool:
        """Whether the body behind this head is to be looked at."""
        ...

    def edit(self, head: RequestHead, body: bytes) -> Thinking | None:
        """Another body, once it is known; None, at once or later: it stays as it is."""
        ...

    def not_edited(self, why: str) -> None:
        """A body that was to be looked at passed unseen."""
        ...


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a client may come in, and in which container it is (None: not known)."""

    admitted: bool
    container: str | None = None


Gate = Callable[[str], Coroutine[Any, Any, Admission]]
"""Asked by a client's address."""


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

    @property
    def editor(self) -> Editor | None:
        """Who may give a request another body; asked when a client is accepted."""
        ...

    @property
    def gate(self) -> Gate | None:
        """Who says which clients may come in; None: whoever can reach the door."""
        ...

    def rewrite(self, head: RequestHead) -> tuple[bytes, str | None]:
        """The head as it goes upstream, and the trial that its token names (None: no known token).

        Answers by the head's bytes alone, as long as `Owner.generation` is the same: a head that is said again is not
        asked about again.
        Raises `HeadRefused`, at the doors of a `serve` and on an engine's bridge only.
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
    senders: Senders
    generation: int
    """Rises whenever the answer of a door's `rewrite` to the same head may change (a token came or went)."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that both sockets are on."""
        ...

    def forget(self, pair: PairState) -> None:
        """Both sides are closed."""

    def swallow(self, error: Exception) -> None:
        """Count a fault of ours."""

    def look_at_lag(self, t_ns: int) -> None:
        """Tell of a lag of this very turn, in which a read returned at `t_ns`, before that read is told."""

    def overdue_s(self) -> float:
        """How late the loop is at this moment."""
        ...

    def observe_soon(self, pair: PairState) -> None:
        """Call the pair's `catch_up` at the end of this turn of the loop."""

    def observe_with_feed(self, pair: PairState) -> None:
        """Call the pair's `catch_up` when the feed is handed over next, at most some 2 ms from now."""
