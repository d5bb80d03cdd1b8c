"""Counting: what is a difference, what is a miss, when a bar holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from tests.matrix.confusion import Found, Result, bars, differences, report
from tests.matrix.scenario import Kind, Right, Scenario, check, models, of, proved, suspected

FOUND = Found(
    blame=Blame.INFRA,
    grade=Grade.PROVED,
    cause="model_api.overloaded",
    step=2,
    ended=("model_api.overloaded", Grade.PROVED, 2),
    ended_as=EndedAs.AGENT_GAVE_UP,
    present=frozenset(),
    sentence="It was overloaded.",
)
RIGHT = proved("model_api.overloaded", 2)
MODEL = replace(FOUND, blame=Blame.MODEL, grade=Grade.SUSPECTED, cause=None, step=None, ended=None)


def scenario(
    kind: Kind = Kind.INFRA, right: Right = RIGHT, *, name: str = "one", inside_only: bool = False
) -> Scenario:
    return Scenario(name=name, family="model_api", kind=kind, what="w", why="y", right=right, inside_only=inside_only)


def held(*results: Result) -> list[bool]:
    return [holds for _, holds in bars(results)]


def test_what_was_written_down_and_found_is_no_difference() -> None:
    assert differences(RIGHT, FOUND) == []


@pytest.mark.parametrize(
    "found, about",
    [
        (replace(FOUND, blame=Blame.MODEL), "blame"),
        (replace(FOUND, grade=Grade.SUSPECTED), "grade"),
        (replace(FOUND, cause="model_api.server_error"), "cause"),
        (replace(FOUND, step=1), "step"),
        (replace(FOUND, ended=None), "terminated_by"),
        (replace(FOUND, ended=("model_api.overloaded", Grade.SUSPECTED, 2)), "terminated_by"),
        (replace(FOUND, ended_as=EndedAs.KILLED), "ended_as"),
    ],
)
def test_each_thing_that_was_written_down_is_compared(found: Found, about: str) -> None:
    assert [line.partition(":")[0] for line in differences(RIGHT, found)] == [about]


def test_what_is_open_is_not_compared_and_an_event_that_must_be_told_is() -> None:
    right = suspected("model_api.overloaded", None)
    assert differences(right, replace(FOUND, grade=Grade.SUSPECTED, step=7, ended=None)) == []
    missing = differences(models("container.oom_kill"), MODEL)
    assert [line.partition(":")[0] for line in missing] == ["present"]


def test_a_cause_that_is_wrong_in_one_of_twenty_holds_the_bar_and_in_two_does_not() -> None:
    good = [Result(scenario=scenario(), found=FOUND)] * 19
    bad = Result(scenario=scenario(), found=replace(FOUND, cause="gateway.error"))
    assert held(*good, bad)[0]
    assert not held(*good[1:], bad, bad)[0]


def test_one_innocent_that_is_blamed_on_infra_or_has_no_verdict_breaks_the_bar() -> None:
    innocent = scenario(Kind.LOOK_ALIKE, models())
    assert held(Result(scenario=innocent, found=MODEL))[1]
    assert not held(Result(scenario=innocent, found=replace(FOUND, grade=Grade.SUSPECTED)))[1]
    assert not held(Result(scenario=innocent, broken="it never started"))[1]


def test_inside_evidence_may_be_suspected_and_never_proved() -> None:
    inside = scenario(Kind.LOOK_ALIKE, models(), inside_only=True)
    assert held(Result(scenario=inside, found=replace(FOUND, grade=Grade.SUSPECTED)))[2]
    assert not held(Result(scenario=inside, found=FOUND))[2]


def test_infra_is_never_proved_where_another_side_failed() -> None:
    other = scenario(Kind.OTHER, Right(blame=of(Blame.HARNESS)))
    assert not held(Result(scenario=other, found=FOUND))[3]


def test_what_could_not_be_run_is_in_no_count_and_is_told_with_its_reason() -> None:
    skipped = Result(scenario=scenario(name="elsewhere"), skipped="needs uid 0")
    results = [Result(scenario=scenario(), found=FOUND), skipped]
    assert bars(results)[0][0].startswith("right cause on infra scenarios: 1 of 1")
    assert "  elsewhere: needs uid 0" in report(results)


def test_a_miss_is_told_with_what_differs_and_what_it_awaits() -> None:
    waiting = replace(scenario(name="late"), awaits="rules: something")
    told = "\n".join(report([Result(scenario=waiting, found=MODEL)]))
    assert "1 misses" in told
    assert "blame: right is infra, found model" in told
    assert "awaits: rules: something" in told


def test_two_scenarios_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="share a name: one"):
        check([scenario(), scenario()])
