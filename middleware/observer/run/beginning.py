"""How a trial begins in the store, or is taken over from an observer that died.

In: the HELLO.  Out: the trial's row and its first observations; after a takeover since when nobody looked.
"""

from __future__ import annotations

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.hello import Hello
from fairtrial.middleware.core.observations import GapSeen, Host, TrialStarted
from fairtrial.middleware.core.records import FAMILIES
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.observer.machine import start_ticks
from fairtrial.middleware.store.writer import UNCOMMITTED_S, Owner


def begin(hello: Hello, book: TrialBook, *, host: Host) -> int | None:
    """Say what the trial is; for a takeover the wall time since when nobody looked, ns, where that is known."""
    if hello.resumed or hello.close_only:
        return _take_over(hello, book)
    owner = Owner(hello.pid, host.boot_id, start_ticks(hello.pid))
    book.open(_started(hello), owner, hello.doors)
    return None


def _started(hello: Hello) -> TrialStarted:
    return TrialStarted(
        command=hello.command,
        name=hello.name,
        run=hello.run,
        task=hello.task,
        try_=hello.try_,
        trace_id=hello.trace_id,
        root_span_id=hello.root_span_id,
        parent_span_id=hello.parent_span_id,
        options=hello.options,
    )


def _take_over(hello: Hello, book: TrialBook) -> int | None:
    """Read what a predecessor stored, and say since when nobody looked."""
    resumed_wall_ns: int | None = None
    if not any(o.kind == TrialStarted.kind for o in book.resume()):
        book.say_started(_started(hello), hello.doors)
    now = clock.now()
    if hello.gap_since_ns is not None:
        resumed_wall_ns = now.wall_at(hello.gap_since_ns)
    book.source.emit(
        GapSeen(
            source="observer",
            families=list(FAMILIES),
            since_ns=None if resumed_wall_ns is None else resumed_wall_ns - round(UNCOMMITTED_S * 1e9),
            until_ns=now.wall_ns,
            why="the observer process was killed or crashed",
        )
    )
    return resumed_wall_ns
