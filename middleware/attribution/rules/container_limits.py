"""A limit of tasks, of disk space or of open files was reached in a container.

Recognises: `container.pids_limit`, a step in which the cgroup's own counter of refused forks moved;
`container.disk_full`, a step in which a file system of the container had no room left; and `container.fd_limit`, a step
in which a process was seen at its own limit of open files.  These are limits that somebody set from outside, so the
fact is told whoever's demand it was; whose it was follows from what filled the limit: over `own_share` by this trial,
or growth of one step of the model's, or a process that started after its first reply, is the model's; less than
`others_share`, or a limit that harness and services alone had reached before any reply of a model, is the
infrastructure's; between, and wherever it was not measured, nobody is blamed.  A step whose commands all ended with 0,
or that a later normal step followed in the same container, is present.

Deliberately does not: read "No space left on device" or "fork: retry" (words that a command prints); prove anything: a
full disk that other trials filled is `suspected` until a rerun, since nothing shows that a command needed the room.

How it can be wrong: a fork bomb in small portions over many steps looks like growth of several parents, which leaves
the trial open, not the infrastructure blamed.  A harness that starts helpers after the first reply has them counted as
the model's: that costs a verdict for the model that the sentence lays open.  A disk that was full for less than a
second is not seen at all, and the failed command is then the model's.  Bytes that a tool wrote on the host are nobody's
here: unless each tool is known to have run in the container (its command's text is the exec's), a disk that others seem
to have filled leaves the trial open.

**Source:** kernel cgroup-v2.rst (pids.events), statvfs(3); taxonomy.md section 5, rows on disk and PID limits.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.sentences import clean, count, fill, size
from fairtrial.middleware.attribution.tool_steps import all_well, first_normal_after, last_tool_step, step_of_work
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import DiskFull, PidsHit
from fairtrial.middleware.core.records import Blame, Grade, PhaseName, Question
from fairtrial.middleware.steps.placed import Placed

_SHARED: Final = frozenset({"own"})
"""Containers that hold more than the trial: whose tasks they are is never known."""


def find(ctx: Context) -> list[Event]:
    """One event per container, step and limit."""
    found: list[Event] = []
    for container in ctx.case.containers.values():
        if container.role == "verifier":
            continue
        found.extend(_pids(ctx, container))
        found.extend(_disk(ctx, container))
        found.extend(_files(ctx, container))
    return found


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


def first_reply_ns(ctx: Context) -> int | None:
    """When the first bytes of any reply of a model had arrived; None when none did."""
    return min(ctx.case.answered_ns, default=None)


# --- tasks ----------------------------------------------------------------------------------------------------------


def _pids(ctx: Context, container: ContainerCase) -> list[Event]:
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
        blame, undecided, why = _whose_tasks(ctx, container, [v for _, v in told], limit)
        cause = CAUSES["container.pids_limit"]
        ids = [p.id for p in places[:3]]
        standing, ended, present = strike(ctx, container, step.index, ids)
        sentence = fill(
            cause.template,
            {
                "container": name_of(container),
                "step": str(step.index),
                "tasks": "an unknown number of tasks" if limit is None else count(limit, "task"),
                "hits": count(hits, "fork"),
            },
        )
        found.append(
            Event(
                cause=cause.name,
                blame=blame,
                best=Grade.SUSPECTED,
                standing=standing,
                ends_call=False,
                step=step.index,
                phase=step.phase,
                at_ns=places[0].at_ns,
                happened=yes(ids),
                ended_or_distorted=ended,
                outcome_differs=no() if standing is Standing.RECOVERED else unknown(ids),
                sentence=f"{sentence} {why}",
                advice="" if blame is Blame.MODEL else cause.advice,
                why_present=present,
                flips_if="turns to infra, proved, if the same command passes with a limit of three times as many tasks",
                undecided="" if undecided else None,
                limit_hit=True,
                needs_door=True,
                evidence=tuple(
                    evidence(p, f"its own counter of refused forks rose by {hits} in this step") for p in places[:1]
                )
                + tuple(evidence(p, _tasks_claim(v)) for p, v in told[:2]),
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


def _whose_tasks(
    ctx: Context, container: ContainerCase, hits: list[PidsHit], limit: int | None
) -> tuple[Blame, bool, str]:
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
    replied = first_reply_ns(ctx)
    return any(v.pids_max_hits and (replied is None or p.at_ns < replied) for p, v in container.readings)


# --- disk -----------------------------------------------------------------------------------------------------------


def _disk(ctx: Context, container: ContainerCase) -> list[Event]:
    steps = {step.index: step for step in ctx.case.trial.steps}
    found: list[Event] = []
    seen: set[tuple[int, str]] = set()
    last = last_tool_step(ctx.case)
    for placed, full in container.full_disks:
        # What was full from the start on strikes every step: the last one with tools is told.
        number = last.index if full.at_start and last is not None else step_of_work(ctx.case, placed, full.edge)
        step = None if number is None else steps.get(number)
        if step is None or step.phase is not PhaseName.AGENT or (step.index, full.mount) in seen:
            continue
        seen.add((step.index, full.mount))
        blame, undecided, why = _whose_bytes(ctx, placed.at_ns, full)
        cause = CAUSES["container.disk_full"]
        standing, ended, present = strike(ctx, container, step.index, [placed.id])
        room = "no inode was left" if full.inodes_free == 0 else f"{size(full.free) or 'nothing'} free"
        sentence = fill(
            cause.template,
            {
                "container": name_of(container),
                "step": str(step.index),
                "mount": clean(full.mount, 60),
                "size": size(full.size) or "",
                "room": room,
            },
        )
        found.append(
            Event(
                cause=cause.name,
                blame=blame,
                best=Grade.SUSPECTED,
                standing=standing,
                ends_call=False,
                step=step.index,
                phase=step.phase,
                at_ns=placed.at_ns,
                happened=yes([placed.id]),
                ended_or_distorted=ended,
                outcome_differs=no() if standing is Standing.RECOVERED else unknown([placed.id]),
                sentence=f"{sentence} {why}",
                advice="" if blame is Blame.MODEL else cause.advice,
                why_present=present,
                flips_if="turns to infra, proved, if the same command passes with more room",
                undecided="" if undecided else None,
                limit_hit=True,
                evidence=(
                    evidence(
                        placed,
                        f"{clean(full.mount, 60)} ({clean(full.fs_type or 'unknown', 20)}, {size(full.size)}): {room}; "
                        f"used {size(full.used)}, at the start {size(full.used_at_start)}; the container's own "
                        f"{size(full.layer_bytes) or 'not counted'}",
                    ),
                ),
            )
        )
    return found


def _whose_bytes(ctx: Context, at_ns: int, full: DiskFull) -> tuple[Blame, bool, str]:
    """Whose bytes fill it: by the growth since the container was first looked at."""
    if full.at_start:
        replied = first_reply_ns(ctx)
        if ctx.watch.door_watched and (replied is None or at_ns < replied):
            return Blame.INFRA, False, "It was full before any reply of the model had arrived."
        return Blame.INFRA, True, "It was full when the container was first looked at; who filled it was not seen."
    if full.used is None or full.used_at_start is None or full.layer_bytes is None:
        return Blame.INFRA, True, "How much of it this trial wrote was not measured."
    growth = full.used - full.used_at_start
    if growth <= 0:
        return Blame.INFRA, True, "How much of it this trial wrote was not measured."
    share = full.layer_bytes / growth
    told = f"The container itself holds {size(full.layer_bytes)} of the {size(growth)} by which it grew."
    if share >= ctx.thresholds.own_share:
        return Blame.MODEL, False, told
    if share < ctx.thresholds.others_share and not _wrote_elsewhere(ctx):
        return Blame.INFRA, False, told
    return Blame.INFRA, True, told


def _wrote_elsewhere(ctx: Context) -> bool:
    """Whether the trial may have written past this container: from another one, or with a tool that ran on the host."""
    others = sum(1 for c in ctx.case.containers.values() if c.id != "own") > 1
    tools = [tool for step in ctx.case.trial.steps for tool in step.tools]
    return others or any(tool.join != "text" for tool in tools)


# --- open files -----------------------------------------------------------------------------------------------------


def _files(ctx: Context, container: ContainerCase) -> list[Event]:
    steps = {step.index: step for step in ctx.case.trial.steps}
    found: dict[int, Event] = {}
    for placed, told in container.fd_limits:
        number = step_of_work(ctx.case, placed)
        step = None if number is None else steps.get(number)
        if step is None or step.phase is not PhaseName.AGENT or step.index in found:
            continue
        cause = CAUSES["container.fd_limit"]
        standing, ended, present = strike(ctx, container, step.index, [placed.id])
        models = told.since_first_reply
        blame = Blame.MODEL if models else Blame.INFRA
        why = {
            True: "It was started after the model's first reply.",
            False: "It ran before the model's first reply: harness or services need more than the limit allows.",
            None: "When it was started is not known.",
        }[models]
        facts = {
            "victim": f"{clean(told.comm or '', 20) or 'a process'} (pid {told.pid})",
            "container": name_of(container),
            "limit": "" if told.limit is None else str(told.limit),
            "step": str(step.index),
        }
        found[step.index] = Event(
            cause=cause.name,
            blame=blame,
            best=Grade.SUSPECTED,
            standing=standing,
            ends_call=False,
            step=step.index,
            phase=step.phase,
            at_ns=placed.at_ns,
            happened=yes([placed.id]),
            ended_or_distorted=ended if standing is Standing.RECOVERED else unknown([placed.id]),
            outcome_differs=no() if standing is Standing.RECOVERED else unknown([placed.id]),
            sentence=f"{fill(cause.template, facts)} {why}",
            advice="" if models else cause.advice,
            why_present=present,
            flips_if="turns to infra, proved, if the same command passes with a higher limit",
            undecided="" if models is None else None,
            limit_hit=True,
            evidence=(evidence(placed, f"{told.open_files} open files at a limit of {told.limit}"),),
        )
    return list(found.values())
