"""The step assembler: the observations of one trial become a `Trial` with its steps.

In: observations in any order, with repeats, of this and other trials.  Out: an `Assembly`: the trial without a
verdict, and every observation that bears on it with its step and phase.  Pure: no clock, no ids made, the same input
gives the same output. What this module does not do: judge (`attribution/`), fold attempts (`attempts.py`), assign
roles (`roles.py`), sum up counters (`window.py`), sum up coverage (`watched.py`), find tool work (`tools.py`).

A step begins with a main-agent call and lasts until the next one; a call that never completed opens the step that it
would have become, and a further call for the same turn stays in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import structs

from fairtrial.middleware.core.clock import rfc3339
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
    MutationSeen,
    Note,
    Observation,
    OomKill,
    TrialEnded,
    TrialStarted,
    Value,
    decode,
)
from fairtrial.middleware.core.records import (
    CallRole,
    CpuLimits,
    Environment,
    Limits,
    MemoryLimits,
    Mutation,
    Outcome,
    Phase,
    PhaseName,
    Step,
    TimeLimits,
    Trial,
    Trust,
)
from fairtrial.middleware.steps.agents import lineages
from fairtrial.middleware.steps.attempts import FoldedCall, SeenAttempt, call_record, changes, fold, seen
from fairtrial.middleware.steps.booked import CONTROL, Booking
from fairtrial.middleware.steps.identity import extends, session_key
from fairtrial.middleware.steps.kill_times import Moment, by_path, moments
from fairtrial.middleware.steps.placed import Assembly, Placed
from fairtrial.middleware.steps.roles import assign_roles
from fairtrial.middleware.steps.tools import Span, Tools
from fairtrial.middleware.steps.tunnels import connections
from fairtrial.middleware.steps.watched import coverage
from fairtrial.middleware.steps.window import Windows, container_facts
from fairtrial.middleware.steps.words import marks

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


def assemble(observations: Iterable[Observation], trial_id: str) -> Assembly:
    """Assemble one trial from the observations of a store or a stream."""
    selected, unassigned = _select(observations, trial_id)
    own = [pair for pair in selected if not isinstance(pair[1], HarnessOutcome)]
    calls = fold(_attempts(own))
    roles = assign_roles(calls)
    booking = Booking.of(
        (pair for pair in selected if isinstance(pair[1], HarnessOutcome)),
        [(c.started_wall_ns, c.ended_wall_ns) for c, role in zip(calls, roles, strict=True) if role == "step"],
    )
    steps = _open_steps(calls, roles)
    ends = _Ends.of(own, calls, roles)
    starts = [step.started_ns for step in steps]
    agent_ended_ns = ends.agent_ended_ns
    if booking.agent_ended_ns is not None and starts and booking.agent_ended_ns > starts[-1]:
        agent_ended_ns = booking.agent_ended_ns
    kills = moments(own)
    placed = tuple(_place(observation, value, starts, ends, booking, kills) for observation, value in selected)

    containers = container_facts(placed)
    windows = Windows(starts, containers, placed)
    tools = Tools(calls, [Span(step.index, step.started_ns, step.calls) for step in steps], placed, agent_ended_ns)
    records = [
        Step(
            index=step.index,
            phase=PhaseName.AGENT,
            started=rfc3339(step.started_ns),
            ended=_time(starts[step.index] if step.index < len(starts) else agent_ended_ns),
            calls=[call_record(call, "step") for call in step.calls],
            tools=tools.of(step.index),
            containers=windows.uses(step.index),
        )
        for step in steps
    ]
    side_calls = [
        call_record(call, role, kin)
        for call, role, kin in zip(calls, roles, lineages(calls, roles), strict=True)
        if role != "step"
    ]
    trial = structs.replace(
        _trial(trial_id, own, records, ends, booking),
        side_calls=side_calls,
        marks=marks(own, lambda at_ns: _step_at(at_ns, starts, ends)),
        connections=connections(placed),
        unassigned=unassigned,
        coverage=coverage(placed, calls, ends.ended_ns),
    )
    attempt_call = {attempt.id: call.id for call in calls for attempt in call.attempts}
    return Assembly(trial=trial, placed=placed, attempt_call=attempt_call)


# --- which observations, in which order -----------------------------------------------------------------------------

_Decoded = tuple[Observation, Value]
_ATTEMPTS: Final = frozenset({AttemptStarted, AttemptEnded})
_KILLS: Final = frozenset({OomKill, KernelOomKill})
_WORDS: Final = frozenset({Note.kind, HarnessOutcome.kind})
_STOPS: Final = frozenset({ExecStarted, ExecEnded, ContainerEvent})


def _select(observations: Iterable[Observation], trial_id: str) -> tuple[list[_Decoded], dict[str, int]]:
    """This trial's observations and those about the whole host, in order, repeats gone; and what could not be
    assigned.

    What the agent can write is kept as a note, or as its own word on how it ended (`booked.py` knows its worth), at
    most: an exec, a reading or a coverage of its telling would move steps, tools and windows, and so the verdict.
    """
    unique: dict[tuple[str, int], Observation] = {}
    for observation in observations:
        if observation.subject.trial not in {None, trial_id}:
            continue
        if observation.trust is Trust.INSIDE and observation.kind not in _WORDS:
            continue
        key = (observation.source_id, observation.seq)
        known = unique.get(key)
        if known is None or observation.id < known.id:
            unique[key] = observation
    ordered = sorted(unique.values(), key=lambda o: (o.wall_ns, o.mono_ns, o.source_id, o.seq))
    decoded = [(o, value) for o in ordered if (value := decode(o)) is not None]
    ours = {v.container_id for o, v in decoded if isinstance(v, ContainerSeen) and o.subject.trial == trial_id}
    selected: list[_Decoded] = []
    stray_attempts: set[str] = set()
    stray_containers: set[str] = set()
    for observation, value in decoded:
        if observation.subject.trial is None:
            if isinstance(value, AttemptStarted | AttemptEnded):
                stray_attempts.add(value.attempt)
                continue
            if isinstance(value, TrialStarted | TrialEnded):
                continue
            container = getattr(value, "container_id", None)
            if isinstance(container, str) and container not in ours and not isinstance(value, KernelOomKill):
                stray_containers.add(container)
                continue
        selected.append((observation, by_path(value, ours) if isinstance(value, KernelOomKill) else value))
    counts = {"attempts": len(stray_attempts), "containers": len(stray_containers)}
    return selected, {name: count for name, count in counts.items() if count}


def _attempts(own: Iterable[_Decoded]) -> list[SeenAttempt]:
    """Each attempt once: by its first end, or by its start where no end was seen."""
    started: dict[str, tuple[Observation, AttemptStarted]] = {}
    ended: dict[str, tuple[Observation, AttemptEnded]] = {}
    for observation, value in own:
        if type(value) not in _ATTEMPTS:
            continue
        if isinstance(value, AttemptEnded):
            ended.setdefault(value.attempt, (observation, value))
        elif isinstance(value, AttemptStarted):
            started.setdefault(value.attempt, (observation, value))
    known: list[tuple[Observation, AttemptStarted | AttemptEnded]] = list(ended.values())
    known += [pair for attempt, pair in started.items() if attempt not in ended]
    return [seen(value, observation=o.id, wall_ns=o.wall_ns) for o, value in known]


# --- steps ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """A step while it is being put together."""

    index: int
    started_ns: int
    calls: list[FoldedCall] = field(default_factory=list[FoldedCall])


def _open_steps(calls: Sequence[FoldedCall], roles: Sequence[CallRole]) -> list[_Open]:
    steps: list[_Open] = []
    for call, role in zip(calls, roles, strict=True):
        if role != "step":
            continue
        if steps and _is_hedge(steps[-1], call):
            steps[-1].calls.append(call)
        elif steps and _asks_again(steps[-1], call):
            call.give_up(changes(steps[-1].calls[-1].request, call.request))
            steps[-1].calls.append(call)
        else:
            if steps and _after_failure(steps[-1], call):
                # The turn was given up, but not the trial: the client goes on with something else.
                call.give_up(
                    change for change in changes(steps[-1].calls[-1].request, call.request) if change == "model"
                )
            steps.append(_Open(index=len(steps) + 1, started_ns=call.started_wall_ns, calls=[call]))
    return steps


def _is_hedge(step: _Open, call: FoldedCall) -> bool:
    """Whether the call asks for the open step's turn while another call for it is in flight."""
    return call.concurrent_duplicate is not None and any(c.id == call.concurrent_duplicate for c in step.calls)


