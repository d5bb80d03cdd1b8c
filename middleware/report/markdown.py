"""A trial, or the trials of a run, as Markdown for a job summary or a merge request: the verdict first.

In: `Trial` records.  Out: one text of at most `MAX_BYTES` bytes of UTF-8, since GitHub refuses a summary over 1 MiB as
a whole.  What does not fit is left out from the end, and the last line says how much.  Everything that others wrote (a
task's name, a claim) is escaped: it makes no heading, link, image, mention or HTML of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fairtrial.middleware.core.clock import wall_ns_of
from fairtrial.middleware.core.records import Blame, EndedAs, Evidence, Mark, Outcome, Trial, Verdict
from fairtrial.middleware.report.sight import sight_line
from fairtrial.middleware.report.tables import connection_rows, step_rows
from fairtrial.middleware.report.words import at_step, booked, called, headline, mark_words, plural, printable, seconds

MAX_BYTES: Final = 900_000
MAX_STEPS: Final = 200
MAX_ROWS: Final = 500
_MAX_TEXT: Final = 2_000
_MAX_NAME: Final = 200
_SPECIAL: Final = re.compile(r"[\\`*\[\]|#~$!{}]|(?<!\w)_|_(?!\w)")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
_MARKS: Final = {
    Blame.NONE: "✅",
    Blame.INFRA: "🟠",
    Blame.INDETERMINATE: "⚪",
    Blame.MODEL: "🔴",
    Blame.TASK: "🔴",
    Blame.HARNESS: "🟣",
    Blame.OPERATOR: "🟣",
    Blame.FAIRTRIAL: "🟣",
}


def trial_markdown(trial: Trial, *, max_bytes: int = MAX_BYTES) -> str:
    """One trial whole: verdict, then evidence, steps and what fairtrial changed, each to unfold."""
    return _fitted([_verdict_block(trial, _named(trial, called([trial]))), *_details(trial)], max_bytes)


def run_markdown(name: str, trials: Sequence[Trial], *, max_bytes: int = MAX_BYTES) -> str:
    """The trials of a run: counts by blame, one row a trial, then each that did not pass, the verdict first.

    A trial whose outcome nobody has told did not pass and did not fail: it is counted apart, and shown like the failed.
    """
    failed = [trial for trial in trials if trial.outcome is not Outcome.PASSED]
    failed.sort(key=lambda trial: trial.outcome is Outcome.UNKNOWN)
    names = called(trials)
    blocks = [_run_block(name, trials, failed, names)]
    blocks += [_verdict_block(trial, _named(trial, names), of_many=True) for trial in failed]
    for trial in failed:
        blocks += _details(trial, of=f"{_named(trial, names)}: ")
    return _fitted(blocks, max_bytes)


def escaped(text: str, limit: int = _MAX_TEXT) -> str:
    """Text of others as Markdown that shows it and does nothing else; at most `limit` characters of it."""
    plain = printable(text)
    if len(plain) > limit:
        plain = f"{plain[: limit - 1]}…"
    # An address in plain text becomes a link by itself.
    plain = plain.replace("://", ":\u200b//")
    return re.sub(r"[&<>@]", lambda found: _ENTITIES[found[0]], _SPECIAL.sub(r"\\\g<0>", plain))


def _code(text: str) -> str:
    """A word of ours (a cause, an id) in the shape of code; a back tick would end it."""
    return f"`{printable(text).replace('`', '')[:_MAX_NAME]}`"


def _fitted(blocks: Iterable[str], max_bytes: int) -> str:
    """As many whole blocks as fit, in order; a block that does not is left out, and those behind it are still tried."""
    kept: list[str] = []
    room, left = max_bytes - 200, 0  # the last line needs its place
    for block in blocks:
        need = len(block.encode()) + 2
        if need <= room:
            kept.append(block)
            room -= need
        else:
            left += 1
    if left:
        kept.append(
            f"_{plural(left, 'part')} left out: this page may have {max_bytes} bytes. `fairtrial show` has all._"
        )
    return "\n\n".join(kept) + "\n"


# --- one trial ------------------------------------------------------------------------------------------------------


def _named(trial: Trial, names: Mapping[str, str]) -> str:
    """The name that people know it by."""
    again = f", try {trial.try_}" if trial.try_ is not None else ""
    return f"{escaped(names[trial.trial], _MAX_NAME)}{again}"


def _lasted(trial: Trial) -> float | None:
    started, ended = wall_ns_of(trial.started), wall_ns_of(trial.ended)
    return None if started is None or ended is None else (ended - started) / 1e9


def _verdict_block(trial: Trial, name: str, *, of_many: bool = False) -> str:
    verdict = trial.verdict
    mark = "⚪" if verdict is None else _MARKS.get(verdict.blame, "⚪")
    head = f"### {mark} {name}: {escaped(booked(trial))}" if of_many else f"## {mark} {escaped(booked(trial))}"
    if verdict is None:
        return f"{head}: no verdict was reached\n\nTrial {_code(trial.trial)}"
    lines = [f"{head} → {_headline(verdict)}", "", escaped(verdict.sentence), ""]
    ended = verdict.terminated_by
    if ended is not None:
        lines.append(f"- **ended by** {_code(ended.cause)}, {ended.grade.value}{at_step(ended.step)}")
    if verdict.ended_as is not EndedAs.UNKNOWN:
        lines.append(f"- **ended as** {_code(verdict.ended_as.value)}")
    answers = verdict.answers
    lines.append(
        f"- **run it again** {answers.retry} · **count it** {answers.grade} · **reward valid** {answers.reward_valid}"
    )
    lines += [f"- also: {_code(p.cause)}{at_step(p.step)} ({escaped(p.why)})" for p in verdict.present[:5]]
    lasted = _lasted(trial)
    took = f", {seconds(lasted)}" if lasted is not None else ""
    lines.append(f"- {name}{took}, {plural(len(trial.steps), 'step')}, trial {_code(trial.trial)}")
    lines.append(f"- {escaped(sight_line(trial.coverage))}")
    return "\n".join(lines)


def _headline(verdict: Verdict) -> str:
    if verdict.blame is Blame.NONE:
        return headline(verdict)
    grade = f", {verdict.grade.value}" if verdict.grade else ""
    cause = f" · {_code(verdict.cause)}{at_step(verdict.step)}" if verdict.cause else ""
    return f"**{verdict.blame.value}{grade}**{cause}"


def _details(trial: Trial, of: str = "") -> Iterable[str]:
    """Blocks to unfold, the most telling first."""
    verdict = trial.verdict
    if verdict is not None:
        for title, evidence in (("evidence for", verdict.evidence), ("evidence against", verdict.against)):
            if evidence:
                yield _folded(f"{of}{title} ({len(evidence)})", _evidence(evidence))
    if trial.steps:
        rows = [tuple(escaped(cell.strip()) for cell in row) for row in step_rows(trial)]
        shown = rows[: MAX_STEPS + 1]
        title = f"{of}{plural(len(trial.steps), 'step')}"
        if len(rows) > len(shown):
            title += f", the first {MAX_STEPS}"
        yield _folded(title, _table(shown))
    if trial.marks:
        rows = [("at", "step", "said"), *(_said(mark) for mark in trial.marks[:MAX_STEPS])]
        title = f"{of}said from inside, counts for nothing ({len(trial.marks)})"
        yield _folded(title, _table(rows))
    if trial.connections:
        rows = [tuple(escaped(cell.strip()) for cell in row) for row in connection_rows(trial.connections)]
        yield _folded(f"{of}{plural(len(trial.connections), 'connection')}", _table(rows[: MAX_STEPS + 1]))
    if trial.mutations:
        changes = [(escaped(m.what, _MAX_NAME), escaped(m.why or "")) for m in trial.mutations]
        yield _folded(f"{of}what fairtrial changed ({len(changes)})", _table([("what", "why"), *changes]))


def _said(mark: Mark) -> tuple[str, ...]:
    return f"{mark.at[11:23]}Z", "" if mark.step is None else str(mark.step), escaped(mark_words(mark))


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _evidence(evidence: Sequence[Evidence]) -> str:
    rows = [("at", "source", "trust", "step", "claim")]
    for item in evidence[:MAX_ROWS]:
        at = f"{item.at[11:23]}Z" if item.at else ""
        step = "" if item.step is None else str(item.step)
        rows.append((at, escaped(item.source, _MAX_NAME), item.trust.value, step, escaped(item.claim)))
    return _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    return "\n".join([_row(head), _row(["---"] * len(head)), *(_row(row) for row in body)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# --- a run ----------------------------------------------------------------------------------------------------------


def _run_block(name: str, trials: Sequence[Trial], failed: Sequence[Trial], names: Mapping[str, str]) -> str:
    counts: dict[str, int] = {}
    unknown = sum(1 for trial in failed if trial.outcome is Outcome.UNKNOWN)
    known = len(trials) - unknown
    for trial in failed:
        if trial.outcome is Outcome.UNKNOWN:
            continue
        blame = trial.verdict.blame.value if trial.verdict else "no verdict"
        counts[blame] = counts.get(blame, 0) + 1
    whose = ", ".join(f"{count} {blame}" for blame, count in sorted(counts.items(), key=lambda one: -one[1]))
    passed = len(trials) - len(failed)
    told = f"{passed} of {plural(known, 'trial')} passed"
    if unknown and known:
        told += f", the outcome of {unknown} more is not known"
    elif unknown:
        told = f"{plural(unknown, 'trial')}, the outcome is not known"
    lines = [
        f"## Run {escaped(name, _MAX_NAME)}: {told}",
        "",
        f"Of those that did not: {whose}. A failure that is infra's is still booked as it was." if counts else "",
        "",
    ]
    if unknown:
        lines += [
            "What is not known yet, the harness knows: `fairtrial import HARNESS PATH`, then this report again.",
            "",
        ]
    rows = [("trial", "booked", "verdict", "ended by", "took")]
    order = [*failed, *(trial for trial in trials if trial.outcome is Outcome.PASSED)]
    for trial in order[:MAX_ROWS]:
        verdict, lasted = trial.verdict, _lasted(trial)
        ended = verdict.terminated_by if verdict else None
        rows.append(
            (
                _named(trial, names),
                escaped(booked(trial)),
                "" if verdict is None else f"{_MARKS.get(verdict.blame, '⚪')} {_headline(verdict)}",
                "" if ended is None else _code(ended.cause),
                "" if lasted is None else seconds(lasted),
            )
        )
    lines.append(_table(rows))
    if len(order) > MAX_ROWS:
        lines += ["", f"_{len(order) - MAX_ROWS} more trials: `fairtrial trials` lists them._"]
    return "\n".join(lines)
