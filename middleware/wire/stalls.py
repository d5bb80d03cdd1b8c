"""Whose a silence was: the client's that did not read, our own loop's, or the upstream's.

In: when bytes of a response came, and the times in which the client held us up or our own loop was late.  Out: the
longest silences of one exchange, and how much of them the upstream alone accounts for.  Times are ns of one clock
(CLOCK_MONOTONIC of the relay).  What this module does not do: blame anybody (`attribution/`).

A silence is the upstream's from its first moment if it went on while we read: had the upstream sent something while we
did not read, it would have been there at once when we read again.  So only a pause of ours, or of the client's, that
reaches the end of the silence takes anything from it, and then all that lies behind the pause's begin.

Bounds: of each exchange the 32 longest silences of at least 20 ms, and the 64 longest pauses, those that touch taken as
one.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import Final

NOTED_NS: Final = 20_000_000
"""Shorter silences are nobody's stall."""

AT_ONCE_NS: Final = 20_000_000
"""Bytes that came this shortly after a pause were there already."""

BLOCKED_GRACE_NS: Final = 100_000_000
"""An end this shortly after the client read again is still one that it met while it did not read."""

_KEPT_SILENCES: Final = 32
_KEPT_PAUSES: Final = 64

Span = tuple[int, int]
"""(since, until)."""


@dataclass(slots=True)
class _Silences:
    """Of one kind of bytes."""

    longest_ns: int = 0
    kept: list[tuple[int, Span]] = field(default_factory=list[tuple[int, Span]])
    """(length, when), the shortest first."""

    def note(self, since_ns: int, until_ns: int) -> None:
        length = until_ns - since_ns
        if length >= NOTED_NS:
            insort(self.kept, (length, (since_ns, until_ns)))
            if len(self.kept) > _KEPT_SILENCES:
                del self.kept[0]

    def upstreams_ns(self, pauses: list[Span]) -> int:
        return max((_proved(span, pauses) for _, span in self.kept), default=0)


