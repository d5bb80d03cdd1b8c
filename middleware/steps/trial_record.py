"""The trial's own fields: who ran what, on which machine, with which limits, and how it was booked.

In: a trial's observations, its steps, its ends and what harnesses booked.  Out: a `Trial` without a verdict.
What this module does not do: assemble the steps (`assembler.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import structs

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import (
    ContainerSeen,
    MutationSeen,
    Observation,
    TrialEnded,
    TrialStarted,
)
from fairtrial.middleware.core.records import (
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
from fairtrial.middleware.steps.booked import CONTROL, Booking
from fairtrial.middleware.steps.placing import Ends
from fairtrial.middleware.steps.selected import Decoded


def record_of(trial_id: str, own: Sequence[Decoded], steps: list[Step], ends: Ends, booking: Booking) -> Trial:
    """The trial with its `steps`; where nothing was observed, by the word of the harness that booked it first."""
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
        started=time_text(told.started_ns if told is not None and alone else ends.started_ns),
        ended=time_text(told.ended_ns if told is not None and alone else ends.ended_ns),
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


def _containers(own: Iterable[Decoded]) -> list[ContainerSeen]:
    """The newest sight of each container, the command's own cgroup included, in order of first sight."""
    newest: dict[str, ContainerSeen] = {}
    for _, value in own:
        if isinstance(value, ContainerSeen):
            newest[value.container_id] = value
    return list(newest.values())


def _phases(own: Sequence[Decoded], ends: Ends, outcome: Outcome) -> list[Phase]:
    phases: list[Phase] = []
    begin, first, ended = ends.started_ns, ends.first_call_ns, ends.ended_ns
    if begin is not None:
        phases.append(
            Phase(name=PhaseName.SETUP, started=rfc3339(begin), ended=time_text(first or ended), source="observed")
        )
    if first is not None:
        booked = None if outcome is Outcome.UNKNOWN else outcome.value
        phases.append(
            Phase(
                name=PhaseName.AGENT, started=rfc3339(first), ended=time_text(ended), outcome=booked, source="observed"
            )
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
            ended=time_text(window.ended_ns),
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


def time_text(wall_ns: int | None) -> str | None:
    """As a record writes it; None for a moment that was not seen."""
    return None if wall_ns is None else rfc3339(wall_ns)
