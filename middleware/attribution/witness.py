"""The witness of who sent a request: calls of processes that the agent's own process had started are a tool's.

In: the main calls of a trial, each attempt with the process that opened its connection (`Sender`), where the relay
looked (on this machine, a few dozen connections a second).  Out: the calls without what a tool sent, the tool's own
calls, and the ids of calls and of attempts whose sender cannot be placed.  The agent's own processes are those that
asked before any reply could have set a tool to work.
- a *tool's*: another process, and one of the agent's own is among its parents: whatever it says of itself (the agent's
  session, its pending tool results), it is no call of the agent's;
- *unplaced*: a call without an attempt of a process that is known to be the agent's, though those are known: none of
  the run's own (a tool that cut itself loose is handed to PID 1), or one that was not looked at.  What fails there
  proves nothing, nor does such an attempt in a call of which another attempt is the agent's;
- the agent's: its own processes, and the next process of a launcher that starts one per step.
An agent in a server that its harness cut loose from the run (tmux) is none of the run's descendants, and neither is a
tool that cuts itself loose: nobody can tell them apart, so all that comes from there is unplaced and proves nothing.
Where nobody looked (an agent in a container, behind `serve`), nothing is told: then all rests on what the request says
(`steps/kinship.py`), and a tool that copies the agent's session and waits for no result of its own passes for it.

How it can be wrong: an agent that asks once itself and then leaves the work to programs that it starts has their calls
taken for a tool's; what fails there is then never infra, and where it was the last word the trial is indeterminate.

**Source:** design page VERDICTS.md section 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairtrial.middleware.attribution.calls_seen import asked_of
from fairtrial.middleware.attribution.seen import AttemptSeen, CallSeen
from fairtrial.middleware.core.observations import Sender

_NONE: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """What the senders tell."""

    calls: list[CallSeen]
    """Without the attempts that a tool made."""
    tools: list[CallSeen]
    """Calls of which every attempt was a tool's."""
    unplaced: frozenset[str]
    """Ids of calls of which no attempt is known to be the agent's own, though its processes are known."""
    unplaced_attempts: frozenset[str]
    """Ids of the observations of attempts that are not known to be its own, likewise."""
    strangers: frozenset[str]
    """Of these, the ones of processes outside of the run, though the agent's own process is one of the run's."""


def witnessed(calls: Sequence[CallSeen]) -> Witnessed:
    """Tell the agent's own calls from a tool's by who opened their connections."""
    first = _first_senders(calls)
    agents = [sender for sender in first if sender.pid]
    if not first:
        return Witnessed(calls=list(calls), tools=[], unplaced=_NONE, unplaced_attempts=_NONE, strangers=_NONE)
    own: list[CallSeen] = []
    tools: list[CallSeen] = []
    unplaced: set[str] = set()
    unplaced_attempts: set[str] = set()
    for call in calls:
        kept = tuple(a for a in call.attempts if not _is_tools(a.value.sender, agents))
        if call.attempts and not kept and not call.open_attempts:
            tools.append(call)
            continue
        if len(kept) != len(call.attempts):
            call = _with(call, kept)
        loose = [a.placed.id for a in kept if not _is_agents(a.value.sender, agents)]
        unplaced_attempts.update(loose)
        if kept and len(loose) == len(kept):
            unplaced.add(call.id)
        own.append(call)
    outside = [a.placed.id for c in own for a in c.attempts if agents and a.value.sender and not a.value.sender.pid]
    return Witnessed(
        calls=own,
        tools=tools,
        unplaced=frozenset(unplaced),
        unplaced_attempts=frozenset(unplaced_attempts),
        strangers=frozenset(outside),
    )


def _first_senders(calls: Sequence[CallSeen]) -> list[Sender]:
    """Who asked before any reply could have set a tool to work; pid 0 is somebody outside of the run's processes."""
    asked = [asked_of(call) for call in calls]
    first_act = min((a.answered_ns for a in asked if a.acts and a.answered_ns is not None), default=None)
    if first_act is None:
        return []
    return [
        attempt.value.sender
        for call in calls
        for attempt in call.attempts
        if attempt.started_ns <= first_act and attempt.value.sender is not None
    ]


def _same(one: Sender, other: Sender) -> bool:
    return (one.pid, one.start_ticks) == (other.pid, other.start_ticks)


def _is_tools(sender: Sender | None, agents: Sequence[Sender]) -> bool:
    if sender is None or any(_same(sender, agent) for agent in agents):
        return False
    return any(agent.pid in sender.parents for agent in agents)


def _is_agents(sender: Sender | None, agents: Sequence[Sender]) -> bool:
    if sender is None:
        return False
    launchers = {agent.parents[0] for agent in agents if agent.parents}
    # Its own child, not a grandchild: that may be a tool of another trial's agent, which the same harness started.
    return any(_same(sender, agent) for agent in agents) or not launchers.isdisjoint(sender.parents[:1])


def _with(call: CallSeen, kept: tuple[AttemptSeen, ...]) -> CallSeen:
    return replace(
        call,
        attempts=kept,
        started_ns=kept[0].started_ns if kept else call.started_ns,
        ended_ns=None if call.open_attempts or not kept else kept[-1].ended_ns,
        completed=any(a.whole for a in kept),
        read_whole=any(a.whole and (a.value.parse == "full" or a.value.reply.terminator is True) for a in kept),
    )
