"""A time limit that fired: whose time it was.

Recognises: a limit that is known to have fired (`time_limit.py`), of which outside intervals took at least a tenth
(`ledger_share`).  Blame then goes to the largest of them: `suspected` when what was left to the trial is less than
passed trials of its task needed, `indeterminate` when nobody knows that need, `proved` only when one outside interval
as long as that share was still open as the limit fired and had begun while progress was normal.  Where only intervals
that may be the trial's own doing make up that share, nobody is blamed (`held_time.py`).  Also: a limit shorter
than passed trials of the task needed (`harness.timeout`), and a time-out that the harness names although its own limit
had time left by our clock (`harness.inner_timeout`).
Deliberately does not: take the limit itself for an outside event (it is `ended_as`), charge long output, own sleeps,
endless loops, or throttling to the infrastructure, or prove anything from a sum of delays.
How it can be wrong: a reference of a quiet hour makes a busy one look slow, so slow calls are only ever `suspected`; an
upstream that is silent because the model writes a long reply without streaming is not charged at all.  The cost of a
false alarm is one trial run again.

**Source:** design page VERDICTS.md section 4; reference page taxonomy.md section 5 (harness timeout, inner limit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fairtrial.middleware.attribution.call_events import surely_the_far_sides
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.faults import READ_S
from fairtrial.middleware.attribution.held_up import DISPATCH, PULL
from fairtrial.middleware.attribution.ledger import SLOW, STALLED, lengths_s
from fairtrial.middleware.attribution.questions import no, unknown, yes
from fairtrial.middleware.attribution.rules import held_time
from fairtrial.middleware.attribution.rules.held_time import ENOUGH, NOT_KNOWN, word
from fairtrial.middleware.attribution.seen import AttemptSeen
from fairtrial.middleware.attribution.sentences import fill, seconds
from fairtrial.middleware.attribution.time_limit import Limit, named_early
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.records import Answer, Blame, Evidence, Grade, PhaseName, Trust

_OWN_END: Final = frozenset({"operator.cancelled"})
"""What a limit that fired explains: whoever set it sent the signal."""
_CITED: Final = 3
_NOT_BY_TIME: Final = frozenset({DISPATCH, PULL})
"""Their own rules tell of an engine or a pull that failed; how long that took does not weigh it."""


def find(ctx: Context) -> list[Event]:
    """A limit that was too short for its task, or that another timer fired under the name of."""
    early = named_early(ctx.case)
    if early is not None and ctx.limit is None:
        return [_early(ctx, early)]
    return []


def weigh(ctx: Context, events: Sequence[Event]) -> list[Event]:
    """The events with the ledger laid beside them, when a limit fired; else as they are, with slow calls listed."""
    limit = ctx.limit
    if limit is None:
        return [*events, *_slow_present(ctx)]
    kept = [e for e in events if e.cause not in _OWN_END]
    of_time = set(ctx.book.spans) - _NOT_BY_TIME
    timed = [e for e in kept if e.cause in of_time and e.blame in {Blame.INFRA, Blame.FAIRTRIAL}]
    rest = [e for e in kept if e not in timed]
    if ctx.book.infra_s / limit.limit_s < ctx.thresholds.ledger_share:
        why = f"outside intervals took {_s(ctx.book.infra_s)} of the limit of {_s(limit.limit_s)}"
        weighed = [_without_weight(e, why, ctx.thresholds.ledger_share) for e in timed]
        short = _short(ctx, limit)
        return [*rest, *weighed, *([short] if short is not None else []), *_slow_present(ctx)]
    chosen = None
    if ctx.book.sure_s / limit.limit_s >= ctx.thresholds.ledger_share:
        chosen = _eaten(ctx, limit, timed)
    if ctx.book.own_perhaps and (chosen is None or chosen.outcome_differs.answer is Answer.NO):
        chosen = held_time.undecided(ctx, limit, timed)
    assert chosen is not None
    others = [e for e in timed if e.cause != chosen.cause]
    return [*rest, *(replace(e, outcome_differs=no(e.happened.by)) for e in others), chosen]


def left_s(ctx: Context, limit: Limit) -> float:
    """The time that the limit left to the trial itself, s; what may be its own doing is its own."""
    return max(0.0, limit.elapsed_s - ctx.book.sure_s)


def said_of(ctx: Context, limit: Limit) -> str:
    """The limit and what of it was taken, as a sentence."""
    taken = ctx.book.infra_s
    outside = f"outside intervals took {_s(taken)} of it" if taken else "nothing outside that was seen took of it"
    return f"The time limit of {_s(limit.limit_s)} fired ({limit.source}); {outside}."


def _eaten(ctx: Context, limit: Limit, timed: Sequence[Event]) -> Event:
    """The largest member of the union, as the event that decides or may decide."""
    book = ctx.book
    by_cause = lengths_s(book.sure_spans)
    open_long = _open(ctx, limit)
    largest = max(by_cause, key=lambda c: (by_cause[c], c))
    cause_name = book.open_cause if open_long and book.open_cause is not None else largest
    cause = CAUSES[cause_name]
    ids = book.ids.get(cause_name, [])[:_CITED]
    own, need = left_s(ctx, limit), ctx.yardsticks.need_s
    taken = book.sure_s
    told = (
        f"The time limit of {_s(limit.limit_s)} fired ({limit.source}) after outside intervals had taken "
        f"{_s(taken)} of it, most of it {word(cause_name)} ({_s(by_cause[cause_name])})."
    )
    undecided = None
    if open_long and book.open_since_ns is not None:
        length = (limit.until_ns - book.open_since_ns) / 1e9
        told += (
            f" The last one had lasted {_s(length)}, was still open as the limit fired, and had begun in the middle "
        )
        told += "of normal progress."
        differs, best, flips = yes(ids), Grade.PROVED, None
    elif need is None:
        told += f" {_s(own)} were left to the trial itself."
        undecided = "How long trials of this task need when they pass is not known, so nobody can say whether that was "
        undecided += "enough"
        differs, best = unknown(ids), Grade.SUSPECTED
        flips = f"turns to infra, suspected, if passed trials of this task need more than {_s(own)}; else to the model"
    elif own < need:
        told += f" {_s(own)} were left to the trial itself, and trials of this task that passed needed {_s(need)}."
        differs, best = unknown(ids), Grade.SUSPECTED
        flips = f"turns to the model if passed trials of this task needed less than {_s(own)} (p90 of "
        flips += f"{ctx.yardsticks.need_trials} trials: {_s(need)}), or if ledger_share were above "
        flips += f"{taken / limit.limit_s:.2f}"
    else:
        told += f" {_s(own)} were left to the trial itself: enough, since trials of this task that passed needed "
        told += f"{_s(need)}."
        differs, best = no(ids), Grade.SUSPECTED
        flips = f"turns to infra, suspected, if passed trials of this task needed more than {_s(own)}"
    base = next((e for e in timed if e.cause == cause_name and e.standing is Standing.TERMINAL), None)
    standing = Standing.TERMINAL if base is not None else Standing.DISTORTING
    fields = {
        "best": best,
        "outcome_differs": differs,
        "sentence": told,
        "advice": _advice(ctx, limit),
        "flips_if": flips,
        "undecided": undecided,
        "why_present": ENOUGH if differs.answer is Answer.NO else NOT_KNOWN,
    }
    if base is not None:
        return replace(base, ended_or_distorted=yes(ids) if ids else base.ended_or_distorted, **fields)  # type: ignore[arg-type]
    placed = [a for t in ctx.turns for a in t.attempts if a.placed.id in ids]
    held = next((h for h in book.held if h.placed.id in ids), None)
    first = placed[0].placed if placed else held.placed if held is not None else None
    return Event(
        cause=cause.name,
        blame=Blame.FAIRTRIAL if cause.name.startswith("observer.") else Blame.INFRA,
        standing=standing,
        ends_call=False,
        step=first.step if first is not None else None,
        phase=PhaseName.AGENT,
        at_ns=placed[0].started_ns if placed else limit.since_ns,
        happened=yes(ids),
        ended_or_distorted=yes(ids),
        evidence=tuple(
            Evidence(
                id=a.placed.id,
                at=rfc3339(a.started_ns),
                step=a.placed.step,
                phase=a.placed.phase,
                source=a.placed.observation.source,
                trust=a.placed.observation.trust,
                claim=f"took {_s(a.length_s)}, a part of which is charged to {cause.name}",
            )
            for a in placed
        )
        or held_time.cited(book.held, cause.name),
        **fields,  # type: ignore[arg-type]
    )


def _open(ctx: Context, limit: Limit) -> bool:
    """One outside interval was open as the limit fired, was long enough, and had begun while progress was normal."""
    since = ctx.book.open_since_ns
    if since is None or ctx.book.open_cause is None:
        return False
    long_enough = (limit.until_ns - since) / 1e9 >= ctx.thresholds.ledger_share * limit.limit_s
    elapsed_before = max(1, since - limit.since_ns) / 1e9
    normal = ctx.book.before_s(since) < ctx.thresholds.ledger_share * elapsed_before
    progressed = any(t.completed and t.main and (t.ended_ns or 0) <= since for t in ctx.turns)
    return long_enough and normal and progressed and _surely_outside(ctx, since)


def _surely_outside(ctx: Context, since_ns: int) -> bool:
    """Whether the interval was the agent's own call's, and the far side's doing, as well as any proof of infra asks."""
    if ctx.book.open_cause != STALLED:
        mine = [t for t in ctx.troubles if t.fault.cause == ctx.book.open_cause and t.standing is Standing.TERMINAL]
        return bool(mine) and all(
            t.fault.best is Grade.PROVED and surely_the_far_sides(ctx, t) and _of_the_host(t.failed) for t in mine
        )
    open_then = [t for t in ctx.troubles if t.standing is Standing.TERMINAL and t.failed[-1].ended_ns > since_ns]
    return bool(open_then) and all(
        surely_the_far_sides(ctx, t) and _of_the_host(t.failed) and _silent_far_side(t.failed[-1]) for t in open_then
    )


