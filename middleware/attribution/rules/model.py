"""When the model is due: it failed, and everything outside that could have failed it was watched and did not.

Recognises: a failed trial with a whole reply for every main call, OOM kills observable and none that mattered, no gap
of the door in the decisive window, no trace of an unwatched family where a tool failed.  Families that nobody watched
are named in the sentence, and the grade is then `suspected`. Deliberately does not: read what tools printed ("Killed",
"Overloaded", "No space left on device" are words), or take exit code 137 without a moved kill counter for anything but
the trial's own kill. How it can be wrong: an outside fault of a family without counters (a wrong answer from a mirror)
is put on the model; the sentence says that the family was not watched.  A container that vanished without a trace is
nobody's: `indeterminate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.attribution.case import AttemptSeen, Case, evidence
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.ended_as import CRASH_SIGNALS, KILLED_CODES
from fairtrial.middleware.attribution.rules.container_oom import name_of
from fairtrial.middleware.attribution.rules.service_died import dead_services
from fairtrial.middleware.attribution.sentences import clean, count, listed, seconds, signal_name, statuses, steps
from fairtrial.middleware.attribution.time_limit import Limit
from fairtrial.middleware.attribution.tool_steps import TIME_LIMIT_CODES, last_tool_step
from fairtrial.middleware.core.records import Connection, ContainerUse, EndedAs, Evidence, PhaseName

LENGTH_STOPS: Final = frozenset({"max_tokens", "length", "max_output_tokens", "MAX_TOKENS"})

DOOR_LOST: Final = "docker.door_lost"
"""A note of the relay."""

FAMILY_WORDS: Final[dict[str, str]] = {
    "model_api": "the model API",
    "memory": "memory",
    "cpu": "CPU",
    "disk": "disk",
    "network": "network",
    "node": "the node",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why the model cannot be blamed, with what to do about it."""

    why: str
    remedy: str
    by: tuple[str, ...] = ()


def doubt(ctx: Context) -> Doubt | None:
    """The first thing that keeps the model from being due, or None."""
    return (
        _no_calls(ctx)
        or _open_calls(ctx)
        or _failed_last(ctx)
        or _door_lost(ctx)
        or _memory(ctx)
        or _vanished(ctx)
        or _service_ended(ctx)
        or _trace(ctx)
        or (_waiting(ctx) if ctx.limit is None else _unmeasured(ctx, ctx.limit))
    )


def clearing(ctx: Context) -> list[Evidence]:
    """What shows that nothing outside happened: the last whole reply, the counters of kills, the last tool's end."""
    found = [evidence(a.placed, "the last model call brought a whole reply") for a in _last_whole(ctx)]
    step = last_tool_step(ctx.case)
    if step is not None:
        for container in ctx.case.containers.values():
            found.extend(
                evidence(one.ended, f"the last command ended with exit code {one.exit_code}")
                for one in container.execs.get(step.index, ())[-1:]
                if one.ended is not None and one.exit_code is not None
            )
    watched = set(ctx.memory.by)
    readings = [p for p, _ in ctx.case.host]
    readings += [p for container in ctx.case.containers.values() for p, _ in container.readings]
    shown = [p for p in readings if p.id in watched]
    found.extend(evidence(p, "no further kill for memory was counted") for p in shown[-1:])
    return found


def _last_whole(ctx: Context) -> list[AttemptSeen]:
    return [a for turn in ctx.turns[-1:] for a in turn.attempts if a.whole][-1:]


def not_watched(ctx: Context) -> tuple[list[str], list[str]]:
    """Families that nobody watched, and those watched in part or for a part of the time, as words; not those that no
    rule judges yet."""
    return [FAMILY_WORDS[f] for f in ctx.watch.unwatched], [FAMILY_WORDS[f] for f in ctx.watch.partly]


def summary(ctx: Context) -> str:
    """What was seen of the trial, for the sentence."""
    replies = sum(1 for t in ctx.turns if t.completed)
    calls = {1: "its model call", 2: "both of its model calls"}.get(replies, f"each of its {replies} model calls")
    kills = [g for g in ctx.case.kills if g.phase is PhaseName.AGENT]
    if not kills:
        return listed([f"{calls} brought a whole reply", "no process was killed for memory"])
    where = steps(g.step for g in kills if g.step is not None)
    return f"{calls} brought a whole reply, and the trial went on after the kill for memory in {where or 'its setup'}"


