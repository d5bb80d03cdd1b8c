"""The summary of a run as text, for a terminal of 80 columns or a wider one.

In: a `Summary` as plain values (`Told`), since neighbours do not know each other.  Out: lines.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.report.words import plural, printable, verdict_phrase, wrapped

CLASS_WORDS: Final[Mapping[str, str]] = {
    "passed": "passed",
    "model": "the model failed",
    "infra_proved": "infra, proved",
    "infra_suspected": "infra, suspected",
    "harness": "the harness",
    "operator": "the operator",
    "task": "the task",
    "fairtrial": "fairtrial itself",
    "indeterminate": "not known",
}
_WHO: Final[Mapping[str, str]] = {"exit_code": "by exit status", "nobody": "without a known outcome"}
_LABEL: Final = 18
_BAR: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One trial worth a look."""

    trial: str
    name: str | None
    why: str
    blame: str
    grade: str | None
    cause: str | None
    step: int | None
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the text is made of; shares are (passed, counted)."""

    run: str
    trials: int
    started: str | None
    ended: str | None
    harnesses: Mapping[str, int]
    booked: Mapping[str, int]
    mean_reward: float | None
    rewards: int
    by_exit_code_only: int
    outcome_unknown: int
    classes: Mapping[str, int]
    ended_by_infra: tuple[int, int, int]
    """trials, proved, suspected"""
    infra_causes: Mapping[str, int]
    passed_by_dead_harness: int
    as_failures: tuple[int, int]
    excluded: tuple[int, int]
    lowest: tuple[int, int]
    highest: tuple[int, int]
    coverage: Mapping[str, Mapping[str, int]]
    imported_only: int
    still_open: int
    retried: int
    wholes: int
    looks: Sequence[Look]


def summary_lines(told: Told, *, width: int) -> list[str]:
    """The whole text."""
    lines = _head(told, width)
    if not told.trials:
        return lines  # tables of noughts would say that nothing was watched
    lines += ["", "BOOKED", *_booked(told, width)]
    lines += ["", "WHAT THE VERDICTS SAY", *_classes(told, width)]
    lines += ["", "ENDED BY INFRA (whoever is to blame)", *_ended(told, width)]
    lines += ["", "THE SCORE, COUNTED IN THREE WAYS", *_scores(told, width)]
    lines += ["", "WHAT WAS WATCHED (trials)", *_coverage(told, width)]
    if told.looks:
        lines += ["", f"MOST WORTH A LOOK ({len(told.looks)})"]
        for look in told.looks:
            lines += _look(look, width)
        lines += ["", *wrapped("fairtrial show ID tells the evidence; the end of an id is enough.", width, indent="")]
    return lines


def _head(told: Told, width: int) -> list[str]:
    who = ", ".join(f"{count} {_WHO.get(name, f'by {printable(name)}')}" for name, count in told.harnesses.items())
    when = ""
    if told.started:
        when = f"; {told.started[:16].replace('T', ' ')}"
        when += f" to {told.ended[:16].replace('T', ' ')} UTC" if told.ended else " UTC"
    text = f"RUN  {printable(told.run)}: {plural(told.trials, 'trial')}{f' ({who})' if who else ''}{when}"
    lines = wrapped(text, width, indent="", hang="     ")
    left_out: list[str] = []
    if told.retried:
        left_out.append(f"{plural(told.retried, 'attempt')} that the harness tried again")
    if told.wholes:
        left_out.append(f"{plural(told.wholes, 'trial')} observed as a whole, whose parts count")
    if told.still_open:
        left_out.append(f"{plural(told.still_open, 'trial')} that still {'runs' if told.still_open == 1 else 'run'}")
    if left_out:
        lines += wrapped(f"Not counted: {'; '.join(left_out)}.", width, indent="     ")
    return lines


def _booked(told: Told, width: int) -> list[str]:
    parts = [f"{outcome} {count}" for outcome, count in told.booked.items()]
    lines = wrapped(f"{' · '.join(parts) or 'nothing'} of {told.trials}", width)
    if told.mean_reward is not None:
        counts = "that counts" if told.rewards == 1 else "that count"
        lines += wrapped(f"mean reward {told.mean_reward:.3f} over {plural(told.rewards, 'reward')} {counts}", width)
    # In a line of its own, unbroken: it is there to be typed.
    command = f"    fairtrial import HARNESS PATH --run {shlex.quote(printable(told.run))}"
    if told.by_exit_code_only:
        lines += wrapped(
            f"{told.by_exit_code_only} by exit status alone, which is no score: import the harness's results", width
        )
    if unknown := told.outcome_unknown:
        said = f"The outcome of {plural(unknown, 'trial')} is not known"
        lines += wrapped(f"{said}, neither passed nor failed: import the harness's results", width)
    if told.by_exit_code_only or told.outcome_unknown:
        lines.append(command)
    return lines


def _classes(told: Told, width: int) -> list[str]:
    most = max(told.classes.values(), default=0)
    bar = min(_BAR, max(10, width - _LABEL - 20))
    lines: list[str] = []
    for name, count in told.classes.items():
        drawn = "█" * (max(1, round(count / most * bar)) if count else 0)
        label = CLASS_WORDS.get(name, name)
        lines.append(f"  {label:<{_LABEL}}{count:>5}  {_percent(count, told.trials):>7}  {drawn}".rstrip())
    if told.passed_by_dead_harness:
        dead = told.passed_by_dead_harness
        lines += wrapped(f"Of the passed, {dead} by a dead harness: check that the reward was earned.", width)
    return lines


def _ended(told: Told, width: int) -> list[str]:
    trials, proved, suspected = told.ended_by_infra
    if not trials:
        return ["  none that was seen"]
    text = f"{trials} of {told.trials} ({_percent(trials, told.trials)}): {proved} proved, {suspected} suspected"
    causes = ", ".join(f"{printable(cause)} {count}" for cause, count in told.infra_causes.items())
    return [*wrapped(text, width), *wrapped(causes, width, indent="    ")]


def _scores(told: Told, width: int) -> list[str]:
    low, high, known = told.lowest, told.highest, told.as_failures[1]
    lines: list[str] = []
    if told.outcome_unknown and not known:
        lines += wrapped("no score: the outcome of no trial is known", width)
    else:
        if told.outcome_unknown:
            lines += wrapped(f"of the {plural(known, 'trial')} whose outcome is known; the bounds are of all", width)
        lines += [
            _score("infra counted as failures", told.as_failures),
            _score("infra that is proved left out", told.excluded),
        ]
    return [*lines, f"  {'bounds (all open ones failed … passed)':<40}{_percent(*low):>8} … {_percent(*high)}"]


def _score(label: str, share: tuple[int, int]) -> str:
    return f"  {label:<40}{_percent(*share):>8}   {share[0]} of {share[1]}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _coverage(told: Told, width: int) -> list[str]:
    watched = {f: levels for f, levels in told.coverage.items() if levels.get("full") or levels.get("partial")}
    lines: list[str] = []
    for family, levels in watched.items():
        parts = [f"{levels.get(level, 0)} {word}" for level, word in _LEVELS if levels.get(level, 0)]
        lines.append(f"  {family:<{_LABEL}}{', '.join(parts)}")
    unwatched = [family for family in told.coverage if family not in watched]
    if unwatched:
        lines += wrapped(f"not at all: {', '.join(unwatched)}", width)
    if told.imported_only:
        count = plural(told.imported_only, "trial")
        lines += wrapped(f"{count} only imported: nothing outside was watched.", width)
    return lines


_LEVELS: Final = (("full", "whole"), ("partial", "in part"), ("none", "not"))


def _look(look: Look, width: int) -> list[str]:
    name = f"  {printable(look.name)}" if look.name else ""
    head = f"  {look.trial[-12:]}{name}"
    verdict = verdict_phrase(look.blame, look.grade, look.cause, look.step)
    lines = [head if len(head) <= width else f"{head[: width - 1]}…"]
    lines += wrapped(f"{look.why} [{verdict}]", width, indent="    ")
    shown = wrapped(look.sentence, width, indent="    ")
    return [*lines, *(shown if len(shown) <= 3 else [*shown[:2], f"{shown[2][: width - 2]} …"])]
