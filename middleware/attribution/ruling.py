"""The decision: of the events that the rules found, the one that answers for the outcome, or nobody, or the model.

In: a `Context` and the rules' events, the earliest first.  Out: one `Ruling`.  Proved goes before suspected, a model
call that never completed before a tool that was struck; a gap of the door in the decisive window, or a doubt about what
the model was able to do, leaves the trial indeterminate; only then is the model blamed.
What this module does not do: recognise events (`rules/`) or write the verdict down (`engine.py`).
**Source:** design page VERDICTS.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.attribution.case import evidence
from fairtrial.middleware.attribution.context import Context
from fairtrial.middleware.attribution.events import Event, Standing
from fairtrial.middleware.attribution.rules import model, time_limit
from fairtrial.middleware.attribution.sentences import clean, count, listed, signal_name, steps
from fairtrial.middleware.core.records import Answer, Blame, Evidence, Grade, Outcome, Present

CANCELLED: Final = "operator.cancelled"

_FOLDED_FROM: Final = 4
"""So many present events of one cause and reason are told in one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What the decision came to, before it is written down."""

    blame: Blame
    sentence: str
    grade: Grade | None = None
    event: Event | None = None
    flips_if: str | None = None
    evidence: tuple[Evidence, ...] = ()
    by: tuple[str, ...] = ()
    doubtful: bool = False
    """Of a trial that passed: its reward may not have been earned."""


def rule(ctx: Context, events: Sequence[Event]) -> Ruling:
    """Decide; `events` the earliest first."""
    blocked = _blocked(ctx)
    if blocked is not None:
        return blocked
    if ctx.case.booked is Outcome.PASSED:
        return _passed(ctx, events)
    return _failed(ctx, events)


def _blocked(ctx: Context) -> Ruling | None:
    """What makes every verdict impossible."""
    case = ctx.case
    if case.only_imported:
        return _imported(ctx)
    if case.ended is None or case.trial.closed != "normal":
        why = case.ended[1].why if case.ended is not None and case.behind_serve else None
        return Ruling(
            blame=Blame.INDETERMINATE,
            sentence=f"The trial was open when fairtrial closed it ({clean(why, 120)}), so how it ended was not seen."
            if why
            else "The end of the trial was not recorded, so fairtrial itself may have been stopped. "
            "Run the trial again.",
        )
    lost = ctx.watch.tampered
    if lost is not None:
        what = "its store was changed" if lost.source == "store" else "its observer was lost"
        why = f" ({clean(lost.why, 120)})" if lost.why else ""
        return Ruling(
            blame=Blame.INDETERMINATE,
            sentence=f"While the trial ran {what}{why}, so what fairtrial saw cannot be trusted. Run the trial again"
            + ("." if case.behind_serve else ", with the agent under another user to rule out that it did this."),
            by=(lost.id,),
        )
    if case.never_started is not None:
        return Ruling(
            blame=Blame.OPERATOR,
            grade=Grade.PROVED,
            sentence=f"The trial never ran. {clean(case.never_started, 300)}",
            by=(case.ended[0].id,),
            evidence=(evidence(case.ended[0], clean(case.never_started, 200)),),
        )
    if case.booked is Outcome.UNKNOWN:
        return Ruling(
            blame=Blame.INDETERMINATE,
            sentence="Nobody recorded whether the trial passed or failed. Read the harness's own result.",
        )
    return None


def _imported(ctx: Context) -> Ruling:
    """A harness's files say what it booked, and nobody watched what stood behind it: nobody is blamed by them."""
    told = ctx.case.trial.booked[0]
    how = told.error or told.exit_status
    word = f" ({clean(how, 60)})" if how else ""
    whole = f" It is a part of trial …{clean(told.part_of)[-12:]}, observed as a whole." if told.part_of else ""
    return Ruling(
        blame=Blame.INDETERMINATE,
        sentence=f"Booked as {told.outcome.value}{word} by {clean(told.harness, 40)}, and only imported: nothing "
        f"outside was watched, so nobody can be blamed.{whole} Run it under `fairtrial run` to know more.",
        by=tuple(p.id for p in ctx.case.imported),
    )


