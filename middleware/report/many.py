"""The end of a run that held several trials: counts, what failed with its cause first, at most ten lines.

In: one `Line` per trial, the run's name and how its command ended.  Out: lines of plain text, control characters
removed; and the counts and coverage of `fairtrial.run/1`.  What this module does not do: judge, or show a trial whole
(`text.py`).  Whether a trial passed is the harness's to say; until it is known, what ended a trial is all that is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.core.records import FAMILIES, Blame, Coverage, FamilyCoverage, Outcome, TerminatedBy, Trial
from fairtrial.middleware.report.text import PREFIX
from fairtrial.middleware.report.words import at_step, plural, printable

MAX_LINES: Final = 10
_MAX_CAUSES: Final = 5
_MAX_NAMES: Final = 4
_ENDED: Final = "ended from outside"
_OPEN: Final = "without a known outcome"
_FIRST: Final = ("fairtrial", "infra", _ENDED, "operator", "harness", "task", "model", "indeterminate")
"""What a person has to know first: whether we did it, then what can be put right."""
_QUIET: Final = frozenset({"passed", "with nothing to blame", _OPEN})
TO_BE_SURE: Final = (
    "To be sure, give each trial a name: `-e FAIRTRIAL_TRIAL=NAME` (docker run), the header x-fairtrial-trial: NAME, "
    "or .NAME behind the token in its base URL (/t/TOKEN.NAME)"
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
    ended_by: TerminatedBy | None
    families: Mapping[str, FamilyCoverage]

    @property
    def standing(self) -> str:
        """Its verdict in a word or two; where nobody knows yet whether it passed, what ended it."""
        if self.blame == Blame.NONE:
            return "passed" if self.outcome == Outcome.PASSED else "with nothing to blame"
        if self.blame == Blame.INDETERMINATE and self.outcome == Outcome.UNKNOWN:
            return _OPEN if self.ended_by is None else f"{_ENDED}, {self.ended_by.grade.value}"
        return f"{self.blame}, {self.grade}" if self.grade else self.blame

    @property
    def why(self) -> tuple[str | None, int | None]:
        """The cause of that, and the step."""
        if self.standing.startswith(_ENDED) and self.ended_by is not None:
            return self.ended_by.cause, self.ended_by.step
        return self.cause, self.step


def line_of(trial: Trial, *, index: int) -> Line:
    """The trial in short; one that nobody named is called by its number and the end of its id."""
    verdict = trial.verdict
    return Line(
        name=printable(trial.name) if trial.name else f"#{index + 1} ({trial.trial[-12:]})",
        outcome=trial.outcome.value,
        blame=(verdict.blame if verdict is not None else Blame.INDETERMINATE).value,
        grade=verdict.grade.value if verdict is not None and verdict.grade is not None else None,
        cause=verdict.cause if verdict is not None else None,
        step=verdict.step if verdict is not None else None,
        sentence=verdict.sentence if verdict is not None else "No verdict was reached.",
        ended_by=verdict.terminated_by if verdict is not None else None,
        families=trial.coverage.families,
    )


def counts_of(lines: Iterable[Line]) -> dict[str, int]:
    """Of a run: `trials`; `outcome.passed`, `outcome.unknown`, …; `blame.infra.proved`, `blame.infra.suspected`,
    `blame.model`, `blame.none`, …; `ended_by_outside`: those that an outside event ended, whatever is to blame."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts["trials"] += 1
        counts[f"outcome.{line.outcome}"] += 1
        graded = line.blame == Blame.INFRA and line.grade is not None
        counts[f"blame.{line.blame}.{line.grade}" if graded else f"blame.{line.blame}"] += 1
        counts["ended_by_outside"] += line.ended_by is not None
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
    standings = Counter(line.standing for line in trials)
    parts = [f"{count} {what}" for what, count in sorted(standings.items(), key=lambda each: _rank(each[0]))]
    of_run = f" in run {printable(run)}" if run else ""
    lines = [f"{PREFIX}{plural(len(trials), 'trial')}{of_run} ({ended}): {', '.join(parts)}"]
    groups: dict[tuple[str, str | None], list[Line]] = {}
    for line in trials:
        if line.standing not in _QUIET:
            groups.setdefault((line.standing, line.why[0]), []).append(line)
    order = sorted(groups, key=lambda key: (_rank(key[0]), -len(groups[key]), key[1] or ""))
    unheard = _words(unassigned)
    most = _MAX_CAUSES - (unheard is not None)
    lines += [_group(key, groups[key]) for key in order[:most]]
    if rest := order[most:]:
        lines.append(
            f"  and {plural(sum(len(groups[key]) for key in rest), 'trial')} of {plural(len(rest), 'kind')} more"
        )
    if missing := _unassigned(unassigned):
        lines.append(missing)
    if unheard is not None:
        lines.append(unheard)
    which = f" --run {printable(run)}" if run else ""
    if any(line.outcome == Outcome.UNKNOWN for line in trials):
        lines.append(f"  whether they passed, the harness knows: fairtrial import HARNESS PATH{which}")
    if stored:
        lines.append(f"  more: fairtrial trials{which or f' --limit {len(trials)}'} · fairtrial show TRIAL")
    return lines[:MAX_LINES]


def _group(key: tuple[str, str | None], members: Sequence[Line]) -> str:
    standing, cause = key
    what = f"{standing} · {cause}" if cause else standing
    names = [f"{line.name}{at_step(line.why[1])}" for line in members[:_MAX_NAMES]]
    if len(members) > 1:
        more = f" and {len(members) - _MAX_NAMES} more" if len(members) > _MAX_NAMES else ""
        return f"  {what} ×{len(members)}: {', '.join(names)}{more}"
    told = "" if standing.startswith(_ENDED) else f": {printable(members[0].sentence)}"
    return f"  {what}: {names[0]}{told}"


def _unassigned(counts: Mapping[str, int]) -> str | None:
    calls, boxes = counts.get("attempts", 0), counts.get("containers", 0)
    what = [plural(calls, "model call")] if calls else []
    what += [plural(boxes, "container")] if boxes else []
    return f"  {' and '.join(what)} could not be told to be one trial's. {TO_BE_SURE}" if what else None


def _words(counts: Mapping[str, int]) -> str | None:
    """What was said through the control API and is no one trial's."""
    total, of_run = counts.get("words", 0), counts.get("words.run", 0)
    if not total:
        return None
    whys = [f"{of_run} of the run's own id"] if of_run else []
    whys += [f"{total - of_run} of a name that fits no one trial"] if total > of_run else []
    return f"  {plural(total, 'word')} of the control API stayed under the run's own id: {', '.join(whys)}."


def _rank(standing: str) -> tuple[int, str]:
    word = standing.partition(",")[0]
    return (_FIRST.index(word) if word in _FIRST else len(_FIRST)), standing
