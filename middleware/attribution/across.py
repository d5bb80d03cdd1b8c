"""Across trials: what several trials of one run have in common, and how that moves their verdicts.

In: the closed trials of one run (or of any set), each with its verdict.  Out: an `Across`: findings, each with the
trials that share it, and for each trial whose verdict it moves an `Adjusted` beside the stored one.  Pure; the stored
verdicts are never rewritten, and the booked scores never touched.

Rules that need no statistics are in `across_rules.py`.  Here are those that ask whether trials of one node, model
API host, key or minute fail *together*: Fisher's exact test of the group against the rest, one-sided, with the
threshold `together_p` (p is multiplied by how many groups, or windows of a burst's length, there were to look at).  It
is scipy's; without the extra [stats] these rules are off, and `off` says so.  A time is
compared by trial-minutes, since all trials of a run may have been there: failing ones inside the burst against outside.
What they move: `suspected` infra whose only doubt was the one vantage becomes `proved` when trials of at least two
nodes share it (an agent may break its own machine's network, not another's); `indeterminate` becomes infra, suspected;
`model`, proved, of a trial that fails with its whole group becomes suspected.  One trial alone never moves another.
How it can be wrong: trials of a hard task that were all put on one node fail together for the task's sake; groups of
which all trials are of one task are left out.

**Source:** design page VERDICTS.md; reference page taxonomy.md section 5 (node or network blip, concurrency).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from fairtrial.middleware.attribution.across_rules import FIXED
from fairtrial.middleware.attribution.sentences import count, seconds
from fairtrial.middleware.attribution.shared import Adjusted, Finding, Hit, hits, host_of, node_of, phrase, span_of
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, Thresholds
from fairtrial.middleware.core.records import Blame, Grade, Outcome, Trial

Fisher = Callable[[int, int, int, int], float]
"""p of [[hit in the group, not], [hit outside, not]], one-sided: the group is hit more often."""

LEAST: Final = 2
BURST_NS: Final = 60_000_000_000
"""Hits closer than this are one burst: a blip of 65 s is seen by retries that lie apart."""
MINUTE_NS: Final = 60_000_000_000
WITHOUT_SCIPY: Final = (
    "whether trials of one node, host or minute fail together was not tested: install fairtrial[stats]"
)
_DOUBT_IS_VANTAGE: Final = ("network.", "model_api.unreachable", "gateway.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """What a set of trials says together."""

    findings: tuple[Finding, ...]
    adjusted: dict[str, Adjusted]
    """By trial id; the first finding that moves a verdict decides."""
    off: str | None
    """Why the rules with statistics did not run."""


def across(
    trials: Iterable[Trial], thresholds: Thresholds = DEFAULT_THRESHOLDS, *, fisher: Fisher | None = None
) -> Across:
    """Look at all of them together.  `fisher`: default scipy's, where it is installed."""
    known = sorted((t for t in trials if t.verdict is not None), key=lambda t: (t.started or "", t.trial))
    findings: list[Finding] = [found for rule in FIXED for found in rule(known, thresholds)]
    test = fisher or scipys_fisher()
    off = None
    if test is None:
        off = WITHOUT_SCIPY if len(known) > LEAST else None
    else:
        findings += _together(known, thresholds, test)
    adjusted: dict[str, Adjusted] = {}
    for finding in findings:
        for moved in finding.moves:
            adjusted.setdefault(moved.trial, moved)
    return Across(findings=tuple(findings), adjusted=adjusted, off=off)


def scipys_fisher() -> Fisher | None:
    """None where the extra [stats] is not installed."""
    try:
        stats = importlib.import_module("scipy.stats")
    except ImportError:
        return None

    def test(in_hit: int, in_not: int, out_hit: int, out_not: int) -> float:
        return float(stats.fisher_exact([[in_hit, in_not], [out_hit, out_not]], alternative="greater").pvalue)

    return test


