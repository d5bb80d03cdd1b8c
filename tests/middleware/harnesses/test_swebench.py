"""SWE-bench 5.0.2: a run's report and the logs of its instances."""

from __future__ import annotations

from fairtrial.middleware.core.records import Outcome, PhaseName
from tests.middleware.harnesses.real import read

REPORT = "swe-bench/stand-in__model.nightly.1.json"


def test_a_report_books_each_instance_once() -> None:
    told = {o.outcome.label: (o.outcome.outcome, o.outcome.exit_status) for o in read("swe-bench", REPORT).booked}
    assert told == {
        "django__django-11099": (Outcome.PASSED, "resolved"),
        "astropy__astropy-12907": (Outcome.FAILED, "unresolved"),
        "sympy__sympy-13480": (Outcome.ERRORED, "error"),
        "flask__flask-1": (Outcome.FAILED, "empty_patch"),
    }


def test_logs_add_times_containers_and_the_verifiers_phase() -> None:
    told = {o.outcome.label: o for o in read("swe-bench", "swe-bench").booked if o.outcome.phases}
    one = told["django__django-11099"]
    assert [phase.name for phase in one.outcome.phases] == [PhaseName.VERIFY]
    assert len(one.keys.containers) == 1
    assert (one.outcome.outcome, one.outcome.scored, one.outcome.reward) == (Outcome.PASSED, True, 1.0)


def test_an_evaluation_without_a_report_is_an_error_of_the_evaluation() -> None:
    reading = read("swe-bench", "swe-bench/logs")
    lost = next(o.outcome for o in reading.booked if o.outcome.label == "sympy__sympy-13480")
    assert (lost.outcome, lost.scored, [e.type for e in lost.errors]) == (Outcome.ERRORED, False, ["TestsTimedOut"])
    assert any("has no report.json" in note.said for note in reading.notes)


def test_report_and_logs_of_one_instance_are_one_trial() -> None:
    booked = read("swe-bench", "swe-bench").booked
    assert len({o.outcome.identity for o in booked}) == len(booked) == 4


def test_its_guess_of_an_environment_fault_is_a_mark_and_no_more() -> None:
    marked = [o.outcome for o in read("swe-bench", REPORT).booked if o.outcome.marks]
    assert [(o.label, o.marks, o.outcome) for o in marked] == [
        ("sympy__sympy-13480", ["names_environment"], Outcome.ERRORED)
    ]