@dataclass(slots=True)
class Stalls:
    """The silences of one exchange; `asked_ns`: since when an answer may come."""

    asked_ns: int
    first_byte_ns: int | None = None
    last_byte_ns: int | None = None
    last_spoken_ns: int | None = None
    blocked_ns: int = 0
    """How long the client did not read."""
    upload_blocked_ns: int = 0
    """How long the upstream did not take the request."""
    lag_s: float = 0.0
    """The longest that our loop was late."""
    lag_before_s: float = 0.0
    """The longest lag that its connection knew before it began."""
    _blocked: list[tuple[int, Span]] = field(default_factory=list[tuple[int, Span]])
    _pauses: list[Span] = field(default_factory=list[Span])
    _any: _Silences = field(default_factory=_Silences)
    _spoken: _Silences = field(default_factory=_Silences)

    def asked(self, t_ns: int) -> None:
        """The request went up whole: from now on silence is silence, if nothing has come yet."""
        if self.first_byte_ns is None:
            self.asked_ns = max(self.asked_ns, t_ns)

    def came(self, t_ns: int, *, spoken: bool) -> None:
        """Bytes of one read; `spoken`: more than pings and comments."""
        last, last_spoken = self.last_byte_ns, self.last_spoken_ns
        if last is None or last_spoken is None:
            self._any.note(self.asked_ns, t_ns)
            self._spoken.note(self.asked_ns, t_ns)
            self.first_byte_ns = self.last_byte_ns = self.last_spoken_ns = t_ns
            return
        self._any.longest_ns = max(self._any.longest_ns, t_ns - last)
        self._any.note(last, t_ns)
        self.last_byte_ns = t_ns
        if spoken:
            self._spoken.longest_ns = max(self._spoken.longest_ns, t_ns - last_spoken)
            self._spoken.note(last_spoken, t_ns)
            self.last_spoken_ns = t_ns

    def broke_off(self, t_ns: int) -> None:
        """It ended while more was due: the time since the last byte was a silence too."""
        if self.last_byte_ns is None or self.last_spoken_ns is None:
            self._any.note(self.asked_ns, t_ns)
            self._spoken.note(self.asked_ns, t_ns)
            return
        self._any.longest_ns = max(self._any.longest_ns, t_ns - self.last_byte_ns)
        self._spoken.longest_ns = max(self._spoken.longest_ns, t_ns - self.last_spoken_ns)
        self._any.note(self.last_byte_ns, t_ns)
        self._spoken.note(self.last_spoken_ns, t_ns)

    # --- pauses -------------------------------------------------------------------------------------------------------

    def client_blocked(self, since_ns: int, until_ns: int, *, counted: Span) -> None:
        """The client did not read; only what lies in `counted` is added up."""
        self.blocked_ns += max(0, min(until_ns, counted[1]) - max(since_ns, counted[0]))
        insort(self._blocked, (until_ns - since_ns, (since_ns, until_ns)))
        if len(self._blocked) > _KEPT_PAUSES:
            del self._blocked[0]
        self._pause(since_ns, until_ns)

    def upstream_blocked(self, since_ns: int, until_ns: int, *, counted: Span) -> None:
        """The upstream did not take what the client sent."""
        self.upload_blocked_ns += max(0, min(until_ns, counted[1]) - max(since_ns, counted[0]))

    def lagged(self, until_ns: int, lag_s: float) -> None:
        """Our loop woke late by so much."""
        self.lag_s = max(self.lag_s, lag_s)
        self._pause(until_ns - round(lag_s * 1e9), until_ns)

    def ended_late(self, ended_ns: int, *, now_s: float | None, connection_s: float | None) -> None:
        """What the end of the exchange tells of our lag, which no other record may have told.

        `now_s`: of the turn of our loop that met the end; `connection_s`: the longest of the whole connection, which is
        only this exchange's when it was not known before.
        """
        late_s = now_s or 0.0
        if (connection_s or 0.0) > max(self.lag_before_s, self.lag_s):
            late_s = max(late_s, connection_s or 0.0)
        if late_s > 0:
            self.lagged(ended_ns, late_s)

    def _pause(self, since_ns: int, until_ns: int) -> None:
        if self._pauses and since_ns <= self._pauses[-1][1] + AT_ONCE_NS:
            last = self._pauses[-1]
            self._pauses[-1] = (min(last[0], since_ns), max(last[1], until_ns))
            return
        self._pauses.append((since_ns, until_ns))
        if len(self._pauses) > _KEPT_PAUSES:
            self._pauses.remove(min(self._pauses, key=lambda span: span[1] - span[0]))

    # --- answers ------------------------------------------------------------------------------------------------------

    @property
    def max_gap_s(self) -> float | None:
        """The longest silence between bytes that say something; None before the first byte."""
        return None if self.first_byte_ns is None else round(self._spoken.longest_ns / 1e9, 6)

    @property
    def max_gap_with_pings_s(self) -> float | None:
        """The longest silence between any bytes."""
        return None if self.first_byte_ns is None else round(self._any.longest_ns / 1e9, 6)

    @property
    def upstream_gap_s(self) -> float:
        """As `max_gap_s` with the wait for the first byte, and only what is proved to be the upstream's."""
        return round(self._spoken.upstreams_ns(self._merged()) / 1e9, 6)

    @property
    def upstream_gap_with_pings_s(self) -> float:
        """As `max_gap_with_pings_s` with the wait for the first byte, and only what is proved to be the upstream's."""
        return round(self._any.upstreams_ns(self._merged()) / 1e9, 6)

    def blocked_before_s(self, started_ns: int, ended_ns: int) -> float:
        """How long the client had not been reading at the end; it may have read on after it."""
        for _, (since_ns, until_ns) in reversed(self._blocked):
            if since_ns <= ended_ns <= until_ns + BLOCKED_GRACE_NS:
                return round((ended_ns - max(since_ns, started_ns)) / 1e9, 6)
        return 0.0

    def _merged(self) -> list[Span]:
        merged: list[Span] = []
        for since_ns, until_ns in sorted(self._pauses):
            if merged and since_ns <= merged[-1][1] + AT_ONCE_NS:
                merged[-1] = (merged[-1][0], max(merged[-1][1], until_ns))
            else:
                merged.append((since_ns, until_ns))
        return merged


def _proved(silence: Span, pauses: list[Span]) -> int:
    """How much of a silence is the upstream's, ns."""
    since_ns, until_ns = silence
    for pause_since_ns, pause_until_ns in pauses:
        if pause_since_ns < until_ns <= pause_until_ns + AT_ONCE_NS:
            return max(0, pause_since_ns - since_ns)
    return until_ns - since_ns
