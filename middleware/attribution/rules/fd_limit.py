"""A process of a container was at its own limit of open files.

Recognises: `container.fd_limit`, a step in which a process was seen at its limit.  One that started after the model's
first reply is the model's, one that ran before is the infrastructure's.  Where its start is not known nobody is blamed,
nor where it had opened most of them since that reply (a command may have made it do so), or its limit was lowered.

Deliberately does not: read "Too many open files" (words that a command prints); say that the limit ended anything: that
is open, since nothing shows that the process asked for one more.

How it can be wrong: a helper that the harness starts after the first reply is counted as the model's.

**Source:** taxonomy.md section 5.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, evidence
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.rules.limit import limit_event
from fairtrial.middleware.attribution.sentences import clean, fill
from fairtrial.middleware.attribution.tool_steps import step_of_work
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import FdLimit
from fairtrial.middleware.core.records import Blame, PhaseName

_CAUSE: Final = CAUSES["container.fd_limit"]


def find(ctx: Context) -> list[Event]:
    """One event per container and step."""
    return [event for c in ctx.case.containers.values() if c.role != "verifier" for event in _reached(ctx, c)]


def _reached(ctx: Context, container: ContainerCase) -> list[Event]:
    steps = {step.index: step for step in ctx.case.trial.steps}
    found: dict[int, Event] = {}
    for placed, told in container.fd_limits:
        number = step_of_work(ctx.case, placed)
        step = None if number is None else steps.get(number)
        if step is None or step.phase is not PhaseName.AGENT or step.index in found:
            continue
        blame, undecided, why = _whose(ctx, told)
        facts = {
            "victim": f"{clean(told.comm or '', 20) or 'a process'} (pid {told.pid})",
            "container": name_of(container),
            "limit": "" if told.limit is None else str(told.limit),
            "step": str(step.index),
        }
        found[step.index] = limit_event(
            ctx,
            container,
            step,
            _CAUSE.name,
            (blame, undecided),
            at_ns=placed.at_ns,
            ids=[placed.id],
            sentence=f"{fill(_CAUSE.template, facts)} {why}",
            flips_if="turns to infra, proved, if the same command passes with a higher limit",
            evidence=[evidence(placed, f"{told.open_files} open files at a limit of {told.limit}")],
            needed=False,
        )
    return list(found.values())


def _whose(ctx: Context, told: FdLimit) -> tuple[Blame, bool, str]:
    """Whom the files belong to, whether that is open, and a sentence."""
    if told.since_first_reply is None:
        return Blame.INFRA, True, "When it was started is not known."
    if told.since_first_reply:
        return Blame.MODEL, False, "It was started after the model's first reply."
    before, limit = told.open_before, told.limit_before
    if limit is not None and limit > (told.limit or 0):
        return Blame.INFRA, True, f"Its limit was {limit} when the model's first reply came, and was lowered since."
    if before is not None and before < (1 - ctx.thresholds.others_share) * (told.open_files or 0):
        return Blame.INFRA, True, f"It had {before} of them open when the model's first reply came."
    said = "It ran before the model's first reply: harness or services need more than the limit allows."
    return Blame.INFRA, False, said
