"""Compares what was found with what is right, and counts: the confusion matrix, the misses, the bars.

In: `Result`s.  Out: text for a terminal, and the bars that are missed.  Pure: nothing is run here.
A scenario that could not be run is in no count; it is listed with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.core.records import Blame, EndedAs, Grade, Trial
from tests.matrix.scenario import Kind, Right, Scenario

RIGHT_CAUSES_SHARE: Final = 0.95
"""Of the infra scenarios.  **Source:** the acceptance targets of taxonomy.md section 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a verdict says of the things that were written down beforehand."""

    blame: Blame
    grade: Grade | None
    cause: str | None
    step: int | None
    ended: tuple[str, Grade, int | None] | None
    ended_as: EndedAs | None
    present: frozenset[str]
    sentence: str

    @property
    def label(self) -> str:
        grade = f"/{self.grade}" if self.grade is not None else ""
        return f"{self.blame}{grade}" + (f" {self.cause}" if self.cause is not None else "")


def found_in(trial: Trial) -> Found | None:
    """None: the record holds no verdict."""
    verdict = trial.verdict
    if verdict is None:
        return None
    ended = verdict.terminated_by
    return Found(
        blame=verdict.blame,
        grade=verdict.grade,
        cause=verdict.cause,
        step=verdict.step,
        ended=None if ended is None else (ended.cause, ended.grade, ended.step),
        ended_as=verdict.ended_as,
        present=frozenset(p.cause for p in verdict.present),
        sentence=verdict.sentence,
    )


def differences(right: Right, found: Found) -> list[str]:
    """What was found and is not right, as words; empty when all is right."""
    wrong: list[str] = []

    def claim(name: str, holds: bool, wanted: object, said: object) -> None:
        if not holds:
            wrong.append(f"{name}: right is {wanted}, found {said}")

    claim("blame", found.blame in right.blame, "|".join(sorted(right.blame)), found.blame)
    claim("grade", right.grade in ("open", found.grade), right.grade, found.grade)
    claim("cause", right.cause in ("open", found.cause), right.cause, found.cause)
    claim("step", right.step is None or right.step == found.step, right.step, found.step)
    if right.ended != "open":
        claim("terminated_by", _same_end(right, found), right.ended, found.ended)
    claim("ended_as", right.ended_as is None or right.ended_as == found.ended_as, right.ended_as, found.ended_as)
    claim("present", right.present <= found.present, sorted(right.present), sorted(found.present))
    return wrong


def _same_end(right: Right, found: Found) -> bool:
    if right.ended is None or right.ended == "open" or found.ended is None:
        return right.ended is None and found.ended is None
    cause, grade, step = right.ended
    return cause == found.ended[0] and grade in {None, found.ended[1]} and (step is None or step == found.ended[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One scenario's end.  `skipped`: why it could not be run here; `broken`: what failed before a verdict."""

    scenario: Scenario
    found: Found | None = None
    seconds: float = 0.0
    skipped: str | None = None
    broken: str | None = None
    told: str = ""

    @property
    def wrong(self) -> list[str]:
        """Empty when the verdict is the one that was written down."""
        if self.skipped is not None:
            return []
        if self.broken is not None or self.found is None:
            return [self.broken or "no verdict"]
        return differences(self.scenario.right, self.found)

    @property
    def right_cause(self) -> bool:
        """Whether blame and cause are right, whatever else is not."""
        right, found = self.scenario.right, self.found
        return found is not None and found.blame in right.blame and right.cause in {"open", found.cause}


def bars(results: Sequence[Result]) -> list[tuple[str, bool]]:
    """Each bar with its figure, and whether it holds."""
    ran = [r for r in results if r.skipped is None]
    infra = [r for r in ran if r.scenario.kind is Kind.INFRA]
    good = [r for r in infra if r.right_cause]
    innocent = [r for r in ran if r.scenario.kind in {Kind.LOOK_ALIKE, Kind.CLEAN}]
    charged = [r.scenario.name for r in innocent if r.found is None or r.found.blame is Blame.INFRA]
    inside = [r for r in ran if r.scenario.inside_only]
    proved = [r.scenario.name for r in inside if r.found is None or _infra_proved(r.found)]
    others = [r for r in ran if r.scenario.kind is Kind.OTHER]
    accused = [r.scenario.name for r in others if r.found is None or _infra_proved(r.found)]
    share = len(good) / len(infra) if infra else 1.0
    return [
        (f"right cause on infra scenarios: {len(good)} of {len(infra)} ({share:.0%}), at least 95 %", share >= 0.95),
        (f"infra blamed on look-alikes and controls: {_named(charged, len(innocent))}, at most 0", not charged),
        (f"proved on inside-only evidence: {_named(proved, len(inside))}, at most 0", not proved),
        (
            f"infra proved where harness, operator or fairtrial failed: {_named(accused, len(others))}, at most 0",
            not accused,
        ),
    ]


