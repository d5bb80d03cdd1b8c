"""One line of the doctor's screen, and the screen."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fairtrial.middleware.report.words import wrapped

State = Literal["ok", "partial", "no"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the screen; `remedy` is what to type or change, where there is something."""

    name: str
    state: State
    text: str
    remedy: str | None = None
    mend: bool = True
    """Whether the remedy mends what is wrong, and is not only a way to see more."""


def print_findings(findings: Sequence[Finding]) -> None:
    """One row each, what does not fit on it indented below; the last row names what to look at."""
    width = screen_width()
    names = max(len(finding.name) for finding in findings)
    for finding in findings:
        remedy = f" → {finding.remedy}" if finding.remedy else ""
        row = f"{finding.state:<7}  {finding.name:<{names}}  {finding.text}{remedy}"
        print("\n".join(wrapped(row, width, indent="", hang=" " * (names + 11))))
    # What can be mended; that something is simply not there (an engine, a collector) is said above.
    broken = list(dict.fromkeys(f.name for f in findings if f.state != "ok" and f.remedy and f.mend))
    print(f"look at: {', '.join(broken)}" if broken else "nothing is wrong")


def screen_width() -> int:
    """Columns of the terminal, or of a page where there is none."""
    return max(60, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 140
