"""`fairtrial report` as a job types it, on a store that real runs wrote."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.middleware.cli.test_cli import fairtrial


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials of the run `nightly`, one of them passed, and one of no run."""
    place = tmp_path_factory.mktemp("home")
    assert fairtrial(place, "run", "--run", "nightly", "--task", "t1", "--", "false").returncode == 1
    assert fairtrial(place, "run", "--run", "nightly", "--task", "t2", "--", "true").returncode == 0
    assert fairtrial(place, "run", "--name", "alone", "--", "sh", "-c", "exit 7").returncode == 7
    return place


def test_without_a_name_it_is_the_newest_trial_in_markdown(home: Path) -> None:
    said = fairtrial(home, "report")
    assert said.stdout.startswith("## ⚪ failed (exit 7) → **indeterminate**\n")
    assert "alone" in said.stdout


def test_the_name_of_a_run_gives_all_its_trials(home: Path) -> None:
    assert fairtrial(home, "report", "nightly").stdout.startswith("## Run nightly: 1 of 2 trials passed\n")
    cases = ET.fromstring(fairtrial(home, "report", "nightly", "--format", "junit").stdout).iter("testcase")
    assert [case.attrib["name"] for case in cases] == ["t1", "t2"]


def test_what_a_run_wrote_is_reported_without_a_store(tmp_path: Path) -> None:
    home, record, empty = tmp_path / "home", tmp_path / "trial.json", tmp_path / "empty"
    home.mkdir()
    fairtrial(home, "run", "--task", "filed", "--json", str(record), "--", "sh", "-c", "exit 4")
    empty.mkdir()
    said = fairtrial(empty, "report", str(record))
    assert (said.returncode, said.stdout.splitlines()[0]) == (0, "## ⚪ failed (exit 4) → **indeterminate**")
    for content, why in (("[1", "is no record"), ('{"schema": "x/1"}', "its schema is 'x/1'"), ("{}", "schema is ''")):
        record.write_text(content)
        said = fairtrial(home, "report", str(record))
        assert (said.returncode, why in said.stderr) == (2, True), said.stderr


def test_a_file_is_written_whole_and_one_that_cannot_be_is_said(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "junit.xml"
    assert fairtrial(home, "report", "t1", "--format", "junit", "-o", str(target)).stdout == ""
    assert ET.parse(target).getroot().attrib["failures"] == "1"
    refused = fairtrial(home, "report", "-o", str(tmp_path / "none" / "x"))
    assert refused.returncode == 69
    assert "Name another file" in refused.stderr


def test_github_gets_annotations_summary_and_outputs_where_the_runner_says(home: Path, tmp_path: Path) -> None:
    summary, outputs = tmp_path / "summary.md", tmp_path / "outputs"
    summary.write_text("before\n")
    said = fairtrial(home, "report", "--format", "github", GITHUB_STEP_SUMMARY=str(summary), GITHUB_OUTPUT=str(outputs))
    assert said.returncode == 0
    assert said.stdout.startswith("::warning title=alone%3A failed (exit 7)")
    assert summary.read_text().startswith("before\n## ⚪ failed (exit 7)")
    assert "command-exit-code=7\n" in outputs.read_text()
    outside = fairtrial(home, "report", "--format", "github")
    assert "GITHUB_STEP_SUMMARY and GITHUB_OUTPUT not set" in outside.stderr
    assert fairtrial(home, "report", "--format", "github", "-o", "x").returncode == 2


def test_what_is_not_there_is_said(home: Path) -> None:
    missing = fairtrial(home, "report", "nobody")
    assert (missing.returncode, "no trial matches 'nobody'" in missing.stderr) == (1, True)
