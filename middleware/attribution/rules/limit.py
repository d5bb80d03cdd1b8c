"""What rules about limits share: whether a limit that was reached mattered to the trial, and the event that says so.

A limit of tasks, disk space, open files or memory is set from outside, so that it was reached is told whoever's demand
it was; the rules beside this one say whose.  A step whose commands all ended with 0, or that a later normal step
followed in the same container, is present.  Nothing here is proved: no counter shows that a command needed the room.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairtrial.middleware.attribution.case import ContainerCase, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.tool_steps import all_well, first_normal_after
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Evidence, Grade, Question, Step


def strike(ctx: Context, container: ContainerCase, step: int, ids: list[str]) -> tuple[Standing, Question, str]:
    """What a limit reached in this step did to the trial, with why it may not have mattered."""
    case = ctx.case
    if case.begun_by_a_tool(container):
        return Standing.RECOVERED, unknown(ids), "a command of the trial had started that container, with its limit"
    later = first_normal_after(case, container, step)
    if later is not None:
        return Standing.RECOVERED, no(later[1]), f"step {later[0]} ended normally in the same container"
    well = all_well(container, step)
    if well is not None:
        return Standing.RECOVERED, no(well), "the step's commands ended normally all the same"
    if not case.may_run_tools(step):
        return Standing.RECOVERED, no(ids), "the agent ran nothing in that step"
    return Standing.TERMINAL, yes(ids), "the trial went on and ended for another reason"


def limit_event(
    ctx: Context,
    container: ContainerCase,
    step: Step,
    cause: str,
    whose: tuple[Blame, bool],
    *,
    at_ns: int,
    ids: list[str],
    sentence: str,
    flips_if: str,
    evidence: Sequence[Evidence],
    needed: bool = True,
) -> Event:
    """The event of a limit reached in `step`.

    `whose`: whom it is laid on, and whether that is open.  `needed`: a step that did not recover was ended by it; where
    not even that shows, False.
    """
    blame, undecided = whose
    standing, ended, present = strike(ctx, container, step.index, ids)
    recovered = standing is Standing.RECOVERED
    return Event(
        cause=cause,
        blame=blame,
        best=Grade.SUSPECTED,
        standing=standing,
        ends_call=False,
        step=step.index,
        phase=step.phase,
        at_ns=at_ns,
        happened=yes(ids),
        ended_or_distorted=ended if recovered or needed else unknown(ids),
        outcome_differs=no() if recovered else unknown(ids),
        sentence=sentence,
        advice="" if blame is Blame.MODEL else CAUSES[cause].advice,
        why_present=present,
        flips_if=flips_if,
        undecided="" if undecided else None,
        limit_hit=True,
        evidence=tuple(evidence),
    )
