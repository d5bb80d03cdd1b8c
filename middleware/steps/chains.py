"""Conversations of clients that send no id, told apart once the run is over: which request goes on with which?

In: model calls of one run that nothing else places, in any order.  Out: `Chain`s, and why a call is in none.  Pure.
What this module does not do: say which trial a chain is (`parting.py`), or decide while traffic passes (`trials.py`).

A call goes on with the chain that issued the tool calls it answers (ids of the server, if one chain alone was given
them), else with the only chain whose history it extends or repeats, by the text of its last answer where that tells.
What could go on with two goes on with none (*fork*).  Two chains that begin with the same words may be two trials of
one task, a retry that begins anew, or one client that asks twice: the words do not tell (*twins*), and both are marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.steps.call_log import CallFacts
from fairtrial.middleware.steps.identity import extends, same_history

Opening = tuple[str | None, str | None, str | None]
"""(system prompt, tools, first words), as digests."""
Scaffold = tuple[str | None, str | None]
"""(system prompt, tools): what all trials of one agent have in common."""

FORK: Final = "fork"
NO_IDENTITY: Final = "no_identity"


@dataclass(slots=True, eq=False)
class Chain:
    """One conversation.  `twins`: another one began with the same words."""

    opening: Opening
    calls: list[CallFacts] = field(default_factory=list[CallFacts])
    twins: bool = False

    def goes_on(self, request: RequestFacts) -> bool:
        """Whether the request extends or repeats what was asked last, by messages that both know."""
        last = self.calls[-1].request
        if (request.history_len or 0) - len(request.message_digests) >= (last.history_len or 0):
            return False  # it grew by more than is known of it
        return same_history(request, last) or extends(request, last)


def scaffold(request: RequestFacts) -> Scaffold:
    """What the request shares with the other trials of its agent."""
    return request.system_digest, request.tools_digest


def chains(calls: Iterable[CallFacts]) -> tuple[list[Chain], dict[str, str]]:
    """The conversations in order of their begin, and attempt → why it is in none."""
    found: list[Chain] = []
    by_opening: dict[Opening, list[Chain]] = {}
    issuers: dict[str, Chain | None] = {}
    strays: dict[str, str] = {}
    for call in sorted(calls, key=lambda each: (each.started_ns, each.attempt)):
        request = call.request
        if not call.chat or request.first_user_digest is None or not request.message_digests:
            strays[call.attempt] = NO_IDENTITY
            continue
        opening = (*scaffold(request), request.first_user_digest)
        alike = by_opening.setdefault(opening, [])
        chain, why = _place(request, alike, issuers, call.started_ns)
        if why is not None:
            strays[call.attempt] = why
            continue
        if chain is None:
            chain = Chain(opening)
            for other in alike:
                chain.twins = other.twins = True
            alike.append(chain)
            found.append(chain)
        chain.calls.append(call)
        for use in call.reply.tool_calls if call.reply is not None else ():
            if use.id is not None:
                # An id that two chains were given was not made for one of them.
                issuers[use.id] = chain if issuers.get(use.id, chain) is chain else None
    return found, strays


def _told(chain: Chain) -> str | None:
    reply = chain.calls[-1].reply
    return None if reply is None else reply.text_digest


def _place(
    request: RequestFacts, alike: Sequence[Chain], issuers: dict[str, Chain | None], now_ns: int
) -> tuple[Chain | None, str | None]:
    """The chain that goes on, or why none does; neither: a new one begins."""
    answered = {id(chain): chain for use in request.tool_result_ids if (chain := issuers.get(use)) is not None}
    if len(answered) == 1:
        return next(iter(answered.values())), None
    going_on = [chain for chain in alike if chain.goes_on(request)]
    if len(going_on) > 1 and request.last_assistant_digest is not None:
        # Its last answer is what one of them was told.
        told = [chain for chain in going_on if _told(chain) == request.last_assistant_digest]
        going_on = told or going_on
    if len(going_on) > 1:
        # A turn that was answered is hardly asked again while another conversation has come to just here.
        going_on = [c for c in going_on if not (c.calls[-1].ok and same_history(request, c.calls[-1].request))]
    if len(going_on) > 1:
        return None, FORK
    fresh = not request.assistant_turns
    if going_on:
        chain = going_on[0]
        last = chain.calls[-1]
        repeats = same_history(request, last.request)
        still_open = last.ended_ns is None or last.ended_ns > now_ns
        if repeats and (still_open or (fresh and last.ok)):
            return None, None  # hedged, asked again, or another trial of the same task
        return chain, None
    if fresh or not alike:
        return None, None
    # Trimmed by its client, or a branch.
    return (alike[0], None) if len(alike) == 1 else (None, FORK)
