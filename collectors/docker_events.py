"""The life of the trial's containers and execs, as the Docker Engine tells it.

In: events and inspects (`docker_adapter.py`).  Out: `container.seen`, `container.event`, `exec.started`, `exec.ended`,
`container.gone`, and coverage of the event stream itself; a request to watch the cgroup of each container that is ours.
Which are ours is judged once (`membership.py`); events of a container wait until then, in order.

An `oom` event is a reason to read the counter, never a count (40 of them came for one kill).  What ended a container is
read from the order of its events: a `kill` before `die` is the runtime's; an OOM kill just before a `die` with 137 is
an OOM; another 137 or 143 has no author here.  A kill that no counter reading caught, because the cgroup went first,
is written from the kernel's log, or from the runtime's `oom` event together with a kill of the node that is otherwise
unexplained.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from fairtrial.collectors.docker_adapter import DockerAdapter, DockerUpstream, EngineFacts
from fairtrial.collectors.membership import Join, Refused, judge
from fairtrial.collectors.parse.docker import (
    TRIAL_LABEL,
    ContainerFacts,
    EventFacts,
    ExecFacts,
    parse_container,
    parse_exec,
)
from fairtrial.collectors.readings import Bucket
from fairtrial.collectors.victims import KnownExec
from fairtrial.middleware.core import presence
from fairtrial.middleware.core.commands import is_plumbing, shell_text, text_digest
from fairtrial.middleware.core.observations import (
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    CoverageChanged,
    ExecEnded,
    ExecStarted,
    GapSeen,
    Note,
    OomKill,
    Subject,
    Value,
)
from fairtrial.middleware.core.sink import Source

COVERAGE_SOURCE: Final = "collector.docker_events"
FAMILIES: Final = ("memory", "node")
_KEPT_ACTIONS: Final = frozenset(
    ("create", "start", "oom", "die", "kill", "stop", "restart", "pause", "unpause", "destroy", "health_status")
)
_KNOWN_EVENTS: Final = 4096
_RECENT_NS: Final = 1_000_000_000
_OOM_BEFORE_DIE_NS: Final = 2_000_000_000
_KILL_BEFORE_DIE_NS: Final = 60_000_000_000
_SETTLE_S: Final = 0.3
_REPLAY_S: Final = 0.3
_CLAIM_S: Final = 0.1
"""How long another trial may take to say that a new container passed its door."""
_EXEC_PID_WAITS_S: Final = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
_MAX_WAITING_EVENTS: Final = 512


class Watch(Protocol):
    """What the containers' life asks of the rest of the collectors."""

    def watch(self, facts: ContainerFacts, *, join: Join) -> ContainerSeen:
        """Begin to watch its cgroup; gives the record with what was found of it."""
        ...

    def ring(self, container_id: str) -> None:
        """The runtime says that memory ran out."""
        ...

    def settle(self, container_id: str) -> bool:
        """Read what is left; whether its cgroup is gone or was never watched."""
        ...

    def kills_counted(self, container_id: str) -> int:
        """Kills that the counter of its cgroup has shown."""
        ...

    def victims_named(self, container_id: str) -> list[int]:
        """Pids that the kernel log named."""
        ...

    def release(self, container_id: str) -> None:
        """It is over: keep its count of kills, let go of the rest."""
        ...

    def unexplained_kills(self) -> int | None:
        """Kills of the node since our start that no counter and no kernel record explains."""
        ...


@dataclass(slots=True)
class ExecState:
    """One exec of a container of ours."""

    exec_id: str
    command: str | None = None
    started_ns: int | None = None
    facts: ExecFacts | None = None
    settled: bool = False
    written: bool = False
    ended: EventFacts | None = None
    ended_mono_ns: int | None = None


