"""What a person reads in a terminal: the end of a run, and one trial whole.

In: `Trial` records.  Out: lines of plain text, control characters removed, no colour (the caller may add it).
The sentences themselves come from the verdict; this file only lays them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import (
    Attempt,
    Blame,
    Call,
    ContainerUse,
    Coverage,
    Evidence,
    Outcome,
    Question,
    Step,
    Tool,
    Trial,
    Verdict,
)

PREFIX: Final = "fairtrial: "
MAX_EVIDENCE: Final = 12


def printable(text: str) -> str:
    """The text without control characters: what others wrote must not steer our reader's terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def ending_lines(trial: Trial, *, verbose: bool = False) -> list[str]:
    """What `fairtrial run` says at the end: one line when the trial passed, the verdict when it did not."""
    verdict = trial.verdict
    if verdict is None:
        return [f"{PREFIX}no verdict was reached for trial {trial.trial}"]
    if trial.outcome is Outcome.PASSED and verdict.blame is Blame.NONE and not verbose:
        extra = f"; {len(verdict.present)} outside event(s) did not matter" if verdict.present else ""
        return [f"{PREFIX}passed, {_steps(trial)}{extra} · fairtrial show {short_id(trial)}"]
    lines = [f"{PREFIX}{booked(trial)} → {headline(verdict)}", f"  {printable(verdict.sentence)}"]
    lines += [f"  {line}" for line in _facts(verdict)]
    lines += [f"  also: {printable(p.cause)}{_at(p.step)} ({printable(p.why)})" for p in verdict.present[:3]]
    lines.append(f"  more: fairtrial show {short_id(trial)}")
    return lines


def short_id(trial: Trial) -> str:
    """The last part of the id: unique enough to type, since a UUIDv7 begins with the time."""
    return trial.trial[-12:]


def booked(trial: Trial) -> str:
    """What a harness books from the exit status alone."""
    how = f"signal {trial.signal}" if trial.signal else f"exit {'?' if trial.exit_code is None else trial.exit_code}"
    return f"{trial.outcome.value} ({how})"


def headline(verdict: Verdict) -> str:
    """Blame, grade, cause and step in one short phrase."""
    if verdict.blame is Blame.NONE:
        return "nothing to blame"
    grade = f", {verdict.grade.value}" if verdict.grade else ""
    cause = f" · {verdict.cause}{_at(verdict.step)}" if verdict.cause else ""
    return f"{verdict.blame.value}{grade}{cause}"


def show_lines(trial: Trial) -> list[str]:
    """`fairtrial show`: everything a person needs to judge the verdict for themselves."""
    lines = list(_heading(trial))
    verdict = trial.verdict
    if verdict is not None:
        lines += ["", f"VERDICT  {headline(verdict)}", f"  {printable(verdict.sentence)}"]
        lines += [f"  {line}" for line in _facts(verdict)]
        lines += _questions(verdict)
        lines += _evidence("for", verdict.evidence)
        lines += _evidence("against", verdict.against)
        if verdict.present:
            lines += ["", "PRESENT, AND IT DID NOT MATTER"]
            lines += [f"  {printable(p.cause)}{_at(p.step)}: {printable(p.why)}" for p in verdict.present]
    lines += ["", "STEPS", *_steps_table(trial)]
    if trial.side_calls:
        lines.append(f"  beside the steps: {_side_calls(trial.side_calls)}")
    if trial.unassigned:
        counts = ", ".join(f"{printable(name)} {count}" for name, count in sorted(trial.unassigned.items()))
        lines.append(f"  not assigned to this trial: {counts}")
    lines += ["", "COVERAGE", *_coverage(trial.coverage)]
    if trial.mutations:
        lines += ["", "WHAT FAIRTRIAL CHANGED"]
        lines += [f"  {printable(m.what)}: {_short(m.old)} → {_short(m.new)}{_why(m.why)}" for m in trial.mutations]
    if verdict is not None and verdict.thresholds:
        parts = ", ".join(f"{name} {value:g}" for name, value in sorted(verdict.thresholds.items()))
        lines += ["", f"THRESHOLDS  {parts}"]
    return lines


