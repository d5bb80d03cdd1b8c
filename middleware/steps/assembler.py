"""The step assembler: the observations of one trial become a `Trial` with its steps.

In: observations in any order, with repeats, of this and other trials.  Out: an `Assembly`: the trial without a
verdict, and every observation that bears on it with its step and phase.  Pure: no clock, no ids made, the same input
gives the same output. What this module does not do: judge (`attribution/`), choose observations (`selected.py`), fold
attempts (`attempts.py`), assign roles (`roles.py`), open steps (`opened.py`), place (`placing.py`), sum up counters
(`window.py`) and coverage (`watched.py`), find tool work (`tools.py`), fill in the trial's own fields
(`trial_record.py`).

A step begins with a main-agent call and lasts until the next one; a call that never completed opens the step that it
would have become, and a further call for the same turn stays in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.observations import (
    HarnessOutcome,
    Observation,
)
from fairtrial.middleware.core.records import (
    PhaseName,
    Step,
)
from fairtrial.middleware.steps.agents import lineages
from fairtrial.middleware.steps.attempts import FoldedCall, call_record, fold
from fairtrial.middleware.steps.booked import Booking
from fairtrial.middleware.steps.kill_times import moments
from fairtrial.middleware.steps.opened import open_steps
from fairtrial.middleware.steps.placed import Assembly
from fairtrial.middleware.steps.placing import Ends, place, step_at
from fairtrial.middleware.steps.roles import assign_roles
from fairtrial.middleware.steps.selected import attempts_of, select
from fairtrial.middleware.steps.tools import Span, Tools
from fairtrial.middleware.steps.trial_record import record_of, time_text
from fairtrial.middleware.steps.tunnels import connections
from fairtrial.middleware.steps.watched import coverage
from fairtrial.middleware.steps.window import Windows, container_facts
from fairtrial.middleware.steps.words import marks


def acted_ns(calls: Iterable[FoldedCall]) -> int | None:
    """When a tool of the step can have begun at the earliest, wall ns: first bytes of a reply that asked for one, or
    may have done so in words; None when none can."""
    return min(
        (
            attempt.started_wall_ns + round((attempt.facts.ttfb or 0.0) * 1e9)
            for call in calls
            for attempt in call.attempts
            if (attempt.reply.status or 0) < 400
            if attempt.outcome is None
            or attempt.reply.tool_calls
            or attempt.reply.open_tool_calls
            or not (attempt.request.has_tools and attempt.facts.parse == "full")
        ),
        default=None,
    )


def assemble(observations: Iterable[Observation], trial_id: str) -> Assembly:
    """Assemble one trial from the observations of a store or a stream."""
    selected, unassigned = select(observations, trial_id)
    own = [pair for pair in selected if not isinstance(pair[1], HarnessOutcome)]
    calls = fold(attempts_of(own))
    roles = assign_roles(calls)
    booking = Booking.of(
        (pair for pair in selected if isinstance(pair[1], HarnessOutcome)),
        [(c.started_wall_ns, c.ended_wall_ns) for c, role in zip(calls, roles, strict=True) if role == "step"],
    )
    steps = open_steps(calls, roles)
    ends = Ends.of(own, calls, roles)
    starts = [step.started_ns for step in steps]
    agent_ended_ns = ends.agent_ended_ns
    if booking.agent_ended_ns is not None and starts and booking.agent_ended_ns > starts[-1]:
        agent_ended_ns = booking.agent_ended_ns
    kills = moments(own, [(step.started_ns, acted_ns(step.calls)) for step in steps])
    placed = tuple(place(observation, value, starts, ends, booking, kills) for observation, value in selected)

    containers = container_facts(placed)
    windows = Windows(starts, containers, placed)
    tools = Tools(calls, [Span(step.index, step.started_ns, step.calls) for step in steps], placed, agent_ended_ns)
    records = [
        Step(
            index=step.index,
            phase=PhaseName.AGENT,
            started=rfc3339(step.started_ns),
            ended=time_text(starts[step.index] if step.index < len(starts) else agent_ended_ns),
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
        record_of(trial_id, own, records, ends, booking),
        side_calls=side_calls,
        marks=marks(own, lambda at_ns: step_at(at_ns, starts, ends)),
        connections=connections(placed),
        unassigned=unassigned,
        coverage=coverage(placed, calls, ends.ended_ns),
    )
    attempt_call = {attempt.id: call.id for call in calls for attempt in call.attempts}
    return Assembly(trial=trial, placed=placed, attempt_call=attempt_call)
