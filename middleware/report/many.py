"""The end of a run that held several trials: counts, what failed with its cause first, at most ten lines.

In: one `Line` per trial, the run's name and how its command ended.  Out: lines of plain text, control characters
removed; and the counts of `fairtrial.run/1`.  What this module does not do: judge, or show a trial whole (`text.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.core.records import FAMILIES, Blame, Coverage, FamilyCoverage, Outcome, Trial
from fairtrial.middleware.report.text import PREFIX
from fairtrial.middleware.report.words import at_step, plural, printable

MAX_LINES: Final = 10
_MAX_CAUSES: Final = 6
_MAX_NAMES: Final = 4
_FIRST: Final = ("fairtrial", "infra", "operator", "harness", "task", "indeterminate", "model")
"""What a person has to know first: whether we did it, then what can be put right."""
TO_BE_SURE: Final = (
    "give each trial a name: `-e FAIRTRIAL_TRIAL=NAME` (docker run), the header x-fairtrial-trial: NAME, "
    "or $ANTHROPIC_BASE_URL.NAME (any base URL of ours, a dot and the name) as its base URL"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What the end of a run says of one trial."""

    name: str
    outcome: str
    blame: str
    grade: str | None
    cause: str | None
    step: int | None
    sentence: str
    ended_by_infra: bool
    families: Mapping[str, FamilyCoverage]


def line_of(trial: Trial, *, index: int) -> Line:
    """The trial in short; one that nobody named is called by its number and the end of its id."""
    verdict = trial.verdict
    blame = verdict.blame if verdict is not None else Blame.INDETERMINATE
    return Line(
        name=printable(trial.name) if trial.name else f"#{index + 1} ({trial.trial[-12:]})",
        outcome=trial.outcome.value,
        blame=blame.value,
        grade=verdict.grade.value if verdict is not None and verdict.grade is not None else None,
        cause=verdict.cause if verdict is not None else None,
        step=verdict.step if verdict is not None else None,
        sentence=verdict.sentence if verdict is not None else "no verdict was reached",
        ended_by_infra=verdict is not None and verdict.terminated_by is not None,
        families=trial.coverage.families,
    )


def counts_of(lines: Iterable[Line]) -> dict[str, int]:
    """Of a run: `trials`, `passed`, `failed`, `unknown`, …, `infra.proved`, `infra.suspected`, `model`, `none`, …, and
    `ended_by_outside`: those that an outside event ended, whatever is to blame."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts["trials"] += 1
        counts[f"outcome.{line.outcome}"] += 1
        counts[f"{line.blame}.{line.grade}" if line.blame == Blame.INFRA and line.grade else line.blame] += 1
        counts["ended_by_outside"] += line.ended_by_infra
    return {name: count for name, count in counts.items() if count}


def coverage_of(trials: Sequence[Line]) -> Coverage:
    """Of a run: of each family the least that any of its trials had."""
    rank = {"none": 0, "partial": 1, "full": 2}
    families: dict[str, FamilyCoverage] = {}
    for family in FAMILIES:
        seen = [line.families[family] for line in trials if family in line.families]
        if seen:
            families[family] = min(seen, key=lambda each: rank[each.level])
    return Coverage(families=families)


def run_lines(
    trials: Sequence[Line], *, run: str | None, ended: str, unassigned: Mapping[str, int], stored: bool = True
) -> list[str]:
    """`ended`: how the command ended, in words."""
    blames = Counter(_blame(line) for line in trials)
    parts = [f"{count} {what}" for what, count in sorted(blames.items(), key=lambda each: _rank(each[0]))]
    of_run = f" in run {printable(run)}" if run else ""
    lines = [f"{PREFIX}{plural(len(trials), 'trial')}{of_run}, {ended}: {', '.join(parts)}"]
    groups: dict[tuple[str, str | None], list[Line]] = {}
    for line in trials:
        if line.blame != Blame.NONE:
            groups.setdefault((_blame(line), line.cause), []).append(line)
    order = sorted(groups, key=lambda key: (_rank(key[0]), -len(groups[key]), key[1] or ""))
    lines += [_group(key, groups[key]) for key in order[:_MAX_CAUSES]]
    if len(order) > _MAX_CAUSES:
        rest = sum(len(groups[key]) for key in order[_MAX_CAUSES:])
        lines.append(f"  … and {plural(rest, 'trial')} of {plural(len(order) - _MAX_CAUSES, 'other kind')}")
    if missing := _unassigned(unassigned):
        lines.append(missing)
    if stored:
        which = f" --run {printable(run)}" if run else f" --limit {len(trials)}"
        lines.append(f"  more: fairtrial trials{which} · fairtrial show NAME")
    return lines[:MAX_LINES]


def _group(key: tuple[str, str | None], members: Sequence[Line]) -> str:
    blame, cause = key
    what = f"{blame} · {cause}" if cause else blame
    names = [f"{line.name}{at_step(line.step)}" for line in members[:_MAX_NAMES]]
    more = f" and {len(members) - _MAX_NAMES} more" if len(members) > _MAX_NAMES else ""
    if len(members) == 1:
        return f"  {what}: {names[0]}: {printable(members[0].sentence)}"
    return f"  {what} ×{len(members)}: {', '.join(names)}{more}"


def _unassigned(counts: Mapping[str, int]) -> str | None:
    calls, boxes = counts.get("attempts", 0), counts.get("containers", 0)
    what = [plural(calls, "model call")] if calls else []
    what += [plural(boxes, "container")] if boxes else []
    if not what:
        return None
    return f"  {' and '.join(what)} could not be told to be one trial's. To be sure: {TO_BE_SURE}"


def _blame(line: Line) -> str:
    if line.blame == Blame.NONE:
        return "passed" if line.outcome == Outcome.PASSED else "with nothing to blame"
    return f"{line.blame}, {line.grade}" if line.grade else line.blame


def _rank(blame: str) -> tuple[int, str]:
    word = blame.partition(",")[0]
    return (_FIRST.index(word) if word in _FIRST else len(_FIRST)), blame
