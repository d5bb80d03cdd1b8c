"""Shapes and look-ups for the rules across trials: what struck a trial when, and where it ran.

In: a `Trial` with its verdict.  Out: `Hit`s, its node, host and span; `Finding` and `Adjusted` as the rules report.
What this module does not do: compare trials (`across.py`, `across_rules.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Attempt, Blame, Call, Grade, Step, Trial

_OUTSIDE: Final = frozenset({Blame.INFRA, Blame.OPERATOR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One outside event of one trial."""

    trial: str
    cause: str
    at_ns: int
    until_ns: int
    ended: bool
    """It is what ended the trial, or what the trial is blamed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjusted:
    """What the others say about one trial's verdict; `was` is the stored one."""

    trial: str
    blame: Blame
    grade: Grade | None
    cause: str | None
    was: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that several trials share."""

    kind: Literal["minute", "host", "node", "key", "body", "task", "memory", "timer"]
    what: str
    trials: tuple[str, ...]
    p: float | None = None
    """Of Fisher's test; None where the rule needs none."""
    moves: tuple[Adjusted, ...] = ()


def hits(trial: Trial) -> list[Hit]:
    """Its outside events, by cause, with the time in which they struck."""
    verdict = trial.verdict
    if verdict is None:
        return []
    found: list[Hit] = []
    ended = {verdict.cause, verdict.terminated_by.cause if verdict.terminated_by is not None else None}
    steps = {(p.cause, p.step) for p in verdict.present}
    steps |= {(verdict.cause, verdict.step)} if verdict.cause is not None else set()
    steps |= {(verdict.terminated_by.cause, verdict.terminated_by.step)} if verdict.terminated_by is not None else set()
    for cause, step in sorted(steps, key=lambda s: (s[0] or "", s[1] or 0)):
        known = CAUSES.get(cause or "")
        if cause is None or known is None or _OUTSIDE.isdisjoint(known.may_blame):
            continue
        since, until = _when(trial, cause, step)
        found.append(Hit(trial=trial.trial, cause=cause, at_ns=since, until_ns=until, ended=cause in ended))
    return found


def node_of(trial: Trial) -> str | None:
    return trial.environment.node


def host_of(trial: Trial) -> str | None:
    """The model API's host that it asked, if it asked one alone."""
    hosts = {c.upstream_host for c in calls_of(trial) if c.upstream_host is not None}
    return next(iter(hosts)) if len(hosts) == 1 else None


def span_of(trial: Trial) -> tuple[int, int]:
    began = wall_ns_of(trial.started) or 0
    return began, max(began, wall_ns_of(trial.ended) or began)


def calls_of(trial: Trial) -> Iterator[Call]:
    for step in trial.steps:
        yield from step.calls
    yield from trial.side_calls


def attempts_of(trial: Trial) -> Iterator[tuple[Call, Attempt]]:
    for call in calls_of(trial):
        for attempt in call.attempts:
            yield call, attempt


def span_of_attempt(attempt: Attempt) -> tuple[int, int]:
    began = wall_ns_of(attempt.started) or 0
    return began, began + round((attempt.duration or 0.0) * 1e9)


def peak_of(trial: Trial) -> int | None:
    """The most memory that any of its containers, or its command, used, bytes; not where others shared the cgroup."""
    uses = [u for s in trial.steps for u in s.containers if u.role != "service" and u.memory_peak_kind != "shared"]
    return max((u.memory_peak for u in uses if u.memory_peak is not None), default=None)


def phrase(trial: Trial) -> str:
    """The stored verdict in short."""
    verdict = trial.verdict
    if verdict is None:
        return "no verdict"
    grade = f", {verdict.grade.value}" if verdict.grade is not None else ""
    cause = f" ({verdict.cause})" if verdict.cause is not None else ""
    return f"{verdict.blame.value}{grade}{cause}"


def _when(trial: Trial, cause: str, step: int | None) -> tuple[int, int]:
    """The failed attempts of that step, else the step, else the trial's end."""
    row = _step(trial, step)
    if row is not None and cause.startswith(("model_api.", "gateway.", "network.", "operator.")):
        failed = [
            span_of_attempt(a) for c in row.calls for a in c.attempts if a.outcome != "ok" or (a.status or 0) >= 400
        ]
        if failed:
            return min(s for s, _ in failed), max(u for _, u in failed)
    if row is not None and row.started is not None:
        began = wall_ns_of(row.started) or 0
        return began, wall_ns_of(row.ended) or began
    _, ended = span_of(trial)
    return ended, ended


def _step(trial: Trial, step: int | None) -> Step | None:
    return trial.steps[step - 1] if step is not None and 0 < step <= len(trial.steps) else None
