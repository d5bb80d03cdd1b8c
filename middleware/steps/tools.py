"""The tool work of each step: what a reply asked for, and the exec or `docker run` that served it.

In: calls, steps and placed observations of one trial.  Out: `Tool` records in the order of the reply.  An exec is put
together from what the runtime told (start, exit code) and what the Docker door saw pass (text, bytes, who ended it);
either alone will do.  `join` says how an exec found its tool call: the same text, else the only exec beside the only
call.  Both lie in the step, so behind the reply that asked and before the next turn, and in a container of the trial.

A harness's own upkeep (tmux traffic, set-up, health checks, `core/commands.is_plumbing`) and what ran before the first
call is no tool work.  Where the calls of a step came from a container, the agent is inside and its tools are its own
children: an exec in that same container is its harness's, and one in another is the agent's only by the same text.

How this can be wrong: a harness that runs one command of its own beside one tool call that needs no exec gets the two
joined by time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from msgspec import structs

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import (
    CoverageChanged,
    DoorContainer,
    DoorExec,
    ExecEnded,
    ExecStarted,
    ToolUse,
)
from fairtrial.middleware.core.records import PhaseName, Tool
from fairtrial.middleware.steps.attempts import FoldedCall
from fairtrial.middleware.steps.placed import Placed

ENGINE_LOST_NS: Final = 2_000_000_000
"""An engine that dies ends its streams as a process's end does; that its events broke off within this tells it."""

_EVENTS: Final = "collector.docker_events"
_OTHER_PHASES: Final = frozenset({PhaseName.BUILD, PhaseName.VERIFY})
"""Teardown is told by the start of what ran: the door tells of an exec when it has ended."""


@dataclass(frozen=True, slots=True)
class Span:
    """A step as its tools need it: number from 1, begin, calls."""

    index: int
    started_ns: int
    calls: Sequence[FoldedCall]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """One exec, or one `docker run`, from all that is known of it."""

    started_ns: int
    exec_id: str | None = None
    container_id: str | None = None
    """Of a run."""
    within: str | None = None
    """The container of an exec."""
    ended_ns: int | None = None
    exit_code: int | None = None
    text_digest: str | None = None
    plumbing: bool = False
    dispatch_delay: float | None = None
    duration: float | None = None
    command: list[str] | None = None
    bytes_out: int | None = None
    bytes_err: int | None = None
    bytes_in: int | None = None
    ended_by: Literal["process", "client", "engine", "fairtrial"] | None = None


class Tools:
    """Finds the tool work of each step: from the reply that asked for it to the request that brought its result."""

    def __init__(
        self, calls: Sequence[FoldedCall], steps: Sequence[Span], placed: Iterable[Placed], ended_ns: int | None
    ) -> None:
        self._steps = steps
        self._answered: dict[str, int] = {}
        for call in calls:
            for result in call.request.tool_result_ids:
                self._answered.setdefault(result, call.started_wall_ns)
        self._ran: dict[int, list[_Ran]] = {}
        starts = [step.started_ns for step in steps]
        for ran in _all_that_ran(placed):
            if not ran.plumbing and (ended_ns is None or ran.started_ns <= ended_ns):
                self._ran.setdefault(bisect_right(starts, ran.started_ns), []).append(ran)

    def of(self, index: int) -> list[Tool]:
        """The step's tools in the order of the reply; then each `docker run`; execs without a tool call in the reply
        are tools without a name."""
        step = self._steps[index - 1]
        asked = self._asked(step)
        begun_ns = step.calls[0].ended_wall_ns or 0
        inside = {attempt.facts.container_id for call in step.calls for attempt in call.attempts}
        ran = [
            one
            for one in self._ran.get(index, [])
            if one.started_ns >= begun_ns and (one.within is None or one.within not in inside)
        ]
        agent_is_inside = None not in inside
        joined, free = _joined(asked, ran, by_time=not agent_is_inside)
        following = self._steps[index].started_ns if index < len(self._steps) else None
        tools: list[Tool] = []
        for n, (call, use) in enumerate(asked):
            started = call.ended_wall_ns
            ended = self._answered.get(use.id) if use.id is not None else None
            if ended is None or (started is not None and ended < started):
                ended = following if use.id is None else None
            one, join = joined.get(n, (None, "inferred"))
            if ended is None and one is not None:
                # The last step's results go up with no further call: the runtime saw when its command ended.
                ended = one.ended_ns
            tools.append(_tool(one, join, asked_ns=started, started_ns=started, ended_ns=ended, use=use))
        last_ns = step.calls[-1].ended_wall_ns
        tools.extend(
            _tool(one, "time", asked_ns=last_ns, started_ns=one.started_ns, ended_ns=one.ended_ns)
            for one in free
            if not agent_is_inside and (not asked or one.container_id is not None)
        )
        return tools

    def _asked(self, step: Span) -> list[tuple[FoldedCall, ToolUse]]:
        """The tool calls of the step's replies; of hedged twins those that the client took."""
        asked = [(call, use) for call in step.calls for use in call.reply.tool_calls]
        if any(call.concurrent_duplicate is not None for call in step.calls):
            taken = [(call, use) for call, use in asked if use.id in self._answered]
            return taken or asked
        return asked


