"""The kernel killed a process of the trial for memory.

Recognises: a moved kill counter of a container's own cgroup, a kernel record, or the runtime's OOM event, folded to one
event per container and step; main process or child, also when the command hid it behind exit code 0; a kill of the
whole node (`node.oom`); steps that ran in a box whose memory was still held by what an earlier step had written to
tmpfs or locked (`container.oom_residual`, or the same event when the writer's step was itself struck).  One followed by
a later tool step that ended normally in the same container is present. Whose demand it was stays open (`suspected`) but
for two cases that this version can prove: a kill from above (node, or a parent's limit) while the trial was within its
guaranteed floor, and a kill before any reply of the model had arrived, when only the harness and the declared services
can have used the memory.  A ceiling that was already k times what the task declares makes it the model's, and one of
k times what the container is guaranteed (its reservation) suspects the model.  Other trials' peaks are
`across_rules.py`'s to look at; a replay has no source yet.

Deliberately does not: take exit code 137, the word "Killed" or the sticky `OOMKilled` flag for a kill; take the
kernel's name of a victim for proof (a process can set it); take a stranger's death in a cgroup that the command shares
with others for its own (without a named victim it is then only suspected); blame the model for a demand that nobody
measured.

How it can be wrong: a kill of a side process that the step did not need, in the last tool step of a failed trial, is
taken for what ended it.  The cost is a `suspected` and one replay.  A harness that types into a terminal gives no end
of its own commands: then a result that came back counts as a normal end, unless the victim was the harness's support.

**Source:** reference pages container.md section 2, taxonomy.md section 5; kernel doc cgroup-v2 (memory.events).
"""

from __future__ import annotations

import signal
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairtrial.middleware.attribution.case import Case, ContainerCase, KillGroup, evidence, no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules.oom_whose import Whose, whose
from fairtrial.middleware.attribution.sentences import clean, count, fill, listed, size, steps
from fairtrial.middleware.attribution.tool_steps import first_normal_after, last_tool_step
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, EndedAs, Evidence, Grade, Outcome, PhaseName, Question, Step, Trust
from fairtrial.middleware.steps.placed import Placed

SUPPORT_ROLES: Final = frozenset({"agent CLI", "tmux", "exec shell", "main process"})
"""Victims that belong to the harness or carry it."""

_OVER: Final = 1.05
"""No cgroup grows beyond its limit; readings differ by the counters' batches."""

_CITED: Final = 5
"""Spoiled steps of which the evidence is cited."""

_SAME_MOMENT_NS: Final = 1_000_000_000
"""Between a kill, as a sampler at 10 Hz saw it (perhaps behind the end), and the end of the command that died of it."""

_SKIPPED: Final = frozenset({PhaseName.TEARDOWN, PhaseName.BUILD})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fill:
    """The first moment at which undying pages filled a container to the brim."""

    writer: int | None
    shmem: int
    seen: Placed


def find(ctx: Context) -> list[Event]:
    """One event per container and step with OOM kills; steps in a box that stayed full are folded into its writer's."""
    found: list[Event] = []
    heads: dict[str, int] = {}
    spoiled: dict[int, list[tuple[KillGroup, _Fill]]] = {}
    levels: dict[str, _Levels] = {}
    for group in ctx.case.kills:
        if group.phase in _SKIPPED:
            continue
        container = ctx.case.containers[group.container]
        if container.id == "own" and _strangers_alone(group):
            continue
        if group.container not in levels:
            levels[group.container] = _Levels(ctx, container, _limit(container, group))
        full = levels[group.container].full_at_start(group.step)
        writer_at = heads.get(group.container)
        if full is not None and writer_at is not None and found[writer_at].step == full.writer:
            spoiled.setdefault(writer_at, []).append((group, full))
            continue
        found.append(_event(ctx, container, group, full))
        heads.setdefault(group.container, len(found) - 1)
    for position, later in spoiled.items():
        found[position] = _with_spoiled(found[position], later)
    return found


