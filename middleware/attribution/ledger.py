"""The ledger: time taken by outside intervals, as their union and never as their sum.

In: the turns of a trial and what failed in them.  Out: a `Ledger`, seconds.  Charged: failed attempts that were not the
client's or the operator's own doing, the waits after them, and silences of the upstream in whole calls at least as long
as a stall.  Not charged: what a whole call took above its expected time, because there is no frozen reference yet; so a
ledger never proves anything by itself.  Limit and need are None where nobody stated them.

**Source:** design page VERDICTS.md section 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from fairtrial.middleware.attribution.case import AttemptSeen
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.faults import silence_inside_s
from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Blame, Ledger

Interval = tuple[int, int]
"""Begin and end, wall ns."""

_CHARGED = frozenset({Blame.INFRA, Blame.FAIRTRIAL})


def ledger(ctx: Context) -> Ledger:
    """Sum up one trial.  `by_cause` may add up to more than `infra_seconds` where causes overlap in time."""
    by_cause: dict[str, list[Interval]] = {}
    for trouble in ctx.troubles:
        if trouble.fault.blame in _CHARGED:
            spans = by_cause.setdefault(trouble.fault.cause, [])
            spans.extend(_with_waits(trouble.failed, trouble.turn.attempts))
    for turn in ctx.turns:
        for attempt in turn.attempts:
            gap_s = silence_inside_s(attempt)
            if attempt.whole and gap_s >= ctx.thresholds.stall_s:
                # Where in the call the silence lay is not recorded; in it, it overlaps nothing of the same turn.
                silent_ns = attempt.ended_ns - round(gap_s * 1e9)
                by_cause.setdefault("model_api.stalled", []).append((silent_ns, attempt.ended_ns))
    trial = ctx.case.trial
    begin, end = wall_ns_of(trial.started), wall_ns_of(trial.ended)
    return Ledger(
        limit=trial.limits.time.agent,
        elapsed=None if begin is None or end is None else round((end - begin) / 1e9, 6),
        need=None,
        infra_seconds=union_s(span for spans in by_cause.values() for span in spans),
        by_cause={cause: union_s(spans) for cause, spans in sorted(by_cause.items())},
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
