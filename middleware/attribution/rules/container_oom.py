"""The kernel killed a process of the trial for memory.

Recognises: a moved kill counter of a container's own cgroup, a kernel record, or the runtime's OOM event, folded to one
event per container and step; main process or child, also when the command hid it behind exit code 0; a kill of the
whole node (`node.oom`); steps that ran in a box whose memory was still held by what an earlier step had written to
tmpfs or locked (`container.oom_residual`, or the same event when the writer's step was itself struck).
A limit that was lowered while the trial ran leaves it open whose doing the kill was.
What it did to the trial is `oom_standing.py`'s, who was killed `oom_victims.py`'s.  Whose demand it was stays open
(`suspected`) but for what `oom_demand.py` proves and what `oom_whose.py` knows of verifiers and oracles.  Other trials'
peaks are `across_rules.py`'s to look at; a replay has no source yet.

Deliberately does not: take exit code 137, the word "Killed" or the sticky `OOMKilled` flag for a kill; take the
kernel's name of a victim for proof (a process can set it); take a stranger's death in a cgroup that the command shares
with others for its own (without a named victim it is then only suspected); blame the model for a demand that nobody
measured.

How it can be wrong: as `oom_standing.py` says; the cost is a `suspected` and one replay.

**Source:** reference pages container.md section 2, taxonomy.md section 5; kernel doc cgroup-v2 (memory.events).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, KillGroup, evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.oom_demand import (
    before_any_reply,
    beyond_headroom,
    declared_below,
    parent_that_was_full,
    within_floor,
)
from fairtrial.middleware.attribution.rules.oom_readings import (
    evidence_of,
    hidden_by,
    limit_of,
    lowered_from,
    peak_of,
    placed_in,
)
from fairtrial.middleware.attribution.rules.oom_residual import OPEN, Fill, Levels, with_spoiled
from fairtrial.middleware.attribution.rules.oom_standing import after_last_word, standing_of
from fairtrial.middleware.attribution.rules.oom_victims import (
    SUPPORT_ROLES,
    role_of,
    strangers_alone,
    surely_ours,
    the_command_itself,
    victims_named,
)
from fairtrial.middleware.attribution.rules.oom_whose import Whose, before_a_reply, whose
from fairtrial.middleware.attribution.sentences import clean, count, fill, size
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade, PhaseName, Question, Trust

_OVER: Final = 1.05
"""No cgroup grows beyond its limit; readings differ by the counters' batches."""

_LOWERED: Final = "Find out what lowered it: a command of the model's that reaches the engine can."

_SKIPPED: Final = frozenset({PhaseName.TEARDOWN, PhaseName.BUILD})


def find(ctx: Context) -> list[Event]:
    """One event per container and step with OOM kills; steps in a box that stayed full are folded into its writer's."""
    found: list[Event] = []
    heads: dict[str, int] = {}
    spoiled: dict[int, list[tuple[KillGroup, Fill]]] = {}
    levels: dict[str, Levels] = {}
    for group in ctx.case.kills:
        if group.phase in _SKIPPED:
            continue
        container = ctx.case.containers[group.container]
        if container.id == "own" and strangers_alone(group):
            continue
        if group.container not in levels:
            levels[group.container] = Levels(ctx, container, limit_of(container, group))
        full = levels[group.container].full_at_start(group.step)
        writer_at = heads.get(group.container)
        if full is not None and writer_at is not None and found[writer_at].step == full.writer:
            spoiled.setdefault(writer_at, []).append((group, full))
            continue
        found.append(_event(ctx, container, group, full))
        heads.setdefault(group.container, len(found) - 1)
    for position, later in spoiled.items():
        found[position] = with_spoiled(found[position], later)
    return found


