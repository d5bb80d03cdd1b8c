"""What a row of the fault matrix is: what is done for real, and the verdict that is right, written down beforehand.

In: nothing; `cases/` fills these records in.  Out: `Scenario`, `Right`, and short ways to say the usual verdicts.
What is right comes from the design pages (VERDICTS sections, taxonomy rows; `why` names them), never from what the code
says now.  Words in percent signs (`%folder%`, `%python%`, `%image%`, `%box%`) are filled in by the rig that runs it.
What this module does not do: run anything (`rig.py`), or count (`confusion.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import Step, say, shell

if TYPE_CHECKING:
    from tests.matrix.rig import Stage

DONE: Final = say("Done.")
WORK: Final = (shell("echo hello"), shell("touch answer"), DONE)
"""The task done in three steps: the demo agent's check (`test -f answer`) passes."""
FAILS: Final = (shell("echo hello"), DONE)
"""A model that fails its task by itself, in two steps."""

Ended = tuple[str, Grade | None, int | None]
"""Cause, grade (None: not decided), step of what terminated the trial."""
Open = Literal["open"]
"""What the design leaves open for a scenario, so that nothing is claimed of it."""


class Kind(StrEnum):
    """What a row is counted under."""

    INFRA = "infra"
    """An outside fault: its cause has to be found."""
    OTHER = "other"
    """The harness's, the operator's, fairtrial's own fault: its cause has to be found, and it is not infra's."""
    LOOK_ALIKE = "look-alike"
    """VERDICTS section 8: must never come out as infra."""
    CLEAN = "clean"
    """A control: nothing outside that mattered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """The verdict that is right.  `blame`: any of these.  `step` and `ended_as` None: not decided beforehand."""

    blame: frozenset[Blame]
    grade: Grade | Open | None = None
    cause: str | Open | None = None
    step: int | None = None
    ended: Ended | Open | None = None
    ended_as: EndedAs | None = None
    present: frozenset[str] = frozenset()
    """Causes of events that must be told as present."""

    @property
    def label(self) -> str:
        """For the table: `infra/proved model_api.overloaded`."""
        blame = "|".join(sorted(self.blame))
        grade = f"/{self.grade}" if self.grade not in {None, "open"} else ""
        return f"{blame}{grade} {self.cause}" if self.cause not in {None, "open"} else f"{blame}{grade}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One trial: what happens in it, how it is run, and what is right.

    `agent`: options of `tests/matrix/agent.py`; `command` replaces the agent altogether.  `outside` runs beside the
    trial, as somebody who is not part of it.
    """

    name: str
    family: str
    kind: Kind
    what: str
    why: str
    right: Right
    steps: Sequence[Step] = FAILS
    faults: Sequence[Fault] = ()
    agent: Sequence[str] = ()
    command: Sequence[str] | None = None
    options: Sequence[str] = ()
    """Of `fairtrial run`."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name -> text of files in the scenario's folder."""
    shows: str | None = None
    """What the command's output must hold: that the thing was really done."""
    stands: Callable[[Path], AbstractContextManager[Mapping[str, str]]] | None = None
    """What stands around the trial, given its folder: yields more words in percent signs."""
    outside: Callable[[Stage], None] | None = None
    engine: Literal["none", "shared", "own"] = "none"
    request_ids: bool = True
    root: bool = False
    kills: bool = False
    """The kernel kills a process for memory in it, which clouds trials that only have the host's counter."""
    dear: bool = False
    """Left to `make matrix`: too long for `make test`."""
    inside_only: bool = False
    """All that speaks for an outside fault is what the agent could have written: never `proved`."""
    awaits: str | None = None
    """Why it is a miss today; it counts as one until the cause is mended."""


# --- the usual verdicts -----------------------------------------------------------------------------------------------


def of(*blames: Blame) -> frozenset[Blame]:
    """Any of these."""
    return frozenset(blames)


def proved(
    cause: str,
    step: int | None,
    *,
    blame: Blame = Blame.INFRA,
    ended_as: EndedAs | None = EndedAs.AGENT_GAVE_UP,
) -> Right:
    """An event that ended the trial, and three yeses."""
    sure = Grade.PROVED
    return Right(blame=of(blame), grade=sure, cause=cause, step=step, ended=(cause, sure, step), ended_as=ended_as)


def suspected(
    cause: str,
    step: int | None,
    *,
    blame: Blame = Blame.INFRA,
    ended: Ended | Open | None = "open",
    ended_as: EndedAs | None = None,
) -> Right:
    """An event of which one answer is open."""
    return Right(blame=of(blame), grade=Grade.SUSPECTED, cause=cause, step=step, ended=ended, ended_as=ended_as)


def models(*present: str) -> Right:
    """The model failed by itself; nothing outside ended it."""
    return Right(blame=of(Blame.MODEL), grade="open", ended=None, present=frozenset(present))


def not_infra(*blames: Blame, cause: str | Open | None = "open") -> Right:
    """A look-alike of which the design only says whose it is not, or may be."""
    allowed = blames or (Blame.MODEL, Blame.HARNESS, Blame.INDETERMINATE)
    return Right(blame=of(*allowed), grade="open", cause=cause, ended=None)


def passed(*present: str) -> Right:
    """The trial passed; these events are told as present."""
    return Right(
        blame=of(Blame.NONE), grade=None, ended=None, present=frozenset(present), ended_as=EndedAs.AGENT_FINISHED
    )


def check(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """The same, when each has a name of its own.  Raises ValueError."""
    found = list(scenarios)
    names = [each.name for each in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two scenarios share a name: {', '.join(twice)}")
    return found
