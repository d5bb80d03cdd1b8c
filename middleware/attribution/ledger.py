"""The ledger: time taken by outside intervals, as their union and never as their sum.

In: the turns of a trial and what failed in them, the limit that fired, the yardsticks.  Out: a `Book` of intervals by
cause, and the `Ledger` of the record, seconds.  Charged: failed attempts that were not the client's or the operator's
own doing, the waits after them (up to the limit when they were still open), silences of the upstream at least as long
as a stall, and of a whole call what it took above the p95 of a frozen reference.  Without a reference a whole call is
not charged, and the record says so; and what held the trial up outside its calls (`held_up.py`): exec dispatch, making
containers, pulling images, throttling.  Intervals that may be the trial's own doing are in the union and are kept apart
as well, since nobody can be blamed for them.  A ledger never proves anything by itself (`rules/time_limit.py`).
Not charged: reclaim (a program that needs more memory than it has brings it about), a scheduler's queue (no source).

**Source:** design page VERDICTS.md section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from fairtrial.middleware.attribution.calls import Trouble, Turn
from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.attribution.events import Standing
from fairtrial.middleware.attribution.faults import silence_inside_s
from fairtrial.middleware.attribution.held_up import HeldUp, held_up
from fairtrial.middleware.attribution.seen import AttemptSeen
from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.attribution.time_limit import Limit
from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Blame, Ledger
from fairtrial.middleware.core.yardsticks import Yardsticks

Interval = tuple[int, int]
"""Begin and end, wall ns."""

STALLED: Final = "model_api.stalled"
SLOW: Final = "model_api.slow"
_CHARGED: Final = frozenset({Blame.INFRA, Blame.FAIRTRIAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """The intervals of one trial inside the window that ran out (or the whole trial)."""

    window: Interval
    spans: dict[str, list[Interval]]
    """By cause."""
    ids: dict[str, list[str]]
    """Observations that they rest on, by cause."""
    open_since_ns: int | None
    """When the interval that was still open at the window's end began; None when none was."""
    open_cause: str | None
    calls_s: float
    """The time that model calls filled, whole or not."""
    uncharged: int
    """Whole calls that no reference measures."""
    own_perhaps: dict[str, list[Interval]] = field(default_factory=dict[str, list[Interval]])
    """Those of `spans` that may be the trial's own doing, by cause."""
    held: tuple[HeldUp, ...] = ()
    """What held it up outside its calls, in the window."""

    @property
    def infra_s(self) -> float:
        """All outside intervals, s."""
        return union_s(span for spans in self.spans.values() for span in spans)

    @property
    def sure_spans(self) -> dict[str, list[Interval]]:
        """Without those that may be the trial's own doing."""
        if not self.own_perhaps:
            return self.spans
        own = {cause: set(spans) for cause, spans in self.own_perhaps.items()}
        kept = {
            cause: [span for span in spans if span not in own[cause]] if cause in own else spans
            for cause, spans in self.spans.items()
        }
        return {cause: spans for cause, spans in kept.items() if spans}

    @property
    def sure_s(self) -> float:
        """Outside intervals that are surely not the trial's own doing, s."""
        return union_s(span for spans in self.sure_spans.values() for span in spans)

    def before_s(self, at_ns: int) -> float:
        """Outside time before a moment, s."""
        return union_s((a, min(b, at_ns)) for spans in self.spans.values() for a, b in spans if a < at_ns)

    @property
    def by_cause(self) -> dict[str, float]:
        return lengths_s(self.spans)


def lengths_s(spans: Mapping[str, Sequence[Interval]]) -> dict[str, float]:
    """Cause to the length of the union of its intervals, s."""
    return {cause: union_s(of_cause) for cause, of_cause in sorted(spans.items()) if of_cause}