def _passed(ctx: Context, events: Sequence[Event]) -> Ruling:
    ended = [e for e in _candidates(events) if e.standing is Standing.TERMINAL and e.cause not in _WITH_END]
    ended = [e for e in ended if e.undecided is None and e.blame is not Blame.MODEL]
    if ctx.case.by_exit_code_only:
        if ended:
            event = _strongest(ended)
            gap = _gap(ctx, event)
            if gap is not None:
                return gap
            return Ruling(
                blame=event.blame,
                grade=Grade.SUSPECTED,
                event=event,
                sentence=_words(
                    event.sentence,
                    "The command all the same ended with exit code 0, which is not a score: read the harness's result.",
                    event.advice,
                ),
                flips_if=event.flips_if,
            )
        if not ctx.turns:
            doubt = model.doubt(ctx)
            if doubt is not None:
                return Ruling(
                    blame=Blame.INDETERMINATE,
                    sentence=_words(f"The command ended with exit code 0. {doubt.why}.", doubt.remedy),
                    by=doubt.by,
                )
    said = "The trial passed, and nothing outside stood in its way."
    dead = _dead_harness(ctx)
    if dead is not None:
        return dead
    if ended:
        event = _strongest(ended)
        said = _words(
            "The trial is booked as passed, although something outside ended its agent early:",
            event.sentence,
            "Check that the reward was earned.",
        )
    elif events:
        said = f"The trial passed. {_in_passing(events)}"
    return Ruling(
        blame=Blame.NONE,
        event=_strongest(ended) if ended else None,
        sentence=said,
        evidence=tuple(e.evidence[0] for e in events if e.evidence)[:5],
    )


def _dead_harness(ctx: Context) -> Ruling | None:
    """A trial that its harness booked as passed, although its agent died, or never had an answer: said, not judged."""
    case = ctx.case
    trial = case.trial
    if case.by_exit_code_only or case.ended is None:
        return None
    if trial.signal is not None or (trial.exit_code or 0) >= 128:
        how = f"was ended by {signal_name(trial.signal or (trial.exit_code or 0) - 128)}"
    elif ctx.watch.door_watched and ctx.turns and not ctx.ever_completed:
        how = "never had a whole reply of the model"
    else:
        return None
    by = clean(trial.outcome_source or "nobody says by whom", 40)
    return Ruling(
        blame=Blame.NONE,
        sentence=f"The trial is booked as passed ({by}), although its harness {how}. Check that the reward was earned.",
        evidence=(evidence(case.ended[0], f"the command {how}"),),
        doubtful=True,
    )


_WITH_END: Final = frozenset({"harness.client_timeout", "harness.killed", CANCELLED})
"""What says nothing about a trial that passed: a command may end with a call still open."""


def _failed(ctx: Context, events: Sequence[Event]) -> Ruling:
    candidates = _candidates(events)
    if candidates:
        proved = [e for e in candidates if e.proved]
        event = proved[0] if proved else _strongest([e for e in candidates if e.undecided is None] or candidates)
        gap = _gap(ctx, event)
        if gap is not None:
            return gap
        if event.undecided is not None and not event.proved:
            return Ruling(
                blame=Blame.INDETERMINATE,
                event=event,
                sentence=_words(event.sentence, f"{event.undecided}." if event.undecided else "", event.advice),
                flips_if=event.flips_if,
                by=tuple(event.happened.by),
            )
        if event.blame is Blame.MODEL and not event.proved:
            return _the_models(ctx, event)
        stopped = next((e.sentence for e in candidates if e.cause == CANCELLED and e is not event), "")
        return Ruling(
            blame=event.blame,
            grade=Grade.PROVED if event.proved else Grade.SUSPECTED,
            event=event,
            sentence=_words(event.sentence, stopped, event.advice),
            flips_if=event.flips_if,
        )
    gap = _gap(ctx, None)
    if gap is not None:
        return gap
    doubt = model.doubt(ctx)
    if doubt is not None:
        return Ruling(
            blame=Blame.INDETERMINATE,
            sentence=_words(f"{doubt.why}, so neither the model nor the infrastructure can be blamed.", doubt.remedy),
            by=doubt.by,
        )
    return _model(ctx, events)


def _the_models(ctx: Context, event: Event) -> Ruling:
    """An event that the model brought about, unless something else is in doubt."""
    doubt = model.doubt(ctx)
    if doubt is None:
        return Ruling(
            blame=Blame.MODEL,
            grade=Grade.SUSPECTED,
            event=event,
            sentence=_words(event.sentence, event.advice),
            flips_if=event.flips_if,
        )
    return Ruling(
        blame=Blame.INDETERMINATE,
        event=event,
        sentence=_words(event.sentence, f"{doubt.why}. {doubt.remedy}"),
        flips_if=event.flips_if,
        by=doubt.by,
    )


