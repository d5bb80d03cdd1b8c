"""Small pieces of text for people: durations, sizes, counts, a verdict in one phrase, lines of a width.

In: numbers and words of records.  Out: plain text, control characters removed where others wrote it.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from fairtrial.middleware.core.records import Blame, Mark, Trial, Verdict


def printable(text: str) -> str:
    """The text without control characters: what others wrote must not steer our reader's terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


def wrapped(text: str, width: int, *, indent: str = "  ", hang: str | None = None) -> list[str]:
    """Lines of at most `width` columns where words allow it; `hang` indents all but the first (default: `indent`)."""
    return textwrap.wrap(
        printable(text),
        width,
        initial_indent=indent,
        subsequent_indent=indent if hang is None else hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def short_id(trial: Trial) -> str:
    """The last part of the id: unique enough to type, since a UUIDv7 begins with the time."""
    return trial.trial[-12:]


def called(trials: Sequence[Trial]) -> dict[str, str]:
    """What to call each of these, by its id: its task, the same in every run, so that a CI server knows it again.

    Where several share a task (a job's task holds for all that one command started), the trial's own name goes with it.
    """
    first = {trial.trial: trial.task or trial.name or short_id(trial) for trial in trials}
    shared = Counter((first[trial.trial], trial.try_) for trial in trials)
    for trial in trials:
        own = trial.name or short_id(trial)
        if shared[first[trial.trial], trial.try_] > 1 and own != first[trial.trial]:
            first[trial.trial] += f": {own}"
    return first


def booked(trial: Trial) -> str:
    """What was booked: by the harness whose record was imported, else by the exit status alone."""
    said = next((b for b in trial.booked if b.harness == trial.outcome_source and not b.inside), None)
    if said is not None:
        words = [word for word in (said.error or said.exit_status, _reward(said.reward)) if word]
        why = f" ({', '.join(words)})" if words else ""
        return printable(f"{trial.outcome.value} by {said.harness}{why}")
    if trial.signal is None and trial.exit_code is None and (not trial.command or trial.closed == "normal"):
        return trial.outcome.value  # of `serve`, or one of several in a run: it had no command of its own
    how = f"signal {trial.signal}" if trial.signal else f"exit {'?' if trial.exit_code is None else trial.exit_code}"
    return f"{trial.outcome.value} ({how})"


def mark_words(mark: Mark) -> str:
    """A moment that was told from inside: its name, and what was said of it."""
    text = f": {mark.text}" if mark.text else ""
    return f"{mark.name}{text}"


def _reward(reward: float | None) -> str:
    return "" if reward is None else f"reward {reward:g}"


def headline(verdict: Verdict) -> str:
    """Blame, grade, cause and step in one short phrase."""
    grade = verdict.grade.value if verdict.grade else None
    return verdict_phrase(verdict.blame.value, grade, verdict.cause, verdict.step)


def verdict_phrase(blame: str, grade: str | None, cause: str | None, step: int | None) -> str:
    """As `headline`, from the words of a row: one spelling wherever a verdict is named."""
    if blame == Blame.NONE:
        return "nothing to blame"
    return f"{blame}{f', {grade}' if grade else ''}{f' · {cause}{at_step(step)}' if cause else ''}"


def at_step(step: int | None) -> str:
    """` in step N`, or nothing."""
    return "" if step is None else f" in step {step}"


def because(why: str | None) -> str:
    """` (why)`, or nothing."""
    return f" ({printable(why)})" if why else ""


def plural(count: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


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