def _event(ctx: Context, container: ContainerCase, group: KillGroup, full: _Fill | None) -> Event:
    case = ctx.case
    limit, peak = _limit(container, group), _peak(ctx, group)
    if limit is not None and peak is not None and peak > limit * _OVER:
        peak = None  # of another cgroup: the command was moved into this one after the first readings
    ids = group.ids
    node_wide = any(v.constraint == "CONSTRAINT_NONE" for _, v in group.records)
    parent = _parent_that_was_full(container, group)
    from_above = node_wide or parent is not None or any(v.parent_limit_hit for _, v in group.counted)
    support = any(_role(ctx, group, v.victim.pid) in SUPPORT_ROLES for _, v in group.records)
    if full is not None:
        cause = CAUSES["container.oom_residual"]
    else:
        cause = CAUSES["node.oom" if node_wide else "container.oom_kill"]
    standing, ended, why_present = _standing(ctx, container, group, support=support)
    late = _after_last_word(ctx, group)
    phase = PhaseName.VERIFY if late or container.role == "verifier" else group.phase
    other = whose(ctx, verifier=phase is PhaseName.VERIFY) if standing is Standing.TERMINAL else None
    differs: Question = no() if standing is Standing.RECOVERED else unknown(ids)
    demand = ""
    best = Grade.SUSPECTED
    blame = Blame.INFRA
    if standing is Standing.TERMINAL:
        proof = _within_floor(ctx, container, group, parent) if from_above else None
        if proof is None and other is None:
            proof = _before_any_reply(ctx, container, group, limit)
        beyond = _beyond_headroom(ctx, container, limit, from_above=from_above)
        guaranteed = None if from_above or support else _declared_below(ctx, container, limit)
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
            demand = "Whose demand it was is open."
    fact = Grade.PROVED
    if all(p.observation.trust is not Trust.HOST for p in _placed(group)):
        fact = best = Grade.SUSPECTED
    elif container.id == "own" and not _surely_ours(container, group):
        fact = best = Grade.SUSPECTED
        blame = Blame.INFRA
        demand, other = "Other processes share this cgroup, so it may have been theirs.", None
    k = ctx.thresholds.headroom_k
    facts = {
        "victim": _victim(ctx, group),
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
    template = cause.template if group.step is not None else cause.template.replace(" in step {step}", "")
    if group.step is None:
        template = template.replace("because", f"during {group.phase.value} because")
    above = {"limit": f"{size(limit)}, set above the container,"} if from_above and limit is not None else {}
    sentence = fill(template, given | above)
    hidden = _hidden(container, group)
    if hidden:
        sentence += f" {hidden}"
    if late:
        sentence += " The agent had said its last word by then: what ran after it (verifier or harness) was struck."
    if container.gone is not None and container.gone[1].ended_by == "oom":
        sentence += " The container died with it."
    if container.id == "own" and _the_command_itself(ctx, group):
        sentence += " The command itself ended by SIGKILL in that moment: most likely it was the one that was killed."
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
        advice=_advice(cause.advice, given, best=best, blame=blame, other=other),
        why_present=why_present,
        flips_if=_flips(ctx, given, limit, best=best, blame=blame, other=other),
        fact=fact,
        needs_door=case.trial.steps != [],
        evidence=tuple(_evidence(group, limit, peak, full)),
    )


def _standing(
    ctx: Context, container: ContainerCase, group: KillGroup, *, support: bool
) -> tuple[Standing, Question, str]:
    case = ctx.case
    ids = group.ids
    if group.phase is PhaseName.VERIFY or container.role == "verifier" or _after_last_word(ctx, group):
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


def _after_last_word(ctx: Context, group: KillGroup) -> bool:
    """The last reply had asked for nothing more, and the command was not killed itself: it struck none of its steps."""
    case = ctx.case
    last = case.last_main
    if last is None or last.step is None or last.ended_ns is None or group.step != last.step:
        return False
    killed = case.trial.signal is not None or case.trial.exit_code == 137
    return case.finished_in_words and not case.may_run_tools(last.step) and not killed


def _within_floor(
    ctx: Context, container: ContainerCase, group: KillGroup, parent: str | None
) -> tuple[list[str], str] | None:
    """Proof, of a kill from above, that the trial kept to what it was guaranteed; with its ids and a sentence."""
    case = ctx.case
    floor = case.trial.limits.memory.floor or (container.seen.memory_reservation if container.seen else None)
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


