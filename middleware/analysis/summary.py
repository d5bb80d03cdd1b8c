"""A run in numbers: what was booked, what the verdicts say, and three ways to count.

In: the records of a run's trials.  Out: a `Summary`.  Pure.  What this module does not do: change a booked score, or
compare runs.

Each trial that counts is in exactly one class.  Not counted: attempts that their harness gave up and tried again, and
trials that were observed as a whole and hold others that were imported on their own (else both would count); both are
said.  Trials that fairtrial itself spoiled are in no score (VERDICTS section 7).
A trial whose outcome nobody has told (a harness's results that were not imported yet) is neither a pass nor a failure.
The three denominators: infra as failures (what leaderboards do), infra that is proved left out, both over known
outcomes alone; and bounds over all: every trial that infra may have ended, or of which nothing is known, once as failed
and once as passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import FAMILIES, Blame, Booked, EndedAs, Grade, Outcome, Record, Trial, Verdict

SUMMARY_SCHEMA: Final = "fairtrial.summary/1"
CLASSES: Final = (
    "passed",
    "model",
    "infra_proved",
    "infra_suspected",
    "harness",
    "operator",
    "task",
    "fairtrial",
    "indeterminate",
)
WORTH: Final = 10
_DEAD_ENDS: Final = frozenset({EndedAs.HARNESS_KILLED, EndedAs.KILLED, EndedAs.HARNESS_CRASHED, EndedAs.AGENT_CRASHED})
_DEAD_MARKS: Final = frozenset({"terminal_gone", "no_result"})


class Share(Record, frozen=True, kw_only=True):
    """`passed` of `counted` trials; `rate` None where none counts."""

    passed: int
    counted: int
    rate: float | None


class Scores(Record, frozen=True, kw_only=True):
    """The three denominators; `lowest` and `highest` are the bounds."""

    infra_as_failures: Share
    infra_excluded: Share
    lowest: Share
    highest: Share


class EndedByInfra(Record, frozen=True, kw_only=True):
    """Trials that an outside event ended, whoever is to blame: the base of every infra rate."""

    trials: int = 0
    proved: int = 0
    suspected: int = 0
    causes: dict[str, int] = {}


class WorthALook(Record, frozen=True, kw_only=True):
    """One trial, and why it stands here; `sentence` is the verdict's, "" where nothing was watched."""

    trial: str
    name: str | None
    why: str
    blame: str
    grade: str | None
    cause: str | None
    step: int | None
    sentence: str


class Summary(Record, frozen=True, kw_only=True):
    """`fairtrial.summary/1`.  Counts are of trials; `mean_reward` over those that have one that counts."""

    schema: str = SUMMARY_SCHEMA
    run: str
    trials: int
    """That count."""
    started: str | None = None
    ended: str | None = None
    harnesses: dict[str, int] = {}
    """Who said the outcome."""
    booked: dict[str, int] = {}
    """By outcome."""
    mean_reward: float | None = None
    rewards: int = 0
    by_exit_code_only: int = 0
    """Outcomes that nobody but an exit status tells: 0 there is no score."""
    outcome_unknown: int = 0
    """Neither passed nor failed: in the bounds alone."""
    classes: dict[str, int] = {}
    ended_by_infra: EndedByInfra = EndedByInfra()
    passed_by_dead_harness: int = 0
    scores: Scores
    coverage: dict[str, dict[str, int]] = {}
    """Family → full, partial, none."""
    imported_only: int = 0
    still_open: int = 0
    retried: int = 0
    wholes: int = 0
    """Trials left out because their parts were imported."""
    worth_a_look: list[WorthALook] = []


def summed_up(run: str, trials: Sequence[Trial]) -> Summary:
    """Sum up the records of one run, in any order."""
    wholes = {told.part_of for trial in trials for told in _outside(trial) if told.part_of is not None}
    retried = [t for t in trials if _outside(t) and all(told.retried for told in _outside(t))]
    left_out = {t.trial for t in retried} | wholes
    counted = [t for t in trials if t.trial not in left_out]
    of_class = {t.trial: class_of(t) for t in counted}
    classes = Counter(of_class.values())
    rewards = [told.reward for t in counted if (told := _counting(t)) is not None and told.reward is not None]
    return Summary(
        run=run,
        trials=len(counted),
        started=min((t.started for t in counted if t.started), default=None),
        ended=max((t.ended for t in counted if t.ended), default=None),
        harnesses=dict(Counter(t.outcome_source or "nobody" for t in counted)),
        booked={outcome.value: n for outcome in Outcome if (n := sum(1 for t in counted if t.outcome is outcome))},
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        rewards=len(rewards),
        by_exit_code_only=sum(1 for t in counted if t.outcome_source == "exit_code"),
        classes={name: classes.get(name, 0) for name in CLASSES},
        ended_by_infra=_ended_by_infra(counted),
        passed_by_dead_harness=sum(1 for t in counted if passed_by_dead_harness(t)),
        outcome_unknown=sum(1 for t in counted if t.outcome is Outcome.UNKNOWN),
        scores=_scores(counted, of_class),
        coverage=_coverage(counted),
        imported_only=sum(1 for t in counted if imported_only(t)),
        retried=len(retried),
        wholes=len(wholes & {t.trial for t in trials}),
        worth_a_look=_worth(counted, of_class),
    )