def _joined(
    asked: Sequence[tuple[FoldedCall, ToolUse]], ran: Sequence[_Ran], *, by_time: bool
) -> tuple[dict[int, tuple[_Ran, str]], list[_Ran]]:
    """Which of the tool calls each was, and how that was told; and what is left."""
    free = list(ran)
    joined: dict[int, tuple[_Ran, str]] = {}
    for n, (_, use) in enumerate(asked):
        same = next((one for one in free if use.text_digest and one.text_digest == use.text_digest), None)
        if same is not None:
            joined[n] = same, "text"
            free.remove(same)
    execs = [one for one in ran if one.container_id is None]
    if by_time and len(asked) == 1 and not joined and len(execs) == 1:
        joined[0] = execs[0], "time"
        free.remove(execs[0])
    return joined, free


def _tool(
    ran: _Ran | None,
    join: str,
    *,
    asked_ns: int | None,
    started_ns: int | None,
    ended_ns: int | None,
    use: ToolUse | None = None,
) -> Tool:
    tool = Tool(
        name=None if use is None else use.name,
        call_id=None if use is None else use.id,
        started=_time(started_ns),
        ended=_time(ended_ns),
        exec_via="inferred" if ran is None else "docker",
        join=join,
    )
    if ran is None:
        return tool
    delay = ran.dispatch_delay
    if delay is None and asked_ns is not None:
        delay = round(max(0, ran.started_ns - asked_ns) / 1e9, 6)
    return structs.replace(
        tool,
        exit_code=ran.exit_code,
        exec_id=ran.exec_id,
        dispatch_delay=delay,
        bytes_out=ran.bytes_out,
        bytes_err=ran.bytes_err,
        bytes_in=ran.bytes_in,
        exec_duration=ran.duration,
        ended_by=ran.ended_by,
        container_id=ran.container_id,
        command=ran.command,
    )


# --- what ran --------------------------------------------------------------------------------------------------------


def _all_that_ran(placed: Iterable[Placed]) -> Iterator[_Ran]:
    """Every exec and every run, in the order of their starts."""
    told: dict[str, tuple[int, ExecStarted]] = {}
    ends: dict[str, tuple[int, ExecEnded]] = {}
    seen: dict[str, tuple[int, DoorExec]] = {}
    boxes: dict[str, list[tuple[int, DoorContainer]]] = {}
    lost: list[int] = []
    watched = True
    for one in placed:
        value = one.value
        if one.phase in _OTHER_PHASES and isinstance(value, ExecStarted | DoorExec | DoorContainer):
            continue
        if isinstance(value, ExecStarted):
            told.setdefault(value.exec_id, (one.at_ns, value))
        elif isinstance(value, ExecEnded):
            ends[value.exec_id] = one.at_ns, value
        elif isinstance(value, DoorExec):
            seen.setdefault(value.exec_id, (one.at_ns, value))
        elif isinstance(value, DoorContainer) and value.container_id is not None:
            boxes.setdefault(value.container_id, []).append((one.at_ns, value))
        elif isinstance(value, CoverageChanged) and value.source == _EVENTS and value.container_id is None:
            # Events that were never reached, or that we ourselves gave up at the end, did not break off.
            if watched and value.state == "lost":
                lost.append(one.at_ns)
            watched = value.state == "on"
    ran = [_exec(exec_id, told.get(exec_id), ends.get(exec_id), seen.get(exec_id)) for exec_id in {**told, **seen}]
    ran += [run for container_id, did in boxes.items() if (run := _run(container_id, did)) is not None]
    for one_ran in sorted(ran, key=lambda each: each.started_ns):
        yield _not_the_process(one_ran, lost)


