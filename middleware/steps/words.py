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

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.commands import text_digest
from fairtrial.middleware.core.names import AGENT, ENVIRONMENT, project_of
from fairtrial.middleware.core.observations import HarnessOutcome, Note, Observation, Value
from fairtrial.middleware.core.records import Mark, Trust
from fairtrial.middleware.steps.booked import CONTROL

if TYPE_CHECKING:
    from fairtrial.middleware.steps.run_facts import RunFacts

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


class Part(Protocol):
    """What is used here of a `parting.Part`."""

    @property
    def name(self) -> str | None: ...

    @property
    def how(self) -> str: ...

    @property
    def calls(self) -> frozenset[str]: ...

    @property
    def containers(self) -> frozenset[str]: ...


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
    known = _Known(parts, facts)
    found: dict[str, int] = {}
    strays: dict[str, str] = {}
    folded: dict[str, list[str]] = {}
    for name in names:
        exact, by_fold = known.exact(name), known.folded(name)
        fits = exact | by_fold
        if not name:
            strays[name] = OF_THE_RUN
        elif len(fits) != 1:
            strays[name] = CONTESTED if fits else UNKNOWN
        else:
            found[name] = next(iter(fits))
            if not exact:
                folded.setdefault(project_of(name + ENVIRONMENT), []).append(name)
    for name in (name for alike in folded.values() if len(alike) > 1 for name in alike):
        del found[name]
        strays[name] = CONTESTED
    return found, strays


class _Known:
    """By what the trials of a run are known: text → numbers of the parts."""

    def __init__(self, parts: Sequence[Part], facts: RunFacts) -> None:
        self._names: dict[str, set[int]] = {}
        self._sessions: dict[str, set[int]] = {}
        self._projects: dict[str, set[int]] = {}
        for n, part in enumerate(parts):
            if part.how == "name" and part.name and len(part.name) < _CUT_CHARS:
                self._names.setdefault(part.name, set()).add(n)
            for box in (facts.boxes[container] for container in part.containers if container in facts.boxes):
                for text in (box.mark, box.name, box.id, box.id[:12], box.project):
                    if text:
                        self._names.setdefault(text, set()).add(n)
                if box.project:
                    self._projects.setdefault(box.project, set()).add(n)
            for call in (facts.calls[attempt] for attempt in part.calls if attempt in facts.calls):
                if call.request.session is not None:
                    self._sessions.setdefault(call.request.session, set()).add(n)

    def exact(self, name: str) -> set[int]:
        """Parts with that name of their own, or of their container, project or session."""
        sessions = (self._sessions.get(text_digest(each), set[int]()) for each in (name, name + AGENT))
        return self._names.get(name, set[int]()).union(*sessions)

    def folded(self, name: str) -> set[int]:
        """Parts whose environment Harbor would name so: it makes several names one."""
        return self._projects.get(project_of(name + ENVIRONMENT), set())
