"""mini-swe-agent 2.4.6: trajectories and the list of a batch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fairtrial.middleware.core.records import EndedAs, Outcome
from tests.middleware.harnesses.real import DATA, read


def test_an_exit_status_is_no_score() -> None:
    told = {
        one.outcome.label: (one.outcome.outcome, one.outcome.scored, one.outcome.exit_status, one.outcome.ended_as)
        for one in read("mini-swe-agent", "mini-swe-agent").booked
        if one.outcome.marks == []
    }
    assert told == {
        "submitted": (Outcome.UNKNOWN, False, "Submitted", EndedAs.AGENT_FINISHED),
        "limit": (Outcome.FAILED, False, "LimitsExceeded", EndedAs.STEP_LIMIT),
        "529": (Outcome.ERRORED, False, "APIError", EndedAs.AGENT_GAVE_UP),
    }


def test_replies_and_tool_calls_join() -> None:
    one = read("mini-swe-agent", "mini-swe-agent/submitted.traj.json").booked[0]
    assert (len(one.keys.responses), len(one.keys.tool_calls), one.outcome.model_calls) == (2, 2, 2)
    assert (one.outcome.time.tool, one.outcome.harness_version) == (30, "2.4.6")
    assert one.outcome.input_tokens


def test_an_instance_that_is_listed_and_left_nothing_is_a_finding() -> None:
    told = {one.outcome.label: one.outcome for one in read("mini-swe-agent", "mini-swe-agent").booked}
    lost = told["astropy__astropy-12907"]
    assert (lost.outcome, lost.ended_as, lost.marks) == (Outcome.ERRORED, EndedAs.NEVER_RAN, ["no_trajectory"])
    assert (told["sympy__sympy-1"].ended_as, told["django__django-11099"].outcome) == (
        EndedAs.STEP_LIMIT,
        Outcome.UNKNOWN,
    )


def test_a_listed_instance_and_its_trajectory_are_one_trial(tmp_path: Path) -> None:
    shutil.copy(DATA / "mini-swe-agent/exit_statuses_1.yaml", tmp_path)
    listed = {o.outcome.label: o.outcome.identity for o in read("mini-swe-agent", tmp_path).booked}
    folder = tmp_path / "sympy__sympy-1"
    folder.mkdir()
    shutil.copy(DATA / "mini-swe-agent/limit.traj.json", folder / "sympy__sympy-1.traj.json")
    told = {o.outcome.label: o.outcome for o in read("mini-swe-agent", tmp_path).booked}
    assert len(told) == 3
    assert told["sympy__sympy-1"].identity == listed["sympy__sympy-1"]
    assert told["sympy__sympy-1"].complete


def test_a_trajectory_without_a_status_has_not_come_to_its_end(tmp_path: Path) -> None:
    """mini writes it anew at each step: one that was killed in a step leaves a whole file whose last line is older."""
    whole = json.loads((DATA / "mini-swe-agent/limit.traj.json").read_text())
    del whole["info"]["exit_status"]
    file = tmp_path / "killed.traj.json"
    file.write_text(json.dumps(whole))
    (one,) = read("mini-swe-agent", file).booked
    assert [phase.ended_ns for phase in one.outcome.phases] == [None]


def test_two_runs_of_one_file_name_are_two_trials(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(DATA / "mini-swe-agent/limit.traj.json", tmp_path / name / "run.traj.json")
    assert len({o.outcome.identity for o in read("mini-swe-agent", tmp_path).booked}) == 2


def test_results_of_the_responses_api_join_by_their_calls(tmp_path: Path) -> None:
    """Such a trajectory holds the API's own items: no role and no `tool_calls` (mini 2.4.6, `litellm_response`)."""
    result = {"type": "function_call_output", "call_id": "call_8ab9", "output": "{}", "extra": {"timestamp": 1.5}}
    file = tmp_path / "one.traj.json"
    file.write_text(json.dumps({"trajectory_format": "mini-swe-agent-1.1", "info": {}, "messages": [result]}))
    (one,) = read("mini-swe-agent", file).booked
    assert one.keys.tool_calls == {"call_8ab9"}
