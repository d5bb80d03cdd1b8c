"""Rules across trials that count and need no statistics.

- *key*: a rate limit (429) while other trials were at work on the same key is the operator's own width where the
  provider names a limit per key; where it names none, the width may have spent it, and infra is only suspected.
- *body*: one request body that the API refused with 5xx in every trial that sent it, three times or more in all, while
  other bodies passed there: the request is at fault, not the hour (`model_api.poison_request`, suspected).
- *node*: trials of one node that lost processes to one shortage of the node's memory: one that used less than half of
  what another used, and no more than its own limit, was not the hog (infra, proved).
- *memory*: at least three trials of the same task that passed needed more memory than this trial's ceiling, and no more
  than k times what is declared: the ceiling was at fault (VERDICTS section 3 b: infra, proved).
- *task*: the task's own solution (a trial whose harness is called an oracle) failed: the task is suspected, not the
  models that failed it.
- *timer*: at least three trials that nobody can explain ended at one length: a timer of the harness's (suspected).
In: closed trials.  Out: `Finding`s.  What it deliberately does not do: move a verdict that its own evidence proved,
other than a rate limit's owner, a poisoned body, or an oracle's word.
How it can be wrong: keys are told apart by a keyed digest; trials of different machines share none unless their stores
share the secret, so a shared key is then not seen, and the limit stays infra.

**Source:** design page VERDICTS.md sections 3, 5 and 6; reference page taxonomy.md section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from fairtrial.middleware.attribution.sentences import count, seconds, size
from fairtrial.middleware.attribution.shared import (
    Adjusted,
    Finding,
    attempts_of,
    hits,
    node_of,
    peak_of,
    phrase,
    span_of,
    span_of_attempt,
)
from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.core.records import Attempt, Blame, Grade, Outcome, Trial

Rule = Callable[[Sequence[Trial], Thresholds], Iterator[Finding]]

LEAST_PEAKS: Final = 3
LEAST_TIMED: Final = 3
LEAST_BODY: Final = 3
_SPREAD: Final = 0.01
_SHORTEST_S: Final = 10.0
_TOGETHER_NS: Final = 60_000_000_000
_NODE_NS: Final = 10_000_000_000
"""Kills of one shortage lie this close together."""
ORACLES: Final = ("oracle", "gold", "reference-solution")


def keys(trials: Sequence[Trial], thresholds: Thresholds) -> Iterator[Finding]:
    """Trials that spent of one key's limit together."""
    del thresholds
    limited: dict[str, list[tuple[Trial, list[Attempt]]]] = {}
    users: dict[str, list[Trial]] = {}
    for trial in trials:
        met: dict[str, list[Attempt]] = {}
        used: set[str] = set()
        for _, attempt in attempts_of(trial):
            if attempt.key is not None:
                used.add(attempt.key)
                if attempt.status == 429:
                    met.setdefault(attempt.key, []).append(attempt)
        for key in used:
            users.setdefault(key, []).append(trial)
        for key, attempts in met.items():
            limited.setdefault(key, []).append((trial, attempts))
    for key in sorted(limited):
        struck = [
            (trial, attempts)
            for trial, attempts in limited[key]
            if any(_at_work(other, key, attempts) for other in users[key] if other is not trial)
        ]
        if not struck:
            continue
        sharing = len(users[key])
        what = f"{count(sharing, 'trial')} used one API key, and {len(limited[key])} of them met its rate limit"
        yield Finding(
            kind="key",
            what=what,
            trials=tuple(t.trial for t in users[key]),
            moves=tuple(
                _owner(trial, what, named=any(a.per_key for a in attempts))
                for trial, attempts in struck
                if _is(trial, cause="model_api.rate_limited", blame=Blame.INFRA)
            ),
        )


def _owner(trial: Trial, what: str, *, named: bool) -> Adjusted:
    """Whose a rate limit was that a trial met while others spent of the same key."""
    advice = "Run fewer trials at once, or ask for a higher limit."
    sure = named and _is(trial, grade=Grade.PROVED)
    return Adjusted(
        trial=trial.trial,
        blame=Blame.OPERATOR if named else Blame.INFRA,
        grade=Grade.PROVED if sure else Grade.SUSPECTED,
        cause="model_api.rate_limited",
        was=phrase(trial),
        why=f"{what}: the provider names a limit per key, so this run's own width spent it. {advice}"
        if named
        else f"{what}: this run's own width may have spent it. {advice}",
    )


