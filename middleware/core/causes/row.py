"""One row of the table of causes, and the words that rows share.

In: nothing.  Out: `Cause`, `cause` (a row in short), the blames by their letter, the groups of sources, shared advice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.core.records import Blame, Grade

I: Final = Blame.INFRA  # noqa: E741 (the letters of the design page's table)
M: Final = Blame.MODEL
H: Final = Blame.HARNESS
O: Final = Blame.OPERATOR  # noqa: E741 (as above)
T: Final = Blame.TASK
F: Final = Blame.FAIRTRIAL
PROVED: Final = Grade.PROVED
SUSPECTED: Final = Grade.SUSPECTED

DOOR: Final = ("door.model",)
CGROUP: Final = ("collector.cgroup",)
KILLS: Final = ("collector.cgroup", "collector.vmstat", "collector.kernel_log")
EVENTS: Final = ("collector.docker_events",)

RETRY_LATER: Final = "Run the trial again when the provider answers; do not count this one against the model."
ASK_NODE: Final = "Run the trial again on another node or with fewer trials at once."


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One row: a name, who may be blamed for it, how well it can be known, and what to say and do."""

    name: str
    family: str
    """The family of coverage (`records.FAMILIES`) that sees it, or "harness", "operator", "task", "observer"."""
    may_blame: tuple[Blame, ...]
    best: Grade
    note: str
    """What raises or limits `best`, or what the cause includes; one clause."""
    sources: tuple[str, ...]
    """Sources without which it cannot be reported; a name stands for all that begin with it."""
    template: str
    advice: str
    """What to do next, one sentence."""
    built: bool = False


def cause(
    name: str,
    family: str,
    may_blame: tuple[Blame, ...],
    best: Grade,
    template: str,
    advice: str,
    *,
    note: str = "",
    sources: tuple[str, ...] = (),
    built: bool = False,
) -> Cause:
    """A row in short."""
    return Cause(
        name=name,
        family=family,
        may_blame=may_blame,
        best=best,
        note=note,
        sources=sources,
        template=template,
        advice=advice,
        built=built,
    )
