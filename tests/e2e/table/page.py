"""The page: a matrix of set-ups and kinds, a section for each set-up, and what each harness hides.

In: rows, and the page as it stands.  Out: Markdown.  Rows of set-ups that were not run this time are kept as they
stand, with their dates: `kept` reads them back out of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tests.e2e.table.rows import COLUMNS, Kind, Row
from tests.e2e.table.scenarios import SCENARIOS, SETUPS
from tests.e2e.table.words import FOOT, HEAD, HIDES

_SECTION = re.compile(r"## (?P<title>.+)")
_RUN = re.compile(r"Run on (?P<said>.+)\.")
_KINDS = {(each.setup.title, name): each.kind for each in SCENARIOS for name in each.names}


def kept(page: str) -> tuple[dict[str, list[Row]], dict[str, str]]:
    """Rows by section, and what each section says of its run, of a page that this module made."""
    rows: dict[str, list[Row]] = {}
    runs: dict[str, str] = {}
    section = ""
    for line in page.splitlines():
        if found := _SECTION.fullmatch(line):
            section = found["title"]
        elif found := _RUN.fullmatch(line):
            runs[section] = found["said"]
        elif line.startswith("| ") and section:
            name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            kind = _KINDS.get((section, name))
            if kind is not None:
                said = tuple(cells) if all(cells) else tuple(cells[:1])
                rows.setdefault(section, []).append(Row(section=section, name=name, kind=kind, cells=said))
    return rows, runs


def merged(new: Iterable[Row], old: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
    """The new rows, and the old ones of scenarios that were not run, in the order of the list."""
    by_name = {(row.section, row.name): row for rows in old.values() for row in rows}
    by_name |= {(row.section, row.name): row for row in new}
    found: dict[str, list[Row]] = {}
    for title, name in _KINDS:
        if (title, name) in by_name:
            found.setdefault(title, []).append(by_name[title, name])
    return found


def page(rows: Mapping[str, Sequence[Row]], runs: Mapping[str, str]) -> str:
    """The page as Markdown; `runs`: by section, when and with what it was run."""
    lines = [HEAD, *_matrix(rows), ""]
    for setup in SETUPS:
        if setup.title not in rows:
            continue
        lines += [f"## {setup.title}", ""]
        if setup.title in runs:
            lines += [f"Run on {runs[setup.title]}.", ""]
        lines += [_line(("scenario", *COLUMNS)), "|" + "---|" * (len(COLUMNS) + 1)]
        for row in rows[setup.title]:
            cells = (row.name, *row.cells, *([""] * (len(COLUMNS) - len(row.cells))))
            lines.append(_line(cells))
        lines.append("")
    lines += ["## What each harness hides", "", *HIDES]
    return "\n".join([*lines, "", FOOT])


def _matrix(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    kinds = [kind for kind in Kind if kind is not Kind.MORE]
    lines = [_line(("set-up", *(kind.value for kind in kinds))), "|" + "---|" * (len(kinds) + 1)]
    for setup in SETUPS:
        told = {row.kind: row.short for row in rows.get(setup.title, ())}
        if any(kind in told for kind in kinds):
            lines.append(_line((setup.title, *(told.get(kind, "not run") for kind in kinds))))
    return lines


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |".replace("|  |", "| |").replace("|  |", "| |")