def _at_work(other: Trial, key: str, limited: Sequence[Attempt]) -> bool:
    """Whether another trial's calls on the same key were under way around these refusals."""
    spans = [span_of_attempt(a) for _, a in attempts_of(other) if a.key == key]
    times = [span_of_attempt(a)[0] for a in limited]
    return any(since - _TOGETHER_NS <= at <= until + _TOGETHER_NS for at in times for since, until in spans)


def bodies(trials: Sequence[Trial], thresholds: Thresholds) -> Iterator[Finding]:
    """One body that always fails, while others pass at the same host."""
    del thresholds
    refused: dict[tuple[str, str], dict[str, int]] = {}
    passed: set[tuple[str, str]] = set()
    served: set[str] = set()
    for trial in trials:
        for call, attempt in attempts_of(trial):
            if call.upstream_host is None or call.body_digest is None:
                continue
            place = (call.upstream_host, call.body_digest)
            if _refused(attempt):
                per_trial = refused.setdefault(place, {})
                per_trial[trial.trial] = per_trial.get(trial.trial, 0) + 1
            elif attempt.outcome == "ok":
                passed.add(place)
                served.add(call.upstream_host)
    by_id = {t.trial: t for t in trials}
    for place in sorted(refused):
        counts = refused[place]
        if place in passed or place[0] not in served or len(counts) < 2 or sum(counts.values()) < LEAST_BODY:
            continue
        what = f"one request body was refused by {place[0]} all {sum(counts.values())} times in "
        what += f"{count(len(counts), 'trial')}, while others passed there"
        yield Finding(
            kind="body",
            what=what,
            trials=tuple(sorted(counts)),
            moves=tuple(
                Adjusted(
                    trial=name,
                    blame=Blame.INFRA,
                    grade=Grade.SUSPECTED,
                    cause="model_api.poison_request",
                    was=phrase(by_id[name]),
                    why=f"{what}: the request itself may be at fault. Send it by itself; report it to the provider.",
                )
                for name in sorted(counts)
                if _is(by_id[name], cause="model_api.server_error", blame=Blame.INFRA)
            ),
        )


def _refused(attempt: Attempt) -> bool:
    status = attempt.status or 0
    return 500 <= status < 600 and status != 529 and attempt.error_type != "overloaded_error"


def memory(trials: Sequence[Trial], thresholds: Thresholds) -> Iterator[Finding]:
    """Passed trials of the task that needed more than this one was allowed."""
    for trial in trials:
        if not _is(trial, cause="container.oom_kill", blame=Blame.INFRA) or trial.task is None:
            continue
        ceiling = _ceiling(trial)
        if ceiling is None:
            continue
        declared = trial.limits.memory.declared or ceiling
        most = round(declared * thresholds.headroom_k)
        above = [
            (t, peak)
            for t in trials
            if t.trial != trial.trial and t.task == trial.task and t.outcome is Outcome.PASSED
            if (peak := peak_of(t)) is not None and ceiling < peak <= most
        ]
        if len(above) < LEAST_PEAKS:
            continue
        what = (
            f"{count(len(above), 'trial')} of task {trial.task} that passed used {size(min(p for _, p in above))} or "
        )
        what += f"more, above this trial's ceiling of {size(ceiling)} and within {thresholds.headroom_k:g} x "
        what += f"{size(declared)}"
        yield Finding(
            kind="memory",
            what=what,
            trials=(trial.trial, *(t.trial for t, _ in above)),
            moves=(
                Adjusted(
                    trial=trial.trial,
                    blame=Blame.INFRA,
                    grade=Grade.PROVED,
                    cause="container.oom_kill",
                    was=phrase(trial),
                    why=f"{what}: the ceiling was at fault. Run it again with {size(most)}.",
                ),
            ),
        )


