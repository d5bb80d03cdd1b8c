"""Who was killed for memory: what the victims were for, and whether they were the trial's at all.

In: a `KillGroup`.  Out: roles, names for a sentence, and answers.  A role suggests and never proves: the kernel's name
of a victim is what the process calls itself.  A tmux is the harness's while its start is not known, or lies before the
first reply that may have set a tool to work.
What this module does not do: join a victim to its container or exec (`collectors/victims.py`).

How it can be wrong: a shell of the harness's in which a command became another program (`exec`) of tmux's name keeps
its early start and passes for the harness's tmux; a tmux that the harness starts anew behind a reply, in a container
that stays, passes for the trial's own.  An agent CLI is not judged by its start: a harness may start one per turn.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

from fairtrial.middleware.attribution.case import ContainerCase, KillGroup
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.sentences import clean, listed, size
from fairtrial.middleware.core.observations import KernelOomKill
from fairtrial.middleware.core.records import Step
from fairtrial.middleware.steps.placed import Placed

SUPPORT_ROLES: Final = frozenset({"agent CLI", "tmux", "exec shell", "main process"})
"""Victims that belong to the harness or carry it."""

_SAME_MOMENT_NS: Final = 1_000_000_000
"""Between a kill, as a sampler at 10 Hz saw it (perhaps behind the end), and the end of the command that died of it."""

_START_SLACK_NS: Final = 100_000_000
"""The start of a process is told in hundredths of a second, and a reply's first bytes are not its last."""

_GUESSED: Final = frozenset({"only_live_exec", "inferred"})
"""How a victim is joined to an exec of which nobody saw it descend: while the harness looks at its terminal (an exec of
tmux), that is the harness's."""


def role_of(ctx: Context, group: KillGroup, placed: Placed, record: KernelOomKill) -> str | None:
    """What the victim was for, None where it only bears the name of a program of the harness's.

    An agent CLI that asked its model again afterwards was none, and a tmux that began after the first reply that may
    have set a tool to work is none: the harness's stands before the agent's first step.
    """
    role = _told_role(group, record.victim.pid, ctx.case.trial.steps)
    if role == "agent CLI" and any(c.started_ns > group.at_ns for c in ctx.case.main_calls):
        return None
    return None if role == "tmux" and _begun_by_a_step(ctx, group, placed, record) else role


def _begun_by_a_step(ctx: Context, group: KillGroup, placed: Placed, record: KernelOomKill) -> bool:
    """Whether the victim is known to have started in this life of its container after a reply that may have set a tool
    to work, and not in an exec of the harness's own (the clients that carry its keys are born in steps too)."""
    exec_id = None if record.exec_join in _GUESSED else record.exec_id
    if record.lived_s is None or ctx.case.is_upkeep(group.container, exec_id):
        return False
    seen = ctx.case.containers[group.container].seen
    life_ns = 0 if group.container == "own" else seen.started_wall_ns if seen is not None else None
    first_act_ns = None if life_ns is None else ctx.case.first_act_ns(life_ns)
    if first_act_ns is None:
        return False
    slack_ns = _START_SLACK_NS + round(placed.observation.uncertainty_s * 1e9)
    return placed.observation.mono_ns - round(record.lived_s * 1e9) > first_act_ns + slack_ns


def _told_role(group: KillGroup, pid: int | None, taken: Sequence[Step]) -> str | None:
    if group.step is None or group.step > len(taken):
        told = [v.victim.role for _, v in group.records if v.victim.pid == pid]
        return told[0] if told else None
    uses = taken[group.step - 1].containers
    victims = [v for use in uses if use.id == group.container for v in use.oom_victims]
    return next((v.role for v in victims if v.pid == pid and v.role), None)


def victims_named(ctx: Context, group: KillGroup) -> str | None:
    """The first two victims for a sentence, with pid, memory and role; None where the kernel named none."""
    parts: list[str] = []
    for placed, record in group.records[:2]:
        victim = record.victim
        name = clean(victim.comm or "", 20) or "a process"
        inner = [f"pid {victim.pid}"] if victim.pid is not None else []
        if victim.rss is not None:
            inner.append(f"resident {size(victim.rss)}")
        role = role_of(ctx, group, placed, record)
        said = f"{name} ({', '.join(inner)})" if inner else name
        owner = "the container's" if role == "main process" else "the harness's"
        parts.append(f"{said}, {owner} {role}," if role in SUPPORT_ROLES else said)
    if not parts:
        return None
    more = len(group.records) - len(parts)
    return listed(parts) + (f" and {more} more" if more > 0 else "")


def strangers_alone(group: KillGroup) -> bool:
    """Every victim of a kill in the command's own, shared cgroup is known to be somebody else's process."""
    kills = group.kills or 0
    return len(group.records) >= max(kills, 1) and all(v.victim.role == "outside" for _, v in group.records)


def surely_ours(container: ContainerCase, group: KillGroup) -> bool:
    """In the command's own cgroup: a victim of its process tree is named, or nobody else lives there."""
    if any(v.victim.role in {"command", "descendant"} for _, v in group.records):
        return True
    return not group.records and container.seen is not None and container.seen.strangers == 0


def the_command_itself(ctx: Context, group: KillGroup) -> bool:
    """Nobody said who died (no kernel log, as in most containers), but the command was gone right behind the one kill.

    A process of the trial may have sent the signal, so this names a likely victim and decides nothing.
    """
    case = ctx.case
    if group.records or group.kills != 1 or case.trial.signal != signal.SIGKILL or case.ended_ns is None:
        return False
    return abs(case.ended_ns - group.at_ns) <= _SAME_MOMENT_NS