def _of_the_host(attempts: Sequence[AttemptSeen]) -> bool:
    return all(a.placed.observation.trust is Trust.HOST for a in attempts)


def _silent_far_side(attempt: AttemptSeen) -> bool:
    """Bytes had come on this way, the client read, and our own loop was on time."""
    value = attempt.value
    ours = max(value.our_lag or 0.0, value.downstream_blocked or 0.0)
    return value.ttfb is not None and value.request_whole is not False and ours < READ_S


def _short(ctx: Context, limit: Limit) -> Event | None:
    """A limit that is shorter than passed trials of the task needed."""
    need = ctx.yardsticks.need_s
    if need is None or need <= limit.limit_s:
        return None
    cause = CAUSES["harness.timeout"]
    facts = {"limit": _s(limit.limit_s), "elapsed": _s(limit.elapsed_s), "source": limit.source, "need": _s(need)}
    return Event(
        cause=cause.name,
        blame=Blame.HARNESS,
        best=Grade.SUSPECTED,
        standing=Standing.TERMINAL,
        ends_call=False,
        step=len(ctx.case.trial.steps) or None,
        phase=PhaseName.AGENT,
        at_ns=limit.until_ns,
        happened=yes(limit.by),
        ended_or_distorted=yes(limit.by),
        outcome_differs=unknown(limit.by),
        sentence=fill(cause.template, facts),
        advice=cause.advice,
        flips_if=f"turns to the model if passed trials of this task needed less than {_s(limit.limit_s)} (p90 of "
        f"{ctx.yardsticks.need_trials} trials: {_s(need)})",
    )


