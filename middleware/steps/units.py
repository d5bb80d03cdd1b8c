"""What is thought to be one trial of a run while it is put together: its calls, and what they say of its time.

In: calls.  Out: the windows in which its tools worked, what it asked for, and what hangs together by ids.  Pure.  What
this module does not do: decide anything (`parting.py`).  All times are wall ns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from fairtrial.middleware.core.commands import MAX_TYPED
from fairtrial.middleware.steps.call_log import CallFacts
from fairtrial.middleware.steps.chains import Chain, Scaffold, scaffold
from fairtrial.middleware.steps.identity import SPAWNS
from fairtrial.middleware.steps.run_facts import AskedFor

_READ_NS: Final = 2_000_000
"""A client acts on a reply a moment before its end was stamped, or sends a request while its command's start passes."""

Group = tuple[str, str]
"""("name" | "box" | "session" | "chain", text): what is thought to be one trial."""


@dataclass(slots=True)
class Unit:
    """A group while it is put together."""

    calls: list[CallFacts] = field(default_factory=list[CallFacts])
    boxes: set[Group] = field(default_factory=set[Group])
    chain: Chain | None = None

    @property
    def chats(self) -> list[CallFacts]:
        """Its calls that ask for a turn."""
        return [call for call in self.calls if call.chat]

    @property
    def scaffolds(self) -> set[Scaffold]:
        """What its turns share with the other trials of their agents."""
        return {scaffold(call.request) for call in self.chats if acts(call)}

    @property
    def span(self) -> tuple[int, int]:
        """From its first call's start to its last one's end."""
        return (
            min(call.started_ns for call in self.calls),
            max(call.ended_ns or call.started_ns for call in self.calls),
        )


def acts(call: CallFacts) -> bool:
    """It has tools, goes on with a conversation, or was never answered: no title and no probe."""
    return bool(call.request.has_tools or call.request.assistant_turns) or not call.ok


def is_main(unit: Unit) -> bool:
    """More than a title or a probe: it has tools, goes on, or was never answered."""
    return any(acts(call) for call in unit.chats)


def sessions_of(calls: Iterable[CallFacts], tops: dict[str, Group]) -> tuple[dict[str, str], dict[str, set[Group]]]:
    """Attempt → its session with all that hangs together by ids; session → the names and boxes that its calls have."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    nodes: dict[str, str] = {}
    for call in calls:
        request = call.request
        ids = [each for each in (request.session, request.agent, request.parent_agent) if each is not None]
        for one, other in pairwise(ids):
            first, second = sorted((root(one), root(other)))
            parent[second] = first
        if ids:
            nodes[call.attempt] = ids[0]
    session_of = {attempt: root(node) for attempt, node in nodes.items()}
    heads: dict[str, set[Group]] = {session: set() for session in session_of.values()}
    for attempt, session in session_of.items():
        if attempt in tops:
            heads[session].add(tops[attempt])
    return session_of, heads


def agent_windows(unit: Unit) -> list[tuple[int, int]]:
    """From a reply that sets an agent to work to the unit's next turn."""
    chats = unit.chats
    starts = sorted(call.started_ns for call in chats)
    windows: list[tuple[int, int]] = []
    for call in chats:
        if call.reply is None or call.ended_ns is None:
            continue
        if any(use.name and SPAWNS.search(use.name) for use in call.reply.tool_calls):
            following = _first_from(starts, call.ended_ns)
            if following is not None:
                windows.append((call.ended_ns, following))
    return windows


def tool_windows(unit: Unit) -> list[tuple[int, int | None]]:
    """From each reply that asks for a tool to the unit's next turn (None: there was none)."""
    starts = sorted(call.started_ns for call in unit.chats)
    return [
        (call.ended_ns, _first_from(starts, call.ended_ns))
        for call in unit.chats
        if call.ended_ns is not None and call.reply is not None and call.reply.tool_calls
    ]


def descends(unit: Unit, pids: set[int]) -> bool:
    """Whether all processes that spoke in it were seen, and each descends from one of these."""
    senders = [call.sender for call in unit.chats]
    return bool(senders and pids) and all(
        sender is not None and sender.pid not in pids and not pids.isdisjoint(sender.parents) for sender in senders
    )


def _first_from(starts: list[int], at_ns: int) -> int | None:
    """The first of these, in order, that is not before a moment."""
    at = bisect_left(starts, at_ns)
    return starts[at] if at < len(starts) else None


def one_by_one(unit: Unit) -> list[tuple[int, int]] | None:
    """From when to when each call of the unit was open; None for an agent that has several open at once."""
    spans = sorted((call.started_ns, call.ended_ns or call.started_ns) for call in unit.chats)
    return None if any(later[0] < earlier[1] for earlier, later in pairwise(spans)) else spans


def within(spans: list[tuple[int, int]], at_ns: int) -> bool:
    """Whether a moment lies within one of these; they follow one another."""
    at = bisect_right(spans, (at_ns,)) - 1
    return at >= 0 and spans[at][0] + _READ_NS < at_ns < spans[at][1] - _READ_NS


def asked(unit: Unit) -> Iterable[tuple[int, int | None, str]]:
    """Each command that the unit's replies asked for: from when, to when (None: no turn followed), digest of its text.

    A turn of a subagent ends nobody else's command, so the next turn is that which brought the result, if one did.
    """
    chats = unit.chats
    answered: dict[str, int] = {}
    for call in chats:
        for result in call.request.tool_result_ids:
            answered.setdefault(result, call.started_ns)
    starts = sorted(call.started_ns for call in chats)
    for call in chats:
        if call.reply is None or call.ended_ns is None:
            continue
        following = _first_from(starts, call.ended_ns)
        for use in call.reply.tool_calls:
            if use.text_digest is not None:
                brought = answered.get(use.id) if use.id is not None else None
                until = brought if brought is not None and brought >= call.ended_ns else following
                yield call.ended_ns, until, use.text_digest


def keys_asked(unit: Unit) -> list[tuple[int, int, list[str]]]:
    """Between two turns of a unit whose agent types into a terminal: from when, to when, digests of the asked keys.

    A reply that was not read whole, asked for none or for more than are counted tells nothing; what is typed before the
    first turn or behind the last is the harness's own.
    """
    chats = sorted(unit.chats, key=lambda call: call.started_ns)
    return [
        (before.ended_ns, after.started_ns, before.reply.typed_digests)
        for before, after in pairwise(chats)
        if before.ended_ns is not None and before.ok and before.reply is not None
        if 0 < len(before.reply.typed_digests) < MAX_TYPED
    ]


def typed_otherwise(asked: dict[Group, list[tuple[int, int, list[str]]]], typed: Iterable[AskedFor]) -> set[Group]:
    """Of the units whose `keys_asked` these are, those that asked for other keys when one of them asked for the typed.

    Keys that nobody asked for are a harness's own, and tell nothing.
    """
    others: set[Group] = set()
    for exec_ in typed:
        working = {
            key: any(exec_.typed_digest in texts for since, until, texts in windows if since <= exec_.at_ns <= until)
            for key, windows in asked.items()
            if any(since <= exec_.at_ns <= until for since, until, _ in windows)
        }
        if exec_.typed_digest is not None and any(working.values()):
            others |= {key for key, it in working.items() if not it}
    return others
