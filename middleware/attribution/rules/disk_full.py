"""A file system of a container had no room left.

Recognises: `container.disk_full`, a step in which a file system of the container was full.  Whose it was follows from
who wrote what it grew by: over `own_share` by this container is the model's, less than `others_share` the
infrastructure's, and so is one that was full before any reply of a model; between, and wherever it was not measured,
nobody is blamed.

Deliberately does not: read "No space left on device" (words that a command prints); prove anything: a full disk that
other trials filled is `suspected` until a rerun, since nothing shows that a command needed the room.

How it can be wrong: a disk that was full for less than a second is not seen at all, and the failed command is then the
model's.  Bytes that went there by a volume or a bound folder of the container are not counted, and bytes that a tool
wrote on the host are nobody's here: where there is such a folder, and unless each tool is known to have run in the
container (its command's text is the exec's), a disk that others seem to have filled leaves the trial open.

**Source:** statvfs(3); taxonomy.md section 5, the row on disk.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, evidence
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.rules.limit import limit_event
from fairtrial.middleware.attribution.sentences import clean, fill, size
from fairtrial.middleware.attribution.tool_steps import last_tool_step, step_of_work
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.observations import DiskFull
from fairtrial.middleware.core.records import Blame, PhaseName

_CAUSE: Final = CAUSES["container.disk_full"]


def find(ctx: Context) -> list[Event]:
    """One event per container, step and file system."""
    return [event for c in ctx.case.containers.values() if c.role != "verifier" for event in _reached(ctx, c)]


def _reached(ctx: Context, container: ContainerCase) -> list[Event]:
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
        blame, undecided, why = _whose(ctx, placed.at_ns, full)
        room = "no inode was left" if full.inodes_free == 0 else f"{size(full.free) or 'nothing'} free"
        facts = {
            "container": name_of(container),
            "step": str(step.index),
            "mount": clean(full.mount, 60),
            "size": size(full.size) or "",
            "room": room,
        }
        counted = (
            f"{clean(full.mount, 60)} ({clean(full.fs_type or 'unknown', 20)}, {size(full.size)}): {room}; "
            f"used {size(full.used)}, at the start {size(full.used_at_start)}; the container's own "
            f"{size(full.layer_bytes) or 'not counted'}"
        )
        found.append(
            limit_event(
                ctx,
                container,
                step,
                _CAUSE.name,
                (blame, undecided),
                at_ns=placed.at_ns,
                ids=[placed.id],
                sentence=f"{fill(_CAUSE.template, facts)} {why}",
                flips_if="turns to infra, proved, if the same command passes with more room",
                evidence=[evidence(placed, counted)],
            )
        )
    return found


def _whose(ctx: Context, at_ns: int, full: DiskFull) -> tuple[Blame, bool, str]:
    """Whose bytes fill it: by the growth since the container was first looked at."""
    if full.at_start:
        replied = ctx.case.first_answered_ns
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
    if share < ctx.thresholds.others_share and not full.other_ways and not _wrote_elsewhere(ctx):
        return Blame.INFRA, False, told
    return Blame.INFRA, True, told


def _wrote_elsewhere(ctx: Context) -> bool:
    """Whether the trial may have written past this container: from another one, or with a tool that ran on the host."""
    others = sum(1 for c in ctx.case.containers.values() if c.id != "own") > 1
    tools = [tool for step in ctx.case.trial.steps for tool in step.tools]
    return others or any(tool.join != "text" for tool in tools)
