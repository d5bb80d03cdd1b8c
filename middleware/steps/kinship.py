"""Kinship: which model calls are the agent's own, and which may have been made by a tool that the agent ran.

In: the chat calls of one trial with their times and what their replies asked for.  Out: one `Kin` for each.  A tool
runs with the agent's environment, so it can call the door with the agent's key, its address and its libraries; what
fails there tells nothing about what the agent had to work with.  It deliberately does not read texts, and takes no user
agent for proof.

- *own*: begun before any reply could have set a tool to work; or it shares the client's session or agent id, or its
  history, with an own call;
- *alike*: another conversation with the same system prompt and tools, or one that the agent began when no tool was at
  work and of which a call completed, or a request that we could not see whole;
- *stranger*: all else.

How it can be wrong: a framework whose parts talk to the model in conversations of their own, without a session id and
with prompts of their own, has its parts taken for strangers: their failures then prove nothing.  A tool that copies the
agent's history or session passes for the agent; that is no accident any more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.steps.identity import NO_SESSION, SessionKey, session_key

_OPENING: Final = 1
"""Messages of a history that has only its first question: too common to be told apart by."""


class Kin(Enum):
    """How a call stands to the main agent."""

    OWN = "own"
    ALIKE = "alike"
    STRANGER = "stranger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One call as far as kinship needs it; times are wall ns."""

    request: RequestFacts
    started_ns: int
    answered_ns: int | None
    """When the first bytes of a reply that was no refusal came."""
    ended_ns: int | None
    completed: bool
    acts: bool
    """The reply asked for a tool, or may have done so in words."""


@dataclass(slots=True)
class _Own:
    """What the agent's own calls have in common."""

    sessions: set[SessionKey] = field(default_factory=set[SessionKey])
    agents: set[str] = field(default_factory=set[str])
    firsts: set[str] = field(default_factory=set[str])
    messages: set[str] = field(default_factory=set[str])
    manners: set[tuple[str | None, str | None]] = field(default_factory=set[tuple[str | None, str | None]])
    last: Asked | None = None

    def add(self, call: Asked) -> None:
        request = call.request
        if session_key(request) != NO_SESSION:
            self.sessions.add(session_key(request))
        if request.agent is not None:
            self.agents.add(request.agent)
        if request.first_user_digest is not None:
            self.firsts.add(request.first_user_digest)
        if (request.history_len or 0) > _OPENING:
            self.messages.update(request.message_digests)
        if request.system_digest is not None:
            self.manners.add((request.system_digest, request.tools_digest))
        self.last = call

    def holds(self, request: RequestFacts) -> bool:
        return (
            session_key(request) in self.sessions
            or request.agent in self.agents
            or request.first_user_digest in self.firsts
            or not self.messages.isdisjoint(request.message_digests)
        )

    def tool_at_work(self, at_ns: int) -> bool:
        """The last own reply asked for a tool, and nothing was sent up since."""
        last = self.last
        return last is not None and last.acts and last.ended_ns is not None and last.ended_ns <= at_ns


@dataclass(slots=True)
class _Other:
    """A conversation that shares nothing with the agent's own calls."""

    begun_by_tool: bool
    completed: bool = False


def kinship(calls: Sequence[Asked]) -> list[Kin]:
    """One `Kin` per call, in the order given."""
    first_act = min((c.answered_ns for c in calls if c.acts and c.answered_ns is not None), default=None)
    own = _Own()
    found = [Kin.OWN] * len(calls)
    others: dict[Hashable, _Other] = {}
    keys: dict[int, Hashable] = {}
    for i in sorted(range(len(calls)), key=lambda n: (calls[n].started_ns, n)):
        call = calls[i]
        if first_act is None or call.started_ns <= first_act or own.holds(call.request):
            own.add(call)
            continue
        request = call.request
        key: Hashable = (session_key(request), request.first_user_digest or i)
        other = others.setdefault(key, _Other(begun_by_tool=own.tool_at_work(call.started_ns)))
        other.completed = other.completed or call.completed
        keys[i] = key
    for i, key in keys.items():
        request, other = calls[i].request, others[key]
        like = request.system_digest is not None and (request.system_digest, request.tools_digest) in own.manners
        found[i] = (
            Kin.ALIKE if like or request.unseen or (other.completed and not other.begun_by_tool) else Kin.STRANGER
        )
    return found
