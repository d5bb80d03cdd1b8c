"""docs/harnesses.md is what `harness_table.py` printed: every scenario of its list has its row."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.harness_table import SCENARIOS, Row, page


def test_each_scenario_stands_in_the_page(repo_root: Path) -> None:
    text = (repo_root / "docs" / "harnesses.md").read_text()
    missing = [s.name for s in SCENARIOS if f"| {s.name} |" not in text]
    assert missing == [], "make the page anew: python -m tests.e2e.harness_table > docs/harnesses.md"


def test_what_could_not_be_run_is_said_with_its_reason() -> None:
    text = page([Row(scenario=SCENARIOS[0], not_run="no engine")], "versions")
    assert f"| {SCENARIOS[0].name} | not run: no engine |" in text
