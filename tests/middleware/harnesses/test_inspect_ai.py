"""Inspect 0.3.285: logs as JSON and as zips packed with zstandard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName
from tests.middleware.harnesses.real import DATA, read


def test_a_sample_and_epoch_is_a_trial_with_its_score() -> None:
    told = [(o.outcome.label, o.outcome.outcome, o.outcome.reward) for o in read("inspect", "inspect/ok.json").booked]
    assert told == [("hello/hello/1", Outcome.PASSED, 1.0), ("hello/never/1", Outcome.FAILED, 0.0)]


def test_the_zip_and_the_json_of_one_kind_of_run_tell_the_same() -> None:
    told = [(o.outcome.label, o.outcome.outcome, o.outcome.reward) for o in read("inspect", "inspect/ok.eval").booked]
    assert told == [("hello/hello/1", Outcome.PASSED, 1.0), ("hello/never/1", Outcome.FAILED, 0.0)]


def test_a_model_error_that_was_scored_as_an_answer_still_leads_to_its_calls() -> None:
    one = read("inspect", "inspect/400.json").booked[0]
    assert (one.outcome.outcome, one.outcome.scored, one.outcome.errors) == (Outcome.FAILED, True, [])
    assert len(one.keys.requests) == 2
    assert len(one.keys.call_keys) == 2


def test_an_error_is_booked_by_its_name_alone() -> None:
    one = read("inspect", "inspect/529.json").booked[0]
    assert (one.outcome.outcome, one.outcome.scored, one.outcome.ended_as) == (
        Outcome.ERRORED,
        False,
        EndedAs.AGENT_GAVE_UP,
    )
    assert [error.type for error in one.outcome.errors] == ["RetryError"]


def test_phases_are_set_up_agent_and_scoring() -> None:
    phases = read("inspect", "inspect/ok.json").booked[0].outcome.phases
    assert [phase.name for phase in phases] == [PhaseName.SETUP, PhaseName.AGENT, PhaseName.VERIFY]
    assert [p.started_ns for p in phases] == sorted(p.started_ns or 0 for p in phases)


def test_a_zip_of_an_evaluation_that_still_runs_gives_its_samples_and_says_so() -> None:
    reading = read("inspect", "inspect/running.eval")
    assert len(reading.booked) == 2
    assert [(n.state, "has no header yet" in n.said) for n in reading.notes] == [("partial", True)]


@pytest.mark.parametrize("at", [40, 400, 900])
def test_a_member_that_is_damaged_costs_that_sample_only(at: int, tmp_path: Path) -> None:
    content = bytearray((DATA / "inspect/ok.eval").read_bytes())
    begin = content.index(b"samples/hello_epoch_1.json") + 26
    content[begin + at : begin + at + 8] = b"\xff" * 8
    file = tmp_path / "log.eval"
    file.write_bytes(content)
    reading = read("inspect", file)
    assert [o.outcome.label for o in reading.booked][-1] == "hello/never/1"
    assert any("hello_epoch_1" in n.path and n.said for n in reading.notes) or len(reading.booked) == 2


def test_a_zip_that_was_cut_off_gives_the_samples_that_stood_whole(tmp_path: Path) -> None:
    content = (DATA / "inspect/ok.eval").read_bytes()
    file = tmp_path / "log.eval"
    file.write_bytes(content[: content.index(b"samples/never_epoch_1.json") + 200])
    reading = read("inspect", file)
    assert [(o.outcome.label, o.outcome.outcome) for o in reading.booked] == [("hello/hello/1", Outcome.PASSED)]
    assert [(n.state, "what stood whole before was read" in n.said) for n in reading.notes] == [("partial", True)]


def test_scoring_begins_with_the_scorers_span_so_that_their_own_commands_are_the_verifiers(tmp_path: Path) -> None:
    """Events as Inspect 0.3.285 wrote them of a scorer whose command was killed for memory."""

    def at(event: str, second: int, **more: str) -> dict[str, str]:
        return {"event": event, "timestamp": f"2026-11-30T21:57:{second}+00:00", **more}

    sample = {
        "id": 1,
        "epoch": 1,
        "uuid": "u",
        "started_at": "2026-11-30T21:57:40+00:00",
        "completed_at": "2026-11-30T21:57:47+00:00",
        "scores": {"told": {"value": "I"}},
        "events": [
            at("model", 41),
            at("span_begin", 42, type="tool"),
            at("sandbox", 42),
            at("span_begin", 43, type="scorers"),
            at("sandbox", 43),
            at("score", 46),
        ],
    }
    file = tmp_path / "log.json"
    log = {"version": 2, "status": "success", "eval": {"eval_id": "e", "task": "hello"}, "samples": [sample]}
    file.write_text(json.dumps(log))
    (one,) = read("inspect", file).booked
    phases = {phase.name.value: phase for phase in one.outcome.phases}
    began = phases["verify"].started_ns
    assert began is not None
    assert began // 10**9 % 60 == 43
    assert phases["agent"].ended_ns == began


def test_the_name_that_a_hook_gave_the_calls_is_one_of_the_samples_names(tmp_path: Path) -> None:
    log = json.loads((DATA / "inspect/ok.json").read_text())
    for event in log["samples"][0]["events"]:
        if event["event"] == "model":
            event["call"]["request"]["extra_headers"]["x-fairtrial-trial"] = "hello.hello.1.uuid"
    file = tmp_path / "log.json"
    file.write_text(json.dumps(log))
    named, other = read("inspect", file).booked
    assert named.keys.names == {"hello/hello/1", "hello.hello.1.uuid"}
    assert other.keys.names == {"hello/never/1"}
