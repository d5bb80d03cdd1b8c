"""Roles: which calls are the main agent's steps, and which are made on the side.

In: folded calls of one trial, in order.  Out: one role for each.
- *probe*: count_tokens, model lists, greetings, one-token requests, and all of an unknown dialect;
- *subagent*: another agent id than the session's first, or a second conversation inside the session that runs while the
  first goes on;
- *title*: read, and without tools while other calls of the session have them, and a history of one exchange or without
  a turn of the model's;
- *compaction*: the same with a longer history, a history that falls back and is not continued, or the last word of a
  conversation that then begins anew, with fewer turns or after a turn that had been answered and was asked otherwise
  (Claude Code 2.1.197 sums up with all its tools; 2.1.332 asks so twice where the first summary is none); or a turn
  that was refused for the length of its prompt, asked otherwise in a conversation that begins with other words and
  goes no further (2.1.332 cuts the beginning away and asks for a summary);
- what the client itself says: Codex names its compactions and its subagents;
- *subagent* as well: a conversation of another client than the agent's own (`kinship.py`), such as a tool's;
- *step*: everything else.
It deliberately does not read texts.  It can be wrong where a client sends no session id and runs two agents at once
that end together: both are then counted as steps.

**Source:** reference pages harnesses.md section 6 rules 2 and 4, model-api.md section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fairtrial.middleware.core.records import CallRole
from fairtrial.middleware.steps.attempts import FoldedCall
from fairtrial.middleware.steps.identity import NO_SESSION, SessionKey, extends, session_key
from fairtrial.middleware.steps.kinship import Asked, Kin, kinship

_SAID: Final[Mapping[str, CallRole]] = {"compact": "compaction", "compaction": "compaction", "prewarm": "probe"}
"""What Codex says that a call is for; every other purpose is one of its subagents (review, collab_spawn, memory …)."""


def assign_roles(calls: Sequence[FoldedCall]) -> list[CallRole]:
    """One role per call, in the order given (by start)."""
    roles: list[CallRole] = ["step"] * len(calls)
    sessions: dict[SessionKey, list[int]] = {}
    for i, call in enumerate(calls):
        request = call.request
        if request.operation != "chat" or request.max_tokens == 1:
            roles[i] = "probe"
            continue
        sessions.setdefault(session_key(request), []).append(i)
    for key, members in sessions.items():
        _within_session(calls, members, roles, named=key != NO_SESSION)
    main = [i for i, role in enumerate(roles) if role in {"step", "subagent", "compaction"}]
    for i, kin in zip(main, kinship([_asked(calls[i]) for i in main]), strict=True):
        if kin is Kin.STRANGER:
            roles[i] = "subagent"
    return roles


def _asked(call: FoldedCall) -> Asked:
    answered = [
        a.started_wall_ns + round((a.facts.ttfb or 0.0) * 1e9)
        for a in call.attempts
        if a.reply.status is not None and a.reply.status < 400
    ]
    reply = call.reply
    return Asked(
        request=call.request,
        started_ns=call.started_wall_ns,
        answered_ns=min(answered, default=None),
        ended_ns=call.ended_wall_ns,
        completed=call.completed,
        acts=bool(reply.tool_calls or reply.open_tool_calls) or not call.request.has_tools,
    )


def _said(purpose: str | None) -> CallRole | None:
    return None if purpose is None else _SAID.get(purpose, "subagent")


def _within_session(calls: Sequence[FoldedCall], members: list[int], roles: list[CallRole], *, named: bool) -> None:
    with_tools = [i for i in members if calls[i].request.has_tools]
    main: list[int] = []
    main_agent = calls[(with_tools or members)[0]].request.agent
    for i in members:
        request = calls[i].request
        said = _said(request.purpose)
        if said is not None:
            roles[i] = said
        elif request.agent != main_agent and request.agent is not None:
            roles[i] = "subagent"
        elif with_tools and request.has_tools is False:
            # What sums a conversation up shows what the model said in it, a title is made of the question.
            roles[i] = "title" if not request.assistant_turns or (request.history_len or 1) <= 2 else "compaction"
        else:
            main.append(i)
    _across_conversations(calls, _conversations(calls, main), roles, named=named)


def _conversations(calls: Sequence[FoldedCall], members: list[int]) -> list[list[int]]:
    """Group calls whose histories extend one another or begin with the same message."""
    threads: list[list[int]] = []
    for i in members:
        request = calls[i].request
        for thread in reversed(threads):
            last = calls[thread[-1]].request
            if request.first_user_digest == last.first_user_digest or extends(request, last):
                thread.append(i)
                break
        else:
            threads.append([i])
    return threads


def _across_conversations(
    calls: Sequence[FoldedCall], threads: list[list[int]], roles: list[CallRole], *, named: bool
) -> None:
    """The first conversation is the main agent's; one that begins after its end continues it, one inside is a
    subagent's."""
    if not threads:
        return
    current = threads[0]
    _within_conversation(calls, current, roles)
    for at, thread in enumerate(threads[1:], start=1):
        if calls[current[-1]].started_wall_ns > calls[thread[0]].started_wall_ns:
            for i in thread:
                roles[i] = "subagent"
            continue
        last = calls[current[-1]]
        began_anew = (calls[thread[0]].request.assistant_turns or 0) < (last.request.assistant_turns or 0)
        beside = _asked_beside(calls, current)
        if named and (began_anew or beside) and last.completed and not last.reply.tool_calls and len(current) > 1:
            for i in beside or current[-1:]:
                roles[i] = "compaction"
        refused = calls[current[-1]]
        current = thread
        if named and _sums_up(calls, refused, thread, followed=at + 1 < len(threads)):
            for i in thread:
                roles[i] = "compaction"
        else:
            _within_conversation(calls, current, roles)


