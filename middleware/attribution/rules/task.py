"""The verifier, as far as the harness's own record tells of it.

Recognises: a verifier that the harness says ended in an error or by a time-out, after the agent had finished, with
nothing outside seen in its phase (`task.verifier_fault`, suspected).
Deliberately does not: judge an outside event in the verifier's phase (the rule of its cause does, with phase `verify`),
call a task broken (`across_rules.py`: its own solution has to fail), or trust a verifier's words about the solution.
How it can be wrong: a solution of the model's that makes the tests hang or eat memory brings the verifier down as well;
so the grade is `suspected`, and the sentence says that the task's own solution decides it.

**Source:** design page VERDICTS.md section 5; reference page taxonomy.md section 5 (verifier-phase infra).
"""

from __future__ import annotations

import re
from typing import Final

from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.phases import OBSERVED
from fairtrial.middleware.attribution.questions import evidence, unknown, yes
from fairtrial.middleware.attribution.sentences import clean, fill
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Blame, Grade, PhaseName

_CAUSE: Final = CAUSES["task.verifier_fault"]
_FAULTY: Final = re.compile(r"error|exception|time[-_ ]?d?[-_ ]?out|crash|missing|unparseable", re.IGNORECASE)


def find(ctx: Context) -> list[Event]:
    """At most one event."""
    case = ctx.case
    phase = next((p for p in case.trial.phases if p.name is PhaseName.VERIFY), None)
    if phase is None or phase.source in {None, OBSERVED} or case.ended is None:
        return []
    if phase.outcome is None or not _FAULTY.search(phase.outcome):
        return []
    if any(g.phase is PhaseName.VERIFY for g in case.kills):
        return []  # the rule of that cause tells of it
    placed = case.ended[0]
    source = clean(phase.source or "", 40)
    return [
        Event(
            cause=_CAUSE.name,
            blame=Blame.TASK,
            best=Grade.SUSPECTED,
            standing=Standing.TERMINAL,
            ends_call=False,
            step=None,
            phase=PhaseName.VERIFY,
            at_ns=wall_ns_of(phase.started) or placed.at_ns,
            happened=yes([placed.id]),
            ended_or_distorted=unknown([placed.id]),
            outcome_differs=unknown([placed.id]),
            sentence=fill(_CAUSE.template, {"failure": clean(phase.outcome, 80), "source": source}),
            advice=_CAUSE.advice,
            fact=Grade.SUSPECTED,
            needs_door=False,
            flips_if="turns to the model if the task's own solution, verified in the same way, passes",
            evidence=(evidence(placed, f"{source} says of the verifier: {clean(phase.outcome, 80)}"),),
        )
    ]