def _event(ctx: Context, container: ContainerCase, group: KillGroup, full: Fill | None) -> Event:
    case = ctx.case
    limit, peak = limit_of(container, group), peak_of(ctx, group)
    if limit is not None and peak is not None and peak > limit * _OVER:
        peak = None  # of another cgroup: the command was moved into this one after the first readings
    ids = group.ids
    node_wide = any(v.constraint == "CONSTRAINT_NONE" for _, v in group.records)
    parent = parent_that_was_full(container, group)
    from_above = node_wide or parent is not None or any(v.parent_limit_hit for _, v in group.counted)
    support = any(role_of(ctx, group, p, v) in SUPPORT_ROLES for p, v in group.records)
    if full is not None:
        cause = CAUSES["container.oom_residual"]
    else:
        cause = CAUSES["node.oom" if node_wide else "container.oom_kill"]
    standing, ended, why_present = standing_of(ctx, container, group, support=support)
    late = after_last_word(ctx, group)
    phase = PhaseName.VERIFY if late or container.role == "verifier" else group.phase
    other = whose(ctx, verifier=phase is PhaseName.VERIFY) if standing is Standing.TERMINAL else None
    differs: Question = no() if standing is Standing.RECOVERED else unknown(ids)
    demand = ""
    best = Grade.SUSPECTED
    blame = Blame.INFRA
    if standing is Standing.TERMINAL:
        proof = within_floor(ctx, container, group, parent) if from_above else None
        if proof is None and other is None:
            proof = before_any_reply(ctx, container, group, limit)
        beyond = beyond_headroom(ctx, container, limit, from_above=from_above)
        guaranteed = None if from_above or support else declared_below(ctx, container, limit)
        if proof is not None:
            differs, best, demand, other = yes([*ids, *proof[0]]), Grade.PROVED, proof[1], None
        elif other is not None:
            blame, demand = other.blame, other.demand
        elif beyond is not None:
            differs, best, demand, blame = yes(ids), Grade.PROVED, beyond, Blame.MODEL
        elif guaranteed is not None and limit is not None:
            blame = Blame.MODEL
            demand = (
                f"That is {limit / guaranteed:.2g} times the {size(guaranteed)} that it is guaranteed: no fair limit "
                "would have been enough, so the command was too greedy."
            )
        else:
            demand = OPEN
    fact = Grade.PROVED
    if all(p.observation.trust is not Trust.HOST for p in placed_in(group)):
        fact = best = Grade.SUSPECTED
    elif container.id == "own" and not surely_ours(container, group):
        fact = best = Grade.SUSPECTED
        blame = Blame.INFRA
        demand, other = "Other processes share this cgroup, so it may have been theirs.", None
    k = ctx.thresholds.headroom_k
    facts = {
        "victim": victims_named(ctx, group),
        "container": name_of(container),
        "step": None if group.step is None else str(group.step),
        "limit": size(limit),
        "peak": size(peak),
        "kills": None if group.kills is None else count(group.kills, "kill"),
        "what": f"step {group.step}'s command" if group.step is not None else "the command",
        "ceiling": None if limit is None else size(round(limit * k)),
        "k": f"{k:g}",
        "residue": None if full is None else size(full.shmem),
        "writer": None if full is None or full.writer is None else str(full.writer),
    }
    given = {name: text for name, text in facts.items() if text}
    open_still = other is None and blame is Blame.INFRA and best is Grade.SUSPECTED
    unasked = before_a_reply(ctx, group.at_ns, given) if open_still else None
    if unasked is not None:
        demand = unasked.demand if demand == OPEN else demand
        other = replace(unasked, advice=fill(cause.advice, given)) if node_wide else unasked
    before = None if from_above or standing is not Standing.TERMINAL else lowered_from(container, limit)
    lowered = before is not None and blame is Blame.INFRA and best is Grade.SUSPECTED
    if lowered:
        demand, other = f"That limit was {size(before)} when the container was first seen, and was lowered since.", None
    template = cause.template if group.step is not None else cause.template.replace(" in step {step}", "")
    if group.step is None:
        template = template.replace("because", f"during {group.phase.value} because")
    above = {"limit": f"{size(limit)}, set above the container,"} if from_above and limit is not None else {}
    sentence = fill(template, given | above)
    hidden = hidden_by(container, group)
    if hidden:
        sentence += f" {hidden}"
    if late:
        sentence += " The agent had said its last word by then: what ran after it (verifier or harness) was struck."
    if container.gone is not None and container.gone[1].ended_by == "oom":
        sentence += " The container died with it."
    if container.id == "own" and the_command_itself(ctx, group):
        sentence += " The command itself ended by SIGKILL in that moment: most likely it was the one that was killed."
    told = evidence_of(group, limit, peak)
    if full is not None:
        told.append(evidence(full.seen, f"{size(full.shmem)} were still charged when the step began"))
    return Event(
        cause=cause.name,
        blame=blame,
        best=best,
        limit_hit=True,
        standing=standing,
        ends_call=False,
        step=group.step,
        phase=phase,
        at_ns=group.at_ns,
        happened=yes(ids),
        ended_or_distorted=ended,
        outcome_differs=differs,
        sentence=f"{sentence} {demand}".strip(),
        advice=_LOWERED if lowered else _advice(cause.advice, given, best=best, blame=blame, other=other),
        why_present=why_present,
        flips_if="turns to infra, suspected, if somebody outside lowered it; to the model if a command of its own did"
        if lowered
        else _flips(ctx, given, limit, best=best, blame=blame, other=other),
        undecided="" if lowered else None,
        fact=fact,
        needs_door=case.trial.steps != [],
        evidence=tuple(told),
    )


def name_of(container: ContainerCase) -> str:
    """How a sentence calls a container."""
    if container.id == "own":
        return "the command's own cgroup"
    if container.seen is not None and container.seen.name:
        return f"container {clean(container.seen.name.lstrip('/'), 40)}"
    return f"container {clean(container.id[:12])}"


def _advice(template: str, facts: dict[str, str], *, best: Grade, blame: Blame, other: Whose | None) -> str:
    if other is not None:
        return other.advice
    return "" if best is Grade.PROVED or blame is Blame.MODEL else fill(template, facts)


def _flips(
    ctx: Context, facts: dict[str, str], limit: int | None, *, best: Grade, blame: Blame, other: Whose | None
) -> str | None:
    if other is not None:
        return other.flips_if
    if best is Grade.PROVED:
        return None
    if blame is Blame.MODEL:
        k = ctx.thresholds.headroom_k
        return f"turns to infra, suspected, if k were above the {k:g} of this verdict and above this factor"
    if limit is None:
        return "turns to infra, proved, if the command, run again with more memory, passes; else to the model"
    return (
        f"turns to infra, proved, if the command, run again, is killed at {facts['limit']} and passes at "
        f"{facts['ceiling']} or less; to the model if it is killed there as well"
    )