def _together(trials: Sequence[Trial], thresholds: Thresholds, fisher: Fisher) -> Iterator[Finding]:
    struck = {t.trial: hits(t) for t in trials}
    yield from _bursts(trials, struck, thresholds, fisher)
    yield from _groups(trials, struck, thresholds, fisher, "host", host_of)
    yield from _groups(trials, struck, thresholds, fisher, "node", node_of)
    yield from _failing_places(trials, thresholds, fisher)


# --- one minute -----------------------------------------------------------------------------------------------------


def _bursts(
    trials: Sequence[Trial], struck: dict[str, list[Hit]], thresholds: Thresholds, fisher: Fisher
) -> Iterator[Finding]:
    by_kind: dict[str, list[Hit]] = {}
    spans = [span_of(t) for t in trials]
    whole_ns = max((e for _, e in spans), default=0) - min((b for b, _ in spans), default=0)
    for hit in (h for told in struck.values() for h in told):
        by_kind.setdefault(hit.cause, []).append(hit)
    for cause, told in sorted(by_kind.items()):
        for burst in _bursts_of(told):
            names = {h.trial for h in burst}
            if len(names) < LEAST:
                continue
            since, until = burst[0].at_ns, max(h.until_ns for h in burst)
            inside, outside = _minutes(trials, since, until)
            elsewhere = sum(1 for h in told if h not in burst)
            # A burst was looked for, and not named beforehand: any window of its length might have been one.
            windows = max(1.0, whole_ns / max(BURST_NS, until - since))
            p = windows * fisher(len(names), max(0, inside - len(names)), elsewhere, max(0, outside - elsewhere))
            if p > thresholds.together_p:
                continue
            within = seconds((until - since) / 1e9) or ""
            group = [t for t in trials if t.trial in names]
            what = f"{count(len(names), 'trial')} had {cause} within {within}, and {elsewhere} at other times"
            yield _finding("minute", what, group, p, struck, cause, surely_outside=len({node_of(t) for t in group}) > 1)


def _bursts_of(told: Sequence[Hit]) -> Iterator[list[Hit]]:
    burst: list[Hit] = []
    reached = 0
    for hit in sorted(told, key=lambda h: h.at_ns):
        if burst and hit.at_ns - reached > BURST_NS:
            yield burst
            burst = []
        burst.append(hit)
        reached = max(reached, hit.until_ns) if len(burst) > 1 else hit.until_ns
    if burst:
        yield burst


def _minutes(trials: Sequence[Trial], since: int, until: int) -> tuple[int, int]:
    """Trial-minutes inside the burst and outside of it; each trial counts for one inside at least, if it was there."""
    inside = outside = 0
    for trial in trials:
        began, ended = span_of(trial)
        shared = min(ended, until) - max(began, since)
        here = 0 if shared < 0 else max(1, round(shared / MINUTE_NS))
        inside += here
        outside += max(0, round((ended - began - max(0, shared)) / MINUTE_NS))
    return inside, outside


# --- one node, one host ---------------------------------------------------------------------------------------------


def _groups(
    trials: Sequence[Trial],
    struck: dict[str, list[Hit]],
    thresholds: Thresholds,
    fisher: Fisher,
    kind: Literal["host", "node"],
    place_of: Callable[[Trial], str | None],
) -> Iterator[Finding]:
    """Trials of one place that share a cause, against those of the others."""
    places = {t.trial: place_of(t) for t in trials}
    tests = len({p for p in places.values() if p is not None})
    for cause in sorted({h.cause for told in struck.values() for h in told}):
        hit = {t.trial for t in trials if any(h.cause == cause for h in struck[t.trial])}
        for place in sorted({p for p in places.values() if p is not None}):
            here = [t for t in trials if places[t.trial] == place]
            there = [t for t in trials if places[t.trial] not in {place, None}]
            both = [t for t in here if t.trial in hit]
            if len(both) < LEAST or not there or len({t.task for t in here}) < 2:
                continue
            others = sum(1 for t in there if t.trial in hit)
            p = tests * fisher(len(both), len(here) - len(both), others, len(there) - others)
            if p > thresholds.together_p:
                continue
            what = f"{len(both)} of {count(len(here), 'trial')} of {kind} {place} had {cause}, and {others} of "
            what += f"{len(there)} elsewhere"
            nodes = {node_of(t) for t in both}
            yield _finding(kind, what, both, p, struck, cause, surely_outside=kind == "host" and len(nodes) > 1)


