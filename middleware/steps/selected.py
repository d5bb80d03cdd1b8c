"""Which observations bear on one trial, in which order, repeats gone; and its attempts, each once.

In: observations of this and other trials, in any order.  Out: decoded ones, and what could not be assigned.
What this module does not do: place them in steps and phases (`placing.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    ContainerSeen,
    HarnessOutcome,
    KernelOomKill,
    Note,
    Observation,
    TrialEnded,
    TrialStarted,
    Value,
    decode,
)
from fairtrial.middleware.core.records import (
    Trust,
)
from fairtrial.middleware.steps.attempts import SeenAttempt, seen
from fairtrial.middleware.steps.kill_times import by_path
from fairtrial.middleware.steps.steady import Clock

Decoded = tuple[Observation, Value]

_ATTEMPTS: Final = frozenset({AttemptStarted, AttemptEnded})
_WORDS: Final = frozenset({Note.kind, HarnessOutcome.kind})


def select(observations: Iterable[Observation], trial_id: str) -> tuple[list[Decoded], dict[str, int]]:
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
    clock = Clock.of(unique.values(), trial_id)
    timed = unique.values() if clock is None else [clock.steadied(o) for o in unique.values()]
    ordered = sorted(timed, key=lambda o: (o.wall_ns, o.mono_ns, o.source_id, o.seq))
    decoded = [(o, value) for o in ordered if (value := decode(o)) is not None]
    ours = {v.container_id for o, v in decoded if isinstance(v, ContainerSeen) and o.subject.trial == trial_id}
    selected: list[Decoded] = []
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


def attempts_of(own: Iterable[Decoded]) -> list[SeenAttempt]:
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
