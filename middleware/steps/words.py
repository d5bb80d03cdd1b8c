"""What was said through the control API: of whom it was said, and which trial of a run that is.

In: observations of `observer/control.py`, and the trials that a run was parted into.  Out: the moments of a trial as
its record shows them; the name that a word bears, and for each name the one trial that it fits, or why it fits none.
Pure.  What this module does not do: believe anything.  All this is trust `inside`, and only stands beside a trial.

A name fits a trial that its client, or its container's maker, called so; whose environment Harbor would name after it;
or that has a container of that name or id, a compose project of that name, or a session of that id.  A name that fits
two trials is nobody's, and so are two names that Harbor would make one of: a wrong join is worse than none.

How it can be wrong: a client may give its session the name of another trial that nothing else tells of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.commands import text_digest
from fairtrial.middleware.core.names import AGENT, ENVIRONMENT, project_of
from fairtrial.middleware.core.observations import HarnessOutcome, Note, Observation, Value
from fairtrial.middleware.core.records import Mark, Trust
from fairtrial.middleware.steps.booked import CONTROL

if TYPE_CHECKING:
    from fairtrial.middleware.steps.parting import Part
    from fairtrial.middleware.steps.run_facts import BoxFacts, RunFacts

MARK: Final = "control.mark"
"""Event of a `Note`: a moment that was told."""
NAME: Final = "name"
ABOUT: Final = "trial"
AT: Final = "at_ns"
"""Fields of such a note: the mark's name, the trial's (without: the run's own), when it was (without: when it came)."""
MAX_NAME_CHARS: Final = 200
_CUT_CHARS: Final = 128
"""A client's name is kept that long (`wire/session.py`): one of this length may be the begin of two."""

UNKNOWN: Final = "unknown"
CONTESTED: Final = "contested"
OF_THE_RUN: Final = "run"
"""It was said of the run's own id."""


def word_about(observation: Observation, value: Value | None) -> str | None:
    """The name of whom it was said, "" of the run itself; None for what is no word of the control API."""
    if observation.trust is not Trust.INSIDE or observation.source != CONTROL:
        return None
    if isinstance(value, HarnessOutcome):
        return value.about or ""
    if isinstance(value, Note) and value.event == MARK:
        about = value.fields.get(ABOUT)
        return about if isinstance(about, str) else ""
    return None


def marks(own: Iterable[tuple[Observation, Value]], step_at: Callable[[int], int | None]) -> list[Mark]:
    """The moments that were told of a trial.  `step_at`: the step of a wall time, ns."""
    found: list[tuple[int, Mark]] = []
    for observation, value in own:
        if not isinstance(value, Note) or (about := word_about(observation, value)) is None:
            continue
        said = value.fields.get(AT)
        at_ns = said if isinstance(said, int) else observation.wall_ns
        mark = Mark(
            at=rfc3339(at_ns),
            told=rfc3339(observation.wall_ns),
            name=str(value.fields.get(NAME, "")),
            text=value.text,
            about=about or None,
            step=step_at(at_ns),
        )
        found.append((at_ns, mark))
    return [mark for _, mark in sorted(found, key=lambda each: each[0])]


def told_apart(names: Iterable[str], parts: Sequence[Part], facts: RunFacts) -> tuple[dict[str, int], dict[str, str]]:
    """Name → the part that it fits, and of the others name → why: unknown | contested | run."""
    known = [_Known(part, facts) for part in parts]
    found: dict[str, int] = {}
    strays: dict[str, str] = {}
    folded: dict[str, tuple[str, int]] = {}
    for name in names:
        fits = [(n, one.how(name)) for n, one in enumerate(known)]
        fits = [(n, how) for n, how in fits if how is not None]
        if not name:
            strays[name] = OF_THE_RUN
        elif len(fits) != 1:
            strays[name] = CONTESTED if fits else UNKNOWN
        elif fits[0][1] == "folded":
            folded[name] = (project_of(name + ENVIRONMENT), fits[0][0])
        else:
            found[name] = fits[0][0]
    made = Counter(project for project, _ in folded.values())
    for name, (project, n) in folded.items():
        if made[project] > 1:
            strays[name] = CONTESTED
        else:
            found[name] = n
    return found, strays


class _Known:
    """By what one trial of a run is known."""

    def __init__(self, part: Part, facts: RunFacts) -> None:
        boxes: list[BoxFacts] = [facts.boxes[container] for container in part.containers if container in facts.boxes]
        calls = [facts.calls[attempt] for attempt in part.calls if attempt in facts.calls]
        self._exact = {part.name} if part.how == "name" and part.name and len(part.name) < _CUT_CHARS else set()
        self._projects = {box.project for box in boxes if box.project}
        for box in boxes:
            self._exact |= {text for text in (box.mark, box.name, box.id, box.id[:12], box.project) if text}
        self._sessions = {call.request.session for call in calls if call.request.session is not None}

    def how(self, name: str) -> str | None:
        if name in self._exact or not self._sessions.isdisjoint(map(text_digest, (name, name + AGENT))):
            return "exact"
        return "folded" if project_of(name + ENVIRONMENT) in self._projects else None