def _early(ctx: Context, limit: Limit) -> Event:
    cause = CAUSES["harness.inner_timeout"]
    end = ctx.case.ended
    by = [end[0].id] if end is not None else []
    return Event(
        cause=cause.name,
        blame=Blame.HARNESS,
        best=Grade.SUSPECTED,
        standing=Standing.TERMINAL,
        ends_call=False,
        step=len(ctx.case.trial.steps) or None,
        phase=PhaseName.AGENT,
        at_ns=limit.until_ns,
        happened=yes(by),
        ended_or_distorted=yes(by),
        outcome_differs=unknown(by),
        sentence=f"The harness booked a time-out of its limit of {_s(limit.limit_s)} ({limit.source}) when only "
        f"{_s(limit.elapsed_s)} had passed by fairtrial's clock, so another timer fired inside it.",
        advice="Look for a shorter timer in the harness's settings and run the trial again.",
        flips_if=f"turns to the model if the limit in force was {_s(limit.elapsed_s)}, and not {_s(limit.limit_s)}",
    )


def _without_weight(event: Event, why: str, share: float) -> Event:
    return replace(
        event,
        outcome_differs=no(event.happened.by),
        why_present=f"{why}, less than the part ({share:g}) from which on they count (threshold ledger_share)",
    )


def _slow_present(ctx: Context) -> list[Event]:
    """Calls that took longer than the reference expects, where that ended nothing."""
    slow_s = ctx.book.by_cause.get(SLOW, 0.0)
    begin, end = ctx.book.window
    if slow_s <= 0 or slow_s < ctx.thresholds.ledger_share * (end - begin) / 1e9:
        return []
    ids = ctx.book.ids[SLOW][:_CITED]
    first = next((a for t in ctx.turns for a in t.attempts if a.placed.id == ids[0]), None)
    return [
        Event(
            cause=SLOW,
            blame=Blame.INFRA,
            best=Grade.SUSPECTED,
            standing=Standing.RECOVERED,
            ends_call=False,
            step=first.placed.step if first is not None else None,
            phase=PhaseName.AGENT,
            at_ns=first.started_ns if first is not None else begin,
            happened=yes(ids),
            ended_or_distorted=no(ids),
            outcome_differs=no(ids),
            sentence="",
            advice="",
            why_present=f"calls took {_s(slow_s)} more than their p95, and no time limit is known to have fired",
        )
    ]


def _advice(ctx: Context, limit: Limit) -> str:
    more = _s(limit.limit_s + ctx.book.infra_s)
    return f"To decide it, run the trial again with a limit of {more}: if it passes, the lost time was the reason."


def _s(length_s: float) -> str:
    return seconds(length_s) or ""
