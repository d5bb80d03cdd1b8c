"""The life of the trial's containers and execs, as the Docker Engine tells it.

In: events and inspects (`docker_adapter.py`).  Out: `container.seen`, `container.event`, `exec.started`, `exec.ended`,
`container.gone`, `runtime.state`, and coverage of the event stream itself; a request to watch the cgroup of each
container that is ours.  Which are ours is judged once (`docker_joins.py`); events of a container wait until then, in
order.  Execs are `docker_execs.py`, ends `docker_ends.py`, holes in the stream `docker_continuity.py`.

An `oom` event is a reason to read the counter, never a count (40 of them came for one kill): a storm of them rings each
time and is written a few times.  After a return of the stream the engine's list and inspect say what was missed; an
engine that is another process than before knows nothing of the commands that ran: they end with an unknown code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from fairtrial.collectors.docker_adapter import DockerAdapter, DockerUpstream, EngineFacts
from fairtrial.collectors.docker_continuity import NEVER_BACK, NOT_REPLAYED, REPLAY_S, Continuity
from fairtrial.collectors.docker_ends import Ends
from fairtrial.collectors.docker_execs import Execs
from fairtrial.collectors.docker_joins import Joins
from fairtrial.collectors.docker_state import ContainerState, Watch, container_seen
from fairtrial.collectors.docker_telling import Teller
from fairtrial.collectors.parse.docker import ContainerFacts, EventFacts, parse_container
from fairtrial.collectors.tasks import Tasks
from fairtrial.collectors.victims import KnownExec
from fairtrial.collectors.wait_status import InitWatch
from fairtrial.middleware.core.observations import ContainerEvent, RuntimeState
from fairtrial.middleware.core.sink import Source

__all__ = ["DockerEvents", "Watch", "container_seen"]

_KEPT_ACTIONS: Final = frozenset(
    ("create", "start", "oom", "die", "kill", "stop", "restart", "pause", "unpause", "destroy", "health_status")
)
_MAX_WAITING_EVENTS: Final = 512
_MADE_BEFORE_NS: Final = 2_000_000_000
"""A container of the list that was made so long before the trial's start cannot be ours, unless it runs."""


