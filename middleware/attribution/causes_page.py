"""Writes docs/causes.md from the table in `core/causes/`.

Usage: `python -m fairtrial.middleware.attribution.causes_page [FILE]`.

In: the table and the thresholds.  Out: Markdown on stdout, or in FILE.  A test checks that the page is current.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS, Thresholds, as_record
from fairtrial.middleware.core.causes import CAUSES, Cause, answers
from fairtrial.middleware.core.records import RULESET, Blame, Grade

_HEAD = """\
<!-- Written by `python -m fairtrial.middleware.attribution.causes_page docs/causes.md`: edit core/causes/. -->

# Causes

The closed set of ruleset {ruleset}. A prefix does not imply the blame. *Best* is the best grade that the cause's own
evidence can reach without running anything again. A cause marked **no source yet** cannot be reported by this version.

| cause | may blame | best | family | needs | |
|---|---|---|---|---|---|
"""

_ANSWERS = """
## What a harness may do

| blame | grade | run it again? | count it? | is its reward valid? |
|---|---|---|---|---|
"""

_SENTENCES = """
## What is said

"""

_THRESHOLDS = """
## Thresholds

Each is printed with the verdict and can be changed with `show --replay --set name=value`.

| name | default |
|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [_row(cause) for cause in CAUSES.values()]
    pairs = [(b, g) for b in Blame for g in (Grade.PROVED, Grade.SUSPECTED, None) if _possible(b, g)]
    said = [f"- `{c.name}`: {c.template} *{c.advice}*" for c in CAUSES.values() if c.built]
    numbers = [f"| `{name}` | {value:g} |" for name, value in as_record(DEFAULT_THRESHOLDS).items()]
    assert len(numbers) == len(dataclasses.fields(Thresholds))
    parts = [
        _HEAD.format(ruleset=RULESET) + "\n".join(rows) + "\n",
        _ANSWERS + "\n".join(_answer_row(b, g) for b, g in pairs) + "\n",
        _SENTENCES + "\n".join(said) + "\n",
        _THRESHOLDS + "\n".join(numbers) + "\n",
    ]
    return "".join(parts)


def _row(cause: Cause) -> str:
    blame = ", ".join(b.value for b in cause.may_blame)
    needs = ", ".join(f"`{s}`" for s in cause.sources) or "-"
    last = [] if cause.built else ["**no source yet**"]
    if cause.note:
        last.append(cause.note)
    return f"| `{cause.name}` | {blame} | {cause.best.value} | {cause.family} | {needs} | {'; '.join(last)} |"


def _possible(blame: Blame, grade: Grade | None) -> bool:
    return (grade is None) == (blame in {Blame.NONE, Blame.INDETERMINATE})


def _answer_row(blame: Blame, grade: Grade | None) -> str:
    found = answers(blame, grade)
    named = grade.value if grade is not None else "-"
    return f"| {blame.value} | {named} | {found.retry.value} | {found.grade.value} | {found.reward_valid.value} |"


def main(argv: list[str]) -> int:
    """Write the page to the file named, or to stdout."""
    if argv:
        Path(argv[0]).write_text(page())
    else:
        sys.stdout.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
