"""Which of the engine's containers are this trial's, asked once for each, and what part each plays.

In: ids with the events that waited for the answer, and word of what passed the trial's own door.  Out: a join or a
refusal in the container's state, and a limit of the coverage where the answer may be wrong.  The rule itself is
`membership.py`.  What this module does not do: watch.

A container of a compose project is a *service* unless its service has a name that harnesses give to the agent's place,
it was made by `compose run`, or the agent works in it while its project has no such place.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final, Literal

from fairtrial.collectors.docker_state import ContainerState
from fairtrial.collectors.docker_telling import Teller
from fairtrial.collectors.membership import Join, Refused, judge
from fairtrial.collectors.parse.docker import ContainerFacts, parse_container
from fairtrial.middleware.core import presence

_CLAIM_S: Final = 0.1
"""How long another trial may take to say that a new container passed its door."""
_MAIN_SERVICES: Final = frozenset({"main", "default", "client", "agent"})
"""Harbor and Terminal-Bench, Inspect, Terminal-Bench's first version, and the plain word."""
PROJECT: Final = "com.docker.compose.project"
SERVICE: Final = "com.docker.compose.service"
ONE_OFF: Final = "com.docker.compose.oneoff"

Role = Literal["main", "service"]


class Joins:
    """`ask(id)` inspects; `engine`: its address, by which trials that share it find each other."""

    def __init__(
        self,
        teller: Teller,
        *,
        ask: Callable[[str], Awaitable[object]],
        engine: str,
        trial_id: str,
        started_ns: int,
        others_at_start: int,
        on_count: Callable[[int], None],
    ) -> None:
        self._teller = teller
        self._ask = ask
        self._engine = engine
        self._trial_id = trial_id
        self._started_ns = started_ns
        self._others_until_ns: int | None = started_ns if others_at_start else None
        self._on_count = on_count
        self._made_here: dict[str, socket.socket | None] = {}
        """Containers that passed our Docker door, each with what tells the other trials so."""
        self._main_in: dict[str, str] = {}
        """Compose project -> container in which the agent works."""
        self.joined = 0

    def created_here(self, container_id: str) -> None:
        """It was made through our door."""
        self._made_here[container_id] = presence.claim(self._engine, container_id)

    def look_for_others(self) -> int:
        """How many other trials use this engine now; the time of the last one is kept."""
        others = presence.others(self._engine, self._trial_id)
        if others:
            self._others_until_ns = time.time_ns()
        return others

    async def decide(self, state: ContainerState) -> bool:
        """Ask whose it is and keep the answer in `state`; whether it is ours."""
        facts = parse_container(await self._ask(state.container_id)) or _facts_from_events(state)
        if facts is None:
            state.judging = False
            state.waiting.clear()
            return False
        others = self.look_for_others()
        answer = self._judged(facts, others)
        if isinstance(answer, Refused) and answer.ambiguous:
            await asyncio.sleep(_CLAIM_S)  # whose door it passed may be said in a moment
            answer = self._judged(facts, others)
        state.judging = False
        if isinstance(answer, Refused):
            state.refused = answer.why
            state.waiting.clear()
            if answer.ambiguous:
                why = f"partial: a container was not joined, because {answer.why}"
                self._teller.partial("others", why, containers_missed=True)
            return False
        state.join, state.refused, state.facts = answer, None, facts
        self.joined += 1
        if answer == "started_after":
            self._teller.partial(
                "started_after",
                "partial: containers without a mark of this trial are taken as its own, because they were started "
                "while it was the only trial on this engine",
            )
        self._on_count(self.joined)
        return True

    def _judged(self, facts: ContainerFacts, others: int) -> Join | Refused:
        made_here = facts.id in self._made_here
        return judge(
            facts,
            trial_id=self._trial_id,
            started_ns=self._started_ns,
            others=others,
            others_until_ns=self._others_until_ns,
            skew_ns=self._teller.skew_ns,
            made_here=made_here,
            made_elsewhere=not made_here and presence.is_claimed(self._engine, facts.id),
        )

    def role_of(self, facts: ContainerFacts) -> Role:
        """Its part, as far as it is known now."""
        role = compose_role(facts.labels)
        project = facts.labels.get(PROJECT)
        if project is not None and role == "main":
            self._main_in.setdefault(project, facts.id)
        if project is not None and self._main_in.get(project) == facts.id:
            return "main"
        return role

    def works_in(self, facts: ContainerFacts) -> bool:
        """A command that is no upkeep runs in it; whether that makes it its project's main container, by now."""
        project = facts.labels.get(PROJECT)
        if project is None or project in self._main_in:
            return False
        self._main_in[project] = facts.id
        return True

    def close(self) -> None:
        """Other trials may think of these containers what they like from now on."""
        for told in self._made_here.values():
            if told is not None:
                told.close()


def compose_role(labels: Mapping[str, str]) -> Role:
    """By its labels alone."""
    service = labels.get(SERVICE)
    one_off = labels.get(ONE_OFF, "").lower() == "true"
    return "main" if service is None or service in _MAIN_SERVICES or one_off else "service"


def _facts_from_events(state: ContainerState) -> ContainerFacts | None:
    """A container that was gone before it could be inspected: its events tell when it was made, and what it was."""
    for event in state.waiting:
        if event.action == "create":
            return replace(event.container_facts(), created_ns=event.at_ns)
    return None