def _failing_places(trials: Sequence[Trial], thresholds: Thresholds, fisher: Fisher) -> Iterator[Finding]:
    """A node whose trials fail, whatever is blamed, while those of the others do not."""
    placed = [(t, node_of(t)) for t in trials]
    tests = len({n for _, n in placed if n is not None})
    for node in sorted({n for _, n in placed if n is not None}):
        here = [t for t, n in placed if n == node]
        there = [t for t, n in placed if n not in {node, None}]
        failed = [t for t in here if t.outcome is not Outcome.PASSED]
        if len(failed) < LEAST or not there or len({t.task for t in here}) < 2:
            continue
        others = sum(1 for t in there if t.outcome is not Outcome.PASSED)
        p = tests * fisher(len(failed), len(here) - len(failed), others, len(there) - others)
        if p > thresholds.together_p:
            continue
        what = f"{len(failed)} of {count(len(here), 'trial')} of node {node} failed, and {others} of {len(there)} "
        what += "elsewhere"
        moves = [
            Adjusted(
                trial=t.trial,
                blame=Blame.MODEL,
                grade=Grade.SUSPECTED,
                cause=None,
                was=phrase(t),
                why=f"{what} (p = {p:.2g}): the node itself may be at fault. Run it again on another node.",
            )
            for t in failed
            if t.verdict is not None and t.verdict.blame is Blame.MODEL and t.verdict.grade is Grade.PROVED
        ]
        yield Finding(kind="node", what=what, trials=tuple(t.trial for t in failed), p=p, moves=tuple(moves))


# --- what it moves --------------------------------------------------------------------------------------------------


def _finding(
    kind: Literal["minute", "host", "node"],
    what: str,
    group: Sequence[Trial],
    p: float,
    struck: dict[str, list[Hit]],
    cause: str,
    *,
    surely_outside: bool,
) -> Finding:
    moves = [
        moved
        for t in group
        if (moved := _moved(t, what, p, cause, struck[t.trial], surely_outside=surely_outside)) is not None
    ]
    return Finding(kind=kind, what=what, trials=tuple(t.trial for t in group), p=p, moves=tuple(moves))


def _moved(
    trial: Trial, what: str, p: float, cause: str, told: Sequence[Hit], *, surely_outside: bool
) -> Adjusted | None:
    verdict = trial.verdict
    mine = [h for h in told if h.cause == cause]
    if verdict is None or not mine or trial.outcome is Outcome.PASSED:
        return None
    said = f"{what} (p = {p:.2g})"
    ended = any(h.ended for h in mine)
    if verdict.blame is Blame.INFRA and verdict.cause == cause and verdict.grade is Grade.SUSPECTED:
        vantage = cause.startswith(_DOUBT_IS_VANTAGE)
        if not (vantage and surely_outside and ended):
            return None
        why = f"{said}, on more than one node: not one trial's own doing."
        return Adjusted(
            trial=trial.trial, blame=Blame.INFRA, grade=Grade.PROVED, cause=cause, was=phrase(trial), why=why
        )
    if verdict.blame is Blame.INDETERMINATE and ended:
        why = f"{said}: it was not alone."
        return Adjusted(
            trial=trial.trial, blame=Blame.INFRA, grade=Grade.SUSPECTED, cause=cause, was=phrase(trial), why=why
        )
    return None
