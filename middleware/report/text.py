"""What a person reads in a terminal: the end of a run, and one trial whole.

In: `Trial` records.  Out: lines of plain text, control characters removed, no colour (the caller may add it).
The sentences themselves come from the verdict; this file only lays them out.  Times are UTC, with a Z.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import (
    Blame,
    Call,
    Coverage,
    EndedAs,
    Evidence,
    Mark,
    Mutation,
    Outcome,
    Question,
    TerminatedBy,
    Trial,
    Verdict,
)
from fairtrial.middleware.report.tables import PEAK_MARKS, connection_rows, steps_table, table_lines
from fairtrial.middleware.report.words import (
    at_step,
    because,
    booked,
    headline,
    mark_words,
    plural,
    printable,
    seconds,
    short_id,
    wrapped,
)

PREFIX: Final = "fairtrial: "
MAX_EVIDENCE: Final = 12
MAX_MARKS: Final = 20
WIDTH: Final = 100
"""Columns where no terminal says how wide it is."""
_EXIT_0: Final = "The command ended with exit code 0. "
_ENVIRONMENT: Final = "environment "
_PLAIN_ENDS: Final = (EndedAs.UNKNOWN, EndedAs.AGENT_FINISHED, EndedAs.AGENT_GAVE_UP, EndedAs.NEVER_RAN)
"""What an end of a run need not repeat: the usual, and what the sentence says in any case."""


def ending_lines(trial: Trial, *, verbose: bool = False, stored: bool = True) -> list[str]:
    """What `fairtrial run` says at the end: one line when the trial passed, the verdict when it did not.

    `stored`: whether the trial is in the store, so that `fairtrial show` finds it.
    """
    verdict = trial.verdict
    if verdict is None:
        return [f"{PREFIX}no verdict was reached for trial {trial.trial}"]
    more = f"fairtrial show {short_id(trial)}" if stored else ""
    if trial.outcome is Outcome.PASSED and not verbose:
        tail = f" · {more}" if more else ""
        if verdict.blame is Blame.NONE:
            count = len(verdict.present)
            extra = f"; {plural(count, 'outside event')} did not matter" if count else ""
            return [f"{PREFIX}passed, {plural(len(trial.steps), 'step')}{extra}{tail}"]
        if trial.connections:
            opaque = f"{plural(len(trial.connections), 'connection')}, whose calls were not read (--via connect)"
            return [f"{PREFIX}passed, {opaque}{tail}"]
        if _no_call_came(trial, verdict):
            if not trial.coverage.doors:
                # Inside another run, or unable to open a door: the sentence says which, and where to look.
                return [f"{PREFIX}passed. {printable(verdict.sentence.removeprefix(_EXIT_0))}"]
            doubt = "no model call came through the door: does the command use ANTHROPIC_BASE_URL or OPENAI_BASE_URL?"
            if "egress.connect" in trial.coverage.doors:
                doubt = "no connection came through the connect door: does the command honour HTTPS_PROXY?"
            return [f"{PREFIX}passed, but {doubt}{tail}"]
    lines = [f"{PREFIX}{booked(trial)} → {headline(verdict)}", f"  {printable(verdict.sentence)}"]
    if ended := _ended(verdict, only_news=True):
        lines.append(f"  {ended}")
    lines += [f"  also: {printable(p.cause)}{at_step(p.step)} ({printable(p.why)})" for p in verdict.present[:3]]
    lines.append(f"  {_answers(verdict)}")
    if more:
        lines.append(f"  more: {more}")
    return lines


def show_lines(trial: Trial, *, width: int = WIDTH, cut_tables: bool = False, standing: str | None = None) -> list[str]:
    """`fairtrial show`: everything a person needs to judge the verdict for themselves.

    `width`: columns for running text; `cut_tables`: the rows of tables end there as well; `standing`: of a trial whose
    record is not final, how it stands (`still runs, 3 s so far`).
    """
    lines = list(_heading(trial, width, standing))
    verdict = trial.verdict
    if verdict is not None:
        so_far = "  " if standing is None else " so far (provisional)  "
        lines += ["", f"VERDICT{so_far}{headline(verdict)}", *wrapped(verdict.sentence, width)]
        for line in (_ended(verdict, only_news=standing is not None and trial.ended is None), _answers(verdict)):
            lines += wrapped(line, width, hang=" " * 6)
        lines += _questions(verdict)
        if verdict.flips_if:
            it = "it " if verdict.flips_if.startswith("turns ") else ""
            lines += wrapped(f"would change: {it}{verdict.flips_if}", width, hang=" " * 6)
        lines += _evidence("for", verdict.evidence, width)
        lines += _evidence("against", verdict.against, width)
        if verdict.present:
            # Where nothing is decided, nobody can say that it did not matter: it may even have ended the trial.
            undecided = verdict.blame is Blame.INDETERMINATE
            lines += ["", "ALSO PRESENT" if undecided else "PRESENT, AND IT DID NOT MATTER"]
            for present in verdict.present:
                text = f"{present.cause}{at_step(present.step)}: {present.why}"
                lines += wrapped(text, width, hang=" " * 6)
    if any(phase.source not in {None, "observed"} for phase in trial.phases):
        lines += ["", "PHASES, as the harness timed them", *_phases(trial, width)]
    table = steps_table(trial, width=width if cut_tables else None)
    lines += ["", "STEPS", *table]
    marks = [f"{mark} {what}" for mark, what in PEAK_MARKS.values() if any(f" {mark}" in row for row in table)]
    if marks:
        lines += wrapped(f"memory peak: {', '.join(marks)}", width)
    if trial.side_calls:
        lines.append(f"  beside the steps: {_side_calls(trial.side_calls)}")
    if trial.marks:
        lines += ["", "SAID FROM INSIDE (the control API); it counts for nothing", *_marks(trial.marks, width)]
    if trial.connections:
        lines += [
            "",
            "CONNECTIONS",
            *table_lines(connection_rows(trial.connections), width=width if cut_tables else None),
        ]
    if inside := _inside(trial):
        lines += wrapped(f"calls came from inside: {inside}", width)
    if trial.unassigned:
        counts = ", ".join(f"{printable(name)} {count}" for name, count in sorted(trial.unassigned.items()))
        lines.append(f"  not assigned to this trial: {counts}")
    lines += ["", "COVERAGE", *_coverage(trial.coverage, width)]
    if verdict is not None and verdict.thresholds:
        parts = ", ".join(f"{name} {value:g}" for name, value in sorted(verdict.thresholds.items()))
        lines += ["", *wrapped(f"THRESHOLDS  {parts}", width, indent="", hang=" " * 12)]
    if trial.mutations:
        lines += ["", "WHAT FAIRTRIAL CHANGED", *_changes(trial.mutations, width)]
    return lines


def _no_call_came(trial: Trial, verdict: Verdict) -> bool:
    """Nothing but the silence of the door is behind the doubt."""
    seen = trial.steps or trial.side_calls or trial.coverage.gaps or trial.coverage.dropped
    return verdict.blame is Blame.INDETERMINATE and trial.closed == "normal" and not seen


def _heading(trial: Trial, width: int, standing: str | None) -> Iterable[str]:
    name = f" · {printable(trial.name)}" if trial.name else ""
    yield f"TRIAL  {trial.trial}{name}"
    for label, value in (("run", trial.run), ("task", trial.task), ("trace", trial.trace_id)):
        if value:
            yield f"  {label}: {printable(value)}"
    if trial.command:
        yield from wrapped(f"command: {printable(' '.join(trial.command))[:160]}", width, hang=" " * 6)
    if trial.started:
        yield f"  started: {trial.started[:19].replace('T', ' ')}Z"
    steps = plural(len(trial.steps), "step")
    if standing is None:
        yield from wrapped(f"booked: {booked(trial)}{_lasted(trial)}; {steps}; closed: {trial.closed}", width)
    else:
        yield from wrapped(f"{standing}; {steps}; all that follows is provisional, and nothing is booked yet", width)
    for told in trial.booked:
        if told.inside:
            reward = "" if told.reward is None else f", reward {told.reward:g}"
            who = printable(told.harness)[:40]
            said = f"the agent's side says: {told.outcome.value}{reward} ({who}); it counts for nothing"
            yield from wrapped(said, width)


def _lasted(trial: Trial) -> str:
    started, ended = wall_ns_of(trial.started), wall_ns_of(trial.ended)
    return "" if started is None or ended is None else f" after {seconds((ended - started) / 1e9)}"


def _ended(verdict: Verdict, *, only_news: bool) -> str:
    """What ended the trial; with `only_news`, only what the headline does not say already."""
    ended = verdict.terminated_by
    parts: list[str] = []
    if ended is not None and not (only_news and _in_headline(ended, verdict)):
        parts.append(f"ended by: {ended.cause} ({ended.grade.value}){at_step(ended.step)}")
    elif ended is None and not only_news:
        parts.append("ended by: no outside event")
    if verdict.ended_as is not EndedAs.UNKNOWN and not (only_news and verdict.ended_as in _PLAIN_ENDS):
        parts.append(f"ended as: {verdict.ended_as.value}")
    return "; ".join(parts)


def _in_headline(ended: TerminatedBy, verdict: Verdict) -> bool:
    return (ended.cause, ended.grade, ended.step) == (verdict.cause, verdict.grade, verdict.step)


def _answers(verdict: Verdict) -> str:
    answers = verdict.answers
    return f"run it again: {answers.retry} · count it: {answers.grade} · reward valid: {answers.reward_valid}"


def _questions(verdict: Verdict) -> list[str]:
    listed = {item.id for item in (*verdict.evidence[:MAX_EVIDENCE], *verdict.against[:MAX_EVIDENCE])}

    def line(text: str, question: Question) -> str:
        cited = ", ".join(reference[-6:] for reference in question.by if reference in listed)
        return f"  {text:<32}{question.answer.value:<9}{cited}".rstrip()

    asked = verdict.questions
    return [
        line("did it happen?", asked.happened),
        line("did it end or distort a step?", asked.ended_or_distorted),
        line("would the outcome differ?", asked.outcome_differs),
    ]


def _phases(trial: Trial, width: int) -> list[str]:
    """Each phase with its length and what struck it, and the limits that were declared."""
    parts: list[str] = []
    for phase in trial.phases:
        started, ended = wall_ns_of(phase.started), wall_ns_of(phase.ended)
        lasted = "?" if started is None or ended is None else seconds((ended - started) / 1e9)
        parts.append(f"{phase.name.value} {lasted}{because(None if phase.outcome == 'ended' else phase.outcome)}")
    lines = wrapped(" · ".join(parts), width)
    time = trial.limits.time
    limits = (("agent", time.agent), ("tool", time.tool), ("verifier", time.verifier), ("set-up", time.setup))
    declared = [f"{name} {seconds(value)}" for name, value in limits if value is not None]
    at_once = trial.environment.concurrency_at_start
    if at_once is not None:
        declared.append(f"{plural(at_once, 'trial')} at once")
    return [*lines, *wrapped(f"declared: {', '.join(declared)}", width)] if declared else lines


def _evidence(kind: str, evidence: list[Evidence], width: int) -> list[str]:
    if not evidence:
        return []
    lines = ["", f"EVIDENCE {kind.upper()}"]
    for item in evidence[:MAX_EVIDENCE]:
        moment = f"{item.at[11:23]}Z" if item.at else "?"
        text = f"{item.id[-6:]}  {moment}  {item.source} [{item.trust.value}]{at_step(item.step)}: {item.claim}"
        lines += wrapped(text, width, hang=" " * 10)
    if len(evidence) > MAX_EVIDENCE:
        lines.append(f"  … and {len(evidence) - MAX_EVIDENCE} more (--json shows all)")
    return lines


def _marks(marks: list[Mark], width: int) -> list[str]:
    lines: list[str] = []
    for mark in marks[:MAX_MARKS]:
        lines += wrapped(f"{mark.at[11:23]}Z{at_step(mark.step)}: {mark_words(mark)}", width, hang=" " * 10)
    if len(marks) > MAX_MARKS:
        lines.append(f"  … and {len(marks) - MAX_MARKS} more (--json shows all)")
    return lines


def _side_calls(calls: list[Call]) -> str:
    counts: dict[str, int] = {}
    for call in calls:
        counts[call.role] = counts.get(call.role, 0) + 1
    return ", ".join(f"{role} ×{count}" for role, count in sorted(counts.items()))


def _inside(trial: Trial) -> str:
    """Containers from which model calls came, with how many."""
    names = {use.id: use.name for step in trial.steps for use in step.containers if use.name}
    counts: dict[str, int] = {}
    for call in (*(call for step in trial.steps for call in step.calls), *trial.side_calls):
        if call.container_id is not None:
            counts[call.container_id] = counts.get(call.container_id, 0) + 1
    return ", ".join(f"{printable(names.get(c, c[:12]))} ×{count}" for c, count in counts.items())


def _coverage(coverage: Coverage, width: int) -> list[str]:
    lines: list[str] = []
    for family, seen in coverage.families.items():
        lines += wrapped(f"{family:<11}{seen.level:<9}{seen.why or ''}", width, hang=" " * 22)
    for gap in coverage.gaps:
        lines += wrapped(f"gap: {gap.source} {gap.since or '?'} – {gap.until or '?'}{because(gap.why)}", width)
    if coverage.dropped:
        lines.append(f"  dropped: {coverage.dropped} copies of traffic (the traffic itself passed)")
    return lines or ["  nothing was watched"]


def _changes(mutations: list[Mutation], width: int) -> list[str]:
    """The variables by name only: they are the same in each run, and `--json` has their values."""
    names = [m.what.removeprefix(_ENVIRONMENT) for m in mutations if m.what.startswith(_ENVIRONMENT)]
    lines: list[str] = []
    if names:
        text = f"{plural(len(names), 'variable')} of the command (--json: old, new, side effects): {', '.join(names)}"
        lines += wrapped(text, width)
    for mutation in mutations:
        if not mutation.what.startswith(_ENVIRONMENT):
            old = "" if mutation.old is None else f"{mutation.old} → "
            new = "unset" if mutation.new is None else mutation.new
            lines += wrapped(f"{mutation.what}: {old}{new}{because(mutation.why)}", width, hang=" " * 6)
    return lines