def cut_short(case: Case) -> str:
    """A clause about a last reply that reached its token limit."""
    last = case.last_main
    if last is None or last.last is None or last.last.value.reply.stop_reason not in LENGTH_STOPS:
        return ""
    reason = last.last.value.reply.stop_reason
    return f"The last reply stopped at the token limit that the client had asked for ({reason})."


def own_kill(case: Case) -> str:
    """A clause about a tool that ended with 137 in the last tool step, when no kill for memory was counted."""
    step = last_tool_step(case)
    if step is None or any(g.step == step.index for g in case.kills):
        return ""
    if any(tool.exit_code == 137 for tool in step.tools):
        said = f" A command of step {step.index} ended with exit code 137 without a kill for memory: "
        return said + "a process of the trial killed it."
    return ""


def failed_beside(ctx: Context) -> str:
    """A clause about failed calls that may have been a tool's, or of a part of the agent that it went on without."""
    failed = ctx.case.failed_beside
    if not failed:
        return ""
    told = statuses(a.value.reply.status for c in failed for a in c.attempts)
    how = f" ({told})" if told else ""
    return (
        f"{count(len(failed), 'call')} of another conversation failed beside it{how}: a tool's, or a part of the agent "
        "that it went on without."
    )


def command_killed(case: Case) -> str:
    """A clause about a command that itself ended by a kill nobody outside is known to have sent."""
    signal = case.trial.signal
    if signal is None and case.trial.exit_code in KILLED_CODES and case.trial.exit_code is not None:
        signal = case.trial.exit_code - 128
    if signal is None or signal in CRASH_SIGNALS:
        return ""
    return (
        f"The command itself was ended by {signal_name(signal)}; nothing outside is known to have sent it, and a "
        "process of the trial could."
    )


def _no_calls(ctx: Context) -> Doubt | None:
    if ctx.turns:
        return None
    outer = ctx.case.options.get("outer_trial")
    if ctx.case.options.get("joined") and isinstance(outer, str):
        return Doubt(
            why=f"Its model calls went through the doors of the run around it (trial …{clean(outer)[-12:]})",
            remedy=f"Read that trial: fairtrial show {clean(outer)[-12:]}",
        )
    if ctx.case.options.get("via") == "connect":
        return _opaque(ctx.case.trial.connections)
    if ctx.case.calls:
        return Doubt(
            why="Calls came through the model door, but none of them that fairtrial can read as the agent's own",
            remedy="Check that the agent uses the Messages or Chat Completions API through the door.",
        )
    if any(v.ok for _, v in ctx.case.doors) or ctx.case.trial.coverage.doors:
        return Doubt(
            why="No model call came through the door while the command ran",
            remedy="Check that the command uses the base URL that fairtrial sets; a settings file may beat it.",
        )
    return Doubt(
        why="No model door was open, so nothing is known of the model's calls",
        remedy="Run the command under `fairtrial run`.",
    )


def _opaque(connections: Sequence[Connection]) -> Doubt:
    """Nobody read the calls; what their connections went through is said, and left to the reader."""
    if not connections:
        return Doubt(
            why="No connection came through the connect door while the command ran",
            remedy="Check that the command honours HTTPS_PROXY (Node.js itself needs NODE_USE_ENV_PROXY=1).",
        )
    api = [c for c in connections if c.provider is not None]
    seen = api or list(connections)
    hosts = listed(sorted({clean(c.host) for c in seen})[:3])
    parts = [f"{count(len(seen), 'connection')} to {hosts}"]
    if failed := [c for c in seen if not c.ok]:
        stages = listed(sorted({c.stage or "dial" for c in failed}))
        parts.append(f"{len(failed)} never stood ({stages}: {clean(failed[-1].error or 'no reason known', 80)})")
    if cut := [c for c in seen if c.cut or (c.closed_by == "upstream" and c.close_kind == "rst")]:
        parts.append(f"{len(cut)} ended by the upstream without TLS's close_notify")
    waits = [wait for c in seen for wait in (c.max_wait, c.max_gap) if wait is not None]
    if waits:
        parts.append(f"the longest silence {seconds(max(waits))}")
    return Doubt(
        why=f"The calls were not read (--via connect); of their connections is known: {'; '.join(parts)}",
        remedy="Run it with --via base-url to have the calls read.",
    )


