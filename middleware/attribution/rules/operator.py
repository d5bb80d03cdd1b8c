"""What the person who set the run up has to mend: keys, quota, the address, and a run that somebody stopped.

Recognises: 401, 403 and 407; 402 and a 429 or 400 that names a quota, a credit or a spending limit; 404; an upstream
that never sent a response head in this run; a signal that somebody sent to fairtrial and that the command ended by.
Deliberately does not: tell a key that was revoked in the middle of the run from one that never worked (both need the
operator), or guess who sent a signal. How it can be wrong: a provider that is down from the first to the last second of
a run looks like a wrong address; the sentence names the failure, and a connection that timed out or a resolver that did
not answer stays `suspected`.  A signal may come from a process of the same user, the agent's included, so it too stays
`suspected`.
"""

from __future__ import annotations

from fairtrial.middleware.attribution.call_events import call_event
from fairtrial.middleware.attribution.case import evidence, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.sentences import fill, listed, signal_name
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade, PhaseName


def find(ctx: Context) -> list[Event]:
    """Events that the operator has to mend."""
    found = [call_event(ctx, t) for t in ctx.troubles if t.fault.cause.startswith("operator.")]
    found.extend(_cancelled(ctx))
    return found


def _cancelled(ctx: Context) -> list[Event]:
    sent = ctx.sent_signals
    if not sent or ctx.case.ended is None:
        return []
    placed = ctx.case.ended[0]
    cause = CAUSES["operator.cancelled"]
    names = listed(dict.fromkeys(signal_name(s) or "" for s in sent))
    typed = bool(ctx.typed_signals)
    template = (
        f"{names} was typed at the terminal (Ctrl-C) and went to the command as well." if typed else cause.template
    )
    last = ctx.case.last_main
    return [
        Event(
            cause=cause.name,
            blame=Blame.OPERATOR,
            best=Grade.SUSPECTED,
            standing=Standing.TERMINAL,
            ends_call=True,
            step=last.step if last is not None else None,
            phase=last.phase if last is not None else PhaseName.SETUP,
            at_ns=placed.at_ns,
            happened=yes([placed.id]),
            ended_or_distorted=yes([placed.id]),
            outcome_differs=unknown([placed.id]),
            sentence=f"{fill(template, {'signal': names})} {_then(ctx)}",
            advice=cause.advice,
            fact=Grade.SUSPECTED,
            needs_door=False,
            flips_if="turns to the model if a process of the trial itself sent the signal",
            evidence=(evidence(placed, f"fairtrial was sent {names}" + ("" if typed else " and passed it on")),),
        )
    ]


def _then(ctx: Context) -> str:
    """How the command ended then: by it, or later and in a way of its own."""
    if ctx.ended_by_signal:
        return "The command ended by it."
    trial = ctx.case.trial
    if trial.signal is not None:
        return f"The command was then ended by {signal_name(trial.signal)}."
    return f"The command did not end by it at once: it ended with exit code {trial.exit_code}."
