"""A harness that takes an error for an answer and goes on with it.

Recognises: a call whose attempts brought an error status and no content, after which the next request of the same
conversation holds one more reply of the model all the same: the client wrote its own error text there, or an empty one.
Deliberately does not: judge a *cut* reply that was kept (`model_api.truncated`, VERDICTS section 6: some content came),
a call that was asked again and answered, or what the harness shows to its user.
How it can be wrong: a client that drops the failed turn and goes on with a reply from elsewhere (another door, a cache)
looks the same; the sentence says only what the histories show.  What failed the call first stays in the record as
evidence against.  The cost is a trial that is put on its harness, `suspected`, and run again.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.calls import OUTSIDE_CAUSES, Trouble
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.questions import evidence, unknown, yes
from fairtrial.middleware.attribution.sentences import fill, statuses
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade

_CAUSE: Final = CAUSES["harness.swallowed"]


def find(ctx: Context) -> list[Event]:
    """One event per failed call that the client took for an answer."""
    return [_event(trouble) for trouble in ctx.troubles if swallowed(trouble)]


def swallowed(trouble: Trouble) -> bool:
    """Whether the client went on from a call that had brought an error and no content."""
    taken = trouble.standing is Standing.DISTORTING and trouble.why_present.startswith("the client took")
    empty = all((a.value.reply.status or 0) >= 400 and not a.value.reply.started_content for a in trouble.failed)
    return taken and empty and trouble.fault.cause.startswith((*OUTSIDE_CAUSES, "operator."))


def _event(trouble: Trouble) -> Event:
    facts = {"statuses": statuses(a.value.reply.status for a in trouble.failed) or ""}
    if trouble.turn.step is not None:
        facts["step"] = str(trouble.turn.step)
    return Event(
        cause=_CAUSE.name,
        blame=Blame.HARNESS,
        best=Grade.SUSPECTED,
        standing=Standing.DISTORTING,
        ends_call=False,
        step=trouble.turn.step,
        phase=trouble.turn.phase,
        at_ns=trouble.failed[0].started_ns,
        happened=yes(trouble.ids),
        ended_or_distorted=trouble.ended,
        outcome_differs=unknown(trouble.ids),
        sentence=fill(_CAUSE.template, {k: v for k, v in facts.items() if v}),
        advice=_CAUSE.advice,
        why_present=trouble.why_present,
        flips_if="turns to the model if the trial, run again without this fault, fails in the same way",
        evidence=tuple(
            evidence(a.placed, f"HTTP {a.value.reply.status}, no content; the next request goes on from it")
            for a in trouble.failed[-1:]
        ),
    )
