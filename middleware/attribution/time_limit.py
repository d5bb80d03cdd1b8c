"""Which time limit fired, if one did, and how it is known.

In: a `Case`.  Out: a `Limit` with the window that ran out, or None.  Known from the command itself (`timeout 60 agent`:
timeout(1) says so with 124, and our clock agrees), or from the harness's own record together with the limit that it
declared and our clock.  A limit that our clock contradicts did not fire: see `named_early`.
What this module does not do: judge why it fired (`rules/time_limit.py`).

**Source:** timeout(1) of GNU coreutils; design page VERDICTS.md section 4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Phase, PhaseName

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LENGTH: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhd]?)")
_WITH_VALUE: Final = frozenset({"-k", "--kill-after", "-s", "--signal"})
_SAYS_TIMEOUT: Final = re.compile(r"time[-_ ]?d?[-_ ]?(out|limit)", re.IGNORECASE)
TIMED_OUT: Final = 124
_CUT: Final = frozenset({TIMED_OUT, 137, 143})
EARLY: Final = 0.9
"""A time-out that comes before this part of the limit that it names is another timer's."""
_CLOCKS_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A time limit and the window that it bounds, wall ns."""

    limit_s: float
    since_ns: int
    until_ns: int
    source: str
    """Who set it, for people."""
    by: tuple[str, ...] = ()

    @property
    def elapsed_s(self) -> float:
        return max(0, self.until_ns - self.since_ns) / 1e9


def fired(case: Case) -> Limit | None:
    """The limit that ended the agent, or None."""
    if case.ended is None or case.ended_ns is None:
        return None
    wrapped = timeout_of(case.trial.command)
    if wrapped is not None and case.started_ns is not None and _cut(case):
        limit = Limit(
            limit_s=wrapped,
            since_ns=case.started_ns,
            until_ns=case.ended_ns,
            source="timeout(1) in the command",
            by=(case.ended[0].id,),
        )
        if limit.elapsed_s >= wrapped - min(_CLOCKS_S, wrapped / 10):
            return limit
    named = _named(case)
    if named is not None and named.elapsed_s >= named.limit_s * EARLY:
        return named
    return None


def named_early(case: Case) -> Limit | None:
    """A limit that the harness's record names as the agent's end, although our clock says that it had time left."""
    named = _named(case)
    return named if named is not None and named.elapsed_s < named.limit_s * EARLY else None


def timeout_of(command: Sequence[str]) -> float | None:
    """The length in `timeout [OPTION]... LENGTH COMMAND`, s; None where the command is none, or has no limit."""
    if not command or PurePath(command[0]).name not in {"timeout", "gtimeout"}:
        return None
    words = iter(command[1:])
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            found = _LENGTH.fullmatch(word)
            return float(found[1]) * _UNITS[found[2]] or None if found is not None else None
    return None


def _cut(case: Case) -> bool:
    return case.trial.exit_code in _CUT


def _named(case: Case) -> Limit | None:
    """What the harness's own record says: its agent phase ended by a time-out, under a limit that it declared."""
    limit_s = case.trial.limits.time.agent
    phase = next((p for p in case.trial.phases if p.name is PhaseName.AGENT and says_timeout(p)), None)
    if limit_s is None or limit_s <= 0 or phase is None:
        return None
    since = wall_ns_of(phase.started) or case.started_ns
    until = wall_ns_of(phase.ended) or case.ended_ns
    if since is None or until is None:
        return None
    source = case.trial.limits.time.source or phase.source or "the harness"
    return Limit(limit_s=limit_s, since_ns=since, until_ns=until, source=f"as {source} says")


def says_timeout(phase: Phase) -> bool:
    """Whether a phase of the harness's own record ended by a time-out."""
    return phase.source != "observed" and phase.outcome is not None and bool(_SAYS_TIMEOUT.search(phase.outcome))
