"""A tool host that died while the agent went on: its container ended by itself.

Recognises: the task's main container ended by its own main process (no kill through the runtime, no kill for memory) in
the agent's time, and the agent then asked for tools in later steps of which not one ran in any container.
Deliberately does not: explain an end with an exit code other than 0 as anybody's but the trial's own (a command of the
model's may end PID 1), judge a container that the runtime was told to stop (`container.killed`), or one that ended
after the last tool.
How it can be wrong: a model that ends the container's main process so that it exits with 0 (a shell as PID 1) passes
for a host that ended by itself, where no command was running at that moment; otherwise the grade is `suspected`.  The
cost is a trial that is put on its harness.

**Source:** reference page taxonomy.md section 2.4 (a `sleep 2h` as main process is a hidden wall clock).
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.questions import evidence, yes
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.seen import CallSeen, ContainerCase
from fairtrial.middleware.attribution.sentences import count, fill
from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, Grade, PhaseName

_CAUSE: Final = CAUSES["harness.tool_host_dead"]
_CLEAR_NS: Final = 1_000_000_000
"""A command that ended this shortly before the container may have ended it."""


def find(ctx: Context) -> list[Event]:
    """At most one event per main container."""
    return [e for c in ctx.case.containers.values() if (e := _event(ctx, c)) is not None]


def _event(ctx: Context, container: ContainerCase) -> Event | None:
    if container.role != "main" or container.gone is None or not container.execs:
        return None
    placed, gone = container.gone
    told = gone.ended_by or "exit"
    if placed.phase is not PhaseName.AGENT or told.startswith(("runtime_kill", "oom")):
        return None
    if any(g.container == container.id for g in ctx.case.kills) or any(
        v.action in {"kill", "stop", "restart"} for _, v in container.events
    ):
        return None
    at = placed.at_ns
    # A reply that was under way as the container ended asked for tools behind it.
    asked = [c for c in ctx.case.main_calls if c.ended_ns is not None and c.ended_ns > at and _asks_for_tools(c)]
    if not asked or any(
        one.started is not None and one.started.at_ns > at
        for other in ctx.case.containers.values()
        for execs in other.execs.values()
        for one in execs
    ):
        return None
    ids = [placed.id, *(c.ids[-1] for c in asked[:3])]
    alone = gone.exit_code == 0 and not _busy(container, at)
    facts = {
        "container": name_of(container),
        "later": count(len(asked), "later reply").replace("replys", "replies"),
    }
    if gone.exit_code is not None:
        facts["code"] = str(gone.exit_code)
    if placed.step is not None:
        facts["step"] = str(placed.step)
    return Event(
        cause=_CAUSE.name,
        blame=Blame.HARNESS,
        best=Grade.PROVED if alone else Grade.SUSPECTED,
        standing=Standing.TERMINAL,
        ends_call=False,
        step=placed.step,
        phase=placed.phase,
        at_ns=at,
        happened=yes([placed.id]),
        ended_or_distorted=yes(ids),
        outcome_differs=yes(ids),
        sentence=fill(_CAUSE.template, facts),
        advice=_CAUSE.advice,
        flips_if=None if alone else "turns to the model if a command of its own ended the container's main process",
        evidence=(
            evidence(placed, f"the container ended by itself, exit code {gone.exit_code}"),
            *(evidence(c.attempts[-1].placed, "asked for a tool after it") for c in asked[:2] if c.attempts),
        ),
    )


def _asks_for_tools(call: CallSeen) -> bool:
    return any(a.whole and a.value.reply.tool_calls for a in call.attempts)


def _busy(container: ContainerCase, at_ns: int) -> bool:
    """A command ran in it then, or had ended a moment before."""
    return any(
        one.started is not None
        and one.started.at_ns <= at_ns
        and (one.ended is None or one.ended.at_ns > at_ns - _CLEAR_NS)
        for execs in container.execs.values()
        for one in execs
    )
