"""docs/causes.md is what the table says."""

from pathlib import Path

import pytest

from fairtrial.middleware.attribution.causes_page import main, page
from fairtrial.middleware.core.causes import CAUSES


def test_the_page_is_current(repo_root: Path) -> None:
    said = "run: python -m fairtrial.middleware.attribution.causes_page docs/causes.md"
    assert (repo_root / "docs" / "causes.md").read_text() == page(), said


def test_every_cause_has_a_row_and_says_whether_it_has_a_source() -> None:
    rows = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `") and line.count("|") > 4}
    assert set(rows) == set(CAUSES)
    assert {name for name, row in rows.items() if "no source yet" in row} == {
        c.name for c in CAUSES.values() if not c.built
    }


def test_it_writes_a_file_or_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "causes.md")]) == 0
    assert main([]) == 0
    assert (tmp_path / "causes.md").read_text() == capsys.readouterr().out
