"""What a replay says: what changed against the stored verdict, and how far the new one is from turning.

In: two verdicts, how many observations, and for each threshold where the verdict would turn.  Out: lines of plain text.
What this module does not do: judge (`closing.py`), or look for those edges (`attribution/margins.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fairtrial.middleware.core.records import Verdict
from fairtrial.middleware.report.words import at_step, headline, plural, seconds, wrapped

Edge = tuple[str, float, float, str]
"""Name of a threshold, its value in force, the value at which the verdict turns, and to what."""
_LISTED: Final = 6


def replay_lines(before: Verdict, after: Verdict, *, observations: int, width: int) -> list[str]:
    """What the same observations come to now, against what was stored."""
    changes = list(_changes(before, after))
    said = "the same as stored" if not changes else f"{plural(len(changes), 'difference')} to what was stored"
    lines = [f"REPLAY  from {observations} observations: {said}"]
    for change in (*_thresholds(before, after), *changes):
        lines += wrapped(change, width, hang=" " * 6)
    return lines


def margin_lines(verdict: Verdict, edges: Sequence[Edge], *, asked: int, known: int, width: int) -> list[str]:
    """How far the verdict is from turning, by our own thresholds and by anything else."""
    lines = ["HOW FAR FROM TURNING"]
    if not edges:
        tried = "each threshold" if asked == known else f"{asked} of {known} thresholds"
        lines += wrapped(f"{tried} was tried from 0 to ten times its value: none turns it", width, hang=" " * 6)
    elif asked < known:
        lines += wrapped(f"{asked} of {known} thresholds were tried before the time was up", width, hang=" " * 6)
    for name, value, at, becomes in edges[:_LISTED]:
        side = "or more" if at > value else "or less"
        lines += wrapped(f"{name} at {at:.3g} {side} (now {value:g}): {becomes}", width, hang=" " * 6)
    if len(edges) > _LISTED:
        lines += wrapped(f"and {len(edges) - _LISTED} more", width)
    if verdict.flips_if:
        it = "it " if verdict.flips_if.startswith("turns") else ""
        lines += wrapped(f"beside our numbers: {it}{verdict.flips_if}", width, hang=" " * 6)
    return lines


def _thresholds(before: Verdict, after: Verdict) -> Iterable[str]:
    for name in sorted(before.thresholds.keys() | after.thresholds.keys()):
        old, new = before.thresholds.get(name), after.thresholds.get(name)
        if old != new:
            yield f"threshold {name}: {_number(old)} → {_number(new)}"


def _changes(before: Verdict, after: Verdict) -> Iterable[str]:
    if headline(before) != headline(after):
        yield f"verdict: {headline(before)} → {headline(after)}"
    if _terminated(before) != _terminated(after):
        yield f"ended by: {_terminated(before)} → {_terminated(after)}"
    if before.ended_as != after.ended_as:
        yield f"ended as: {before.ended_as.value} → {after.ended_as.value}"
    for what, old_ids, new_ids in (
        ("evidence", _ids(before), _ids(after)),
        ("present", _present(before), _present(after)),
    ):
        if old_ids != new_ids:
            gone, more = sorted(old_ids - new_ids), sorted(new_ids - old_ids)
            parts = [f"no longer {', '.join(gone)}"] if gone else []
            parts += [f"new {', '.join(more)}"] if more else []
            yield f"{what}: {'; '.join(parts)}"
    old_s, new_s = before.ledger.infra_seconds, after.ledger.infra_seconds
    if old_s != new_s:
        yield f"time taken from outside: {_length(old_s)} → {_length(new_s)}"
    if before.sentence != after.sentence and headline(before) == headline(after):
        yield "the sentence says it in other words"
    if before.answers != after.answers:
        old, new = before.answers, after.answers
        yield (
            f"retry / grade / reward valid: {old.retry.value} / {old.grade.value} / {old.reward_valid.value} → "
            f"{new.retry.value} / {new.grade.value} / {new.reward_valid.value}"
        )


def _terminated(verdict: Verdict) -> str:
    by = verdict.terminated_by
    return "nothing outside" if by is None else f"{by.cause}, {by.grade.value}{at_step(by.step)}"


def _ids(verdict: Verdict) -> set[str]:
    return {f"{e.source} …{e.id[-6:]}" for e in verdict.evidence}


def _present(verdict: Verdict) -> set[str]:
    return {f"{p.cause}{at_step(p.step)}" for p in verdict.present}


def _number(value: float | None) -> str:
    return "not known then" if value is None else f"{value:g}"


def _length(value: float | None) -> str:
    return "not known" if value is None else seconds(value)
