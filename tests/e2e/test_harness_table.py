"""docs/harnesses.md is what `harness_table.py` printed: every cell of its matrix was run, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.harness_table import wanted
from tests.e2e.table.page import kept, merged, page
from tests.e2e.table.rows import Kind, Row
from tests.e2e.table.scenarios import SCENARIOS, SETUPS

ANEW = "make the page anew: make harnesses"


@pytest.fixture
def text(repo_root: Path) -> str:
    return (repo_root / "docs" / "harnesses.md").read_text()


def test_each_set_up_answers_for_each_kind_once() -> None:
    for setup in SETUPS:
        kinds = [s.kind for s in SCENARIOS if s.setup is setup and s.kind is not Kind.MORE]
        expected = [] if setup.runs == "many" else [kind for kind in Kind if kind is not Kind.MORE]
        assert sorted(k.name for k in kinds) == sorted(k.name for k in expected), setup.title


def test_each_scenario_stands_in_the_page_of_its_set_up(text: str) -> None:
    rows, _ = kept(text)
    there = {(row.section, row.name) for told in rows.values() for row in told}
    missing = [(s.setup.title, name) for s in SCENARIOS for name in s.names if (s.setup.title, name) not in there]
    assert missing == [], ANEW


def test_the_page_is_what_its_rows_make(text: str) -> None:
    """So its words and its matrix are those of this version, and its rows are read back as they were written."""
    rows, runs = kept(text)
    assert page(rows, runs) == text, ANEW


def test_what_was_run_says_when_and_with_what_and_what_was_not_says_why(text: str) -> None:
    rows, runs = kept(text)
    for section, told in rows.items():
        for row in told:
            whole = len(row.cells) == 6
            assert whole or row.cells[0].startswith(("does not apply: ", "not run: ")), (section, row)
        assert section in runs or not any(len(row.cells) == 6 for row in told), section


def test_no_row_blames_infra_with_proof_for_what_was_not_done_from_outside(text: str) -> None:
    """The worst error: a model's failure, or a good run, that comes out as proved infra."""
    rows, _ = kept(text)
    proved = [row for told in rows.values() for row in told if len(row.cells) == 6 and "infra, proved" in row.cells[2]]
    assert proved
    wrong = [row for row in proved if row.kind not in {Kind.OVERLOADED, Kind.CUT, Kind.MORE}]
    assert wrong == []


def test_rows_that_were_not_run_this_time_are_kept_in_their_place() -> None:
    first, second = SCENARIOS[0], SCENARIOS[1]
    cells = ("0", "passed", "nothing to blame", "-", "agent.finished", "label")
    old = Row(section=first.setup.title, name=first.name, kind=first.kind, cells=cells)
    new = Row(section=second.setup.title, name=second.name, kind=second.kind, cells=("not run: no engine",))
    rows = merged([new], {old.section: [old]})
    assert rows[old.section] == [old, new]
    again, runs = kept(page(rows, {old.section: "2026-11-30, mini-swe-agent 2.4.6"}))
    assert (again, runs) == (rows, {old.section: "2026-11-30, mini-swe-agent 2.4.6"})


def test_only_names_rows_by_a_word_of_theirs() -> None:
    assert wanted(SCENARIOS[0], [])
    assert wanted(SCENARIOS[0], ["nowhere", SCENARIOS[0].setup.title])
    assert not wanted(SCENARIOS[0], ["nowhere"])
