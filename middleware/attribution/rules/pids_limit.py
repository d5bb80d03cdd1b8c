"""A limit of tasks was reached in a container.

Recognises: `container.pids_limit`, a step in which the cgroup's own counter of refused forks moved. Whose it was
follows from what filled the limit: over `own_share` by this trial, or growth of one step of the model's, is the
model's; less than `others_share`, or a limit that harness and services alone had reached before any reply of a model,
is the infrastructure's; between, and wherever it was not measured, nobody is blamed.

Deliberately does not: read "fork: retry" (words that a command prints); prove anything.

How it can be wrong: a fork bomb in small portions over many steps looks like growth of several parents, which leaves
the trial open, not the infrastructure blamed.  A harness that starts helpers after the first reply has them counted as
the model's: that costs a verdict for the model that the sentence lays open.

**Source:** kernel cgroup-v2.rst (pids.events); taxonomy.md section 5, the row on PID limits.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, evidence
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.rules.limit import limit_event
from fairtrial.middleware.attribution.sentences import count, fill
from fairtrial.middleware.attribution.tool_steps import step_of_work
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import PidsHit
from fairtrial.middleware.core.records import Blame, PhaseName
from fairtrial.middleware.steps.placed import Placed

_CAUSE: Final = CAUSES["container.pids_limit"]
_SHARED: Final = frozenset({"own"})
"""Containers that hold more than the trial: whose tasks they are is never known."""


def find(ctx: Context) -> list[Event]:
    """One event per container and step."""
    return [event for c in ctx.case.containers.values() if c.role != "verifier" for event in _reached(ctx, c)]


def _reached(ctx: Context, container: ContainerCase) -> list[Event]:
    found: list[Event] = []
    for step in ctx.case.trial.steps:
        hits = next((use.pids_max_hits for use in step.containers if use.id == container.id), None)
        if not hits or step.phase is not PhaseName.AGENT:
            continue
        told = [(p, v) for p, v in container.pids_hits if step_of_work(ctx.case, p) == step.index]
        counted = [(p, v) for p, v in container.readings if p.step == step.index and v.pids_max_hits]
        places: list[Placed] = [*(p for p, _ in told), *(p for p, _ in counted)] or [
            p for p, v in container.readings if v.pids_max_hits
        ][:1]
        if not places:
            continue
        limit = next((v.limit for _, v in told if v.limit), None) or next(
            (v.pids_limit for _, v in reversed(container.readings) if v.pids_limit), None
        )
        blame, undecided, why = _whose(ctx, container, [v for _, v in told], limit)
        facts = {
            "container": name_of(container),
            "step": str(step.index),
            "tasks": "an unknown number of tasks" if limit is None else count(limit, "task"),
            "hits": count(hits, "fork"),
        }
        rose = f"its own counter of refused forks rose by {hits} in this step"
        found.append(
            limit_event(
                ctx,
                container,
                step,
                _CAUSE.name,
                (blame, undecided),
                at_ns=places[0].at_ns,
                ids=[p.id for p in places[:3]],
                sentence=f"{fill(_CAUSE.template, facts)} {why}",
                flips_if="turns to infra, proved, if the same command passes with a limit of three times as many tasks",
                evidence=[evidence(places[0], rose), *(evidence(p, _tasks_claim(v)) for p, v in told[:2])],
            )
        )
    return found


def _tasks_claim(hit: PidsHit) -> str:
    def told(number: int | None) -> str:
        return "unknown" if number is None else str(number)

    return (
        f"{told(hit.tasks)} tasks at a limit of {told(hit.limit)}; since the first reply of a model "
        f"{told(hit.since_first_reply)}, since the newest {told(hit.since_last_reply)}"
    )


def _whose(ctx: Context, container: ContainerCase, hits: list[PidsHit], limit: int | None) -> tuple[Blame, bool, str]:
    """Whom the tasks at the limit belong to, whether that is open, and a sentence."""
    known = [h for h in hits if h.tasks and h.since_first_reply is not None and h.since_last_reply is not None]
    fullest = max(known, key=lambda h: h.tasks or 0, default=PidsHit(container_id=container.id))
    tasks, model, step = fullest.tasks or 0, fullest.since_first_reply or 0, fullest.since_last_reply or 0
    told = f"{model} of the {tasks} tasks there were started after the model's first reply."
    if container.id in _SHARED or not limit:
        return Blame.INFRA, True, "Whose tasks they were was not measured."
    filled = tasks >= limit * ctx.thresholds.own_share
    if filled and model >= ctx.thresholds.own_share * tasks:
        return Blame.MODEL, False, told
    at_once = step >= ctx.thresholds.own_share * model and model >= (1 - ctx.thresholds.own_share) * tasks
    if filled and at_once:
        return (
            Blame.MODEL,
            False,
            f"What the model's command had started grew to {step} of the {tasks} tasks there within this one step.",
        )
    if _reached_before_any_reply(ctx, container):
        return (
            Blame.INFRA,
            False,
            "It had been reached before any reply of the model had arrived, by harness and services alone.",
        )
    if not known:
        return Blame.INFRA, True, "Whose tasks they were was not measured."
    first = None if container.seen_first is None else container.seen_first.pids_limit
    if first and limit < first:
        return Blame.INFRA, True, f"The limit was {first} when the container was first seen, and was lowered since."
    if not filled:
        return (
            Blame.INFRA,
            True,
            f"Most of them were gone a moment later ({tasks} were left), so whose they were is open.",
        )
    return Blame.INFRA, model >= ctx.thresholds.others_share * tasks, told


def _reached_before_any_reply(ctx: Context, container: ContainerCase) -> bool:
    """Forks were refused while nothing at all had been answered, and the door saw what there was to see."""
    case = ctx.case
    if not ctx.watch.door_watched or case.past_door or case.others:
        return False
    replied = ctx.case.first_answered_ns
    return any(v.pids_max_hits and (replied is None or p.at_ns < replied) for p, v in container.readings)
