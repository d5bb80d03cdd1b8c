"""What the tracker says: observations of attempts, notes and gaps, with the trial that each belongs to.

In: passing exchanges and what the relay says about itself; times on the relay's clock.  Out: observations through a
`Source`, dated.  What this module does not do: follow the traffic (`exchange.py`), put an attempt into words
(`outcome.py`).

A note or a gap of a connection is said of each trial that used it; what the feed lost is said once, of nobody: it is
part of every trial.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import AttemptEnded, GapSeen, Note, Subject, Value
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.outcome import attempt_ended, attempt_started
from fairtrial.middleware.wire.passing import Conn, Ending, Exchange

_FAMILIES: Final = ["model_api"]


class Emission:
    """Says things through one source; `clock` turns the relay's monotonic times into dates."""

    def __init__(self, source: Source, at: clock.Instant) -> None:
        self._source = source
        self.clock = at

    def started(self, conn: Conn, exchange: Exchange) -> None:
        """A request was read."""
        self._say(attempt_started(conn, exchange), exchange.started_ns, Subject(trial=exchange.assigned.trial))

    def ended(self, conn: Conn, exchange: Exchange, tally: Tally, ending: Ending, ended_ns: int) -> AttemptEnded:
        """An exchange is over; its value."""
        value = attempt_ended(conn, exchange, tally, ending, ended_ns, self.clock)
        self._say(value, ended_ns, Subject(trial=exchange.assigned.trial))
        return value

    def blind(self, number: int, conn: Conn, t_ns: int) -> None:
        """Nothing is seen of a connection any more; a gap of its trials begins."""
        note = Note(event="blind", text=conn.blind, fields={"conn": number, "door": conn.door})
        for subject in (None,) if not conn.trials else (Subject(trial=trial) for trial in conn.trials):
            self._say(note, t_ns, subject)
        if conn.trials:
            conn.blind_since_ns = self.clock.wall_at(t_ns)

    def blind_no_more(self, conn: Conn, t_ns: int) -> None:
        """A gap ends with its connection.  One that never carried a request of a trial had no call to hide."""
        if conn.blind_since_ns is None:
            return
        gap = GapSeen(
            source="door",
            families=_FAMILIES,
            since_ns=conn.blind_since_ns,
            until_ns=self.clock.wall_at(t_ns),
            why=conn.blind,
        )
        for trial in conn.trials:
            self._say(gap, t_ns, Subject(trial=trial))
        conn.blind_since_ns = None

    def lost(self, record: feed.Record) -> None:
        """The feed overran."""
        said = record.json()
        records, size = said.get("records"), said.get("bytes")
        since_ns, until_ns = said.get("since_ns"), said.get("until_ns")
        gap = GapSeen(
            source="feed",
            families=_FAMILIES,
            since_ns=self.clock.wall_at(since_ns) if isinstance(since_ns, int) else None,
            until_ns=self.clock.wall_at(until_ns) if isinstance(until_ns, int) else None,
            why="the feed to the observer overran",
            lost_records=records if isinstance(records, int) else None,
            lost_bytes=size if isinstance(size, int) else None,
        )
        self._say(gap, record.t_ns, None)

    def _say(self, value: Value, mono_ns: int, subject: Subject | None) -> None:
        self._source.emit(value, subject=subject, wall_ns=self.clock.wall_at(mono_ns), mono_ns=mono_ns)