def _infra_proved(found: Found) -> bool:
    return found.blame is Blame.INFRA and found.grade is Grade.PROVED


def _named(names: Sequence[str], total: int) -> str:
    told = f" ({', '.join(names)})" if names else ""
    return f"{len(names)} of {total}{told}"


def report(results: Sequence[Result]) -> list[str]:
    """The whole report, line by line."""
    lines = ["", "expected x found (blame and grade)", *_table(results), "", *_families(results), "", *_causes(results)]
    misses = [r for r in results if r.wrong]
    lines += ["", f"{len(misses)} misses"]
    for result in misses:
        lines.append(f"  {result.scenario.name}: {result.scenario.what}")
        lines += [f"      {line}" for line in result.wrong]
        if result.found is not None:
            lines.append(f"      says: {result.found.sentence}")
        if result.scenario.awaits is not None:
            lines.append(f"      awaits: {result.scenario.awaits}")
    skipped = [r for r in results if r.skipped is not None]
    if skipped:
        lines += ["", f"{len(skipped)} not run here", *(f"  {r.scenario.name}: {r.skipped}" for r in skipped)]
    return [*lines, ""]


def _table(results: Iterable[Result]) -> list[str]:
    counted: Counter[tuple[str, str]] = Counter()
    for result in results:
        if result.skipped is None:
            counted[_wanted(result.scenario.right), _said(result.found)] += 1
    rows = sorted({wanted for wanted, _ in counted})
    columns = sorted({said for _, said in counted})
    width = max(map(len, rows), default=0) + 2
    head = " " * width + "".join(f"{name:>{len(name) + 2}}" for name in columns)
    body = [
        f"{row:<{width}}" + "".join(f"{counted[row, name] or '.':>{len(name) + 2}}" for name in columns) for row in rows
    ]
    return [head, *body]


def _wanted(right: Right) -> str:
    blame = "|".join(sorted(right.blame)) if len(right.blame) <= 2 else "not infra"
    return f"{blame}/{right.grade}" if right.grade not in {None, "open"} else blame


def _said(found: Found | None) -> str:
    if found is None:
        return "broken"
    return f"{found.blame}/{found.grade}" if found.grade is not None else str(found.blame)


def _families(results: Iterable[Result]) -> list[str]:
    ran = [r for r in results if r.skipped is None]
    lines = [f"{'family':<14}{'n':>4}{'right cause':>14}{'all right':>12}{'seconds':>10}"]
    for family in dict.fromkeys(r.scenario.family for r in ran):
        mine = [r for r in ran if r.scenario.family == family]
        causes, whole = sum(r.right_cause for r in mine), sum(not r.wrong for r in mine)
        lines.append(f"{family:<14}{len(mine):>4}{causes:>14}{whole:>12}{sum(r.seconds for r in mine):>10.0f}")
    return lines


def _causes(results: Iterable[Result]) -> list[str]:
    """Expected cause x found cause, where a cause is expected."""
    counted: Counter[tuple[str, str]] = Counter()
    for result in results:
        wanted = result.scenario.right.cause
        if result.skipped is None and wanted not in {None, "open"}:
            said = result.found.cause if result.found is not None else "broken"
            counted[str(wanted), said or f"none ({_said(result.found)})"] += 1
    lines = [f"{'cause that is right':<30}found"]
    for wanted in sorted({wanted for wanted, _ in counted}):
        mine = {name: n for (want, name), n in counted.items() if want == wanted}
        told = ", ".join(f"{'=' if name == wanted else name} x{n}" for name, n in sorted(mine.items()))
        lines.append(f"{wanted:<30}{told}")
    return lines
