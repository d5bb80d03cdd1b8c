"""Commands in the trial's containers: from the events of an exec and its inspect to `exec.started` and `exec.ended`.

In: exec events of containers of ours.  Out: the two observations, in that order.  An exit code that nobody told is
None, never 0: the command's container died, the engine was restarted, or it does not answer any more.
What this module does not do: join execs to tool calls (`steps/tools.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Literal

from fairtrial.collectors.docker_adapter import NOT_FOUND, DockerAdapter
from fairtrial.collectors.docker_state import ContainerState, ExecState
from fairtrial.collectors.docker_telling import Teller
from fairtrial.collectors.parse.docker import EventFacts, parse_exec
from fairtrial.collectors.tasks import Tasks
from fairtrial.middleware.core.commands import is_plumbing, shell_text, text_digest
from fairtrial.middleware.core.observations import ExecEnded, ExecStarted

_PID_WAITS_S: Final = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)

Over = Literal["container", "engine"]
"""What ended under a command whose own end was not told."""


class Execs:
    """`on_work(state)`: a command that is no upkeep began in the container."""

    def __init__(
        self, teller: Teller, *, adapter: DockerAdapter, tasks: Tasks, on_work: Callable[[ContainerState], None]
    ) -> None:
        self._teller = teller
        self._adapter = adapter
        self._tasks = tasks
        self._on_work = on_work

    def take(self, state: ContainerState, event: EventFacts) -> None:
        """One exec event of this container; others are ignored."""
        if event.exec_id is None:
            return
        if event.action == "exec_create":
            state.execs.setdefault(event.exec_id, ExecState(event.exec_id)).command = event.command
        elif event.action == "exec_start":
            known = state.execs.setdefault(event.exec_id, ExecState(event.exec_id))
            known.command = event.command or known.command
            known.started_ns = event.at_ns
            self._tasks.spawn(self._started(state, known), "exec")
        elif event.action == "exec_die":
            known = state.execs.setdefault(event.exec_id, ExecState(event.exec_id, settled=True))
            self._ended(state, known, event)

    async def check(self, state: ContainerState, known: ExecState, *, over: Over | None = None) -> None:
        """An exec whose end was not told: ask; with `over` it has ended, and an unknown code is the answer.

        An engine that knows nothing of it was restarted, also when that could not be seen otherwise.
        """
        raw = await self._adapter.exec(known.exec_id)
        facts = parse_exec(raw)
        known.facts = facts or known.facts
        ended = over is not None or raw is NOT_FOUND or (facts is not None and facts.running is False)
        if known.ended is not None or not ended:
            return
        if over is None and raw is not NOT_FOUND and known.started_ns is None:
            return  # created, not started yet
        self.end(state, known, None if facts is None else facts.exit_code)

    def end(self, state: ContainerState, known: ExecState, exit_code: int | None, *, at_ns: int | None = None) -> None:
        """It is over, as somebody else than its own event says; `at_ns` by the engine's clock, None: now."""
        if known.ended is not None:
            return
        known.settled = True
        self._write(state, known)
        at_ns = self._teller.now_ns() if at_ns is None else at_ns
        said = EventFacts(
            container_id=state.container_id,
            action="exec_die",
            at_ns=max(at_ns, known.started_ns or at_ns),
            exec_id=known.exec_id,
            exit_code=exit_code,
        )
        self._ended(state, known, said)

    async def _started(self, state: ContainerState, known: ExecState) -> None:
        """The event comes before the process is made, so its pid is asked for until it is there."""
        for wait_s in (*_PID_WAITS_S, None):
            facts = parse_exec(await self._adapter.exec(known.exec_id))
            known.facts = facts or known.facts
            if facts is None or facts.pid is not None or known.ended is not None or wait_s is None:
                break
            await asyncio.sleep(wait_s)
        known.settled = True
        self._write(state, known)

    def _write(self, state: ContainerState, known: ExecState) -> None:
        if known.written:
            return
        known.written = True
        argv = None if known.facts is None else known.facts.argv
        text = shell_text(argv, known.command)
        healthcheck = () if state.facts is None else state.facts.healthcheck
        known.plumbing = is_plumbing(argv, known.command, healthcheck)
        self._teller.tell(
            ExecStarted(
                container_id=state.container_id,
                exec_id=known.exec_id,
                pid=None if known.facts is None else known.facts.pid,
                text_digest=None if text is None else text_digest(text),
                plumbing=known.plumbing,
            ),
            container_id=state.container_id,
            at_ns=known.started_ns,
            exec_id=known.exec_id,
        )
        if known.plumbing is False:
            self._on_work(state)
        if known.ended is not None:
            self._write_end(state, known, known.ended)

    def _ended(self, state: ContainerState, known: ExecState, event: EventFacts) -> None:
        if known.ended is not None:
            return
        known.ended = event
        known.ended_mono_ns = time.monotonic_ns()
        if known.started_ns is None:
            known.written = True  # its start was before our time
        if known.written:
            self._write_end(state, known, event)

    def _write_end(self, state: ContainerState, known: ExecState, event: EventFacts) -> None:
        self._teller.tell(
            ExecEnded(
                container_id=state.container_id,
                exec_id=known.exec_id,
                exit_code=event.exit_code,
                started_wall_ns=None if known.started_ns is None else known.started_ns - self._teller.skew_ns,
            ),
            container_id=state.container_id,
            at_ns=event.at_ns,
            exec_id=known.exec_id,
        )