def _sums_up(calls: Sequence[FoldedCall], refused: FoldedCall, thread: Sequence[int], *, followed: bool) -> bool:
    """Whether a conversation does nothing but ask, in other words, for the turn that was refused for its length.

    With a tool call in a reply, a further turn, or the session's last word in it, it is the agent's own; so it is where
    no tools are offered, since a reply may then act in words.
    """
    if refused.completed or "context" not in refused.reply.error_names:
        return False
    wanted = refused.request
    most = wanted.assistant_turns or 0
    for i in thread:
        request, reply = calls[i].request, calls[i].reply
        if reply.tool_calls or reply.open_tool_calls or not request.message_digests or not request.has_tools:
            return False
        if request.assistant_turns is None or request.assistant_turns > most:
            return False
        most = request.assistant_turns  # what is asked again is cut shorter, what goes on grows
        if wanted.message_digests[-1:] and wanted.message_digests[-1] in request.message_digests:
            return False
    return followed or not any(calls[i].completed for i in thread)


def _asked_beside(calls: Sequence[FoldedCall], thread: list[int]) -> list[int]:
    """The conversation's last calls, as far as they ask in other words for a turn that had been answered before."""
    turns = calls[thread[-1]].request.assistant_turns
    start = len(thread)
    while turns is not None and start and calls[thread[start - 1]].request.assistant_turns == turns:
        start -= 1
    first, *others = thread[start:] or [thread[-1]]
    answered = calls[first]
    if not answered.completed:
        return []
    words = answered.request.message_digests[-1:]
    return [i for i in others if calls[i].request.message_digests[-1:] != words and not calls[i].reply.tool_calls]


def _within_conversation(calls: Sequence[FoldedCall], thread: list[int], roles: list[CallRole]) -> None:
    """A call with fewer turns than before is a compaction, unless the conversation goes on from there."""
    reached = -1
    for position, i in enumerate(thread):
        turns = calls[i].request.assistant_turns
        if turns is None:
            continue
        if turns >= reached:
            reached = turns
            continue
        following = next(
            (t for j in thread[position + 1 :] if (t := calls[j].request.assistant_turns) is not None), None
        )
        if following is not None and following < reached:
            reached = turns
        else:
            roles[i] = "compaction"
