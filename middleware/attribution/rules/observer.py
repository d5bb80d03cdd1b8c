"""fairtrial as a suspect: what a direct connection would not have had.

Recognises: an attempt that the relay states it broke itself (or for want of a file descriptor), a client that gave up
while our own loop lagged, a last reply that we passed on whole but so late that the client may have been gone, a
model door that could not be bound or was lost while no call came through it, and doors that took no more connections
for a second or more because this process was short of descriptors.
Deliberately does not: clear fairtrial by the lack of such a record, when the observer itself was lost (the engine then
says `indeterminate`). How it can be wrong: a door that was never bound may not have been used at all, because the
child's environment is then left alone; so that stays `suspected`.  The cost of a false alarm is one trial left out of
the scores.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.call_events import call_event
from fairtrial.middleware.attribution.case import evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.faults import READ_S
from fairtrial.middleware.attribution.sentences import clean, fill, seconds
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade, Outcome
from fairtrial.middleware.steps.placed import Placed

SHORT: Final = "descriptors.short"
ENOUGH: Final = "descriptors.enough"
"""Notes of the relay: its doors stopped taking connections, and took them again."""


def find(ctx: Context) -> list[Event]:
    """Events that fairtrial itself has to answer for."""
    found = [call_event(ctx, t) for t in ctx.troubles if t.fault.cause.startswith("observer.")]
    found.extend(_late(ctx))
    found.extend(_door(ctx))
    found.extend(_no_room(ctx))
    return found


def _no_room(ctx: Context) -> list[Event]:
    """New connections waited at our doors: a call that was asked again later outlived it, a later silence may be it."""
    found: list[Event] = []
    short: Placed | None = None
    for placed, note in ctx.case.notes:
        if note.event == SHORT:
            short = short or placed
        elif note.event == ENOUGH and short is not None:
            waited = note.fields.get("waited_s")
            length_s = float(waited) if isinstance(waited, int | float) else (placed.at_ns - short.at_ns) / 1e9
            found.extend([_short(ctx, short, placed.at_ns, length_s)] if length_s >= READ_S else [])
            short = None
    if short is not None and ctx.case.ended_ns is not None and short.at_ns < ctx.case.ended_ns - READ_S * 1e9:
        found.append(_short(ctx, short, ctx.case.ended_ns, (ctx.case.ended_ns - short.at_ns) / 1e9))
    return found


def _short(ctx: Context, placed: Placed, until_ns: int, length_s: float) -> Event:
    later = next((c for c in ctx.case.main_calls if c.completed and c.started_ns >= until_ns), None)
    waited = seconds(length_s) or ""
    cause = CAUSES["observer.limit"]
    return Event(
        cause=cause.name,
        blame=Blame.FAIRTRIAL,
        best=Grade.SUSPECTED,
        standing=Standing.RECOVERED if later is not None else Standing.TERMINAL,
        ends_call=False,
        step=placed.step,
        phase=placed.phase,
        at_ns=placed.at_ns,
        happened=yes([placed.id]),
        ended_or_distorted=no(later.ids[:1]) if later is not None else unknown([placed.id]),
        outcome_differs=no(later.ids[:1]) if later is not None else unknown([placed.id]),
        sentence=f"fairtrial's doors took no new connection for {waited}, because its process was short of "
        "descriptors, and no later model call came through.",
        advice=cause.advice,
        why_present=f"its doors took no new connection for {waited}, and a later call succeeded",
        fact=Grade.SUSPECTED,
        flips_if="turns to the model if the command made no call in that time",
        evidence=(evidence(placed, f"no descriptor left for a new connection, for {waited}"),),
    )


def _late(ctx: Context) -> list[Event]:
    """The last reply came whole, most of its time was our own lag, and nothing was asked after it.

    Bytes written to a client that has left look like bytes that it read; so whether it had left stays unknown.
    """
    if not ctx.turns or ctx.case.booked is Outcome.PASSED:
        return []
    turn = ctx.turns[-1]
    last = turn.attempts[-1] if turn.attempts else None
    lag_s = (last.value.our_lag or 0.0) if last is not None else 0.0
    limits = ctx.thresholds
    if last is None or not last.whole or lag_s < limits.lag_s or lag_s < limits.lag_share * last.length_s:
        return []
    cause = CAUSES["observer.lag"]
    ids = [last.placed.id]
    step = "unknown" if turn.step is None else str(turn.step)
    return [
        Event(
            cause=cause.name,
            blame=Blame.FAIRTRIAL,
            best=Grade.SUSPECTED,
            fact=Grade.SUSPECTED,
            standing=Standing.DISTORTING,
            ends_call=False,
            step=turn.step,
            phase=turn.phase,
            at_ns=last.started_ns,
            happened=yes(ids),
            ended_or_distorted=unknown(ids),
            outcome_differs=unknown(ids),
            sentence=f"fairtrial's own relay held step {step}'s reply back for {seconds(lag_s)} of its "
            f"{seconds(last.length_s)}, and the client asked nothing more: it may have given up before the reply came.",
            advice=cause.advice,
            flips_if="turns to the model if the client read that reply",
            evidence=(evidence(last.placed, f"our own lag {seconds(lag_s)} in a call of {seconds(last.length_s)}"),),
        )
    ]


def _door(ctx: Context) -> list[Event]:
    if ctx.case.calls:
        return []
    closed = [(p, v.why) for p, v in ctx.case.doors if v.door == "model" and not v.ok]
    closed += [
        (p, v.why)
        for p, v in ctx.case.coverage_changes
        if v.source.startswith("door.model") and v.state == "lost" and not ctx.case.near_end(p.at_ns, 0.0)
    ]
    if not closed:
        return []
    placed, why = closed[0]
    cause = CAUSES["observer.door_unreachable"]
    reason = clean(why or "no reason given")
    return [
        Event(
            cause=cause.name,
            blame=Blame.FAIRTRIAL,
            best=Grade.SUSPECTED,
            standing=Standing.TERMINAL,
            ends_call=True,
            step=None,
            phase=placed.phase,
            at_ns=placed.at_ns,
            happened=yes([placed.id]),
            ended_or_distorted=unknown([placed.id]),
            outcome_differs=unknown(),
            sentence=fill(cause.template, {"failure": reason}),
            advice=cause.advice,
            fact=Grade.SUSPECTED,
            needs_door=False,
            flips_if="turns to indeterminate if the command never used the door",
            evidence=(evidence(placed, f"the model door was not open: {reason}"),),
        )
    ]
