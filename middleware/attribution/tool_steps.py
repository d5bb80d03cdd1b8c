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

from typing import Final

from fairtrial.middleware.attribution.case import Case, ContainerCase

NOT_NORMAL: Final = frozenset({126, 128, 137})


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
    return next((c.ids[:1] for c in case.main_calls if c.step is not None and c.step > step), [])


def _next_call_at(case: Case, step: int) -> int | None:
    return next((c.started_ns for c in case.main_calls if c.step is not None and c.step > step), None)
