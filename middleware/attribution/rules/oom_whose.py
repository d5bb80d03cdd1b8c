"""A kill for memory that struck no command of the model's: the verifier's time, an oracle's trial, before any reply.

In: the context, and whether it fell into the verifier's time.  Out: whom it suspects, and the words that say how to
decide; None where the model's own command was struck (`container_oom.py`).
Before any reply only the words are others: that no reply was seen proves nothing by itself (`oom_demand.py`), since a
model may have been asked past the door.
An oracle is the task's own solution: what it needs is due, so a limit that it does not fit into is the task's fault, or
this machine's; suspected only, since one run tells them not apart.  What a verifier runs is the agent's work as well.
**Source:** design page VERDICTS.md section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.core.records import Blame


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """Whom such a kill suspects, why, and what would decide it."""

    blame: Blame
    demand: str
    advice: str
    flips_if: str


_ORACLE = Whose(
    blame=Blame.TASK,
    demand="It was the task's own solution that ran (an oracle), so the limit does not fit the task.",
    advice="Raise the limit that the task declares, or run the oracle on another machine at the same limit.",
    flips_if="turns to infra if the oracle passes at the same limit on another machine",
)
_VERIFIER = Whose(
    blame=Blame.INFRA,
    demand="What the verifier ran was struck: whether the agent's work or the verifier's own needed so much is open.",
    advice="To decide, run the verifier on the task's own solution (an oracle) at the same limit: if it is killed "
    "there too, the task is at fault; if it passes, the agent's work was.",
    flips_if="turns to the task if an oracle's trial is killed in the verifier at the same limit as well; to the model "
    "if it passes there",
)


def whose(ctx: Context, *, verifier: bool) -> Whose | None:
    """Of a kill that ended the trial; only a proof that the limit above it was unfair beats this."""
    if ctx.case.oracle and not ctx.case.calls:  # whatever its name, one that asks a model is no oracle
        return _ORACLE
    return _VERIFIER if verifier else None


def before_a_reply(ctx: Context, at_ns: int, facts: dict[str, str]) -> Whose | None:
    """Of a kill before anything that a model had said can have been there, as far as the door saw.

    `facts`: limit, ceiling and k for the words, as far as they are known.
    """
    options = ctx.case.options
    unread = options.get("via") == "connect" or options.get("joined")  # nobody reads them, or the run around this one
    if unread or ctx.case.may_be_answered(at_ns):
        return None
    if any("model_api" in b.families and b.since_ns <= at_ns for b in ctx.watch.blind):
        return None
    known = "limit" in facts
    room = f"up to {facts['ceiling']} ({facts['k']} x {facts['limit']})" if known else "more memory"
    within = f"killed at {facts['limit']} and passes at {facts['ceiling']} or less" if known else "not killed"
    past = "" if ctx.case.calls else ", or to a model that was asked past the door,"
    return Whose(
        blame=Blame.INFRA,
        demand="No reply of a model had been seen by then, so it is open whether the limit was too low or what ran "
        "without a model too large.",
        advice=f"To decide, run the trial again with {room}: if it is not killed there, the limit was at fault; if it "
        "is killed again, what runs without a model (harness, services, the task's set-up) needs more.",
        flips_if=f"turns to infra, proved, if the trial, run again{'' if known else ' with more memory'}, is {within}; "
        f"to the harness or the task{past} if it is killed {'there as well' if known else 'again'}",
    )
