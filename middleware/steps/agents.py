"""Agents: who of a trial's agents made a call, and which agent set it to work.

In: folded calls of one trial with their roles, in order.  Out: one `Lineage` each: a tree with the main agent as its
root.  What this module does not do: decide which calls are a subagent's (`roles.py`, `kinship.py`), or read texts.

A subagent is known by the id that its client sends, else by its session and its first words.  Its parent is the one
that the client names; else the agent that had a tool at work when the subagent began: the latest reply with tool calls
whose agent had not gone on yet.  That reply's call is what it was spawned by.  One that bears an id may have been sent
to work in the background (Claude Code 2.1.332), and its parent has gone on: then it is the latest reply with a tool of
an agent's.

How it can be wrong: of several agents with tools at work at once, without ids, the one that was answered last is taken;
of several sent to the background, all count as the last one's that asked for one.

**Source:** reference pages model-api.md sections 2 and 3.2, harnesses.md section 6.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairtrial.middleware.core.records import CallRole
from fairtrial.middleware.steps.attempts import MAIN_AGENT, FoldedCall, Lineage
from fairtrial.middleware.steps.identity import SPAWNS, session_key

MAX_PARENTS: Final = 64
"""Of so many subagents, the youngest, one without ids may be the child."""


@dataclass(slots=True)
class _Agent:
    """One agent while the trial is read; `name` None is the main one."""

    name: str | None
    parent: str | None = None
    spawned_by: str | None = None
    calls: list[FoldedCall] = field(default_factory=list[FoldedCall])

    def at_work(self, at_ns: int) -> FoldedCall | None:
        """The call whose tools run at that time: the agent's last, if its reply had begun, and asks for tools.

        Claude Code starts a tool when its block has ended, a little before the reply does.
        """
        last = self.calls[-1] if self.calls else None
        spoke = last.attempts[-1].facts.first_token if last is not None else None
        if last is None or last.ended_wall_ns is None:
            return None
        began_ns = last.ended_wall_ns if spoke is None else last.attempts[-1].started_wall_ns + round(spoke * 1e9)
        reply = last.reply
        acts = bool(reply.tool_calls or reply.open_tool_calls) or last.request.has_tools is False
        return last if acts and min(began_ns, last.ended_wall_ns) <= at_ns else None

    def sent_before(self, at_ns: int) -> FoldedCall | None:
        """The agent's latest call whose reply had set another agent to work by then."""
        for call in reversed(self.calls):
            spawns = any(SPAWNS.search(tool.name or "") for tool in call.reply.tool_calls)
            if spawns and call.ended_wall_ns is not None and call.ended_wall_ns <= at_ns:
                return call
        return None


def lineages(calls: Sequence[FoldedCall], roles: Sequence[CallRole]) -> list[Lineage]:
    """One `Lineage` per call, in the order given (by start)."""
    main = _Agent(name=None)
    agents: dict[Hashable, _Agent] = {}
    by_id: dict[str, _Agent] = {}
    found: list[Lineage] = []
    for call, role in zip(calls, roles, strict=True):
        if role == "step":
            main.calls.append(call)
        if role != "subagent":
            found.append(MAIN_AGENT)
            continue
        request = call.request
        key: Hashable = request.agent or (session_key(request), request.first_user_digest or call.id)
        agent = agents.get(key)
        if agent is None:
            agent = agents[key] = _born(call, main, list(agents.values())[-MAX_PARENTS:], by_id)
            if request.agent is not None:
                by_id[request.agent] = agent
        agent.calls.append(call)
        found.append(Lineage(agent=agent.name, parent=agent.parent, spawned_by=agent.spawned_by))
    return found


def _born(call: FoldedCall, main: _Agent, others: list[_Agent], by_id: dict[str, _Agent]) -> _Agent:
    named = call.request.parent_agent
    # An id that no subagent has is the main agent's own, or its session's.
    possible = [main, *others] if named is None else [by_id.get(named, main)]
    at_work = [
        (work.ended_wall_ns or 0, work.id, agent.name)
        for agent in possible
        if (work := agent.at_work(call.started_wall_ns)) is not None
    ]
    if not at_work and call.request.agent is not None:
        at_work = [
            (sent.ended_wall_ns or 0, sent.id, agent.name)
            for agent in possible
            if (sent := agent.sent_before(call.started_wall_ns)) is not None
        ]
    _, spawned_by, parent = max(at_work, key=lambda one: one[0], default=(0, None, possible[0].name))
    return _Agent(name=call.id, parent=parent, spawned_by=spawned_by)