def _exec(
    exec_id: str,
    told: tuple[int, ExecStarted] | None,
    end: tuple[int, ExecEnded] | None,
    seen: tuple[int, DoorExec] | None,
) -> _Ran:
    at_ns, door = seen if seen is not None else (0, DoorExec(exec_id=exec_id))
    started_ns = told[0] if told is not None else door.started_wall_ns or at_ns
    over_ns = at_ns if door.duration is not None else None
    by_runtime = None if told is None else told[1]
    written = _sum(door.stdout, door.stderr, door.raw)
    return _Ran(
        exec_id=exec_id,
        within=door.container_id or (by_runtime.container_id if by_runtime is not None else None),
        started_ns=started_ns,
        ended_ns=end[0] if end is not None else over_ns,
        exit_code=end[1].exit_code if end is not None else None,
        text_digest=door.text_digest or (by_runtime.text_digest if by_runtime is not None else None),
        plumbing=door.plumbing is True or (by_runtime is not None and by_runtime.plumbing is True),
        command=door.command,
        dispatch_delay=door.dispatch_delay,
        duration=door.duration,
        bytes_out=written if written is not None else end[1].bytes_out if end is not None else None,
        bytes_err=door.stderr,
        bytes_in=door.stdin,
        ended_by=door.ended_by,
    )


def _run(container_id: str, did: Sequence[tuple[int, DoorContainer]]) -> _Ran | None:
    """A container that was made and started, and whose output or exit code its maker waited for; else it is no tool.

    A container that is only started (`run -d`, compose) is a place where things run.
    """
    made = next((value for _, value in did if value.action == "create" and value.status == 201), None)
    begun = next(((at, v) for at, v in did if v.action == "start" and v.status in (204, 304)), None)
    stream = next(((at, v) for at, v in did if v.action == "attach"), None)
    waited = next(((at, v) for at, v in did if v.action == "wait" and v.exit_code is not None), None)
    if made is None or begun is None or (stream is None and waited is None):
        return None
    started_ns = begun[1].started_wall_ns or begun[0]
    ended_ns = waited[0] if waited is not None else stream[0] if stream is not None else None
    attached = stream[1] if stream is not None else DoorContainer(action="attach")
    return _Ran(
        started_ns=started_ns,
        container_id=container_id,
        ended_ns=ended_ns,
        exit_code=waited[1].exit_code if waited is not None else None,
        text_digest=made.text_digest,
        command=made.command,
        dispatch_delay=begun[1].duration,
        duration=None if ended_ns is None else round(max(0, ended_ns - started_ns) / 1e9, 6),
        bytes_out=_sum(attached.stdout, attached.stderr, attached.raw),
        bytes_err=attached.stderr,
        bytes_in=attached.stdin,
        ended_by=attached.ended_by,
    )


def _not_the_process(ran: _Ran, lost: Sequence[int]) -> _Ran:
    """A stream that ended as a process's does, without an exit code and while the engine's events broke off."""
    if ran.ended_by != "process" or ran.exit_code is not None or ran.ended_ns is None:
        return ran
    near = bisect_left(lost, ran.ended_ns - ENGINE_LOST_NS)
    if near < len(lost) and lost[near] <= ran.ended_ns + ENGINE_LOST_NS:
        return replace(ran, ended_by="engine")
    return ran


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _time(wall_ns: int | None) -> str | None:
    return None if wall_ns is None else rfc3339(wall_ns)
