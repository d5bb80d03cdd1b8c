"""Outside time of which nobody can say whose it was, against a limit that fired.

Recognises: a limit that the sure intervals of the ledger do not explain, and all of them together do: time at a CPU
limit, and commands that the engine was slow to start in a box that was busy itself.  The answer is that nobody can be
blamed (`undecided`), and the largest of those intervals is named; when what was left is more than passed trials of the
task needed, it is present.
Deliberately does not: blame the infrastructure, ever (an endless loop at its quota loses as much as an honest build).
How it can be wrong: a loop of the model's own under a CPU limit leaves a trial undecided that was the model's.  It
costs one rerun.  What this module also holds: the words for each cause of the ledger, and its intervals as evidence.

**Source:** design page VERDICTS.md sections 4 and 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from fairtrial.middleware.attribution.case import evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.held_up import DISPATCH, PULL, THROTTLED, HeldUp
from fairtrial.middleware.attribution.ledger import SLOW, STALLED, lengths_s
from fairtrial.middleware.attribution.sentences import seconds
from fairtrial.middleware.attribution.time_limit import Limit
from fairtrial.middleware.core.records import Blame, Evidence, Grade, PhaseName

ENOUGH: Final = "enough of the limit was left to the trial itself"
NOT_KNOWN: Final = "whether enough of the limit was left to the trial itself is not known"
_CITED: Final = 3
_WORDS: Final = {
    SLOW: "calls slower than the reference expects",
    STALLED: "silence of the model API",
    "model_api.overloaded": "an overloaded model API",
    "model_api.rate_limited": "a rate limit",
    "model_api.server_error": "errors of the model API",
    "model_api.unreachable": "a model API that could not be reached",
    "model_api.truncated": "replies that were cut",
    "gateway.error": "errors of a gateway",
    "observer.lag": "fairtrial's own lag",
    DISPATCH: "a container engine that was slow to answer",
    PULL: "pulling an image",
    THROTTLED: "standing still at a CPU limit",
}


def word(cause: str) -> str:
    """What a cause of the ledger is to a person."""
    return _WORDS.get(cause, cause)


def cited(held: Iterable[HeldUp], cause: str) -> tuple[Evidence, ...]:
    """The longest intervals of a cause, as evidence."""
    longest = sorted((h for h in held if h.cause == cause), key=lambda h: (h.since_ns - h.until_ns, h.since_ns))
    return tuple(evidence(h.placed, h.claim) for h in longest[:_CITED])


def undecided(ctx: Context, limit: Limit, timed: Sequence[Event]) -> Event:
    """The largest interval that may be the trial's own doing, as the event that leaves the trial open."""
    book = ctx.book
    by_cause = lengths_s(book.own_perhaps)
    cause = max(by_cause, key=lambda c: (by_cause[c], c))
    own_s, need_s = max(0.0, limit.elapsed_s - book.infra_s), ctx.yardsticks.need_s
    proof = cited(book.held, cause)
    ids = [e.id for e in proof]
    told = (
        f"The time limit of {_s(limit.limit_s)} fired ({limit.source}) after {_s(book.infra_s)} in which the trial was "
        f"held up, most of it {word(cause)} ({_s(by_cause[cause])}), which its own processes may have brought about."
    )
    enough = need_s is not None and own_s >= need_s
    fields = {
        "outcome_differs": no(ids) if enough else unknown(ids),
        "sentence": told,
        "advice": f"To decide it, run the trial again with a limit of {_s(limit.limit_s + book.infra_s)}, or without "
        "what held it up: if it passes, the lost time was the reason.",
        "why_present": ENOUGH if enough else NOT_KNOWN,
        "undecided": "Whether it would have been done in time without that is not known",
        "flips_if": "turns to infra, suspected, if the trial passes without that; to the model if not",
        "evidence": proof,
    }
    base = next((e for e in timed if e.cause == cause and e.standing is Standing.TERMINAL), None)
    if base is not None:
        return replace(base, **fields)  # type: ignore[arg-type]
    first = min((h for h in book.held if h.cause == cause), key=lambda h: h.since_ns)
    return Event(
        cause=cause,
        blame=Blame.INFRA,
        best=Grade.SUSPECTED,
        standing=Standing.DISTORTING,
        ends_call=False,
        step=first.placed.step,
        phase=PhaseName.AGENT,
        at_ns=first.since_ns,
        happened=yes(ids),
        ended_or_distorted=yes(ids),
        **fields,  # type: ignore[arg-type]
    )


def _s(length_s: float) -> str:
    return seconds(length_s) or ""
