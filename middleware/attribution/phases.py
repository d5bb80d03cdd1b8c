"""Phases as the harness's own record tells them: what happened after the agent's end is judged as the verifier's.

In: the phases of a trial.  Out: a function that puts each placed observation into the phase that it fell into.  Phases
that fairtrial itself observed (source "observed") change nothing: they are where the assembler had put things in the
first place.  What this module does not do: read a harness's files (`harnesses/`).

An observation that carries a phase of its own keeps it.  A step belongs to the agent: what is put into another phase
loses its step.

**Source:** design page VERDICTS.md section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Phase, PhaseName
from fairtrial.middleware.steps.placed import Placed

OBSERVED: Final = "observed"
_AFTER_AGENT: Final = frozenset({PhaseName.VERIFY, PhaseName.TEARDOWN, PhaseName.BUILD})


def by_phases(phases: Sequence[Phase]) -> Callable[[Placed], Placed]:
    """The function for one trial; it gives back what it was given where the harness says nothing of that time."""
    known = [
        (since, until, phase.name)
        for phase in phases
        if phase.source not in {None, OBSERVED} and phase.name in _AFTER_AGENT
        if (since := wall_ns_of(phase.started)) is not None and (until := wall_ns_of(phase.ended)) is not None
    ]
    if not known:
        return lambda placed: placed

    def place(placed: Placed) -> Placed:
        if placed.observation.phase is not None:
            return placed
        for since, until, name in known:
            if since <= placed.at_ns <= until:
                return replace(placed, phase=name, step=None)
        return placed

    return place
