"""fairtrial as a suspect: what a direct connection would not have had.

Recognises: an attempt that the relay states it broke itself (or for want of a file descriptor), a client that gave up
while our own loop lagged, a last reply that we passed on whole but so late that the client may have been gone, and a
model door that could not be bound or was lost while no call came through it.
Deliberately does not: clear fairtrial by the lack of such a record, when the observer itself was lost (the engine then
says `indeterminate`). How it can be wrong: a door that was never bound may not have been used at all, because the
child's environment is then left alone; so that stays `suspected`.  The cost of a false alarm is one trial left out of
the scores.
"""

from __future__ import annotations

from fairtrial.middleware.attribution.call_events import call_event
from fairtrial.middleware.attribution.case import evidence, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.sentences import clean, fill, seconds
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade, Outcome


def find(ctx: Context) -> list[Event]:
    """Events that fairtrial itself has to answer for."""
    found = [call_event(ctx, t) for t in ctx.troubles if t.fault.cause.startswith("observer.")]
    found.extend(_late(ctx))
    found.extend(_door(ctx))
    return found


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