def _after_failure(step: _Open, call: FoldedCall) -> bool:
    last = step.calls[-1]
    failed = last.outcome in {"error", "truncated", "client_disconnect"}
    return failed and session_key(last.request) == session_key(call.request)


def _asks_again(step: _Open, call: FoldedCall) -> bool:
    """Whether the call is for the turn that the open step's last call did not bring to its end."""
    last = step.calls[-1]
    if last.completed or last.ended_wall_ns is None or call.started_wall_ns < last.ended_wall_ns:
        return False
    if session_key(last.request) != session_key(call.request):
        return False
    first, begins = last.request.first_user_digest, call.request.first_user_digest
    if first is not None and begins is not None and first != begins and not extends(call.request, last.request):
        return False
    asked, asks = last.request.assistant_turns, call.request.assistant_turns
    return asked is not None and asks is not None and asks <= asked


# --- where the phases lie -------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Ends:
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
    def of(cls, own: Sequence[_Decoded], calls: Sequence[FoldedCall], roles: Sequence[CallRole]) -> _Ends:
        started = next((o.wall_ns for o, v in own if isinstance(v, TrialStarted)), None)
        ended = next((o.wall_ns for o, v in reversed(own) if isinstance(v, TrialEnded)), None)
        first = min((c.started_wall_ns for c in calls if c.request.operation != "hello"), default=None)
        main = [call for call, role in zip(calls, roles, strict=True) if role == "step"]
        stopped = _stops(own, main[-1] if main else None, ended)
        return cls(started_ns=started, first_call_ns=first, ended_ns=ended, stopped=stopped)


