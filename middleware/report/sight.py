"""What was watched and what was not, in one line: the limits of a place, said once.

In: a trial's `Coverage`.  Out: one plain sentence of both, families of one level together, reasons said once each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fairtrial.middleware.core.records import Coverage, FamilyCoverage
from fairtrial.middleware.report.words import printable

_NAMES: Final = {"model_api": "model API"}
_NO_VERIFIER: Final = "verifier"
"""A family that no command without a harness has: not worth a word in one line."""


def sight_line(coverage: Coverage) -> str:
    """`watched: …; in part: … (why); not watched: … (why)`; a level that no family has is left out."""
    families = {name: seen for name, seen in coverage.families.items() if name != _NO_VERIFIER or seen.level != "none"}
    if not families:
        return "nothing was watched"
    parts: list[str] = []
    for level, words in (("full", "watched"), ("partial", "in part"), ("none", "not watched")):
        chosen = {name: seen for name, seen in families.items() if seen.level == level}
        if chosen:
            parts.append(f"{words}: {_listed(chosen)}")
    return "; ".join(parts)


def _listed(families: dict[str, FamilyCoverage]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, seen in families.items():
        by_reason.setdefault(seen.why or "", []).append(_NAMES.get(name, name))
    return ", ".join(_group(names, why) for why, names in by_reason.items())


def _group(names: Iterable[str], why: str) -> str:
    return f"{', '.join(names)}{f' ({printable(why)})' if why else ''}"
