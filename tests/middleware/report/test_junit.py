"""JUnit: as booked, the cause beside it; any bytes in names give XML that a parser takes."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from fairtrial.middleware.core.records import Blame, Outcome
from fairtrial.middleware.report.junit import junit_xml
from tests.middleware.report.trials import trial


def properties(case: ET.Element) -> dict[str, str]:
    return {found.attrib["name"]: found.attrib["value"] for found in case.iter("property")}


def test_the_cause_is_a_property_and_the_type_of_the_failure() -> None:
    (case,) = ET.fromstring(junit_xml("nightly", [trial()])).iter("testcase")
    told = properties(case)
    assert told["infra_cause"] == told["fairtrial.cause"] == "model_api.overloaded"
    assert (told["fairtrial.blame"], told["fairtrial.grade"], told["fairtrial.retry"]) == ("infra", "proved", "yes")
    failure = case.find("failure")
    assert failure is not None
    assert failure.attrib["type"] == "model_api.overloaded"
    assert case.attrib["time"] == "5.500"


def test_a_verdict_changes_no_count() -> None:
    trials = [
        trial(1, outcome=Outcome.PASSED, blame=Blame.INFRA),
        trial(2, outcome=Outcome.FAILED),
        trial(3, outcome=Outcome.ERRORED),
        trial(4, outcome=Outcome.UNKNOWN),
    ]
    suite = ET.fromstring(junit_xml("nightly", trials)).find("testsuite")
    assert suite is not None
    counts = {key: suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}


def test_a_failure_of_the_model_has_no_infra_cause_though_an_undecided_one_has() -> None:
    model, undecided = ET.fromstring(
        junit_xml("n", [trial(1, blame=Blame.MODEL), trial(2, blame=Blame.INDETERMINATE)])
    ).iter("testcase")
    assert "infra_cause" not in properties(model)
    assert properties(undecided)["infra_cause"] == "model_api.overloaded"


def test_control_characters_and_markup_in_a_name_survive_a_parser_as_text() -> None:
    name = 'a\x00b\x1b[2J "q" <x> & ]]> \ufffe \U0001f600'
    (case,) = ET.fromstring(junit_xml(name, [trial(task=name)])).iter("testcase")
    assert '"q" <x> & ]]>' in case.attrib["name"]
    assert "\U0001f600" in case.attrib["name"]
    assert case.attrib["name"].isprintable()
