"""JUnit XML as pytest writes it."""

from __future__ import annotations

from pathlib import Path

from fairtrial.middleware.core.records import Outcome
from tests.middleware.harnesses.real import read


def test_each_case_is_a_trial() -> None:
    booked = read("junit", "junit/pytest.xml").booked
    assert [(o.outcome.label, o.outcome.outcome, o.outcome.scored) for o in booked] == [
        ("test_j::test_a", Outcome.PASSED, True),
        ("test_j::test_b", Outcome.FAILED, True),
        ("test_j::test_c", Outcome.UNKNOWN, False),
        ("test_j::test_d", Outcome.ERRORED, True),
        ("test_j::test_e", Outcome.PASSED, True),
    ]
    assert booked[-1].keys.trial_ids == {"01a22cef-0000-7000-8000-000000000001"}


def test_a_document_type_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "x.xml"
    file.write_text('<!DOCTYPE a [<!ENTITY b "bbbb">]><testsuite><testcase name="&b;"/></testsuite>')
    reading = read("junit", file)
    assert (reading.booked, reading.notes[0].state) == ([], "foreign")


def test_a_case_that_ran_again_is_another_trial(tmp_path: Path) -> None:
    file = tmp_path / "x.xml"
    file.write_text('<testsuite><testcase name="a"/><testcase name="a"><failure/></testcase></testsuite>')
    booked = read("junit", file).booked
    assert [o.outcome.try_ for o in booked] == [None, 2]
    assert len({o.outcome.identity for o in booked}) == 2
