"""What ended a container: its last counters, its open commands, and the reading of its end.

In: a `die` event, or a list in which it is missing.  Out: `container.gone`, the kills that no counter reading caught,
and, where a restart policy was faster than we were, word that it runs again.

What ended it is read from the order of its events: a `kill` before `die` is the runtime's; an OOM kill just before a
`die` with 137 is an OOM; another 137 or 143 has no author here.  On a kernel that tells it, the first process's own
wait status is added: exit code 137 may be an exit, SIGKILL is a signal.  A kill whose counter went with the cgroup is
written from the kernel's log, or from the runtime's `oom` event together with a kill of the node that is otherwise
unexplained.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from fairtrial.collectors.docker_adapter import DockerAdapter
from fairtrial.collectors.docker_execs import Execs
from fairtrial.collectors.docker_state import ContainerState, Watch
from fairtrial.collectors.docker_telling import Teller
from fairtrial.collectors.parse.docker import ContainerFacts, EventFacts, parse_container
from fairtrial.collectors.wait_status import InitWatch
from fairtrial.middleware.core.observations import ContainerGone, OomKill

_OOM_BEFORE_DIE_NS: Final = 2_000_000_000
_KILL_BEFORE_DIE_NS: Final = 60_000_000_000
_SETTLE_S: Final = 0.3
_LIFE_ENDS: Final = 1_000_000
"""A new life is told to begin this many ns after the end of the one before, where the engine told of neither."""


class Ends:
    """`states`: all containers, for kills that were written already; `on_alive(state, facts)`: it runs again."""

    def __init__(
        self,
        teller: Teller,
        *,
        adapter: DockerAdapter,
        execs: Execs,
        watch: Watch,
        states: dict[str, ContainerState],
        inits: InitWatch,
        on_alive: Callable[[ContainerState, ContainerFacts], None],
    ) -> None:
        self._teller = teller
        self._adapter = adapter
        self._execs = execs
        self._watch = watch
        self._states = states
        self._inits = inits
        self._on_alive = on_alive

    async def gone(self, state: ContainerState, die: EventFacts | None, *, relisted: bool = False) -> None:
        """It ended: settle its execs and counters, then say what ended it.

        `relisted`: it runs, but with another first process than the one that was watched.
        """
        facts = parse_container(await self._adapter.container(state.container_id))
        if die is None and not relisted and facts is not None and facts.running:
            state.ending = False
            return  # the list was older than a start
        init_pid = None if state.facts is None else state.facts.init_pid
        deadline_ns = time.monotonic_ns() + int(_SETTLE_S * 1e9)
        # The kernel removes the directory when it likes; that sets no Event of ours.
        while not self._watch.settle(state.container_id) and time.monotonic_ns() < deadline_ns:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for known in list(state.execs.values()):
            if known.ended is None:
                await self._execs.check(state, known, over="container")
        self._write_lost_kills(state)
        running = facts is not None and facts.running is True
        exit_code = die.exit_code if die is not None else None if facts is None or running else facts.exit_code
        died_ns = self._died_ns(die, facts, running=running)
        signal = self._inits.take(state.container_id)
        state.alive = state.ending = False
        state.over, state.ended_ns = True, died_ns
        self._teller.tell(
            ContainerGone(
                container_id=state.container_id,
                exit_code=exit_code,
                oom_killed_flag=None if facts is None or running else facts.oom_killed,
                error=None if facts is None else facts.error,
                ended_by=self._ended_by(state, exit_code, died_ns, init_pid),
                init_signal=signal,
            ),
            container_id=state.container_id,
            at_ns=died_ns,
        )
        self._watch.release(state.container_id)
        if facts is not None and running and facts.init_pid is not None:
            self._on_alive(state, facts)  # a restart policy was faster than we were

    def past(self, state: ContainerState, die: EventFacts) -> None:
        """A life that was over before we looked, told while the next one is watched: its events are all that there is.

        Its kill is forgotten with it: the life that is watched now was not struck by that.
        """
        if state.ended_ns is not None and state.ended_ns >= die.at_ns:
            return
        state.ended_ns = die.at_ns
        self._teller.tell(
            ContainerGone(
                container_id=state.container_id,
                exit_code=die.exit_code,
                ended_by=self._ended_by(state, die.exit_code, die.at_ns, None),
            ),
            container_id=state.container_id,
            at_ns=die.at_ns,
        )
        state.kill = state.oom_ns = None

    def _died_ns(self, die: EventFacts | None, facts: ContainerFacts | None, *, running: bool) -> int:
        """By the engine's clock: the event's, else the engine's own record, else the start of the next life, or now."""
        if die is not None:
            return die.at_ns
        if facts is not None and running and facts.started_ns is not None:
            return facts.started_ns - _LIFE_ENDS
        if facts is not None and facts.finished_ns is not None:
            return min(facts.finished_ns, self._teller.now_ns())
        return self._teller.now_ns()

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
        self._teller.tell(
            OomKill(
                container_id=state.container_id,
                delta=missing,
                memory_limit=None if state.facts is None else state.facts.memory_limit,
                source_file=proof,
                exec_candidates=[known.exec_id for known in state.recent_execs()],
            ),
            container_id=state.container_id,
            at_ns=state.oom_ns,
        )
