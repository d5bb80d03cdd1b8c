"""The tables that `make bench` prints; what is measured is not measured here."""

from __future__ import annotations

from tests.bench.__main__ import HEADER, markdown_head, markdown_line, plain_line
from tests.bench.rows import Row

HELD = Row(what="`a` | b", value=0.1234567, unit="s", budget=0.4, how="median of 15")
BROKEN = Row(what="rate", value=0.5, unit="x", budget=0.6, sense="at least", how="over nginx's")
ABSENT = Row(what="rate", value=None, unit="x", budget=0.6, how="nginx is not installed")


def test_a_row_of_markdown_has_the_cells_of_the_head_and_no_stray_bar() -> None:
    assert markdown_line(HELD) == "| `a` / b | 0.1235 s | at most 0.4 s | ok | median of 15 |"
    head, rule = markdown_head().splitlines()
    assert head.count("|") == rule.count("|") == markdown_line(HELD).count("|") == len(HEADER) + 1


def test_a_broken_budget_and_a_figure_that_is_missing_are_said() -> None:
    assert "| 0.5 x | at least 0.6 x | BROKEN |" in markdown_line(BROKEN)
    assert "| not measured | at most 0.6 x | - | nginx is not installed |" in markdown_line(ABSENT)
    assert plain_line(BROKEN).startswith("  BROKEN rate")