def class_of(trial: Trial) -> str:
    """The one class that a trial counts in."""
    if trial.verdict is not None and trial.verdict.blame is Blame.FAIRTRIAL:
        return "fairtrial"
    if trial.outcome is Outcome.PASSED:
        return "passed"
    verdict = trial.verdict
    if verdict is None or verdict.blame in {Blame.NONE, Blame.INDETERMINATE}:
        return "indeterminate"
    if verdict.blame is Blame.INFRA:
        return "infra_proved" if verdict.grade is Grade.PROVED else "infra_suspected"
    return verdict.blame.value


def imported_only(trial: Trial) -> bool:
    """Nothing of it was observed: no door, no collector."""
    return bool(trial.booked) and not trial.coverage.doors and not trial.coverage.collectors and not trial.command


def _outside(trial: Trial) -> list[Booked]:
    """What was booked by others than the agent itself."""
    return [told for told in trial.booked if not told.inside]


def passed_by_dead_harness(trial: Trial) -> bool:
    """Booked as passed although the agent, or what it ran in, had been ended from outside or had died."""
    if trial.outcome is not Outcome.PASSED:
        return False
    marks = {mark for told in _outside(trial) for mark in told.marks}
    verdict = trial.verdict
    ended = verdict is not None and (verdict.terminated_by is not None or verdict.ended_as in _DEAD_ENDS)
    crashed = any(told.error == "NonZeroAgentExitCodeError" for told in _outside(trial))
    return ended or crashed or bool(marks & _DEAD_MARKS)


def _counting(trial: Trial) -> Booked | None:
    """The booked record whose reward counts by the harness's own word."""
    return next((b for b in _outside(trial) if b.harness == trial.outcome_source and b.reward_valid is not False), None)


def _ended_by_infra(trials: Sequence[Trial]) -> EndedByInfra:
    ends = [
        ended
        for trial in trials
        if (verdict := trial.verdict) is not None and (ended := verdict.terminated_by) is not None
        if ended.cause not in CAUSES or Blame.INFRA in CAUSES[ended.cause].may_blame
    ]
    proved = sum(1 for ended in ends if ended.grade is Grade.PROVED)
    causes = Counter(ended.cause for ended in ends)
    return EndedByInfra(
        trials=len(ends), proved=proved, suspected=len(ends) - proved, causes=dict(causes.most_common())
    )


def _share(passed: int, counted: int) -> Share:
    return Share(passed=passed, counted=counted, rate=passed / counted if counted else None)


def _scores(trials: Sequence[Trial], of_class: Mapping[str, str]) -> Scores:
    fair = [trial for trial in trials if of_class[trial.trial] != "fairtrial"]
    classes = Counter(of_class[trial.trial] for trial in fair if trial.outcome is not Outcome.UNKNOWN)
    unknown = len(fair) - classes.total()
    passed = classes["passed"]
    open_ones = classes["infra_proved"] + classes["infra_suspected"] + classes["indeterminate"] + unknown
    return Scores(
        infra_as_failures=_share(passed, classes.total()),
        infra_excluded=_share(passed, classes.total() - classes["infra_proved"]),
        lowest=_share(passed, len(fair)),
        highest=_share(passed + open_ones, len(fair)),
    )


def _coverage(trials: Sequence[Trial]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for family in FAMILIES:
        levels = Counter(
            told.level if (told := t.coverage.families.get(family)) is not None else "none" for t in trials
        )
        found[family] = {level: levels.get(level, 0) for level in ("full", "partial", "none")}
    return found


# --- worth a look -----------------------------------------------------------------------------------------------------


def _worth(trials: Sequence[Trial], of_class: dict[str, str]) -> list[WorthALook]:
    ranked = [(trial, *_rank(trial, of_class[trial.trial])) for trial in trials]
    ranked.sort(key=lambda row: (-row[1], row[0].trial))
    return [_row(trial, why) for trial, rank, why in ranked[:WORTH] if rank]


def _rank(trial: Trial, of_class: str) -> tuple[int, str]:
    """How much a look is worth (0: none), and why."""
    told = next((b for b in _outside(trial) if b.harness == trial.outcome_source), None)
    counted_against = told is not None and told.scored and told.reward_valid is not False
    verdict = trial.verdict
    if passed_by_dead_harness(trial):
        return 90, "booked as passed by a dead harness"
    if of_class == "fairtrial":
        return 85, "fairtrial itself got in the way"
    if of_class == "infra_proved":
        return (80, "counted against the model, and infra is proved") if counted_against else (70, "infra is proved")
    if of_class == "infra_suspected":
        return (60, "counted against the model, and infra is suspected") if counted_against else (55, "infra suspected")
    if of_class in {"task", "harness", "operator"}:
        return 45, f"the {of_class}'s doing"
    if verdict is not None and verdict.terminated_by is not None:
        return 40, f"ended by {verdict.terminated_by.cause}"
    if trial.outcome is Outcome.UNKNOWN:
        return 30, "its outcome is not known"
    if of_class == "indeterminate" and not imported_only(trial):
        return 35, "watched, and not decided"
    if told is not None and told.error is not None and imported_only(trial):
        return 20, f"booked with {told.error}, and nothing was watched"
    if of_class == "indeterminate":
        return 5, "nothing was watched"
    return 0, ""


def _row(trial: Trial, why: str) -> WorthALook:
    verdict = trial.verdict or Verdict(blame=Blame.INDETERMINATE, sentence="It was not judged.")
    return WorthALook(
        trial=trial.trial,
        name=trial.name or trial.task,
        why=why,
        blame=verdict.blame.value,
        grade=verdict.grade.value if verdict.grade else None,
        cause=verdict.cause,
        step=verdict.step,
        sentence="" if imported_only(trial) else verdict.sentence,
    )