def open_book(
    case: Case,
    turns: Sequence[Turn],
    troubles: Sequence[Trouble],
    *,
    thresholds: Thresholds,
    limit: Limit | None,
    yardsticks: Yardsticks,
) -> Book:
    """Put down every outside interval of a trial."""
    begin = limit.since_ns if limit is not None else (case.started_ns or 0)
    end = limit.until_ns if limit is not None else (case.ended_ns or _last(turns, begin))
    spans: dict[str, list[Interval]] = {}
    ids: dict[str, list[str]] = {}
    opened: list[tuple[int, str]] = []

    def charge(cause: str, since: int, until: int, by: str) -> None:
        since, until = max(since, begin), min(until, end)
        if until > since:
            spans.setdefault(cause, []).append((since, until))
            ids.setdefault(cause, []).append(by)

    for trouble in troubles:
        if trouble.fault.blame in _CHARGED:
            waits = _with_waits(trouble.failed, trouble.turn.attempts)
            # An attempt that was under way as the limit fired had not failed: what it waited for is not known.
            waiting = trouble.failed[-1] is trouble.turn.attempts[-1] and not trouble.turn.in_flight
            still_open = limit is not None and waiting and trouble.standing is Standing.TERMINAL
            for n, (attempt, (since, until)) in enumerate(zip(trouble.failed, waits, strict=True)):
                last = n == len(waits) - 1
                charge(trouble.fault.cause, since, end if still_open and last else until, attempt.placed.id)
            if still_open:
                opened.append((trouble.failed[0].started_ns, trouble.fault.cause))
    uncharged = 0
    for turn in turns:
        for attempt in turn.attempts:
            silent = silence_inside_s(attempt)
            if attempt.whole and silent >= thresholds.stall_s:
                # Where in the call the silence lay is not recorded; in it, it overlaps nothing of the same turn.
                charge(STALLED, attempt.ended_ns - round(silent * 1e9), attempt.ended_ns, attempt.placed.id)
            at_end = _silent_at_end_s(attempt)
            if limit is not None and not attempt.whole and at_end >= thresholds.stall_s and _at(attempt, end):
                since = attempt.ended_ns - round(at_end * 1e9)
                charge(STALLED, since, end, attempt.placed.id)
                opened.append((since, STALLED))
            if attempt.whole:
                over = _over_expected_s(attempt, yardsticks)
                if over is None:
                    uncharged += 1
                elif over > 0:
                    charge(SLOW, attempt.ended_ns - round(over * 1e9), attempt.ended_ns, attempt.placed.id)
    held = tuple(one for one in held_up(case) if min(one.until_ns, end) > max(one.since_ns, begin))
    own_perhaps: dict[str, list[Interval]] = {}
    for one in held:
        charge(one.cause, one.since_ns, one.until_ns, one.placed.id)
        if not one.sure:
            own_perhaps.setdefault(one.cause, []).append((max(one.since_ns, begin), min(one.until_ns, end)))
    first_open = min(opened, default=None)
    return Book(
        window=(begin, end),
        spans=spans,
        ids=ids,
        open_since_ns=None if first_open is None else first_open[0],
        open_cause=None if first_open is None else first_open[1],
        calls_s=union_s(
            (max(a.started_ns, begin), min(a.ended_ns, end)) for t in turns for a in t.attempts if a.ended_ns > begin
        ),
        uncharged=uncharged,
        own_perhaps=own_perhaps,
        held=held,
    )


def record(case: Case, book: Book, *, limit: Limit | None, yardsticks: Yardsticks) -> Ledger:
    """The row of the verdict.  `by_cause` may add up to more than `infra_seconds` where causes overlap in time."""
    trial = case.trial
    begin, end = wall_ns_of(trial.started), wall_ns_of(trial.ended)
    elapsed = None if begin is None or end is None else round((end - begin) / 1e9, 6)
    return Ledger(
        limit=limit.limit_s if limit is not None else trial.limits.time.agent,
        elapsed=round(limit.elapsed_s, 6) if limit is not None else elapsed,
        need=yardsticks.need_s,
        infra_seconds=book.infra_s,
        undecided_seconds=round(book.infra_s - book.sure_s, 6) or None,
        by_cause=book.by_cause,
        calls_seconds=book.calls_s,
        reference=yardsticks.reference.source if yardsticks.reference is not None else None,
        calls_without_reference=book.uncharged,
    )


def union_s(spans: Iterable[Interval]) -> float:
    """Length of the union of intervals, s."""
    total = 0
    reached: int | None = None
    for begin, end in sorted(spans):
        start = begin if reached is None else max(begin, reached)
        if end > start:
            total += end - start
        reached = end if reached is None else max(reached, end)
    return round(total / 1e9, 6)


def _with_waits(failed: tuple[AttemptSeen, ...], attempts: tuple[AttemptSeen, ...]) -> list[Interval]:
    """Each failed attempt, with the wait after it up to the turn's next attempt."""
    starts = {a.placed.id: following.started_ns for a, following in pairwise(attempts)}
    return [(a.started_ns, max(a.ended_ns, starts.get(a.placed.id, a.ended_ns))) for a in failed]


def _over_expected_s(attempt: AttemptSeen, yardsticks: Yardsticks) -> float | None:
    """What a whole call took above the reference's p95, s; None where nothing measures it."""
    if yardsticks.reference is None:
        return None
    reply = attempt.value.reply
    sent = None if reply.input_tokens is None else reply.input_tokens
    if sent is not None:
        sent += (reply.cache_read_tokens or 0) + (reply.cache_write_tokens or 0)
    expected = yardsticks.reference.expected_s(attempt.value.request.model, sent, reply.output_tokens)
    if expected is None:
        return None
    own = attempt.value.downstream_blocked or 0.0
    return max(0.0, attempt.length_s - own - expected)


def _silent_at_end_s(attempt: AttemptSeen) -> float:
    """How long a streamed reply had been silent when it ended, the client's own not reading left out, s."""
    value = attempt.value
    if value.request.stream is not True or value.request_whole is False or value.silence_at_end is None:
        return 0.0
    return max(0.0, value.silence_at_end - (value.downstream_blocked or 0.0))


def _at(attempt: AttemptSeen, end_ns: int) -> bool:
    return attempt.ended_ns >= end_ns - 2_000_000_000


def _last(turns: Sequence[Turn], otherwise: int) -> int:
    return max((a.ended_ns for t in turns for a in t.attempts), default=otherwise)