def _before_any_reply(
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


def _declared_below(ctx: Context, container: ContainerCase, limit: int | None) -> int | None:
    """What the container is guaranteed, bytes, where its own limit is at least k times that: who reached such a limit
    asked for more than k times the declared memory.  None where nothing was declared, or the limit is tighter."""
    memory = ctx.case.trial.limits.memory
    declared = memory.declared or memory.floor or (container.seen.memory_reservation if container.seen else None)
    if not declared or limit is None or container.role == "service" or container.id == "own":
        return None
    return declared if limit >= ctx.thresholds.headroom_k * declared else None


def _parent_that_was_full(container: ContainerCase, group: KillGroup) -> str | None:
    """The cgroup above the container whose limit the kernel's own record names, None when it was the container's."""
    cgroup = container.seen.cgroup if container.seen is not None else None
    for _, record in group.records:
        full = record.oom_memcg
        if cgroup and full and full != "/" and cgroup.startswith(f"{full.rstrip('/')}/"):
            return full
    return None


def _beyond_headroom(ctx: Context, container: ContainerCase, limit: int | None, *, from_above: bool) -> str | None:
    """A ceiling that was already k times what is declared: the demand was more than that, so it was the model's."""
    declared, k = ctx.case.trial.limits.memory.declared, ctx.thresholds.headroom_k
    if declared is None or limit is None or from_above or container.role != "main" or limit < declared * k * 0.999:
        return None
    return (
        f"The limit was already {limit / declared:.2g} times the {size(declared)} that the task declares, so the "
        f"demand was beyond any headroom that is due ({k:g} x): the model's."
    )


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
    if any(answered <= at_ns for answered in case.answered_ns):
        return None
    waiting = [c for c in case.main_calls if c.started_ns <= at_ns and c.request.history_len is not None]
    return waiting[0].ids[0] if waiting else None


def _strangers_alone(group: KillGroup) -> bool:
    """Every victim of a kill in the command's own, shared cgroup is known to be somebody else's process."""
    kills = group.kills or 0
    return len(group.records) >= max(kills, 1) and all(v.victim.role == "outside" for _, v in group.records)


def _surely_ours(container: ContainerCase, group: KillGroup) -> bool:
    """In the command's own cgroup: a victim of its process tree is named, or nobody else lives there."""
    if any(v.victim.role in {"command", "descendant"} for _, v in group.records):
        return True
    return not group.records and container.seen is not None and container.seen.strangers == 0


def _the_command_itself(ctx: Context, group: KillGroup) -> bool:
    """Nobody said who died (no kernel log, as in most containers), but the command was gone right behind the one kill.

    A process of the trial may have sent the signal, so this names a likely victim and decides nothing.
    """
    case = ctx.case
    if group.records or group.kills != 1 or case.trial.signal != signal.SIGKILL or case.ended_ns is None:
        return False
    return abs(case.ended_ns - group.at_ns) <= _SAME_MOMENT_NS


class _Levels:
    """What stayed charged in one container over time: shmem at readings and kills, in the order of steps."""

    def __init__(self, ctx: Context, container: ContainerCase, limit: int | None) -> None:
        samples: list[tuple[int, bool, int, int, Placed]] = []
        for placed, reading in container.readings:
            if reading.memory_shmem is not None:
                late = reading.edge not in {"baseline", "call_started", "call_ended"}
                samples.append((placed.step or 0, late, placed.at_ns, reading.memory_shmem, placed))
        for group in ctx.case.kills:
            if group.container == container.id:
                samples.extend(
                    (group.step or 0, True, p.at_ns, v.memory_shmem, p)
                    for p, v in group.counted
                    if v.memory_shmem is not None
                )
        self._samples = sorted(samples, key=lambda s: s[:4])
        brim = None if limit is None else limit * ctx.thresholds.box_full_share
        self._full_since: list[int | None] = []
        """For each sample the first of the unbroken row of full ones that it ends, None when it is not full."""
        for n, sample in enumerate(self._samples):
            if brim is None or sample[3] < brim:
                self._full_since.append(None)
            else:
                self._full_since.append(n if n == 0 or self._full_since[-1] is None else self._full_since[-1])

    def full_at_start(self, step: int | None) -> _Fill | None:
        """Whether undying pages already filled the box when the step's tools began, and which step had written them."""
        if step is None:
            return None
        n = bisect_left(self._samples, (step, True), key=lambda s: s[:2]) - 1
        first = self._full_since[n] if n >= 0 else None
        if first is None:
            return None
        since, now = self._samples[first], self._samples[n]
        writer = since[0] if since[1] else since[0] - 1
        return _Fill(writer=writer if writer > 0 else None, shmem=now[3], seen=now[4])


def _with_spoiled(event: Event, later: list[tuple[KillGroup, _Fill]]) -> Event:
    """The writer's event with the steps that it left without memory; each is counted, the first few are cited."""
    numbers = [group.step for group, _ in later if group.step is not None]
    said = f"What it had written stayed charged, so {steps(numbers)} ran in a box without memory, their commands lost."
    demand = "Whose demand it was is open."
    if event.sentence.endswith(demand):
        text = f"{event.sentence.removesuffix(demand)}{said} {demand}"
    else:
        text = f"{event.sentence} {said}"
    cited = [
        evidence(p, f"killed again: {size(full.shmem)} written before stayed charged")
        for group, full in later[:_CITED]
        for p in _placed(group)[:1]
    ]
    return replace(
        event,
        sentence=text,
        happened=yes([*event.happened.by, *(e.id for e in cited)]),
        evidence=(*event.evidence, *cited),
    )


# --- numbers and names ----------------------------------------------------------------------------------------------


def name_of(container: ContainerCase) -> str:
    """How a sentence calls a container."""
    if container.id == "own":
        return "the command's own cgroup"
    if container.seen is not None and container.seen.name:
        return f"container {clean(container.seen.name.lstrip('/'), 40)}"
    return f"container {clean(container.id[:12])}"


def _placed(group: KillGroup) -> list[Placed]:
    return [*(p for p, _ in group.counted), *(p for p, _ in group.records), *group.told]


def _limit(container: ContainerCase, group: KillGroup) -> int | None:
    told = [v.memory_limit for _, v in group.counted if v.memory_limit]
    told += [v.memory_limit for _, v in reversed(container.readings) if v.memory_limit][:1]
    if container.seen is not None and container.seen.memory_limit:
        told.append(container.seen.memory_limit)
    return told[0] if told else None


def _peak(ctx: Context, group: KillGroup) -> int | None:
    told = [v.memory_peak for _, v in group.counted if v.memory_peak is not None]
    if told:
        return max(told)
    if group.step is None or group.step > len(ctx.case.trial.steps):
        return None
    uses = ctx.case.trial.steps[group.step - 1].containers
    return next((use.memory_peak for use in uses if use.id == group.container), None)


def _role(ctx: Context, group: KillGroup, pid: int | None) -> str | None:
    """What the victim was for; an agent CLI that asked its model again afterwards was none, whatever it was called."""
    role = _told_role(group, pid, ctx.case.trial.steps)
    went_on = role == "agent CLI" and any(c.started_ns > group.at_ns for c in ctx.case.main_calls)
    return None if went_on else role


def _told_role(group: KillGroup, pid: int | None, taken: Sequence[Step]) -> str | None:
    if group.step is None or group.step > len(taken):
        told = [v.victim.role for _, v in group.records if v.victim.pid == pid]
        return told[0] if told else None
    uses = taken[group.step - 1].containers
    victims = [v for use in uses if use.id == group.container for v in use.oom_victims]
    return next((v.role for v in victims if v.pid == pid and v.role), None)


def _victim(ctx: Context, group: KillGroup) -> str | None:
    parts: list[str] = []
    for _, record in group.records[:2]:
        victim = record.victim
        name = clean(victim.comm or "", 20) or "a process"
        inner = [f"pid {victim.pid}"] if victim.pid is not None else []
        if victim.rss is not None:
            inner.append(f"resident {size(victim.rss)}")
        role = _role(ctx, group, victim.pid)
        said = f"{name} ({', '.join(inner)})" if inner else name
        owner = "the container's" if role == "main process" else "the harness's"
        parts.append(f"{said}, {owner} {role}," if role in SUPPORT_ROLES else said)
    if not parts:
        return None
    more = len(group.records) - len(parts)
    return listed(parts) + (f" and {more} more" if more > 0 else "")


def _hidden(container: ContainerCase, group: KillGroup) -> str:
    """The command that was struck and still ended with 0."""
    codes = [e.exit_code for e in container.execs.get(group.step, ()) if e.exit_code is not None]
    if codes and all(code == 0 for code in codes):
        return "Its command hid it and ended with exit code 0."
    return ""


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


def _evidence(group: KillGroup, limit: int | None, peak: int | None, full: _Fill | None) -> list[Evidence]:
    found = [
        evidence(
            p,
            f"the kill counter of its own cgroup rose by {v.delta} (limit {size(limit) or 'unknown'}, "
            f"peak {size(peak) or 'unknown'})",
        )
        for p, v in group.counted[:3]
    ]
    found += [
        evidence(p, f"the kernel names the victim: {clean(v.victim.comm or 'unknown', 20)}, pid {v.victim.pid}")
        for p, v in group.records[:3]
    ]
    if not found:
        found = [evidence(p, "the container runtime reported an OOM kill") for p in group.told[:1]]
    if full is not None:
        found += [evidence(full.seen, f"{size(full.shmem)} were still charged when the step began")]
    return found