class DockerEvents:
    """Implements the adapter's `Listener`; everything runs on the event loop.

    `started_ns`: the trial's start, by which containers are judged; `from_ns`: the moment from which on events are
    written, later than that only for an observer that took over from another.  `others_at_start`: other trials that
    used the engine when the run process started.
    """

    def __init__(
        self,
        source: Source,
        *,
        upstream: DockerUpstream,
        trial_id: str,
        started_ns: int,
        from_ns: int,
        watch: Watch,
        others_at_start: int,
        on_count: Callable[[int], None],
    ) -> None:
        self._started_ns = started_ns
        self._from_ns = from_ns
        self._watch = watch
        self._states: dict[str, ContainerState] = {}
        self._inits = InitWatch()
        self._engine: EngineFacts | None = None
        self._adapter = DockerAdapter(upstream, since_ns=from_ns, listener=self)
        self._tasks = Tasks(source, "docker")
        self._teller = Teller(source, trial_id=trial_id, local=upstream.local)
        self._continuity = Continuity(self._teller.gap)
        self._joins = Joins(
            self._teller,
            ask=self._adapter.container,
            engine=upstream.url,
            trial_id=trial_id,
            started_ns=started_ns,
            others_at_start=others_at_start,
            on_count=on_count,
        )
        self._execs = Execs(self._teller, adapter=self._adapter, tasks=self._tasks, on_work=self._works)
        self._ends = Ends(
            self._teller,
            adapter=self._adapter,
            execs=self._execs,
            watch=watch,
            states=self._states,
            inits=self._inits,
            on_alive=self._alive,
        )
        self._replay: asyncio.TimerHandle | None = None
        self.up = False
        self.tried = False

    # --- seen from the facade -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; returns at once."""
        self._adapter.start()

    def created_here(self, container_id: str) -> None:
        """It was made through our door; its events may have come before this word."""
        self._joins.created_here(container_id)
        state = self._states.get(container_id)
        if state is not None and state.refused is not None:
            state.refused = None
            self._judge(state)

    def look_for_others(self) -> int:
        """How many other trials use this engine now; the time of the last one is kept."""
        return self._joins.look_for_others()

    @property
    def joined(self) -> int:
        """How many containers of this trial there were."""
        return self._joins.joined

    @property
    def active_ns(self) -> int:
        """When something was last heard or settled, CLOCK_MONOTONIC."""
        return self._tasks.active_ns

    @property
    def busy(self) -> bool:
        """Whether questions to the engine are open."""
        return bool(len(self._tasks))

    @property
    def judging(self) -> bool:
        """Whether it is not decided yet whose some container is."""
        return any(state.judging for state in self._states.values())

    def say_unjudged(self) -> None:
        """The end came before it was decided whose some container is."""
        self._teller.partial(
            "unjudged",
            "partial: a container was not joined, because the command ended before the engine said whose it is",
            containers_missed=True,
        )

    def end_watch(self) -> None:
        """The trial is over: what is still open is said as it stands.  Safe to call twice."""
        if self._replay is not None:
            self._replay.cancel()
            self._replay = None
        if not self.up and self._continuity.open:
            self._end_execs()
        self._continuity.give_up(NOT_REPLAYED if self.up else NEVER_BACK)

    def live_execs(self, container_id: str) -> list[str]:
        """Execs without an end."""
        state = self._states.get(container_id)
        return [] if state is None else state.live_execs()

    def recent_execs(self, container_id: str) -> list[KnownExec]:
        """Execs that run now or ended within the last second."""
        state = self._states.get(container_id)
        return [] if state is None else state.recent_execs()

    def init_pid_of(self, container_id: str) -> int | None:
        """Its first process, host pid of a local engine."""
        state = self._states.get(container_id)
        return None if state is None or state.facts is None else state.facts.init_pid

    def find(self, path: str) -> str | None:
        """The container of ours whose id is in a cgroup path."""
        return next((cid for cid, state in self._states.items() if state.join is not None and cid in path), None)

    def find_by_pids(self, pids: list[int]) -> str | None:
        """The container of ours whose init, or one of whose execs' first processes, is among these."""
        wanted = set(pids)
        return next((c for c, s in self._states.items() if s.join is not None and wanted & s.first_pids()), None)

    def undecided(self) -> bool:
        """Whether some container is still being judged, or its first process being asked for."""
        return any(
            state.judging or (state.join is not None and not state.alive and state.starting)
            for state in self._states.values()
        )

    def note_kill(self, container_id: str) -> None:
        """A kill was counted in its cgroup."""
        state = self._states.get(container_id)
        if state is not None:
            state.kill_counted_ns = self._teller.now_ns()
        self._tasks.touch()

    def settled(self) -> bool:
        """Nothing open and no exec running: no late event is to be waited for."""
        return not self.busy and not any(state.live_execs() for state in self._states.values() if state.join)

    def close(self) -> None:
        """Stop asking; safe to call twice."""
        self._adapter.close()
        self._tasks.cancel()
        self._joins.close()
        self._inits.close()

    # --- the adapter speaks -------------------------------------------------------------------------------------

    def on_up(self, engine: EngineFacts, *, again: bool) -> None:
        """The stream is open: say so, list what runs."""
        known, self._engine = self._engine, engine
        restarted = None if known is None else engine.restarted_since(known)
        self.up = self.tried = True
        self._teller.skew_ns = engine.skew_ns
        # The engine repeats its events from the trial's start on, so it was watched since then.
        self._teller.cover("on", None, since_ns=self._from_ns)
        self._teller.tell(
            RuntimeState(
                state="back" if again else "up",
                version=engine.version,
                api_version=engine.api_version,
                restarted=restarted if again else None,
            )
        )
        if again:
            if restarted:
                self._end_execs()
            self._continuity.back(restarted=restarted)
            self._replay = asyncio.get_running_loop().call_later(REPLAY_S, self._replayed)
        # Before the first time all events come again by themselves, and a list of everything can be long.
        self._tasks.spawn(self._reconcile(whole=again), "reconcile")

    def on_down(self, why: str) -> None:
        """The stream is not open."""
        if self.up:
            self._continuity.lost()
            self._teller.tell(RuntimeState(state="lost", why=why))
        if self._replay is not None:
            self._replay.cancel()
            self._replay = None
        self._teller.cover("lost" if self.up else "off", why)
        self.up, self.tried = False, True

    def _replayed(self) -> None:
        """Whatever was to be repeated after a return has been by now."""
        self._replay = None
        self._continuity.give_up()

    def on_strange(self, what: str) -> None:
        """The engine said something that is left out."""
        self._teller.partial("strange", f"partial: {what}", containers_missed=True)

    def on_event(self, event: EventFacts) -> None:
        """One event; replays are dropped here."""
        self._tasks.touch()
        if not self._continuity.is_new(event) or event.at_ns < self._from_ns + self._teller.skew_ns:
            return
        state = self._states.setdefault(event.container_id, ContainerState(event.container_id))
        if state.join is not None:
            self._handle(state, event)
        elif state.judging:
            if len(state.waiting) < _MAX_WAITING_EVENTS:
                state.waiting.append(event)
        elif state.refused is None or event.action == "start":
            state.waiting.append(event)
            self._judge(state)

    # --- who is ours, and does it live --------------------------------------------------------------------------

    def _judge(self, state: ContainerState) -> None:
        state.judging = True
        self._tasks.spawn(self._judge_now(state), "judge")

    async def _judge_now(self, state: ContainerState) -> None:
        if not await self._joins.decide(state) or state.facts is None:
            return
        if state.facts.init_pid is not None:
            self._alive(state, state.facts)
        else:
            self._seen(state, state.facts)
        waiting, state.waiting = state.waiting, []
        for event in waiting:
            self._handle(state, event)
        if state.facts.running is False and state.facts.finished_ns is not None and not state.ending and not waiting:
            self._end(state, None)  # found by the list, after it had ended

    def _alive(self, state: ContainerState, facts: ContainerFacts) -> None:
        """It runs: watch its cgroup and write what was found."""
        if state.alive or state.join is None:
            return
        state.alive, state.over, state.facts = True, False, facts
        state.kill, state.oom_ns, state.kill_counted_ns = None, None, None
        seen = container_seen(facts, join=state.join, role=self._joins.role_of(facts))
        state.seen = self._watch.watch(facts, seen)
        if state.seen.cgroup is not None and facts.init_pid is not None:
            self._inits.begin(facts.id, facts.init_pid)
        self._teller.tell(state.seen, container_id=facts.id)

    def _seen(self, state: ContainerState, facts: ContainerFacts) -> None:
        state.seen = container_seen(facts, join=state.join, role=self._joins.role_of(facts))
        self._teller.tell(state.seen, container_id=facts.id)

    def _works(self, state: ContainerState) -> None:
        """A command that is no upkeep runs there: in a project without a named place for the agent, this is it."""
        if state.facts is None or state.seen is None or not self._joins.works_in(state.facts):
            return
        if state.seen.role == "service":
            state.seen = msgspec.structs.replace(state.seen, role="main")
            self._teller.tell(state.seen, container_id=state.container_id)

    async def _reconcile(self, *, whole: bool = False) -> None:
        """Compare with the engine's list: catches what the stream did not tell.

        `whole`: the stream was away, so also containers that ended meanwhile, and those that run a second life.
        """
        listed = await self._adapter.listed(everything=whole)
        if listed is None:
            return
        running = {row.id for row in listed if row.running}
        for row in listed:
            young = (
                row.created_ns is None or row.created_ns >= self._started_ns + self._teller.skew_ns - _MADE_BEFORE_NS
            )
            if row.id not in self._states and (row.running or young):
                state = self._states[row.id] = ContainerState(row.id)
                self._judge(state)
        for state in list(self._states.values()):
            if state.alive and state.container_id not in running:
                self._end(state, None)
            elif state.alive:
                if whole:
                    self._tasks.spawn(self._compare(state), "compare")
                for known in list(state.execs.values()):
                    if known.ended is None:
                        self._tasks.spawn(self._execs.check(state, known), "exec")
            elif whole and state.join is not None and state.container_id in running and not state.starting:
                state.starting = True
                self._tasks.spawn(self._started(state), "start")

    async def _compare(self, state: ContainerState) -> None:
        """Whether it is the same life as before the loss of the stream."""
        facts = parse_container(await self._adapter.container(state.container_id))
        before = state.facts
        if facts is None or before is None or not state.alive or state.ending:
            return
        if facts.running and facts.init_pid is not None and facts.init_pid != before.init_pid:
            state.ending = True
            await self._ends.gone(state, None, relisted=True)

    def reconcile(self) -> None:
        """Now and then, because a stream can be open and silent."""
        if self.up:
            self._tasks.spawn(self._reconcile(), "reconcile")

    def _end_execs(self) -> None:
        """Nobody will tell the end of the commands that ran when the engine went: they end there, code unknown."""
        lost_ns = self._continuity.last_loss_ns
        for state in self._states.values():
            for known in list(state.execs.values()):
                if state.join is not None and known.ended is None and known.started_ns is not None:
                    at_ns = None if lost_ns is None else lost_ns + self._teller.skew_ns
                    self._execs.end(state, known, None, at_ns=at_ns)

    # --- one container's events ---------------------------------------------------------------------------------

    def _handle(self, state: ContainerState, event: EventFacts) -> None:
        action = event.action
        self._execs.take(state, event)
        if action not in _KEPT_ACTIONS:
            return
        if action == "oom":
            state.oom_ns = event.at_ns
            self._watch.ring(state.container_id)
            if not state.oom_events.take():
                return
        elif action == "kill":
            state.kill = (event.signal, event.at_ns)
        self._teller.tell(
            ContainerEvent(
                container_id=state.container_id,
                action=action,
                exit_code=event.exit_code,
                signal=event.signal,
                daemon_wall_ns=event.at_ns,
            ),
            container_id=state.container_id,
            at_ns=event.at_ns,
        )
        if action == "start" and not state.alive:
            if event.at_ns > (state.ended_ns or 0):
                state.over = False
            state.starting = True
            self._tasks.spawn(self._started(state), "start")
        elif action == "die" and state.begun_after(event.at_ns):
            self._ends.past(state, event)
        elif action == "die" and not state.over:
            self._end(state, event)

    async def _started(self, state: ContainerState) -> None:
        facts = parse_container(await self._adapter.container(state.container_id))
        state.starting = False
        if facts is not None and facts.init_pid is not None:
            self._alive(state, facts)

    def _end(self, state: ContainerState, die: EventFacts | None) -> None:
        if not state.ending:
            state.ending = True
            self._tasks.spawn(self._ends.gone(state, die), "gone")