@dataclass(slots=True)
class ContainerState:
    """One container of the engine that was heard of since the trial's start."""

    container_id: str
    join: Join | None = None
    refused: str | None = None
    judging: bool = False
    waiting: list[EventFacts] = field(default_factory=list)
    facts: ContainerFacts | None = None
    alive: bool = False
    ending: bool = False
    starting: bool = False
    kill: tuple[int | None, int] | None = None
    oom_ns: int | None = None
    kill_counted_ns: int | None = None
    kills_written: int = 0
    execs: dict[str, ExecState] = field(default_factory=dict)
    oom_events: Bucket = field(default_factory=lambda: Bucket(per_s=10, burst=3))


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
        self._source = source
        self._trial_id = trial_id
        self._started_ns = started_ns
        self._from_ns = from_ns
        self._watch = watch
        self._others_until_ns: int | None = started_ns if others_at_start else None
        self._on_count = on_count
        self._upstream = upstream
        self._adapter = DockerAdapter(upstream, since_ns=from_ns, listener=self)
        self._states: dict[str, ContainerState] = {}
        self._keys: OrderedDict[tuple[int, str, str, str | None], None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._skew_ns = 0
        self._joined = 0
        self._made_here: dict[str, socket.socket | None] = {}
        """Containers that passed our Docker door, each with what tells the other trials so."""
        self._said_partial: set[str] = set()
        self._newest_key: tuple[int, str, str, str | None] | None = None
        self._awaited_key: tuple[int, str, str, str | None] | None = None
        self._lost_at_ns: int | None = None
        self.up = False
        self.tried = False
        self.active_ns = time.monotonic_ns()

    # --- seen from the facade -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; returns at once."""
        self._adapter.start()

    def created_here(self, container_id: str) -> None:
        """It was made through our door; its events may have come before this word."""
        self._made_here[container_id] = presence.claim(self._upstream.url, container_id)
        state = self._states.get(container_id)
        if state is not None and state.refused is not None:
            state.refused = None
            self._judge(state)

    def look_for_others(self) -> int:
        """How many other trials use this engine now; the time of the last one is kept."""
        others = presence.others(self._upstream.url, self._trial_id)
        if others:
            self._others_until_ns = time.time_ns()
        return others

    @property
    def joined(self) -> int:
        """How many containers of this trial there were."""
        return self._joined

    @property
    def busy(self) -> bool:
        """Whether questions to the engine are open."""
        return bool(self._tasks)

    @property
    def judging(self) -> bool:
        """Whether it is not decided yet whose some container is."""
        return any(state.judging for state in self._states.values())

    def say_unjudged(self) -> None:
        """The end came before it was decided whose some container is."""
        self._partial(
            "unjudged",
            "partial: a container was not joined, because the command ended before the engine said whose it is",
            containers_missed=True,
        )

    def live_execs(self, container_id: str) -> list[str]:
        """Execs without an end."""
        state = self._states.get(container_id)
        return [] if state is None else [x.exec_id for x in state.execs.values() if x.ended is None]

    def recent_execs(self, container_id: str) -> list[KnownExec]:
        """Execs that run now or ended within the last second."""
        state = self._states.get(container_id)
        if state is None:
            return []
        since_ns = time.monotonic_ns() - _RECENT_NS
        return [
            KnownExec(exec_id=x.exec_id, pid=None if x.facts is None else x.facts.pid, settled=x.settled)
            for x in state.execs.values()
            if x.started_ns is not None and (x.ended_mono_ns is None or x.ended_mono_ns >= since_ns)
        ]

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
        for cid, state in self._states.items():
            if state.join is None:
                continue
            known = {x.facts.pid for x in state.execs.values() if x.facts is not None}
            known.add(None if state.facts is None else state.facts.init_pid)
            if wanted & known:
                return cid
        return None

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
            state.kill_counted_ns = time.time_ns() + self._skew_ns
        self.active_ns = time.monotonic_ns()

    def settled(self) -> bool:
        """Nothing open and no exec running: no late event is to be waited for."""
        return not self._tasks and not any(self.live_execs(cid) for cid, s in self._states.items() if s.join)

    def close(self) -> None:
        """Stop asking; safe to call twice."""
        self._adapter.close()
        for task in self._tasks:
            task.cancel()
        for told in self._made_here.values():
            if told is not None:
                told.close()

    # --- the adapter speaks -------------------------------------------------------------------------------------

    def on_up(self, engine: EngineFacts, *, again: bool) -> None:
        """The stream is open: say so, list what runs."""
        self.up = self.tried = True
        self._skew_ns = engine.skew_ns
        # The engine repeats its events from the trial's start on, so it was watched since then.
        self._cover("on", None, since_ns=self._from_ns)
        if again:
            self._spawn(self._check_replay(self._lost_at_ns), "replay")
        self._spawn(self._reconcile(), "reconcile")

    def on_down(self, why: str) -> None:
        """The stream is not open."""
        self._lost_at_ns = time.time_ns()
        self._awaited_key = self._newest_key
        self._cover("lost" if self.up else "off", why)
        self.up, self.tried = False, True

    def on_event(self, event: EventFacts) -> None:
        """One event; replays are dropped here."""
        self.active_ns = time.monotonic_ns()
        if event.key == self._awaited_key:
            self._awaited_key = None
        if event.key in self._keys:
            return
        self._keys[event.key] = None
        if len(self._keys) > _KNOWN_EVENTS:
            self._keys.popitem(last=False)
        self._newest_key = event.key
        if event.at_ns < self._from_ns + self._skew_ns:
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

    async def _check_replay(self, lost_at_ns: int | None) -> None:
        """Whether the events between loss and return came again: they did if the last known one did."""
        await asyncio.sleep(_REPLAY_S)
        if self._newest_key is not None and self._awaited_key is None:
            return
        self._awaited_key = None
        self._source.emit(
            GapSeen(
                source=COVERAGE_SOURCE,
                families=list(FAMILIES),
                since_ns=lost_at_ns,
                until_ns=time.time_ns(),
                why="the engine's events between the loss of the stream and its return were not replayed",
            )
        )

    # --- who is ours --------------------------------------------------------------------------------------------

    def _judge(self, state: ContainerState) -> None:
        state.judging = True
        self._spawn(self._judge_now(state), "judge")

    def _judged(self, facts: ContainerFacts, others: int) -> Join | Refused:
        made_here = facts.id in self._made_here
        return judge(
            facts,
            trial_id=self._trial_id,
            started_ns=self._started_ns,
            others=others,
            others_until_ns=self._others_until_ns,
            skew_ns=self._skew_ns,
            made_here=made_here,
            made_elsewhere=not made_here and presence.is_claimed(self._upstream.url, facts.id),
        )

    async def _judge_now(self, state: ContainerState) -> None:
        facts = parse_container(await self._adapter.container(state.container_id))
        if facts is None:
            facts = self._facts_from_events(state)
        if facts is None:
            state.judging = False
            state.waiting.clear()
            return
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
                self._partial("others", why, containers_missed=True)
            return
        state.join, state.refused, state.facts = answer, None, facts
        self._joined += 1
        if answer == "started_after":
            self._partial(
                "started_after",
                "partial: containers without a mark of this trial are taken as its own, because they were started "
                "while it was the only trial on this engine",
            )
        self._on_count(self._joined)
        if facts.init_pid is not None:
            self._alive(state, facts)
        else:
            self._seen(state, facts)
        waiting, state.waiting = state.waiting, []
        for event in waiting:
            self._handle(state, event)

    @staticmethod
    def _facts_from_events(state: ContainerState) -> ContainerFacts | None:
        """A container that was gone before it could be inspected: its `create` event tells when it was made."""
        for event in state.waiting:
            if event.action == "create":
                labels = {} if event.trial_label is None else {TRIAL_LABEL: event.trial_label}
                return ContainerFacts(id=state.container_id, created_ns=event.at_ns, labels=labels)
        return None

    def _alive(self, state: ContainerState, facts: ContainerFacts) -> None:
        """It runs: watch its cgroup and write what was found."""
        if state.alive or state.join is None:
            return
        state.alive, state.facts = True, facts
        state.kill, state.oom_ns, state.kill_counted_ns = None, None, None
        seen = self._watch.watch(facts, join=state.join)
        self._emit(state, seen)

    def _seen(self, state: ContainerState, facts: ContainerFacts) -> None:
        self._emit(state, container_seen(facts, join=state.join))

    async def _reconcile(self) -> None:
        """Compare with the list of running containers: catches what the stream did not tell."""
        running = await self._adapter.running()
        if running is None:
            return
        for container_id in running:
            if container_id not in self._states:
                state = self._states[container_id] = ContainerState(container_id)
                self._judge(state)
        for state in list(self._states.values()):
            if state.alive and state.container_id not in running:
                self._end(state, None)
            elif state.alive:
                for known in list(state.execs.values()):
                    if known.ended is None:
                        self._spawn(self._check_exec(state, known), "exec")

    def reconcile(self) -> None:
        """Now and then, because a stream can be open and silent."""
        if self.up:
            self._spawn(self._reconcile(), "reconcile")

    # --- one container's events ---------------------------------------------------------------------------------

    def _handle(self, state: ContainerState, event: EventFacts) -> None:
        action = event.action
        if action == "exec_create" and event.exec_id is not None:
            state.execs.setdefault(event.exec_id, ExecState(event.exec_id)).command = event.command
        elif action == "exec_start" and event.exec_id is not None:
            known = state.execs.setdefault(event.exec_id, ExecState(event.exec_id))
            known.command = event.command or known.command
            known.started_ns = event.at_ns
            self._spawn(self._exec_started(state, known), "exec")
        elif action == "exec_die" and event.exec_id is not None:
            known = state.execs.setdefault(event.exec_id, ExecState(event.exec_id, settled=True))
            self._exec_ended(state, known, event)
        if action not in _KEPT_ACTIONS:
            return
        if action == "oom":
            state.oom_ns = event.at_ns
            self._watch.ring(state.container_id)
            if not state.oom_events.take():
                return
        elif action == "kill":
            state.kill = (event.signal, event.at_ns)
        self._emit(
            state,
            ContainerEvent(
                container_id=state.container_id,
                action=action,
                exit_code=event.exit_code,
                signal=event.signal,
                daemon_wall_ns=event.at_ns,
            ),
            at_ns=event.at_ns,
        )
        if action == "start" and not state.alive:
            state.starting = True
            self._spawn(self._started(state), "start")
        elif action == "die":
            self._end(state, event)

    async def _started(self, state: ContainerState) -> None:
        facts = parse_container(await self._adapter.container(state.container_id))
        state.starting = False
        if facts is not None and facts.init_pid is not None:
            self._alive(state, facts)

    def _end(self, state: ContainerState, die: EventFacts | None) -> None:
        if not state.ending:
            state.ending = True
            self._spawn(self._gone(state, die), "gone")

    async def _gone(self, state: ContainerState, die: EventFacts | None) -> None:
        """It ended: settle its execs and counters, then say what ended it."""
        facts = parse_container(await self._adapter.container(state.container_id))
        if die is None and facts is not None and facts.running:
            state.ending = False
            return  # the list was older than a start
        init_pid = None if state.facts is None else state.facts.init_pid
        deadline_ns = time.monotonic_ns() + int(_SETTLE_S * 1e9)
        # The kernel removes the directory when it likes; that sets no Event of ours.
        while not self._watch.settle(state.container_id) and time.monotonic_ns() < deadline_ns:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for known in list(state.execs.values()):
            if known.ended is None:
                await self._check_exec(state, known, over=True)
        self._write_lost_kills(state)
        exit_code = die.exit_code if die is not None else None if facts is None else facts.exit_code
        oom_flag = None if facts is None else facts.oom_killed
        died_ns = time.time_ns() + self._skew_ns if die is None else die.at_ns
        state.alive = state.ending = False
        self._emit(
            state,
            ContainerGone(
                container_id=state.container_id,
                exit_code=exit_code,
                oom_killed_flag=oom_flag,
                error=None if facts is None else facts.error,
                ended_by=self._ended_by(state, exit_code, died_ns, init_pid),
            ),
            at_ns=died_ns,
        )
        self._watch.release(state.container_id)
        if facts is not None and facts.running and facts.init_pid is not None:
            self._alive(state, facts)  # a restart policy was faster than we were

    def _ended_by(self, state: ContainerState, exit_code: int | None, died_ns: int, init_pid: int | None) -> str:
        if state.kill is not None:
            signal, at_ns = state.kill
            fatal = signal in (None, 2, 3, 9, 15) and died_ns - at_ns <= _KILL_BEFORE_DIE_NS
            if signal is not None and (fatal or exit_code == 128 + signal):
                return f"runtime_kill:{signal}"
            if fatal:
                return "runtime_kill"
        if init_pid is not None and init_pid in self._watch.victims_named(state.container_id):
            return "oom"
        if exit_code is None:
            return "unknown"
        ooms = [x for x in (state.oom_ns, state.kill_counted_ns) if x is not None]
        if exit_code == 137 and any(abs(died_ns - at_ns) <= _OOM_BEFORE_DIE_NS for at_ns in ooms):
            return "oom"
        return "unknown" if exit_code in (130, 137, 143) else "exit"

    def _write_lost_kills(self, state: ContainerState) -> None:
        """A kill whose counter could not be read any more."""
        counted = self._watch.kills_counted(state.container_id) + state.kills_written
        missing, proof = len(self._watch.victims_named(state.container_id)) - counted, "kernel log"
        if missing <= 0 and counted == 0 and state.oom_ns is not None:
            unexplained = self._watch.unexplained_kills()
            written = sum(other.kills_written for other in self._states.values())
            if unexplained is not None and unexplained > written:
                missing, proof = 1, "docker oom event and /proc/vmstat"
        if missing <= 0:
            return
        state.kills_written += missing
        if state.kill_counted_ns is None:
            state.kill_counted_ns = state.oom_ns
        self._emit(
            state,
            OomKill(
                container_id=state.container_id,
                delta=missing,
                memory_limit=None if state.facts is None else state.facts.memory_limit,
                source_file=proof,
                exec_candidates=[known.exec_id for known in self.recent_execs(state.container_id)],
            ),
            at_ns=state.oom_ns,
        )

    # --- execs --------------------------------------------------------------------------------------------------

    async def _exec_started(self, state: ContainerState, known: ExecState) -> None:
        """The event comes before the process is made, so its pid is asked for until it is there."""
        for wait_s in (*_EXEC_PID_WAITS_S, None):
            facts = parse_exec(await self._adapter.exec(known.exec_id))
            known.facts = facts or known.facts
            if facts is None or facts.pid is not None or known.ended is not None or wait_s is None:
                break
            await asyncio.sleep(wait_s)
        known.settled = True
        self._write_exec(state, known)

    def _write_exec(self, state: ContainerState, known: ExecState) -> None:
        if known.written:
            return
        known.written = True
        argv = None if known.facts is None else known.facts.argv
        text = shell_text(argv, known.command)
        healthcheck = () if state.facts is None else state.facts.healthcheck
        self._emit(
            state,
            ExecStarted(
                container_id=state.container_id,
                exec_id=known.exec_id,
                pid=None if known.facts is None else known.facts.pid,
                text_digest=None if text is None else text_digest(text),
                plumbing=is_plumbing(argv, known.command, healthcheck),
            ),
            at_ns=known.started_ns,
            exec_id=known.exec_id,
        )
        if known.ended is not None:
            self._write_exec_end(state, known, known.ended)

    def _exec_ended(self, state: ContainerState, known: ExecState, event: EventFacts) -> None:
        if known.ended is not None:
            return
        known.ended = event
        known.ended_mono_ns = time.monotonic_ns()
        if known.started_ns is None:
            known.written = True  # its start was before our time
        if known.written:
            self._write_exec_end(state, known, event)

    def _write_exec_end(self, state: ContainerState, known: ExecState, event: EventFacts) -> None:
        self._emit(
            state,
            ExecEnded(
                container_id=state.container_id,
                exec_id=known.exec_id,
                exit_code=event.exit_code,
                started_wall_ns=None if known.started_ns is None else known.started_ns - self._skew_ns,
            ),
            at_ns=event.at_ns,
            exec_id=known.exec_id,
        )

    async def _check_exec(self, state: ContainerState, known: ExecState, *, over: bool = False) -> None:
        """An exec whose end was not told: ask; with `over` its container is gone and an unknown code is the answer."""
        facts = parse_exec(await self._adapter.exec(known.exec_id))
        known.facts = facts or known.facts
        if known.ended is not None or (not over and (facts is None or facts.running is not False)):
            return
        if not over and known.started_ns is None:
            return  # created, not started yet
        known.settled = True
        self._write_exec(state, known)
        self._exec_ended(
            state,
            known,
            EventFacts(
                container_id=state.container_id,
                action="exec_die",
                at_ns=time.time_ns() + self._skew_ns,
                exec_id=known.exec_id,
                exit_code=None if facts is None else facts.exit_code,
            ),
        )

    # --- writing ------------------------------------------------------------------------------------------------

    def _emit(
        self, state: ContainerState, value: Value, *, at_ns: int | None = None, exec_id: str | None = None
    ) -> None:
        """`at_ns` is the engine's clock; it becomes ours, never later than now."""
        wall_ns, mono_ns = time.time_ns(), time.monotonic_ns()
        uncertainty_s = 0.0
        if at_ns is not None:
            ago_ns = max(0, wall_ns - (at_ns - self._skew_ns))
            wall_ns, mono_ns = wall_ns - ago_ns, mono_ns - ago_ns
            uncertainty_s = 0.001 if self._upstream.local else 0.05
        self._source.emit(
            value,
            subject=Subject(trial=self._trial_id, container_id=state.container_id, exec=exec_id),
            wall_ns=wall_ns,
            mono_ns=mono_ns,
            uncertainty_s=uncertainty_s,
        )

    def _cover(
        self,
        level: Literal["on", "off", "lost"],
        why: str | None,
        *,
        containers_missed: bool = False,
        since_ns: int | None = None,
    ) -> None:
        now_wall_ns, now_mono_ns = time.time_ns(), time.monotonic_ns()
        ago_ns = 0 if since_ns is None else max(0, now_wall_ns - since_ns)
        self._source.emit(
            CoverageChanged(
                source=COVERAGE_SOURCE,
                families=list(FAMILIES),
                state=level,
                why=why,
                containers_missed=containers_missed,
            ),
            wall_ns=now_wall_ns - ago_ns,
            mono_ns=now_mono_ns - ago_ns,
        )

    def _partial(self, key: str, why: str, *, containers_missed: bool = False) -> None:
        """Said once per reason."""
        if key not in self._said_partial:
            self._said_partial.add(key)
            self._cover("on", why, containers_missed=containers_missed)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"docker-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.active_ns = time.monotonic_ns()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._source.emit(
                Note(event="collector_failed", text=f"{task.get_name()}: {type(error).__name__}: {error}"[:300])
            )


def container_seen(facts: ContainerFacts, *, join: str | None) -> ContainerSeen:
    """What the engine says of a container, before its cgroup was looked at."""
    service = facts.labels.get("com.docker.compose.service")
    return ContainerSeen(
        container_id=facts.id,
        name=facts.name,
        image=facts.image,
        image_digest=facts.image_digest,
        role="main" if service in (None, "main", "default", "client", "agent") else "service",
        labels=dict(facts.labels),
        init_pid=facts.init_pid,
        memory_limit=facts.memory_limit,
        memory_reservation=facts.memory_reservation,
        memory_swap_limit=facts.memory_swap_limit,
        oom_kill_disabled=facts.oom_kill_disabled or None,
        cpu_limit=facts.cpu_limit,
        pids_limit=facts.pids_limit,
        tmpfs=list(facts.tmpfs),
        started_wall_ns=facts.started_ns,
        network_mode=facts.network_mode,
        join=join,
    )