def _heading(trial: Trial) -> Iterable[str]:
    name = f" · {printable(trial.name)}" if trial.name else ""
    yield f"TRIAL  {trial.trial}{name}"
    for label, value in (("run", trial.run), ("task", trial.task), ("trace", trial.trace_id)):
        if value:
            yield f"  {label}: {printable(value)}"
    yield f"  command: {printable(' '.join(trial.command))[:160]}"
    yield f"  booked: {booked(trial)}{_lasted(trial)}; {_steps(trial)}; closed: {trial.closed}"


def _lasted(trial: Trial) -> str:
    started, ended = wall_ns_of(trial.started), wall_ns_of(trial.ended)
    return "" if started is None or ended is None else f" after {seconds((ended - started) / 1e9)}"


def _steps(trial: Trial) -> str:
    count = len(trial.steps)
    return f"{count} step{'' if count == 1 else 's'}"


def _at(step: int | None) -> str:
    return "" if step is None else f" in step {step}"


def _why(why: str | None) -> str:
    return f" ({printable(why)})" if why else ""


def _short(value: str | None) -> str:
    return "unset" if value is None else printable(value)[:100]


def _facts(verdict: Verdict) -> Iterable[str]:
    ended = verdict.terminated_by
    if ended is not None:
        yield f"ended by: {ended.cause} ({ended.grade.value}){_at(ended.step)}; ended as: {verdict.ended_as.value}"
    else:
        yield f"ended by: no outside event; ended as: {verdict.ended_as.value}"
    answers = verdict.answers
    yield f"retry: {answers.retry} · grade: {answers.grade} · reward valid: {answers.reward_valid}"
    if verdict.flips_if:
        yield f"the verdict {printable(verdict.flips_if)}"


def _questions(verdict: Verdict) -> list[str]:
    def line(text: str, question: Question) -> str:
        cited = ", ".join(reference[-6:] for reference in question.by[:6])
        return f"  {text:<32}{question.answer.value:<9}{cited}"

    asked = verdict.questions
    return [
        line("did it happen?", asked.happened),
        line("did it end or distort a step?", asked.ended_or_distorted),
        line("would the outcome differ?", asked.outcome_differs),
    ]


def _evidence(kind: str, evidence: list[Evidence]) -> list[str]:
    if not evidence:
        return []
    lines = ["", f"EVIDENCE {kind.upper()}"]
    for item in evidence[:MAX_EVIDENCE]:
        moment = item.at[11:23] if item.at else "?"
        lines.append(
            f"  {item.id[-6:]}  {moment}  {item.source} [{item.trust.value}]{_at(item.step)}: {printable(item.claim)}"
        )
    if len(evidence) > MAX_EVIDENCE:
        lines.append(f"  … and {len(evidence) - MAX_EVIDENCE} more (--json shows all)")
    return lines


def _steps_table(trial: Trial) -> list[str]:
    if not trial.steps:
        return ["  none: no model call reached a door"]
    header = f"  {'step':>4}  {'call':<34}{'tools':<22}{'memory peak / ceiling':<28}events"
    guilty = trial.verdict.step if trial.verdict else None
    return [header, *(_step_row(step, guilty) for step in trial.steps)]


def _step_row(step: Step, guilty: int | None) -> str:
    mark = "►" if step.index == guilty else " "
    calls = "; ".join(_call_cell(call) for call in step.calls) or "-"
    tools = ", ".join(_tool_cell(tool) for tool in step.tools) or "-"
    # The command's own cgroup is often shared with half the machine; beside a container it tells nothing.
    uses = [use for use in step.containers if use.memory_peak_kind != "shared"] or step.containers
    memory = "; ".join(cell for use in uses if (cell := _memory_cell(use))) or "-"
    return f" {mark}{step.index:>4}  {calls[:33]:<34}{tools[:21]:<22}{memory[:27]:<28}{_events_cell(step)}".rstrip()