def _stops(own: Sequence[_Decoded], last_call: FoldedCall | None, ended_ns: int | None) -> dict[str, int]:
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


def _place(
    observation: Observation,
    value: Value,
    starts: Sequence[int],
    ends: _Ends,
    booking: Booking,
    kills: Mapping[str, Moment],
) -> Placed:
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


def _step_at(at_ns: int, starts: Sequence[int], ends: _Ends) -> int | None:
    """The step that a moment falls into; None before the first and after the end."""
    over = ends.ended_ns is not None and at_ns > ends.ended_ns
    return None if over else bisect_right(starts, at_ns) or None


def _told_phase(at: int, value: Value, booking: Booking) -> PhaseName | None:
    """The harness's own phase of a moment.  A model call is the agent's whatever the harness says of the time: a
    verifier's own calls are not told apart yet."""
    if not booking.windows or isinstance(value, AttemptStarted | AttemptEnded | TrialStarted | TrialEnded):
        return None
    return booking.phase_at(at)


def _phase(wall_ns: int, at: int, value: Value, ends: _Ends) -> PhaseName:
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


# --- the trial's own fields -----------------------------------------------------------------------------------------


def _trial(trial_id: str, own: Sequence[_Decoded], steps: list[Step], ends: _Ends, booking: Booking) -> Trial:
    begun = next(((o, v) for o, v in own if isinstance(v, TrialStarted)), None)
    end = next((v for _, v in reversed(own) if isinstance(v, TrialEnded)), None)
    start = begun[1] if begun is not None else TrialStarted()
    outcome = Outcome.UNKNOWN
    if end is not None and (end.exit_code is not None or end.signal is not None):
        outcome = Outcome.PASSED if end.exit_code == 0 and not end.signal else Outcome.FAILED
    outcome, source = booking.outcome(outcome, observed=begun is not None)
    told = booking.first
    words = booking.outside if begun is not None else booking.all
    alone = begun is None and told is not None
    seen_containers = _containers(own)
    mutations: dict[tuple[str, str | None, str | None], Mutation] = {}
    for _, value in own:
        if isinstance(value, MutationSeen):
            mutations.setdefault(
                (value.what, value.old, value.new),
                Mutation(what=value.what, old=value.old, new=value.new, why=value.why, side_effects=value.side_effects),
            )
    return Trial(
        trial=trial_id,
        name=start.name or (told.label if told is not None and alone else None),
        run=start.run or (told.run if told is not None and alone else None),
        harness=start.harness or next((each.harness for each in booking.all if each.harness != CONTROL), None),
        task=start.task or next((each.task for each in words if each.task), None),
        try_=start.try_ if start.try_ is not None or not words else words[0].try_,
        started=_time(told.started_ns if told is not None and alone else ends.started_ns),
        ended=_time(told.ended_ns if told is not None and alone else ends.ended_ns),
        closed=end.closed if end is not None else ("normal" if told is not None and alone else "incomplete"),
        trace_id=start.trace_id,
        fairtrial_version=start.fairtrial_version,
        command=start.command,
        exit_code=end.exit_code if end is not None else None,
        signal=end.signal if end is not None else None,
        outcome=outcome,
        outcome_source=source,
        booked=booking.records(),
        phases=_told_phases(booking) or _phases(own, ends, outcome),
        environment=structs.replace(
            _environment(begun, seen_containers),
            concurrency_at_start=next((each.concurrency for each in booking.outside if each.concurrency), None),
        ),
        limits=_declared(_limits(start, seen_containers), booking),
        mutations=list(mutations.values()),
        steps=steps,
    )


