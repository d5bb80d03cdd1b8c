"""Whose demand a kill for memory was, as far as numbers tell: the guaranteed floor, the headroom, the time before any
reply.

In: the context, a container, its kills.  Out: a proof with a sentence, or None: then it stays open.  Two proofs that it
was not the model's: a kill from above while the trial kept to its guaranteed floor, and a kill before any reply of the
model had arrived.  A ceiling of k times what is declared is the model's, one of k times what is guaranteed suspects it.
What this module does not do: weigh what a verifier or an oracle ran (`oom_whose.py`), or compare with other trials
(`across_rules.py`).
**Source:** design page VERDICTS.md section 3.
"""

from __future__ import annotations

from fairtrial.middleware.attribution.case import Case, ContainerCase, KillGroup
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.sentences import size


def within_floor(
    ctx: Context, container: ContainerCase, group: KillGroup, parent: str | None
) -> tuple[list[str], str] | None:
    """Proof, of a kill from above, that the trial kept to what it was guaranteed; with its ids and a sentence."""
    case = ctx.case
    floor = _guaranteed(case, container)
    used = max((v.memory_peak for _, v in group.counted if v.memory_peak is not None), default=None)
    if used is None:
        used = max((v.victim.rss for _, v in group.records if v.victim.rss is not None), default=None)
    beside = _used_beside(ctx, container, parent) if floor else None
    if not floor or used is None or beside is None or used + beside > floor:
        return None
    said = (
        f"The kill came from above, while the trial used {size(used + beside)} of the {size(floor)} that it was "
        "guaranteed."
    )
    return [], said


def before_any_reply(
    ctx: Context, container: ContainerCase, group: KillGroup, limit: int | None
) -> tuple[list[str], str] | None:
    """Proof that no demand can have been the model's yet; with its ids and a sentence."""
    if limit is None or container.role == "service":
        return None
    shared = any(v.memory_peak_kind == "shared" for _, v in container.readings)
    asked = _unanswered_question(ctx, group.at_ns)
    if asked is None or shared:
        return None
    said = "No reply of the model had arrived by then, so harness and services alone were more than the limit allows."
    return [asked], said


def declared_below(ctx: Context, container: ContainerCase, limit: int | None) -> int | None:
    """What the container is guaranteed, bytes, where its own limit is at least k times that: who reached such a limit
    asked for more than k times the declared memory.  None where nothing was declared, or the limit is tighter."""
    memory = ctx.case.trial.limits.memory
    declared = memory.declared or memory.floor or (container.seen.memory_reservation if container.seen else None)
    if not declared or limit is None or container.role == "service" or container.id == "own":
        return None
    return declared if limit >= ctx.thresholds.headroom_k * declared else None


def parent_that_was_full(container: ContainerCase, group: KillGroup) -> str | None:
    """The cgroup above the container whose limit the kernel's own record names, None when it was the container's."""
    cgroup = container.seen.cgroup if container.seen is not None else None
    for _, record in group.records:
        full = record.oom_memcg
        if cgroup and full and full != "/" and cgroup.startswith(f"{full.rstrip('/')}/"):
            return full
    return None


def beyond_headroom(ctx: Context, container: ContainerCase, limit: int | None, *, from_above: bool) -> str | None:
    """A ceiling that was already k times what is declared: the demand was more than that, so it was the model's."""
    declared, k = ctx.case.trial.limits.memory.declared, ctx.thresholds.headroom_k
    if declared is None or limit is None or from_above or container.role != "main" or limit < declared * k * 0.999:
        return None
    return (
        f"The limit was already {limit / declared:.2g} times the {size(declared)} that the task declares, so the "
        f"demand was beyond any headroom that is due ({k:g} x): the model's."
    )


def _guaranteed(case: Case, container: ContainerCase) -> int | None:
    """What the trial was guaranteed, bytes: as its container, or its first main one, was told to have when it was first
    seen, before a model had said anything; what a command of the model's asks for itself is no guarantee."""
    answered_ns = case.first_answered_ns
    first = next((c for c in case.containers.values() if c.role == "main"), container)
    for one in (first, container):
        told = one.seen_first
        if told is None or not told.memory_reservation or told.started_wall_ns is None or not case.main_calls:
            continue
        if answered_ns is None or told.started_wall_ns <= answered_ns:
            return told.memory_reservation
    return None


def _used_beside(ctx: Context, container: ContainerCase, parent: str | None) -> int | None:
    """The most that the rest of the trial used, bytes: its other containers and the command itself, which may have
    filled the node as well, or the cgroup `parent` if they live in it.  None when a part of it was not read."""
    total = 0
    for other in {"own": None, **ctx.case.containers}:
        seen = ctx.case.containers[other].seen if other in ctx.case.containers else None
        cgroup = seen.cgroup if seen is not None else None
        elsewhere = parent is not None and cgroup is not None and not f"{cgroup}/".startswith(f"{parent}/")
        if other == container.id or elsewhere:
            continue
        readings = ctx.case.containers[other].readings if other in ctx.case.containers else []
        known = [max(v.memory_peak or 0, v.memory_current or 0) for _, v in readings]
        if not any(known):
            return None
        total += max(known)
    return total


def _unanswered_question(ctx: Context, at_ns: int) -> str | None:
    """The id of a main call that was waiting at that moment, if nothing at all had been answered before.

    It shows that this agent asks through the door and that no model had told it anything yet: not by whatever role or
    dialect, not in part, and not past the door.
    """
    case = ctx.case
    blind = any("model_api" in b.families and b.since_ns <= at_ns for b in ctx.watch.blind)
    unread = any(c.role == "probe" and c.last is not None and c.last.value.dialect == "unknown" for c in case.calls)
    unended = any(c.open_attempts for c in case.calls)
    if blind or unread or unended or case.strangers or case.others or case.past_door or not ctx.watch.door_watched:
        return None
    if case.first_answered_ns is not None and case.first_answered_ns <= at_ns:
        return None
    # A conversation that goes on had replies before this trial, and what they set to work may be there still.
    if any(c.request.assistant_turns for c in case.main_calls if c.started_ns <= at_ns):
        return None
    waiting = [c for c in case.main_calls if c.started_ns <= at_ns and c.request.history_len is not None]
    return waiting[0].ids[0] if waiting else None
