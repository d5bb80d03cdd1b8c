"""Faults say what they show: status, error type and text, and the catalogue holds what the reference names."""

import pytest

from fairtrial.middleware.demo.faults import FOREVER, Fault, catalogue


@pytest.mark.parametrize(
    "fault, status, error_type",
    [
        (Fault(kind="http"), 500, "api_error"),
        (Fault(kind="http", status=529), 529, "overloaded_error"),
        (Fault(kind="http", status=429), 429, "rate_limit_error"),
        (Fault(kind="http", status=422), 422, "invalid_request_error"),
        (Fault(kind="http", status=503), 503, "api_error"),
        (Fault(kind="garbage"), 200, "invalid_request_error"),
        (Fault(kind="error_event"), 200, "overloaded_error"),
        (Fault(kind="error_event", error_type="api_error"), 200, "api_error"),
    ],
)
def test_a_fault_shows_the_status_and_type_of_its_kind(fault: Fault, status: int, error_type: str) -> None:
    assert (fault.shown_status, fault.shown_type) == (status, error_type)


def test_a_message_of_ones_own_replaces_the_usual_text() -> None:
    assert Fault(kind="http", status=529).shown_message == "Overloaded"
    assert Fault(kind="http", status=529, message="Busy").shown_message == "Busy"
    assert Fault(kind="http", status=418).shown_message == "Error 418"


def test_the_catalogue_holds_the_eighteen_faults_on_the_wanted_step() -> None:
    faults = catalogue(2)
    assert len(faults) == 18
    assert {fault.step for sequence in faults.values() for fault in sequence} == {2}
    assert all(sequence[0].attempts is FOREVER for name, sequence in faults.items() if name.endswith("_for_ever"))
    assert faults["rate_limited_once"][0].headers == {"retry-after": "2"}
