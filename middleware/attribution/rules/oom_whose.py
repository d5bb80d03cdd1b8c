"""A kill for memory that struck no command of the model's: the verifier's time, or an oracle's trial.

In: the context, and whether it fell into the verifier's time.  Out: whom it suspects, and the words that say how to
decide; None where the model's own command was struck (`container_oom.py`).
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
