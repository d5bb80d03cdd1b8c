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


def print_findings(findings: Sequence[Finding]) -> None:
    """One row each, what does not fit on it indented below."""
    width = screen_width()
    names = max(len(finding.name) for finding in findings)
    for finding in findings:
        remedy = f" → {finding.remedy}" if finding.remedy else ""
        row = f"{finding.state:<7}  {finding.name:<{names}}  {finding.text}{remedy}"
        print("\n".join(wrapped(row, width, indent="", hang=" " * (names + 11))))


def screen_width() -> int:
    """Columns of the terminal, or of a page where there is none."""
    return max(60, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 140
