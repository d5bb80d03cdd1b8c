"""The place of an observation: its step and its phase, by the moments that divide a trial.

In: one observation, the starts of the steps, the ends, what the harness booked.  Out: a `Placed`.
What is read late (a kill counter, a container's end) belongs to the moment that it tells of.
What this module does not do: find those starts (`opened.py`) or the phases that a harness booked (`booked.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    CgroupReading,
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    ExecEnded,
    ExecStarted,
    HarnessOutcome,
    KernelOomKill,
    Observation,
    OomKill,
    TrialEnded,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import (
    CallRole,
    PhaseName,
)
from fairtrial.middleware.steps.attempts import FoldedCall
from fairtrial.middleware.steps.booked import Booking
from fairtrial.middleware.steps.kill_times import Moment
from fairtrial.middleware.steps.placed import Placed
from fairtrial.middleware.steps.selected import Decoded

LATE_KILL_NS: Final = 25_000_000
"""A kill counter is read a little after the kill: one that moved this shortly after a call began belongs to the step
before."""

STRUCK_NS: Final = 50_000_000
"""A command that died by SIGKILL this shortly before its container was told to stop died of that: the runtime's events
come in either order."""

LATE_END_NS: Final = 2_000_000_000
"""What is read of a container this shortly after the command's end still tells of the agent's time."""

_LATE_TYPES: Final = frozenset({OomKill, KernelOomKill, ContainerGone, ContainerEvent, ExecEnded, CgroupReading})

_OUTSIDE_STEPS: Final = frozenset({PhaseName.TEARDOWN, PhaseName.VERIFY, PhaseName.BUILD})

_KILLS: Final = frozenset({OomKill, KernelOomKill})
_STOPS: Final = frozenset({ExecStarted, ExecEnded, ContainerEvent})


@dataclass(slots=True, kw_only=True)
class Ends:
    """The moments that divide a trial, wall ns; None where they were not seen."""

    started_ns: int | None
    first_call_ns: int | None
    ended_ns: int | None
    stopped: Mapping[str, int]
    """Container id -> when the runtime was told to stop it after the agent's work was done."""

    @property
    def agent_ended_ns(self) -> int | None:
        return self.ended_ns

    @classmethod
    def of(cls, own: Sequence[Decoded], calls: Sequence[FoldedCall], roles: Sequence[CallRole]) -> Ends:
        started = next((o.wall_ns for o, v in own if isinstance(v, TrialStarted)), None)
        ended = next((o.wall_ns for o, v in reversed(own) if isinstance(v, TrialEnded)), None)
        first = min((c.started_wall_ns for c in calls if c.request.operation != "hello"), default=None)
        main = [call for call, role in zip(calls, roles, strict=True) if role == "step"]
        stopped = _stops(own, main[-1] if main else None, ended)
        return cls(started_ns=started, first_call_ns=first, ended_ns=ended, stopped=stopped)


def _stops(own: Sequence[Decoded], last_call: FoldedCall | None, ended_ns: int | None) -> dict[str, int]:
    """When each container was stopped or killed through the runtime once nothing of the agent's was at work in it.

    A stop while an exec runs, or while a tool call of the last reply has no exec that ended, is no teardown: it may
    be what ended the agent.
    """
    stops: dict[str, int] = {}
    live: dict[str, set[str]] = {}
    worked: set[str] = set()
    struck: dict[str, int] = {}
    after = last_call.ended_wall_ns if last_call is not None else None
    for observation, value in own:
        if type(value) not in _STOPS:
            continue
        at = observation.wall_ns
        if isinstance(value, ExecStarted):
            live.setdefault(value.container_id, set()).add(value.exec_id)
        elif isinstance(value, ExecEnded):
            live.get(value.container_id, set()).discard(value.exec_id)
            if value.exit_code == 137:
                struck[value.container_id] = at
            if after is not None and at >= after:
                worked.add(value.container_id)
        elif isinstance(value, ContainerEvent) and _is_stop(value) and value.container_id not in stops:
            container = value.container_id
            if ended_ns is not None and at >= ended_ns:
                stops[container] = at
            elif (
                last_call is None
                or after is None
                or at < after
                or live.get(container)
                or (container in struck and at - struck[container] <= STRUCK_NS)
            ):
                continue
            elif container in worked or (last_call.completed and not last_call.reply.tool_calls):
                stops[container] = at
    return stops


def _is_stop(event: ContainerEvent) -> bool:
    """A `kill` event is any signal through the runtime; only some end a process that does not ask for them."""
    return event.action == "stop" or (event.action == "kill" and event.signal in {None, 2, 3, 9, 15})


def place(
    observation: Observation,
    value: Value,
    starts: Sequence[int],
    ends: Ends,
    booking: Booking,
    kills: Mapping[str, Moment],
) -> Placed:
    """`starts`: of the steps, wall ns, ascending; `kills`: when the last kill of a counter's observation was."""
    at = observation.wall_ns
    kind = type(value)
    if kind is HarnessOutcome:
        return Placed(observation=observation, value=value, step=None, phase=PhaseName.TEARDOWN)
    if isinstance(value, ContainerSeen) and booking.is_verifiers(value, at):
        value = structs.replace(value, role="verifier")
    if kind is AttemptEnded:
        # A call belongs to where it began, however long it took.
        at = value.started_wall_ns or at if isinstance(value, AttemptEnded) else at
    elif kind in _LATE_TYPES and kind is not CgroupReading:
        late = round(observation.uncertainty_s * 1e9)
        earlier = at - (max(LATE_KILL_NS, late) if kind is OomKill else late)
        if kind is OomKill and observation.id in kills:
            at, late = kills[observation.id]
            earlier = min(earlier, at - late)
        if kind in _KILLS and starts:
            # Not before the first call, if it may have been behind it: a kill before any reply can prove whose it was.
            earlier = max(earlier, min(at, starts[0]))
        at = earlier
    phase = observation.phase or _told_phase(at, value, booking) or _phase(observation.wall_ns, at, value, ends)
    step = bisect_right(starts, at) or None
    if phase in _OUTSIDE_STEPS:
        step = None
    return Placed(observation=observation, value=value, step=step, phase=phase)


def step_at(at_ns: int, starts: Sequence[int], ends: Ends) -> int | None:
    """The step that a moment falls into; None before the first and after the end."""
    over = ends.ended_ns is not None and at_ns > ends.ended_ns
    return None if over else bisect_right(starts, at_ns) or None


def _told_phase(at: int, value: Value, booking: Booking) -> PhaseName | None:
    """The harness's own phase of a moment.  A model call is the agent's whatever the harness says of the time: a
    verifier's own calls are not told apart yet."""
    if not booking.windows or isinstance(value, AttemptStarted | AttemptEnded | TrialStarted | TrialEnded):
        return None
    return booking.phase_at(at)


def _phase(wall_ns: int, at: int, value: Value, ends: Ends) -> PhaseName:
    kind = type(value)
    if ends.stopped and kind in _LATE_TYPES and kind is not CgroupReading and kind is not OomKill:
        stopped = ends.stopped.get(getattr(value, "container_id", None) or "")
        if stopped is not None and at >= stopped:
            return PhaseName.TEARDOWN
    if ends.ended_ns is not None and at > ends.ended_ns:
        in_time = kind in _LATE_TYPES and wall_ns <= ends.ended_ns + LATE_END_NS
        if not in_time and kind is not TrialEnded:
            return PhaseName.TEARDOWN
    if ends.first_call_ns is None or at < ends.first_call_ns:
        return PhaseName.SETUP
    return PhaseName.AGENT