def _candidates(events: Sequence[Event]) -> list[Event]:
    """Events that may have decided the trial: not those without which the outcome would have been the same.

    One that struck a tool gives way to a model call that never completed: the agent was still trying.
    """
    last_word = max((e.at_ns for e in events if e.standing is Standing.TERMINAL and e.ends_call), default=None)
    return [
        e
        for e in events
        if e.standing is not Standing.RECOVERED
        and e.outcome_differs.answer is not Answer.NO
        and (e.ends_call or e.proved or last_word is None or e.standing is Standing.DISTORTING or e.at_ns > last_word)
    ]


def _strongest(events: Sequence[Event]) -> Event:
    """The strongest three answers; then what ended the trial before what bent it; then the earliest."""
    return min(events, key=lambda e: (-e.strength, e.standing is not Standing.TERMINAL, e.at_ns))


def _gap(ctx: Context, event: Event | None) -> Ruling | None:
    """A gap of the model door in the decisive window: from the event, or from the last step, to the end."""
    if event is not None and not event.needs_door:
        return None
    since = event.at_ns if event is not None else (ctx.turns[-1].started_ns if ctx.turns else 0)
    blind = ctx.watch.door_gap(since)
    if blind is None:
        return None
    what = f"{event.sentence} But the" if event is not None else "The"
    return Ruling(
        blame=Blame.INDETERMINATE,
        event=event,
        sentence=f"{what} model door was not watched without a gap from then to the end, so a later call may have been "
        "missed. Run the trial again.",
        by=(blind.id,),
    )


def _them(made: str) -> str:
    return "it" if made.startswith("1 ") else "them"


def _in_passing(events: Sequence[Event]) -> str:
    """What happened and did not matter, in one sentence."""
    rows = present(events)
    told = [f"{r.cause} in step {r.step} ({r.why})" if r.step is not None else f"{r.cause} ({r.why})" for r in rows[:3]]
    more = [count(len(rows) - 3, "more event")] if len(rows) > 3 else []
    return f"Seen, and without weight: {listed([*told, *more])}."


def _model(ctx: Context, events: Sequence[Event]) -> Ruling:
    unwatched, partly = model.not_watched(ctx)
    said = f"The model failed the task: {model.summary(ctx)}, so nothing outside that was watched stood in its way."
    if ctx.limit is not None:
        said += f" {time_limit.said_of(ctx, ctx.limit)}"
    said += model.own_kill(ctx.case)
    if events:
        said += f" {_in_passing(events)}"
    for more in (model.cut_short(ctx.case), model.done_by_command(ctx.case)):
        said += f" {more}" if more else ""
    flips = None
    if ctx.case.by_tools:
        made = count(len(ctx.case.by_tools), "call")
        said += f" {made} at the door came from a process that the agent had started, so a tool made {_them(made)}."
    beside = model.failed_beside(ctx)
    if beside:
        said += f" {beside}"
        flips = "turns to infra if the calls that failed beside it were a part of the agent"
    struck = model.command_killed(ctx.case) if ctx.limit is None else ""
    if struck:
        said += f" {struck}"
        flips = "turns to infra if somebody outside the trial sent the signal"
    if unwatched:
        said += f" Not watched: {listed(unwatched)}."
    if partly:
        said += f" Watched in part: {listed(partly)}."
    if ctx.watch.recorded_only:
        said += f" Recorded, not judged yet: {listed(model.FAMILY_WORDS[f] for f in ctx.watch.recorded_only)}."
    if flips is None and (unwatched or partly):
        how = "nobody watched, or in part" if unwatched and partly else "nobody watched"
        how = how if unwatched else "was watched in part"
        flips = f"turns to infra if {listed([*unwatched, *partly], 'or')} failed it, which {how}"
    doubtful = unwatched or partly or struck or beside or model.done_by_command(ctx.case)
    return Ruling(
        blame=Blame.MODEL,
        grade=Grade.SUSPECTED if doubtful else Grade.PROVED,
        sentence=said,
        flips_if=flips,
        evidence=tuple(model.clearing(ctx)),
    )


def present(events: Sequence[Event]) -> list[Present]:
    """What happened and did not decide; many alike in one row."""
    groups: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        groups.setdefault((event.cause, event.why_present), []).append(event)
    rows: list[tuple[int, Present]] = []
    for (cause, why), alike in groups.items():
        if len(alike) < _FOLDED_FROM:
            rows.extend((e.at_ns, e.as_present()) for e in alike)
            continue
        numbers = [e.step for e in alike if e.step is not None]
        where = f", in {steps(numbers)}" if numbers else ""
        said = f"{why} ({len(alike)} times{where})"
        rows.append((alike[0].at_ns, Present(cause=cause, step=alike[0].step, why=said)))
    return [row for _, row in sorted(rows, key=lambda r: (r[0], r[1].cause))]


def _words(*parts: str) -> str:
    return " ".join(part for part in parts if part)