def _call_cell(call: Call) -> str:
    statuses = [_attempt_word(attempt) for attempt in call.attempts]
    folded = "→".join(_runs(statuses))
    took = f" {seconds(call.duration)}" if call.duration is not None else ""
    back = f" fell back: {call.fell_back}" if call.fell_back else ""
    return f"{folded}{took}{back}"


def _attempt_word(attempt: Attempt) -> str:
    if attempt.outcome in (None, "ok"):
        return str(attempt.status or "?")
    if attempt.status is not None and attempt.status >= 400:
        return str(attempt.status)
    return f"{attempt.status or 'no reply'} {attempt.outcome}"


def _runs(words: list[str]) -> list[str]:
    folded: list[tuple[str, int]] = []
    for word in words:
        if folded and folded[-1][0] == word:
            folded[-1] = (word, folded[-1][1] + 1)
        else:
            folded.append((word, 1))
    return [word if count == 1 else f"{word}×{count}" for word, count in folded]


def _tool_cell(tool: Tool) -> str:
    # A command without a tool call is the harness's own: a check, a clean-up.
    name = tool.name or ("exec" if tool.exec_id else "?")
    return f"{printable(name)}{'' if tool.exit_code is None else f' ({tool.exit_code})'}"


def _memory_cell(use: ContainerUse) -> str:
    if use.memory_peak is None:
        return ""
    ceiling = f" / {size(use.memory_limit)}" if use.memory_limit is not None else ""
    sign = {"at_most": "≤", "sampled": "≥", "shared": "~"}.get(use.memory_peak_kind or "", "")
    return f"{sign}{size(use.memory_peak)}{ceiling}"


def _events_cell(step: Step) -> str:
    words: list[str] = []
    for use in step.containers:
        if use.oom_kills:
            victims = ", ".join(printable(v.comm or "?") for v in use.oom_victims[:3])
            words.append(f"OOM kill ×{use.oom_kills}{f' ({victims})' if victims else ''}")
        if use.pids_max_hits:
            words.append(f"pids limit ×{use.pids_max_hits}")
        if use.cpu_throttled and use.cpu_throttled >= 0.1:
            words.append(f"throttled {seconds(use.cpu_throttled)}")
    return ", ".join(words)


def _side_calls(calls: list[Call]) -> str:
    counts: dict[str, int] = {}
    for call in calls:
        counts[call.role] = counts.get(call.role, 0) + 1
    return ", ".join(f"{role} ×{count}" for role, count in sorted(counts.items()))


def _coverage(coverage: Coverage) -> list[str]:
    lines: list[str] = []
    for family, seen in coverage.families.items():
        lines.append(f"  {family:<11}{seen.level:<9}{printable(seen.why or '')}".rstrip())
    lines += [f"  gap: {gap.source} {gap.since or '?'} – {gap.until or '?'}{_why(gap.why)}" for gap in coverage.gaps]
    if coverage.dropped:
        lines.append(f"  dropped: {coverage.dropped} copies of traffic (the traffic itself passed)")
    return lines or ["  nothing was watched"]


def table_lines(rows: Sequence[Sequence[str]], *, width: int | None) -> list[str]:
    """Rows as aligned lines, the last column ragged; cut to `width` columns of a terminal, or whole for a pipe."""
    columns = [max(len(cell) for cell in column) for column in zip(*(row[:-1] for row in rows), strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [cell.ljust(size) for cell, size in zip(row, columns, strict=False)]
        line = "  ".join([*cells, row[-1]]).rstrip()
        lines.append(line if width is None or len(line) <= width else f"{line[: width - 1]}…")
    return lines


def seconds(value: float) -> str:
    """A duration for people: 3 ms, 1.2 s, 4 min 10 s."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


def size(value: int) -> str:
    """Bytes for people, in binary units."""
    amount = float(value)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
