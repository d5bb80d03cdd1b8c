"""Exit codes in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairtrial.middleware.core.records import EndedAs, Outcome
from tests.middleware.harnesses.real import read


@pytest.mark.parametrize(
    "content, outcome, ended_as",
    [
        ("0\n", Outcome.PASSED, EndedAs.AGENT_FINISHED),
        ("1", Outcome.FAILED, None),
        ("137\n", Outcome.FAILED, EndedAs.KILLED),
        ("-15", Outcome.FAILED, EndedAs.KILLED),
    ],
)
def test_one_number_is_one_trial_named_by_its_file(
    content: str, outcome: Outcome, ended_as: EndedAs | None, tmp_path: Path
) -> None:
    file = tmp_path / "nightly.status"
    file.write_text(content)
    told = read("exit-code", file).booked[0].outcome
    assert (told.label, told.outcome, told.ended_as, told.scored) == ("nightly", outcome, ended_as, False)


def test_lines_of_names_and_codes_are_trials_and_other_lines_are_said(tmp_path: Path) -> None:
    file = tmp_path / "codes"
    file.write_text("a 0\nb=3\nc: 124\nwhat is this\n")
    reading = read("exit-code", file)
    assert [(o.outcome.label, o.outcome.exit_status) for o in reading.booked] == [("a", "0"), ("b", "3"), ("c", "124")]
    assert (reading.notes[0].state, reading.notes[0].said) == ("partial", "1 of 4 lines hold no exit code")
