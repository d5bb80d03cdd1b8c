"""The table's parts: a set-up of a harness, a scenario, and the row that a real run of it gave.

Shapes only.  A scenario that does not apply to a set-up stands in the list too, with the reason in `no`: every set-up
answers for every kind, so a cell of the matrix is never merely forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from fairtrial.middleware.demo.script import Step


class Kind(Enum):
    """What is done to a harness; the value is its column of the matrix."""

    PASS = "good run"
    MODEL = "model fails"
    CHILD = "OOM of a child"
    HARNESS = "OOM of the harness"
    VERIFIER = "OOM in the verifier"
    OVERLOADED = "529 for ever"
    CUT = "cut stream"
    WAIT = "429, then a wait"
    LONG = "400, too long"
    MORE = "more"
    """No column: what only this harness has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A harness as it is set up: one section of the page, one line of the matrix."""

    title: str
    runs: str
    """Who runs it: a key of `runs.RUNNERS`."""
    adapter: str
    """The name for `fairtrial import`."""
    api: str = "chat"
    """mini-swe-agent's kind of model; Harbor's agent; Claude Code's line (a stamp of tools.sh)."""
    where: str = "docker"
    """mini-swe-agent's and Inspect's environment: docker or local."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row: which set-up, what is done to it."""

    setup: Setup
    kind: Kind
    name: str
    no: str | None = None
    """Why it does not apply to this set-up."""
    steps: Sequence[Step] = ()
    fault: str | None = None
    box: Sequence[str] = ()
    """Options of docker run."""
    step_limit: int | None = None
    command: Sequence[str] = ()
    check: str | None = None
    """A shell line behind the harness, as a grader's; the command's status is then its own."""
    limit_mb: int | None = None
    """Memory of the cgroup that the harness is put into, or of Harbor's container."""
    tmpfs: bool = False
    """Harbor: a tmpfs at /scratch, larger than the memory."""
    agent_s: float = 60.0
    solve: str = "mkdir -p /work; echo hello > /work/hello.txt"
    verify: str = ""
    trials: tuple[str, ...] = ()
    """Harbor: tasks side by side, by what becomes of each; each has TASK=task-N in its environment."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of its rows."""
        return self.trials or (self.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the page; `cells` are those behind the scenario's name."""

    section: str
    name: str
    kind: Kind
    cells: tuple[str, ...]
    """exit, booked, verdict, ended by, ended as, joined; or one: why there are none."""

    @property
    def short(self) -> str:
        """The matrix's cell: the verdict without its cause's place, or a dash."""
        if len(self.cells) < len(COLUMNS):
            return "not run" if self.cells[0].startswith("not run") else "–"
        verdict = self.cells[2]
        return verdict.partition(" · ")[0]


COLUMNS = ("exit", "booked", "verdict", "ended by", "ended as", "joined")
