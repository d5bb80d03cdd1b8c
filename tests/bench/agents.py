"""What fairtrial takes beside agents: CPU of both processes while 16 Claude Code-like ones work, or none.

`python -m tests.bench agents`.  Each agent says 76 KB per call, hears a streamed answer (0.6 s to its first event, then
one each 30 ms), and runs a tool for a while.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

import uvloop

from tests.bench.messages import agent_body, request
from tests.bench.observed import Run, Upstreams
from tests.bench.processes import OTHER_CORES, raise_file_limit, settle
from tests.bench.relay_load import Door
from tests.bench.rows import Row, spread

AGENTS: Final = 16
WINDOWS: Final = 5
WINDOW_S: Final = 4.0
TOOL_S: Final = 2.0
PATIENCE_S: Final = 60.0


class Agent(asyncio.Protocol):
    """One conversation on one connection: asks, hears the answer to its end, runs a tool, asks again."""

    def __init__(
        self, door: Door, number: int, steps: int, pause_s: float, pace: str = "agent", *, prompt_bytes: int = 76_000
    ) -> None:
        self.door = door
        self.number = number
        self.steps = steps
        self.pause_s = pause_s
        self.prompt_bytes = prompt_bytes
        self.pace = pace
        """Of the answers: `agent`, as one is used to them, or `fast`, whole at once."""
        self.step = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.ask()

    def ask(self) -> None:
        session = f"X-Claude-Code-Session-Id: 00000000-0000-4000-8000-{self.number:012d}"
        body = agent_body(self.number, self.step, self.prompt_bytes)
        self.transport.write(request(self.door.prefix, f"{self.pace}.{self.number}.{self.step}", body, session))
        self.step += 1

    def data_received(self, data: bytes) -> None:
        if not data.endswith(b"\r\n0\r\n\r\n"):
            return
        if self.step < self.steps:
            asyncio.get_running_loop().call_later(self.pause_s, self.ask)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done.done():
            return
        if self.step < self.steps:
            self.done.set_exception(RuntimeError(f"cut at step {self.step} ({exc!r})"))
        else:
            self.done.set_result(None)


async def converse(door: Door, agents: int, steps: int, *, pause_s: float) -> None:
    """So many agents at once, each to its last step; they begin one after the other."""
    loop = asyncio.get_running_loop()
    made: list[Agent] = []
    for number in range(agents):
        made.append(Agent(door, number, steps, pause_s))
        await loop.create_connection(partial(made.__getitem__, number), "127.0.0.1", door.port)
        await asyncio.sleep(pause_s / agents)
    async with asyncio.timeout(PATIENCE_S + steps * (pause_s + 4)):
        await asyncio.gather(*(agent.done for agent in made))


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budgets of DESIGN section 7."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    yield from uvloop.run(_measured(1 if quick else WINDOWS, 1.0 if quick else WINDOW_S))


async def _measured(windows: int, window_s: float) -> list[Row]:
    async with Upstreams() as ups:
        with ups.run(tls=True, run="bench") as run:
            run.ready()
            settle(run.processes)
            idle = await _shares(run, windows, window_s / 2)
            steps = 1 + round(windows * window_s / (TOOL_S + 2.5))
            talking = asyncio.get_running_loop().create_task(
                converse(run.door, AGENTS, steps, pause_s=TOOL_S), name="agents"
            )
            await asyncio.sleep(min(TOOL_S, window_s))
            busy = await _shares(run, windows, window_s)
            for_relay, for_observer = (spread([share[at] for share in busy])[0] for at in (0, 1))
            await talking
            record = await asyncio.to_thread(run.finish)
            spans = ups.collector.ask()
    trials = cast("list[dict[str, object]]", record.get("trials") or [])
    how = f"{len(trials)} trials of one run, told apart at its end, TLS upstream"
    ended, calls = sum((outcomes(trial) for trial in trials), Counter[str]()), AGENTS * steps
    return [
        _row("CPU beside an idle trial, both", [sum(share) for share in idle], 1, f"{windows} x {window_s / 2:g} s"),
        _row(
            f"CPU beside {AGENTS} Claude Code-like trials, both", [sum(share) for share in busy], 10,
            f"{how}; relay {for_relay:.1f}, observer {for_observer:.1f}",
        ),
        Row(
            what="calls of theirs that stand in the record as whole", value=ended["ok"], unit="", budget=calls,
            sense="at least", how=f"of {calls}; {spans['client_spans']} of them at the collector",
        ),
    ]  # fmt: skip


def outcomes(record: dict[str, object]) -> Counter[str]:
    """How the attempts of a trial's record ended, side calls included; `-`: without an end."""
    calls = cast("list[dict[str, object]]", record.get("side_calls") or [])
    for step in cast("list[dict[str, object]]", record.get("steps") or []):
        calls = calls + cast("list[dict[str, object]]", step.get("calls") or [])
    attempts = [one for call in calls for one in cast("list[dict[str, object]]", call.get("attempts") or [])]
    return Counter(str(one.get("outcome") or "-") for one in attempts)


async def _shares(run: Run, windows: int, window_s: float) -> list[tuple[float, float]]:
    """Percent of a core that relay and observer took in each window."""
    shares: list[tuple[float, float]] = []
    for _ in range(windows):
        before, began_s = [process.cpu_s() for process in run.processes], time.monotonic()
        await asyncio.sleep(window_s)
        spent_s = time.monotonic() - began_s
        relay, observer = (
            100 * (process.cpu_s() - was) / spent_s for process, was in zip(run.processes, before, strict=True)
        )
        shares.append((relay, observer))
    return shares


def _row(what: str, shares: list[float], budget: float, how: str) -> Row:
    value, noise = spread(shares)
    return Row(what=what, value=value, noise=noise, unit="% of a core", budget=budget, how=how)