def _containers(own: Iterable[_Decoded]) -> list[ContainerSeen]:
    """The newest sight of each container, the command's own cgroup included, in order of first sight."""
    newest: dict[str, ContainerSeen] = {}
    for _, value in own:
        if isinstance(value, ContainerSeen):
            newest[value.container_id] = value
    return list(newest.values())


def _phases(own: Sequence[_Decoded], ends: _Ends, outcome: Outcome) -> list[Phase]:
    phases: list[Phase] = []
    begin, first, ended = ends.started_ns, ends.first_call_ns, ends.ended_ns
    if begin is not None:
        phases.append(
            Phase(name=PhaseName.SETUP, started=rfc3339(begin), ended=_time(first or ended), source="observed")
        )
    if first is not None:
        booked = None if outcome is Outcome.UNKNOWN else outcome.value
        phases.append(
            Phase(name=PhaseName.AGENT, started=rfc3339(first), ended=_time(ended), outcome=booked, source="observed")
        )
    stops = [*ends.stopped.values(), *([ended] if ended is not None else [])]
    # Not what was told from inside: a harness speaks of a trial when it is long over.
    last = next((o.wall_ns for o, _ in reversed(own) if o.trust is not Trust.INSIDE), None)
    if stops and last is not None and last > min(stops):
        phases.append(
            Phase(name=PhaseName.TEARDOWN, started=rfc3339(min(stops)), ended=rfc3339(last), source="observed")
        )
    return phases


def _told_phases(booking: Booking) -> list[Phase]:
    return [
        Phase(
            name=window.name,
            started=rfc3339(window.started_ns),
            ended=_time(window.ended_ns),
            outcome=window.outcome,
            source=window.source,
        )
        for window in booking.windows
    ]


def _declared(limits: Limits, booking: Booking) -> Limits:
    """With what the harness declared: its limits of time, and what the task asked for."""
    if not booking.outside:
        return limits
    time = next((each.time for each in booking.outside if each.time != TimeLimits()), limits.time)
    memory = next((each.memory_declared for each in booking.outside if each.memory_declared), limits.memory.declared)
    cores = next((each.cpus_declared for each in booking.outside if each.cpus_declared), limits.cpu.declared)
    return structs.replace(
        limits,
        time=time,
        memory=structs.replace(limits.memory, declared=memory),
        cpu=structs.replace(limits.cpu, declared=cores),
    )


def _environment(begun: tuple[Observation, TrialStarted] | None, containers: Sequence[ContainerSeen]) -> Environment:
    boxes = [c for c in containers if c.role != "own"]
    main = _main(containers)
    if begun is None:
        return Environment(container_ids=[c.container_id for c in boxes], runtime="docker" if boxes else None)
    observation, start = begun
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=observation.wall_ns // 1000)
    return Environment(
        runtime="docker" if boxes else None,
        node=observation.host.name,
        node_boot_id=observation.host.boot_id,
        container_ids=[c.container_id for c in boxes],
        image_digest=main.image_digest if main is not None else None,
        cpu_model=start.cpu_model,
        cores=start.cores,
        kernel=start.kernel,
        cgroup=start.cgroup,
        hour_of_week=moment.weekday() * 24 + moment.hour,
    )


def _main(containers: Sequence[ContainerSeen]) -> ContainerSeen | None:
    for role in ("main", "own"):
        for container in containers:
            if container.role == role:
                return container
    return None


def _limits(start: TrialStarted, containers: Sequence[ContainerSeen]) -> Limits:
    main = _main(containers)
    headroom = start.options.get("headroom")
    factor = float(headroom) if isinstance(headroom, int | float) else None
    if main is None:
        return Limits(headroom=factor)
    bounded = (main.memory_limit, main.cpu_limit, main.pids_limit) != (None, None, None)
    return Limits(
        memory=MemoryLimits(
            floor=main.memory_reservation,
            ceiling=main.memory_limit,
            swap=main.memory_swap_limit,
            oom_group=main.oom_group,
        ),
        cpu=CpuLimits(ceiling=main.cpu_limit),
        pids=main.pids_limit,
        headroom=factor,
        enforced_by=None if not bounded else ("cgroup" if main.role == "own" else "docker"),
    )


def _time(wall_ns: int | None) -> str | None:
    return None if wall_ns is None else rfc3339(wall_ns)
