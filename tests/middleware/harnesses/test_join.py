"""Which observed trial a booked one is: strongest first, and none where it could be two."""

from __future__ import annotations

from typing import Any

import pytest

from fairtrial.middleware.core.observations import HarnessOutcome
from fairtrial.middleware.core.records import Trust
from fairtrial.middleware.harnesses.base import Booked, Keys
from fairtrial.middleware.harnesses.join import Joined, join
from fairtrial.middleware.harnesses.known import Known

S = 10**9
BEGIN = 1_790_000_000 * S


def known(
    trial: str, *, since: float = 0, until: float | None = 60, command: tuple[str, ...] = (), **keys: str
) -> Known:
    return Known(
        trial=trial,
        run="r",
        name=None,
        task=None,
        started_ns=BEGIN + round(since * S),
        ended_ns=None if until is None else BEGIN + round(until * S),
        open=until is None,
        command=command,
        keys={kind: {value} for kind, value in keys.items()},
    )


def booked(
    label: str = "a", *, at: tuple[float, float] | None = (10, 20), trust: Trust = Trust.SAME_UID, **keys: str
) -> Booked:
    outcome = HarnessOutcome(
        harness="harbor",
        identity=label,
        label=label,
        started_ns=None if at is None else BEGIN + round(at[0] * S),
        ended_ns=None if at is None else BEGIN + round(at[1] * S),
    )
    told = Keys(**{kind: frozenset({value}) for kind, value in keys.items()})
    return Booked(outcome=outcome, keys=told, trust=trust, program=("harbor",))


def of(kind: str, value: str) -> dict[str, Any]:
    return {kind: value}


def one(booked: Booked, *trials: Known, run: str | None = "r") -> Joined:
    return join([booked], trials, run=run)[0]


@pytest.mark.parametrize(
    "kind, how",
    [
        ("trial_ids", "trial_id"),
        ("requests", "request_id"),
        ("responses", "response_id"),
        ("tool_calls", "tool_call"),
        ("call_keys", "call_key"),
        ("containers", "label"),
        ("sessions", "session"),
        ("projects", "label"),
    ],
)
def test_an_id_that_one_trial_shares_joins_and_says_how(kind: str, how: str) -> None:
    found = one(booked(**of(kind, "x")), known("t1", **of(kind, "x")), known("t2", **of(kind, "y")))
    assert (found.trial, found.how) == ("t1", how)
    assert found.said.startswith("by ")


@pytest.mark.parametrize("kind", ["requests", "sessions", "projects"])
def test_an_id_that_two_trials_share_joins_none_even_where_a_name_would(kind: str) -> None:
    found = one(
        booked(names="n", **of(kind, "x")), known("t1", names="n", **of(kind, "x")), known("t2", **of(kind, "x"))
    )
    assert (found.trial, "could be 2 trials" in found.said) == (None, True)


def test_a_request_id_beats_a_session() -> None:
    found = one(booked(requests="x", sessions="s"), known("t1", requests="x"), known("t2", sessions="s"))
    assert (found.trial, found.how) == ("t1", "request_id")


@pytest.mark.parametrize("kind", ["requests", "responses", "tool_calls", "call_keys", "sessions"])
@pytest.mark.parametrize("housing", ["projects", "containers"])
def test_another_trials_ids_in_the_agents_files_tie_nothing_to_it(kind: str, housing: str) -> None:
    """An agent that writes down what it saw of another trial would take that trial's verdict for its own."""
    mine, other = known("t1", **of(housing, "p")), known("t2", **of(kind, "x"))
    found = one(booked(**of(kind, "x"), **of(housing, "p")), mine, other)
    first = (housing, kind) == ("containers", "sessions")  # the stronger of the two
    assert (found.trial, "by its containers another" in found.said) == (("t1", False) if first else (None, True))
    mine.keys[kind] = {"x"}
    assert one(booked(**of(kind, "x"), **of(housing, "p")), mine, known("t2")).trial == "t1"


def test_a_name_joins_within_the_time_and_not_beside_it() -> None:
    assert one(booked(names="n"), known("t1", names="n")).how == "name"
    assert one(booked(names="n"), known("t1", names="n", since=100, until=160)).trial is None


def test_a_name_without_a_time_joins_only_within_a_named_run() -> None:
    assert one(booked(names="n", at=None), known("t1", names="n"), run=None).trial is None
    assert one(booked(names="n", at=None), known("t1", names="n")).trial == "t1"
    assert one(booked(names="n", at=None), known("t1", names="n"), known("t2", names="n")).trial is None


def test_time_alone_joins_the_only_run_of_that_harness_then() -> None:
    harbor = known("t1", command=("harbor", "run"))
    assert one(booked(), harbor, known("t2", command=("claude",))).how == "time"
    assert one(booked(), known("t2", command=("claude",))).trial is None
    assert one(booked(), harbor, known("t3", command=("harbor", "run"))).trial is None
    assert one(booked(at=(50, 90)), harbor).trial is None


def test_several_booked_trials_in_one_observed_trial_stand_alone_as_its_parts() -> None:
    answers = join([booked("a"), booked("b")], [known("t1", command=("harbor",))], run="r")
    assert [(a.trial, a.part_of) for a in answers] == [(None, "t1"), (None, "t1")]
    assert "holds 2 of them together" in answers[0].said


def test_what_an_agent_wrote_of_several_sessions_stays_with_the_trial() -> None:
    trial = known("t1", command=("harbor",))
    told = [booked(label, trust=Trust.INSIDE, sessions=label) for label in "ab"]
    trial.keys["sessions"] = {"a", "b"}
    assert [a.trial for a in join(told, [trial], run="r")] == ["t1", "t1"]


def test_a_trial_that_still_runs_is_waited_for() -> None:
    found = one(booked(requests="x"), known("t1", until=None, requests="x"))
    assert (found.waits, "still runs" in found.said) == (True, True)


def test_an_earlier_import_of_the_same_is_no_observed_trial() -> None:
    alone = known("t1", names="a", founders="a")
    alone.alone = True
    assert one(booked("a", names="a"), alone).trial is None
    assert one(booked("b", names="a"), alone).trial == "t1"