def _open_calls(ctx: Context) -> Doubt | None:
    for turn in ctx.turns:
        if turn.in_flight or not turn.attempts:
            return Doubt(
                why=f"The end of the model call of step {_n(turn.step)} was not seen",
                remedy="Run the trial again, and let fairtrial live as long as the command.",
                by=tuple(i for c in turn.calls for i in c.ids),
            )
    for turn in ctx.turns:
        if turn.completed and not any(c.read_whole for c in turn.calls):
            why = next((a.value.parse_why for a in turn.attempts if a.value.parse_why), None)
            return Doubt(
                why=f"The reply of step {_n(turn.step)} could not be read whole" + (f" ({why})" if why else ""),
                remedy="Run the trial again.",
                by=tuple(a.placed.id for a in turn.attempts),
            )
    last = ctx.turns[-1] if ctx.turns else None
    if last is not None and last.main and not last.completed and ctx.limit is None:
        # Whatever broke it off has no event of its own: then nobody knows what it would have brought.
        return Doubt(
            why=f"The model call of step {_n(last.step)} never brought a whole reply",
            remedy="Find out what ended the command just then (its last lines, the machine's log).",
            by=tuple(a.placed.id for a in last.attempts),
        )
    return None


def _failed_last(ctx: Context) -> Doubt | None:
    """A call that may have been a tool's failed, and the agent asked nothing more: was it the agent's?"""
    asked = max((c.started_ns for c in ctx.case.main_calls), default=0)
    last = [c for c in ctx.case.failed_beside if c.started_ns > asked]
    if not last:
        return None
    told = statuses(a.value.reply.status for c in last for a in c.attempts)
    how = f" ({told})" if told else ""
    return Doubt(
        why=f"The last model call was of another conversation than the agent's and failed{how}; it may have been the "
        "agent's or a tool's",
        remedy="Read the command's last lines: if the agent itself made that call, run the trial again.",
        by=tuple(i for c in last for i in c.ids),
    )


def _door_lost(ctx: Context) -> Doubt | None:
    """Somebody took our socket away: a cleaner of /tmp, or a process of the trial; commands then met no engine."""
    lost = next((placed for placed, note in ctx.case.notes if note.event == DOOR_LOST), None)
    if lost is None:
        return None
    return Doubt(
        why="The socket of fairtrial's Docker door was gone before the command ended, and nothing says who removed it "
        "or when: later commands for containers did not reach the engine",
        remedy="Keep cleaners away from the folder of FAIRTRIAL_RUNTIME_DIR, then run the trial again.",
        by=(lost.id,),
    )


def _memory(ctx: Context) -> Doubt | None:
    if ctx.memory.seen:
        return None
    return Doubt(
        why=f"A kill for memory could have been missed: {ctx.memory.why_not}",
        remedy=ctx.memory.remedy,
        by=ctx.memory.by,
    )


def _unmeasured(ctx: Context, limit: Limit) -> Doubt | None:
    """A time limit fired, model calls filled more than half of it, and nothing says how long they should have taken."""
    if ctx.book.uncharged == 0 or ctx.book.calls_s <= limit.elapsed_s / 2:
        return None
    filled = f"{seconds(ctx.book.calls_s)} of {seconds(limit.elapsed_s)}"
    return Doubt(
        why=f"The time limit of {seconds(limit.limit_s)} fired ({limit.source}) after model calls had filled {filled}, "
        "and no trial of the same hour of the week says how long such calls should take",
        remedy="Run the trial again with a longer limit, or run more trials at that hour as a reference.",
        by=limit.by,
    )


