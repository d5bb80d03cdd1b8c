"""Which tool steps ended normally in a container: the sign that the container still worked after something struck it.

In: a `Case`, a container, a step.  Out: ids of the observations that show it, or None.
A tool step ended normally when a command of it, run through the runtime, ended with a known exit code that is neither
137 (killed) nor 126 or 128 (could not be started), and no OOM kill fell into it; where the harness runs its tools
without the runtime (an agent inside the container, or on the host), when its result came back with the next model call
while the container lived.  A reply that asked for no tool, though tools were on offer, makes no tool step: commands
that the harness runs then (its check, its clean-up) show nothing.  What this module does not do: read what the tools
printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.attribution.case import Case, ContainerCase
from fairtrial.middleware.core.records import Step
from fairtrial.middleware.steps.placed import Placed
from fairtrial.middleware.steps.window import OPENING_EDGE_NS

NOT_NORMAL: Final = frozenset({126, 128, 137})

TIME_LIMIT_CODES: Final = frozenset({124, 137, 143})
"""What timeout(1) and shells say of a command that was cut short."""


def last_tool_step(case: Case) -> Step | None:
    """The last step in which a tool was at work; the harness's own commands after the agent's last word are none."""
    return next((s for s in reversed(case.trial.steps) if s.tools and case.may_run_tools(s.index)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShort:
    """A tool step that a limit of time ended: `tool_s` is how long its tools had been at work, s."""

    step: Step
    tool_s: float
    since_ns: int
    until_ns: int
    ids: tuple[str, ...]


def cut_short(case: Case) -> CutShort | None:
    """The last tool step, if a time limit seems to have ended its command or the trial in it.

    It seems so by exit codes and signals, which a command can make up: it decides nothing by itself.
    """
    step = last_tool_step(case)
    if step is None or any(group.step == step.index for group in case.kills):
        return None
    ended = any(tool.timed_out_by is not None or tool.exit_code in TIME_LIMIT_CODES for tool in step.tools)
    code = case.trial.exit_code
    last = case.last_main
    waiting = case.waiting_for is not None and last is not None and last.step == step.index
    if not ended and not (waiting and (case.trial.signal is not None or code in TIME_LIMIT_CODES)):
        return None
    window = work_window(case, step.index)
    if window is None:
        return None
    ids = [one.ended.id for c in case.containers.values() for one in c.execs.get(step.index, ()) if one.ended]
    if not ids and case.ended is not None:
        ids = [case.ended[0].id]
    return CutShort(
        step=step, tool_s=(window[1] - window[0]) / 1e9, since_ns=window[0], until_ns=window[1], ids=tuple(ids)
    )


def work_window(case: Case, step: int) -> tuple[int, int] | None:
    """From the end of a step's reply to the next call or the trial's end, wall ns."""
    ends = [c.ended_ns for c in case.calls_of(step) if c.ended_ns is not None]
    following = _next_call_at(case, step)
    until = following if following is not None else case.ended_ns
    if not ends or until is None or until <= max(ends):
        return None
    return max(ends), until


def step_of_work(case: Case, placed: Placed, edge: str | None = None) -> int | None:
    """The step whose tools were at work at that moment: while a call is open that is the step before it.

    What a collector reads at a call's start (`edge`) arrives a little after it, even after a short call's end, and
    tells of the tools that ended then.
    """
    number = placed.step
    if number is None:
        return None
    calls = case.calls_of(number)
    open_still = any(c.ended_ns is None or placed.at_ns < c.ended_ns for c in calls)
    began = min((c.started_ns for c in calls), default=None)
    at_start = edge == "call_started" and began is not None and placed.at_ns <= began + OPENING_EDGE_NS
    return (number - 1 or None) if open_still or at_start else number


def all_well(container: ContainerCase, step: int) -> list[str] | None:
    """Ids of the ends of the step's commands in this container, when all of them ended with 0; None else."""
    execs = container.execs.get(step, ())
    if not execs or any(one.exit_code != 0 or one.ended is None for one in execs):
        return None
    return [one.ended.id for one in execs if one.ended is not None]


def ended_normally(case: Case, container: ContainerCase, step: int, *, inferred: bool = True) -> list[str] | None:
    """Ids that show a normal end of a tool in this step; `inferred`: whether a result that came back counts too."""
    if case.killed_in(container.id, step) or not case.may_run_tools(step):
        return None
    for one in container.execs.get(step, ()):
        if one.ended is not None and one.exit_code is not None and one.exit_code not in NOT_NORMAL:
            return [one.ended.id]
    if container.execs or not inferred or _gone_before_end(case, container, step):
        return None
    for tool in case.tools_of(step):
        if tool.ended is not None and tool.exit_code not in NOT_NORMAL:
            return _next_call(case, step)
    return None


def first_normal_after(
    case: Case, container: ContainerCase, step: int | None, *, inferred: bool = True
) -> tuple[int, list[str]] | None:
    """The first later step of which a tool ended normally in this container, with the ids that show it."""
    for later in range((step or 0) + 1, len(case.trial.steps) + 1):
        ids = ended_normally(case, container, later, inferred=inferred)
        if ids is not None:
            return later, ids
    return None


def _gone_before_end(case: Case, container: ContainerCase, step: int) -> bool:
    if container.gone is None:
        return False
    following = _next_call_at(case, step)
    return following is None or container.gone[0].at_ns <= following


def _next_call(case: Case, step: int) -> list[str]:
    following = case.call_after(step)
    return [] if following is None else following.ids[:1]


def _next_call_at(case: Case, step: int) -> int | None:
    following = case.call_after(step)
    return None if following is None else following.started_ns