def neighbours(trials: Sequence[Trial], thresholds: Thresholds) -> Iterator[Finding]:
    """A node that ran out of memory under several trials: whoever used less than another of them was not the hog."""
    del thresholds
    struck: dict[str, list[tuple[int, Trial]]] = {}
    for trial in trials:
        node = node_of(trial)
        for hit in hits(trial):
            if hit.cause == "node.oom" and node is not None:
                struck.setdefault(node, []).append((hit.at_ns, trial))
    for node, told in sorted(struck.items()):
        group = [t for at, t in told if any(abs(at - other) <= _NODE_NS for other, o in told if o is not t)]
        peaks = {t.trial: peak_of(t) for t in group}
        known = [p for p in peaks.values() if p is not None]
        if len(peaks) < 2 or not known:
            continue
        what = f"{count(len(peaks), 'trial')} of node {node} lost a process when the node ran out of memory"
        moves = [
            Adjusted(
                trial=t.trial,
                blame=Blame.INFRA,
                grade=Grade.PROVED,
                cause="node.oom",
                was=phrase(t),
                why=f"{what}; this one used {size(peak)}, within its own limit, and another used {size(max(known))}. "
                "Run it again with fewer neighbours.",
            )
            for t in group
            if _is(t, cause="node.oom", blame=Blame.INFRA, grade=Grade.SUSPECTED)
            if (peak := peaks[t.trial]) is not None and peak < max(known) / 2 and peak <= (_ceiling(t) or 0)
        ]
        yield Finding(kind="node", what=what, trials=tuple(peaks), moves=tuple(moves))


def _ceiling(trial: Trial) -> int | None:
    told = [u.memory_limit for s in trial.steps for u in s.containers if u.memory_limit and u.oom_kills]
    return told[0] if told else trial.limits.memory.ceiling


def oracles(trials: Sequence[Trial], thresholds: Thresholds) -> Iterator[Finding]:
    """A task whose own solution failed it."""
    del thresholds
    for task in sorted({t.task for t in trials if t.task is not None}):
        own = [t for t in trials if t.task == task]
        solved = [t for t in own if _is_oracle(t)]
        broken = [t for t in solved if t.outcome is not Outcome.PASSED and not _is(t, blame=Blame.INFRA)]
        if not broken or len(broken) < len(solved):
            continue
        models = [t for t in own if t not in solved and t.outcome is not Outcome.PASSED and _is(t, blame=Blame.MODEL)]
        what = f"the own solution of task {task} failed in {count(len(broken), 'trial')}"
        yield Finding(
            kind="task",
            what=what,
            trials=tuple(t.trial for t in (*broken, *models)),
            moves=tuple(
                Adjusted(
                    trial=t.trial,
                    blame=Blame.TASK,
                    grade=Grade.SUSPECTED,
                    cause="task.broken",
                    was=phrase(t),
                    why=f"{what}: the task or its verifier may be broken. Mend it before models are judged by it.",
                )
                for t in models
            ),
        )


def _is_oracle(trial: Trial) -> bool:
    return any(word in (trial.harness or "").lower() for word in ORACLES)


def timers(trials: Sequence[Trial], thresholds: Thresholds) -> Iterator[Finding]:
    """Trials without an explanation that ended at one length."""
    del thresholds
    lengths: list[tuple[float, Trial]] = []
    for trial in trials:
        if trial.outcome is Outcome.PASSED or not _is(trial, blame=Blame.INDETERMINATE) or trial.closed != "normal":
            continue
        began, ended = span_of(trial)
        length = (ended - began) / 1e9
        if length >= _SHORTEST_S and trial.steps:
            lengths.append((length, trial))
    lengths.sort(key=lambda pair: (pair[0], pair[1].trial))
    begin = 0
    while begin < len(lengths):
        end = begin
        while end < len(lengths) and lengths[end][0] <= lengths[begin][0] * (1 + _SPREAD) + 0.5:
            end += 1
        alike = lengths[begin:end]
        begin = end
        if len(alike) < LEAST_TIMED or len({t.task for _, t in alike}) < 2:
            continue
        what = f"{count(len(alike), 'trial')} of different tasks ended at one length ({seconds(alike[0][0])})"
        yield Finding(
            kind="timer",
            what=what,
            trials=tuple(t.trial for _, t in alike),
            moves=tuple(
                Adjusted(
                    trial=t.trial,
                    blame=Blame.HARNESS,
                    grade=Grade.SUSPECTED,
                    cause="harness.inner_timeout",
                    was=phrase(t),
                    why=f"{what}: a timer inside the harness ended them. Look for it in the harness's settings.",
                )
                for _, t in alike
            ),
        )


def _is(trial: Trial, *, cause: str | None = None, blame: Blame | None = None, grade: Grade | None = None) -> bool:
    verdict = trial.verdict
    return (
        verdict is not None
        and (cause is None or verdict.cause == cause)
        and (blame is None or verdict.blame is blame)
        and (grade is None or verdict.grade is grade)
    )


FIXED: Final[tuple[Rule, ...]] = (keys, bodies, memory, neighbours, oracles, timers)
"""In the order in which they decide."""