def _waiting(ctx: Context) -> Doubt | None:
    """The command ended while the model waited for a tool's result: then the model never finished.

    An agent whose last command ended well, as the runtime saw, may have been done by that command.
    """
    case = ctx.case
    names = case.waiting_for
    last = case.last_main
    if names is None or last is None:
        return None
    if _done_by_its_last_command(case):
        return None
    code = case.trial.exit_code
    if code == 0 and case.told_ended_as in {EndedAs.STEP_LIMIT, EndedAs.AGENT_FINISHED}:
        return None  # the harness ended it: a limit of steps, or a tool that hands in and gives nothing back
    what = f"step {_n(last.step)}: {listed(dict.fromkeys(clean(n, 30) for n in names[:3]))}"
    if case.trial.signal is not None or code in TIME_LIMIT_CODES:
        how = f"was ended by {signal_name(case.trial.signal)}" if code is None else f"ended with exit code {code}"
        whose = ", which is what timeout(1) gives" if code == 124 else ""
        return Doubt(
            why=f"The command {how}{whose} while a tool call had no result yet ({what})",
            remedy="Find out what ended it (a time limit in the command line, or a process of the trial).",
            by=tuple(last.ids),
        )
    return Doubt(
        why=f"The command exited {code} while the model waited for the result of its tool call ({what}): the agent "
        "program stopped by itself, by a bug or a limit of its own",
        remedy="Read its last lines.",
        by=tuple(last.ids),
    )


def done_by_command(case: Case) -> str:
    """A clause about an agent that ended after a command without asking the model again."""
    last = case.last_main
    if case.waiting_for is None or last is None or not _done_by_its_last_command(case):
        return ""
    return (
        f"It ended after step {_n(last.step)}'s command, which had ended with exit code 0, without asking the model "
        "again: done, or at a limit of its own."
    )


def _done_by_its_last_command(case: Case) -> bool:
    last = case.last_main
    if last is None or last.step is None or case.trial.signal is not None or case.trial.exit_code in TIME_LIMIT_CODES:
        return False
    tools = case.tools_of(last.step)
    return bool(tools) and tools[-1].exec_id is not None and tools[-1].exit_code == 0


def _vanished(ctx: Context) -> Doubt | None:
    """A main container that ended in the agent's time by SIGKILL, and nobody says why.

    PID 1 cannot be killed with SIGKILL from inside its own namespace, but it may exit with 137 itself; only its own
    wait status, where the kernel tells it, says which (`unknown_outside.py`).
    """
    for container in ctx.case.containers.values():
        if container.gone is None or container.role not in {"main", "service"}:
            continue
        placed, gone = container.gone
        if placed.phase is not PhaseName.AGENT or gone.exit_code != 137 or gone.init_signal == 0:
            continue  # by its own wait status it exited, which needs nobody outside
        if any(g.container == container.id for g in ctx.case.kills) or (gone.ended_by or "").startswith("runtime_kill"):
            continue
        return Doubt(
            why=f"{name_of(container)} ended with exit code 137 in step {_n(placed.step)}, not for memory and not "
            "through the runtime, and nothing says by whom",
            remedy="Look at the machine's log at that time.",
            by=(placed.id,),
        )
    return None


def _service_ended(ctx: Context) -> Doubt | None:
    """A service that exited by itself with an error: a request of the agent's can bring that about, or a fault."""
    for container, placed, gone in dead_services(ctx.case):
        if gone.exit_code in {None, 0} or (gone.ended_by or "").startswith("runtime_kill"):
            continue
        return Doubt(
            why=f"The task's service {name_of(container)} ended with exit code {gone.exit_code} in step "
            f"{_n(placed.step)}, while the agent still worked, and nothing says if a request of the agent's ended it",
            remedy="Read the service's log, then run the trial again.",
            by=(placed.id,),
        )
    return None


def _trace(ctx: Context) -> Doubt | None:
    """A tool failed in the last tool step while a counter of a family without a rule moved there."""
    step = last_tool_step(ctx.case)
    if step is None or not any(tool.exit_code not in {None, 0} for tool in step.tools):
        return None
    for use in step.containers:
        moved = _moved(use)
        if moved is not None:
            readings = ctx.case.containers[use.id].readings if use.id in ctx.case.containers else []
            return Doubt(
                why=f"A command of step {step.index} failed while {moved} in its container, and fairtrial cannot tell "
                "yet whose doing that was",
                remedy="Run the step's command again on a quiet network and with room in every limit.",
                by=tuple(p.id for p, _ in readings if p.step == step.index)[-2:],
            )
    return None


def _moved(use: ContainerUse) -> str | None:
    if use.role == "own":
        return None
    if use.tcp_attempt_fails:
        return f"{count(use.tcp_attempt_fails, 'connection')} could not be opened"
    if use.tcp_retrans:
        return f"{count(use.tcp_retrans, 'segment')} had to be sent again"
    return None


def _n(step: int | None) -> str:
    return "unknown" if step is None else str(step)
