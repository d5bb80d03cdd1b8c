"""What a kill for memory did to its trial: ended it, bent it, or was recovered from.

In: the context and a `KillGroup`.  Out: a standing, the answer to "did it end or distort the trial", and why it may
have been harmless.  What this module does not do: ask whose demand it was (`oom_demand.py`).

How it can be wrong: a kill of a side process that the step did not need, in the last tool step of a failed trial, is
taken for what ended it.  A harness that types into a terminal gives no end of its own commands: then a result that came
back counts as a normal end, unless the victim was the harness's support.
**Source:** design page VERDICTS.md sections 3 and 5.
"""

from __future__ import annotations

from fairtrial.middleware.attribution.case import Case, ContainerCase, KillGroup, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Standing
from fairtrial.middleware.attribution.tool_steps import first_normal_after, last_tool_step
from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName, Question


def standing_of(
    ctx: Context, container: ContainerCase, group: KillGroup, *, support: bool
) -> tuple[Standing, Question, str]:
    """`support`: a victim was the harness's, so a result that came back is no sign that the box still worked."""
    case = ctx.case
    ids = group.ids
    if group.phase is PhaseName.VERIFY or container.role == "verifier" or after_last_word(ctx, group):
        return Standing.TERMINAL, unknown(ids), "it happened while the verifier ran"
    if case.begun_by_a_tool(container):
        return Standing.RECOVERED, unknown(ids), "a command of the trial had started that container, with its limit"
    later = first_normal_after(case, container, group.step, inferred=not support)
    if later is not None:
        return Standing.RECOVERED, no(later[1]), f"step {later[0]} ended normally in the same container"
    if container.role == "service" and group.step is not None and len(case.trial.steps) > group.step:
        return Standing.DISTORTING, unknown(ids), "the agent went on without the service"
    if case.booked is Outcome.PASSED and case.finished_in_words:
        return Standing.RECOVERED, no(case.main_calls[-1].ids[-1:]), "the agent finished its turn after it"
    if _finished_later(case, group):
        return (
            Standing.RECOVERED,
            no(case.main_calls[-1].ids[-1:]),
            "its harness says that it worked on and finished",
        )
    gap = ctx.watch.door_gap(group.at_ns)
    if gap is not None:
        return Standing.TERMINAL, unknown([*ids, gap.id]), ""
    return Standing.TERMINAL, yes(ids), "the trial went on and ended for another reason"


def _finished_later(case: Case, group: KillGroup) -> bool:
    """A later step had tools, and by its harness's word the agent finished: of the last command, which hands in the
    work, no result comes back to show it."""
    last = last_tool_step(case)
    if last is None or group.step is None or last.index <= group.step or case.trial.exit_code != 0:
        return False
    return case.told_ended_as is EndedAs.AGENT_FINISHED and case.booked not in {Outcome.FAILED, Outcome.ERRORED}


def after_last_word(ctx: Context, group: KillGroup) -> bool:
    """The last reply had asked for nothing more, and the command was not killed itself: it struck none of its steps."""
    case = ctx.case
    last = case.last_main
    if last is None or last.step is None or last.ended_ns is None or group.step != last.step:
        return False
    killed = case.trial.signal is not None or case.trial.exit_code == 137
    return case.finished_in_words and not case.may_run_tools(last.step) and not killed
