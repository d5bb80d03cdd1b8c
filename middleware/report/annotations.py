"""Trials as annotations and outputs of a GitHub Actions step.

In: `Trial` records.  Out: lines of workflow commands, at most `MAX_ANNOTATIONS` (a step shows ten of a kind, a job
fifty), and `name=value` lines for `$GITHUB_OUTPUT`.  A failure that is infra's, or that nobody could decide, is a
warning; any other failure is an error; a trial that passed although something is wrong with it is a notice: somebody is
to blame, it was ended from outside, or something in it was killed, ran full or went away.  A model call that failed and
was asked for again is the everyday of an API, and what was slow was not too slow: no annotation, they are in `show`.

**Source:** the workflow commands and the limits of annotations in GitHub's documentation.  `%`, line ends and, in
properties, `:` and `,` are escaped, so that no text of an agent can begin a command of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame, EndedAs, Outcome, Present, Trial, Verdict
from fairtrial.middleware.report.words import booked, called, headline, plural, printable

MAX_ANNOTATIONS: Final = 10
_MAX_MESSAGE: Final = 2_000
_GRAVITY: Final = ("error", "warning", "notice")
_EVERYDAY: Final = frozenset({"model_api", "network"})
"""Families whose faults a client mends by asking again."""
_SLOW: Final = frozenset(
    {
        "container.cpu_throttled",
        "container.disk_slow",
        "container.memory_stall",
        "node.contention",
        "node.pressure",
    }
)
"""What only takes time: a trial that passed had enough of it."""
_DEAD_ENDS: Final = frozenset({EndedAs.HARNESS_KILLED, EndedAs.KILLED, EndedAs.HARNESS_CRASHED, EndedAs.AGENT_CRASHED})


def annotation_lines(trials: Sequence[Trial]) -> list[str]:
    """The gravest first; when there are more than ten, the tenth counts those that are left out."""
    found = [(kind, trial) for trial in trials if (kind := _kind(trial)) is not None]
    found.sort(key=lambda one: _GRAVITY.index(one[0]))
    shown = found if len(found) <= MAX_ANNOTATIONS else found[: MAX_ANNOTATIONS - 1]
    names = called(trials)
    lines = [_annotation(kind, names[trial.trial], trial) for kind, trial in shown]
    if left := len(found) - len(shown):
        lines.append(
            _command("notice", "fairtrial", f"{plural(left, 'more trial')} with something to say: see the summary")
        )
    return lines


def output_lines(trial: Trial) -> list[str]:
    """`name=value` for `$GITHUB_OUTPUT`; what is not known is empty, so that `== ''` tells it."""
    verdict = trial.verdict
    ended = verdict.terminated_by if verdict else None
    values = {
        "trial": trial.trial,
        "outcome": trial.outcome.value,
        "command-exit-code": "" if trial.exit_code is None else str(trial.exit_code),
        "blame": verdict.blame.value if verdict else "",
        "grade": verdict.grade.value if verdict and verdict.grade else "",
        "cause": (verdict.cause or "") if verdict else "",
        "terminated-by": ended.cause if ended else "",
        "retry": verdict.answers.retry.value if verdict else "",
        "reward-valid": verdict.answers.reward_valid.value if verdict else "",
    }
    return [f"{name}={printable(value)}" for name, value in values.items()]


def _kind(trial: Trial) -> str | None:
    verdict = trial.verdict
    if trial.outcome is Outcome.PASSED:
        return "notice" if verdict is not None and _wrong(verdict) else None
    if verdict is None or verdict.blame in (Blame.INFRA, Blame.INDETERMINATE):
        return "warning"
    return "error"


def _wrong(verdict: Verdict) -> bool:
    """Whether something is wrong with a trial that passed."""
    ended = verdict.terminated_by is not None or verdict.ended_as in _DEAD_ENDS
    return verdict.blame is not Blame.NONE or ended or bool(_grave(verdict))


def _grave(verdict: Verdict) -> list[Present]:
    """What was there and did not matter, without the everyday and the slow; a cause of a newer version counts."""
    return [one for one in verdict.present if one.cause not in _SLOW and _family(one.cause) not in _EVERYDAY]


def _family(cause: str) -> str | None:
    return CAUSES[cause].family if cause in CAUSES else None


def _annotation(kind: str, name: str, trial: Trial) -> str:
    verdict = trial.verdict
    said = headline(verdict) if verdict else "no verdict was reached"
    if verdict is not None and verdict.blame is Blame.NONE and (grave := _grave(verdict)):
        said += f" (present: {', '.join(dict.fromkeys(one.cause for one in grave))})"
    title = f"{name}: {booked(trial)} → {said}"
    if verdict is None:
        return _command(kind, title, f"Trial {trial.trial} has no verdict.")
    again = f"Run it again: {verdict.answers.retry.value}."
    ended = verdict.terminated_by
    by = f" Ended by {ended.cause}, {ended.grade.value}." if ended is not None and ended.cause != verdict.cause else ""
    return _command(kind, title, f"{verdict.sentence}{by} {again}")


def _command(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={_property(title[:200])}::{_data(message[:_MAX_MESSAGE])}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def joined(lines: Iterable[str]) -> str:
    """Lines with their ends; nothing for no lines."""
    return "".join(f"{line}\n" for line in lines)
