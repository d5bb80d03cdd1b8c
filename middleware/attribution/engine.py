"""The engine: observations of one trial in, one verdict out.  Pure: no clock, no I/O, no memory of other trials.

In: an `Assembly` and `Thresholds`.  Out: a `Verdict`.  The same observations in any order, with repeats, give the same
verdict, so `show --replay` recomputes it from the store anywhere.

How it decides (design page VERDICTS.md):
1. Each rule reports events with three answers: did it happen, did it end or distort a step, would the outcome differ.
2. `terminated_by` is the outside event after which no further step ended normally; no threshold of ours is in it.
3. A passed trial has blame none, and its events are present.  An exit status of 0 alone is no score: an event that
   ended the trial all the same stays a suspicion.
4. For a failed trial the earliest event with three yeses is proved; else the event with the strongest three answers is
   suspected; an event that was recovered never shadows a later one that ended the trial.
5. Without an event the model is due, if everything was watched that could have failed it; else indeterminate.
6. A lost observer, a changed store, a trial without an end, and a gap in the decisive window are indeterminate.

What this module does not do: recognise events (`rules/`), decide between them (`ruling.py`), write numbers into words
(`sentences.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from fairtrial.middleware.attribution import ledger
from fairtrial.middleware.attribution.case import no, unknown, yes
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.ended_as import ended_as
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules import (
    container_killed,
    container_memory,
    container_oom,
    container_restarted,
    container_start,
    disk_full,
    fd_limit,
    harness_side,
    harness_storms,
    harness_swallowed,
    harness_timers,
    harness_tools,
    model_api,
    observer,
    operator,
    pids_limit,
    runtime,
    service_died,
    slowness,
    task,
    time_limit,
    tool_limit,
    unknown_outside,
)
from fairtrial.middleware.attribution.ruling import CANCELLED, Ruling, present, rule
from fairtrial.middleware.attribution.sentences import capital
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, Thresholds, as_record
from fairtrial.middleware.core.causes import answers
from fairtrial.middleware.core.clock import rfc3339
from fairtrial.middleware.core.records import (
    Answer,
    Answers,
    Blame,
    EndedAs,
    Grade,
    PhaseName,
    Questions,
    TerminatedBy,
    Verdict,
)
from fairtrial.middleware.core.yardsticks import NO_YARDSTICKS, Yardsticks
from fairtrial.middleware.steps.placed import Assembly

RULES: Final[tuple[Callable[[Context], list[Event]], ...]] = (
    model_api.find,
    operator.find,
    harness_side.find,
    harness_timers.find,
    harness_storms.find,
    harness_swallowed.find,
    harness_tools.find,
    observer.find,
    container_oom.find,
    container_memory.find,
    pids_limit.find,
    disk_full.find,
    fd_limit.find,
    slowness.find,
    container_killed.find,
    container_restarted.find,
    container_start.find,
    service_died.find,
    runtime.find,
    time_limit.find,
    tool_limit.find,
    unknown_outside.find,
    task.find,
)


def judge(
    assembly: Assembly,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    *,
    revision: int = 1,
    yardsticks: Yardsticks = NO_YARDSTICKS,
) -> Verdict:
    """The verdict on one trial; `revision` is counted by the caller when late evidence made a new one.

    `yardsticks`: how long calls and the task should take, by other trials; they matter when a time limit fired.
    """
    ctx = Context.of(assembly, thresholds, yardsticks)
    found = time_limit.weigh(ctx, [e for find in RULES for e in find(ctx)])
    events = sorted(found, key=lambda e: (e.at_ns, e.cause, e.step or 0))
    ended_by = _ended_by(events)
    ruling = rule(ctx, events)
    how = ended_as(ctx, events, ended_by)
    chosen = ruling.event if ruling.blame not in {Blame.NONE, Blame.INDETERMINATE} else None
    others = [e for e in events if e is not chosen]
    evidence = ruling.evidence or (ruling.event.evidence if ruling.event is not None else ())
    rivals = [e for e in others if e is not ruling.event and e.standing is not Standing.RECOVERED]
    return Verdict(
        blame=ruling.blame,
        grade=ruling.grade,
        cause=chosen.cause if chosen is not None else None,
        step=chosen.step if chosen is not None else None,
        phase=chosen.phase if chosen is not None else None,
        sentence=capital(ruling.sentence),
        terminated_by=_terminated_by(ended_by),
        ended_as=how,
        questions=_questions(ruling, events),
        evidence=list(evidence),
        against=[e for rival in rivals for e in rival.evidence[:1]],
        present=present(others),
        ledger=ledger.record(ctx.case, ctx.book, limit=ctx.limit, yardsticks=ctx.yardsticks),
        thresholds=as_record(thresholds),
        flips_if=ruling.flips_if,
        answers=_answers(ruling, how),
        revision=revision,
        final_after=_final_after(ctx, thresholds),
    )


# --- what ended it --------------------------------------------------------------------------------------------------


def _ended_by(events: Sequence[Event]) -> Event | None:
    """The outside event that ended the trial: a model call that never completed, else the first that nothing followed.

    An agent that was struck in a tool and then asked the model in vain was ended by the model API, not by the tool.
    """
    ended = [e for e in events if e.standing is Standing.TERMINAL and e.phase is not PhaseName.VERIFY]
    last_word = [e for e in ended if e.ends_call and e.cause != "harness.killed"]
    stopped = next((e for e in ended if e.cause == CANCELLED), None)
    if stopped is not None and not any(e.proved for e in ended):
        return stopped
    if last_word:
        return next((e for e in last_word if e.outside), None)
    return next((e for e in ended if e.outside), None)


def _terminated_by(event: Event | None) -> TerminatedBy | None:
    if event is None:
        return None
    sure = event.fact is Grade.PROVED and event.ended_or_distorted.answer is Answer.YES
    return TerminatedBy(
        cause=event.cause,
        grade=Grade.PROVED if sure else Grade.SUSPECTED,
        step=event.step,
        phase=event.phase,
    )


# --- written down ---------------------------------------------------------------------------------------------------


def _questions(ruling: Ruling, events: Sequence[Event]) -> Questions:
    event = ruling.event
    if event is not None:
        return Questions(
            happened=event.happened,
            ended_or_distorted=event.ended_or_distorted,
            outcome_differs=event.outcome_differs if ruling.blame is not Blame.NONE else unknown(),
        )
    if ruling.blame is Blame.INDETERMINATE:
        return Questions(happened=unknown(ruling.by), ended_or_distorted=unknown(), outcome_differs=unknown())
    by = [e.id for e in ruling.evidence]
    if events:
        return Questions(
            happened=yes(i for e in events[:10] for i in e.happened.by[:1]),
            ended_or_distorted=no(i for e in events[:10] for i in e.ended_or_distorted.by[:1]),
            outcome_differs=no(by),
        )
    return Questions(happened=no(by), ended_or_distorted=no(by), outcome_differs=no(by))


def _answers(ruling: Ruling, how: EndedAs) -> Answers:
    found = answers(ruling.blame, ruling.grade)
    if ruling.blame is Blame.NONE and (ruling.event is not None or ruling.doubtful):
        return Answers(retry=found.retry, grade=found.grade, reward_valid=Answer.UNKNOWN)
    if how is EndedAs.NEVER_RAN and ruling.blame is not Blame.INDETERMINATE:
        return Answers(retry=found.retry, grade=Answer.NO, reward_valid=Answer.NO)
    return found


def _final_after(ctx: Context, thresholds: Thresholds) -> str | None:
    end = ctx.case.ended_ns
    return None if end is None else rfc3339(end + round(thresholds.late_evidence_s * 1e9))
