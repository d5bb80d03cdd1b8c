"""Which observed trial a booked one is: by ids, container labels, names and times, the strongest first.

In: booked trials and the trials of the store.  Out: one `Joined` each, with how it was found and a sentence where it
was not.  Pure.  A wrong join is worse than none: what could be one trial or another is tied to none, and several booked
trials that one observed trial holds are each tied to none of its parts.

The order: fairtrial's own id · request ids · ids of replies · tool-call ids · call keys · container ids · sessions ·
compose projects (the three last need no model call) · names · time.  Ids that an agent can write tie nothing to a trial
other than the one whose containers it had.  A name counts only within one run, or where the
times agree: names come again.  Time alone counts only for the one trial that it could be, whose command line names the
harness.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairtrial.middleware.core.records import Trust
from fairtrial.middleware.harnesses.base import Booked
from fairtrial.middleware.harnesses.known import Known

BY_ID: Final = (
    ("trial_ids", "trial_id", "by fairtrial's own id"),
    ("requests", "request_id", "by {n} request ids"),
    ("responses", "response_id", "by the ids of {n} replies"),
    ("tool_calls", "tool_call", "by {n} tool-call ids"),
    ("call_keys", "call_key", "by {n} call keys"),
    ("containers", "label", "by its container's id"),
    ("sessions", "session", "by its session's id"),
    ("projects", "label", "by the label of its containers"),
)
FROM_OUTSIDE: Final = ("containers", "projects")
"""Kinds of ids that no agent writes; the others may stand in files of its own (a trajectory in its container)."""
SLACK_NS: Final = 2_000_000_000
"""So far may a harness's times lie outside of the command that ran it: clocks are read apart, and rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """`trial` None: it stands alone.  `said` is for people; `part_of` as in `HarnessOutcome`."""

    trial: str | None = None
    how: str | None = None
    said: str = ""
    part_of: str | None = None
    waits: bool = False
    """Its trial still runs: nothing is to be written yet."""


def join(booked: Sequence[Booked], known: Sequence[Known], *, run: str | None) -> list[Joined]:
    """One answer per booked trial, in the same order."""
    index = _index(known)
    by_trial = {one.trial: one for one in known}
    found = [_by_id(one, index, by_trial) or _by_name(one, known, run=run) for one in booked]
    found = [answer or _by_time(one, known) for answer, one in zip(found, booked, strict=True)]
    answers = [answer or Joined(said=_why_alone(one, run=run)) for answer, one in zip(found, booked, strict=True)]
    answers = _parts(booked, answers)
    return [_waiting(answer, by_trial) for answer in answers]


def _index(known: Sequence[Known]) -> dict[tuple[str, str], set[str]]:
    index: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in known:
        for kind, values in one.keys.items():
            for value in values:
                index[kind, value].add(one.trial)
    return index


def _is_its_own(one: Booked, known: Known) -> bool:
    """Whether the trial is nothing but what an earlier import of this one made."""
    return known.alone and one.outcome.identity in known.keys.get("founders", ())


def _by_id(one: Booked, index: dict[tuple[str, str], set[str]], by_trial: dict[str, Known]) -> Joined | None:
    housed = {trial for kind in FROM_OUTSIDE for trial in _hits(one, kind, index, by_trial)}
    for kind, how, words in BY_ID:
        hits = _hits(one, kind, index, by_trial)
        if len(hits) == 1:
            trial, shared = next(iter(hits.items()))
            if housed and trial not in housed:
                said = f"{_counted(words, shared)} one trial, by its containers another; tied to none of them"
                return Joined(said=said)
            return Joined(trial=trial, how=how, said=_counted(words, shared))
        if hits:
            said = f"could be {len(hits)} trials by {words.split('{n} ')[-1].removeprefix('by ')}; tied to none of them"
            return Joined(said=said)
    return None


def _hits(one: Booked, kind: str, index: dict[tuple[str, str], set[str]], by_trial: dict[str, Known]) -> Counter[str]:
    """How many ids of this kind each trial shares."""
    wanted: frozenset[str] = getattr(one.keys, kind)
    return Counter(
        trial for value in wanted for trial in index.get((kind, value), ()) if not _is_its_own(one, by_trial[trial])
    )


def _counted(words: str, shared: int) -> str:
    if "{n}" in words and shared == 1:
        return words.replace("the ids of {n} replies", "the id of 1 reply").replace("{n}", "1").replace("ids", "id")
    return words.replace("{n}", str(shared))


def _by_name(one: Booked, known: Sequence[Known], *, run: str | None) -> Joined | None:
    if not one.keys.names:
        return None
    same = [k for k in known if k.keys.get("names", set()) & one.keys.names and not _is_its_own(one, k)]
    if one.outcome.started_ns is not None:
        same = [k for k in same if _overlap(one, k)] or (same if run is not None and _all_timeless(same) else [])
    elif run is None:
        return None
    if len(same) == 1:
        return Joined(trial=same[0].trial, how="name", said="by its name")
    if same:
        return Joined(said=f"could be {len(same)} trials of that name; tied to none of them")
    return None


def _all_timeless(known: Sequence[Known]) -> bool:
    """Trials that were only imported, of which no time is known."""
    return all(k.alone for k in known)


def _by_time(one: Booked, known: Sequence[Known]) -> Joined | None:
    if one.outcome.started_ns is None or not one.program:
        return None
    within = [k for k in known if not k.alone and _within(one, k) and set(one.program) & set(k.command)]
    if len(within) != 1:
        return None
    return Joined(trial=within[0].trial, how="time", said="by its time within the only run of that harness then")


def _overlap(one: Booked, known: Known) -> bool:
    told = one.outcome
    begin, end = told.started_ns or 0, told.ended_ns or told.started_ns or 0
    known_end = known.ended_ns if known.ended_ns is not None else begin
    return known.started_ns - SLACK_NS <= end and begin <= known_end + SLACK_NS


def _within(one: Booked, known: Known) -> bool:
    told = one.outcome
    begin, end = told.started_ns or 0, told.ended_ns or told.started_ns or 0
    known_end = known.ended_ns if known.ended_ns is not None else end
    return known.started_ns - SLACK_NS <= begin and end <= known_end + SLACK_NS


def _parts(booked: Sequence[Booked], answers: list[Joined]) -> list[Joined]:
    """Several trials of one harness in one observed trial: which traffic was whose cannot be told."""
    claims: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one, answer in zip(booked, answers, strict=True):
        if answer.trial is not None and one.trust is not Trust.INSIDE and not one.outcome.retried:
            claims[answer.trial, one.outcome.harness].add(one.outcome.identity)
    parted: list[Joined] = []
    for one, answer in zip(booked, answers, strict=True):
        sharing = claims.get((answer.trial or "", one.outcome.harness), set())
        if answer.trial is None or one.trust is Trust.INSIDE or len(sharing | {one.outcome.identity}) < 2:
            parted.append(answer)
            continue
        said = f"alone: trial …{answer.trial[-12:]} holds {len(sharing | {one.outcome.identity})} of them together"
        parted.append(Joined(said=said, part_of=answer.trial))
    return parted


def _waiting(answer: Joined, known: dict[str, Known]) -> Joined:
    target = answer.trial or answer.part_of
    if target is None or not known[target].open:
        return answer
    return replace(answer, waits=True, said="its trial still runs; import it again when that has ended")


def _why_alone(one: Booked, *, run: str | None) -> str:
    if run is None and one.outcome.started_ns is None:
        return "alone: its files hold no id and no time; name its run with --run to join it by name"
    return "alone: no observed trial shares an id, a label, a name or its time"
