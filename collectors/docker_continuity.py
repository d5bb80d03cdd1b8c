"""Whether the engine's events came without a hole: which are repeats, and what a loss of the stream may have cost.

In: each event, each loss and each return of the stream.  Out: whether an event is new; after a return whether the
events in between came again, told once through `on_gap`.

The daemon keeps 256 events, and none over its own restart.  A return asks for the events since the last one minus an
overlap, so the last known event comes again: if it does, nothing is missing; if a later one comes first, or none within
a moment, or the engine is another process than before, there is a hole.  Until that is decided the hole is open, and an
end of the trial meanwhile counts as one.
**Source:** moby daemon/events (a ring of 256); container.md sections 0.13 and 5.1.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fairtrial.collectors.parse.docker import EventFacts

Key = tuple[int, str, str, str | None]
REPLAY_S: Final = 1.0
"""How long a busy engine may take to repeat its first event."""
_KNOWN_EVENTS: Final = 4096

NOT_REPLAYED: Final = "the engine's events between the loss of the stream and its return were not replayed"
RESTARTED: Final = "the engine was restarted, and its events from before that are lost"
NEVER_BACK: Final = "the engine's events broke off and did not come back"


class Continuity:
    """`on_gap(since_ns, why)`: a hole from that moment (our clock) to now."""

    def __init__(self, on_gap: Callable[[int | None, str], None]) -> None:
        self._on_gap = on_gap
        self._known: OrderedDict[Key, None] = OrderedDict()
        self._newest: Key | None = None
        self._awaited: Key | None = None
        self._lost_at_ns: int | None = None
        self._open = False
        self.last_loss_ns: int | None = None
        """When the stream was last lost, our clock; None when it never was."""

    def is_new(self, event: EventFacts) -> bool:
        """Take one event; False for one that was seen before."""
        key = event.key
        if self._open and self._awaited is not None:
            if key == self._awaited:
                self._close(None)
            elif key not in self._known and event.at_ns > self._awaited[0]:
                self._close(NOT_REPLAYED)
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > _KNOWN_EVENTS:
            self._known.popitem(last=False)
        self._newest = key
        return True

    def lost(self) -> None:
        """The stream broke off; told again before a return it changes nothing."""
        if not self._open:
            self._open = True
            self._lost_at_ns = self.last_loss_ns = time.time_ns()
        self._awaited = None

    def back(self, *, restarted: bool | None) -> None:
        """The stream is open again.  `restarted`: whether the engine is another process; None: that cannot be told."""
        if not self._open:
            return
        if restarted:
            self._close(RESTARTED)
        elif restarted is False and self._newest is None:
            self._close(None)  # the same engine, which had nothing to tell yet and repeats all from the trial's start
        else:
            self._awaited = self._newest

    @property
    def open(self) -> bool:
        """Whether it is undecided if something was missed."""
        return self._open

    def give_up(self, why: str = NOT_REPLAYED) -> None:
        """Nothing more is waited for: an open hole is one."""
        if self._open:
            self._close(why)

    def _close(self, why: str | None) -> None:
        since_ns, self._lost_at_ns = self._lost_at_ns, None
        self._open, self._awaited = False, None
        if why is not None:
            self._on_gap(since_ns, why)
