"""Harbor's results as Harbor 0.26.0 wrote them, and folders as it leaves them in the middle."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import EndedAs, Outcome, PhaseName
from fairtrial.middleware.harnesses.atif import read_trajectory
from fairtrial.middleware.wire.redact import digest
from tests.middleware.harnesses.real import DATA, by_label, read

PHASES = [PhaseName.BUILD, PhaseName.SETUP, PhaseName.AGENT, PhaseName.VERIFY]


def test_a_job_books_what_harbor_booked() -> None:
    told = {
        label: (one.outcome.outcome, one.outcome.reward, one.outcome.exit_status, one.outcome.ended_as)
        for label, one in by_label(read("harbor", "harbor/oracle")).items()
    }
    assert told == {
        "good": (Outcome.PASSED, 1.0, None, EndedAs.AGENT_FINISHED),
        "wrong": (Outcome.FAILED, 0.0, None, EndedAs.AGENT_FINISHED),
        "slow": (Outcome.FAILED, 0.0, "AgentTimeoutError", EndedAs.HARNESS_TIMEOUT),
        "noreward": (Outcome.ERRORED, None, "RewardFileNotFoundError", EndedAs.AGENT_FINISHED),
        "vslow": (Outcome.ERRORED, None, "VerifierTimeoutError", EndedAs.AGENT_FINISHED),
        "noimage": (Outcome.ERRORED, None, "RuntimeError", EndedAs.NEVER_RAN),
    }


def test_the_exception_policy_is_harbors_own_word() -> None:
    told = by_label(read("harbor", "harbor/oracle"))
    timeout, lost = told["slow"].outcome, told["noreward"].outcome
    assert (timeout.errors[0].should_retry, timeout.errors[0].reward_valid, timeout.reward_valid) == (False, True, True)
    assert (lost.errors[0].reward_valid, lost.reward_valid, lost.scored) == (False, False, False)


def test_phases_lie_in_order_and_name_what_struck_them() -> None:
    told = by_label(read("harbor", "harbor/oracle"))
    assert [phase.name for phase in told["good"].outcome.phases] == PHASES
    for one in told.values():
        ends = [(p.started_ns or 0, p.ended_ns or 0) for p in one.outcome.phases]
        assert ends == sorted(ends)
    assert {p.name: p.outcome for p in told["vslow"].outcome.phases}[PhaseName.VERIFY] == "VerifierTimeoutError"
    assert {p.name: p.outcome for p in told["slow"].outcome.phases}[PhaseName.AGENT] == "AgentTimeoutError"
    assert [p.name for p in told["noimage"].outcome.phases] == [PhaseName.BUILD]


def test_steps_of_one_trial_are_told_apart_and_bring_their_own_exception() -> None:
    outcome = read("harbor", "harbor/multi").booked[0].outcome
    assert [(p.name.value, p.step, p.outcome) for p in outcome.phases if p.step] == [
        ("agent", "one", "ended"),
        ("verify", "one", "ended"),
        ("agent", "two", "AgentTimeoutError"),
        ("verify", "two", "ended"),
    ]
    assert (outcome.outcome, outcome.reward, [e.step for e in outcome.errors]) == (Outcome.FAILED, 0.5, ["two"])


def test_attempts_at_one_task_are_numbered_in_order_of_time() -> None:
    told = [one.outcome for one in read("harbor", "harbor/attempts").booked]
    by_task = {
        task: [o.try_ for o in sorted((o for o in told if o.task == task), key=lambda o: o.started_ns or 0)]
        for task in ("fairtrial/good", "fairtrial/wrong")
    }
    assert by_task == {"fairtrial/good": [1, 2], "fairtrial/wrong": [1, 2]}
    assert len({o.identity for o in told}) == 4


def test_what_joins_is_the_name_the_compose_project_and_the_sessions() -> None:
    one = read("harbor", "harbor/terminus").booked[0]
    name = one.outcome.label
    assert one.keys.names == {name}
    assert one.keys.projects == {f"{name.lower()}__env"}
    assert digest(f"{name}__agent") in one.keys.sessions
    assert (one.outcome.model_calls, one.outcome.agent) == (3, "terminus-2")
    assert one.outcome.input_tokens


def test_limits_and_concurrency_are_as_declared(tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.mkdir()
    (task / "task.toml").write_text(
        "[agent]\ntimeout_sec = 900.0\n[verifier]\ntimeout_sec = 100\n[environment]\nmemory_mb = 2048\ncpus = 2\n"
    )
    job = tmp_path / "job"
    shutil.copytree(DATA / "harbor/oracle", job)
    for file in job.glob("good*/*.json"):
        told = json.loads(file.read_text())
        config = told.get("config", told)
        config["task"]["path"] = str(task)
        config["timeout_multiplier"], config["verifier_timeout_multiplier"] = 2.0, 3.0
        config["agent"]["max_timeout_sec"] = 600.0
        file.write_text(json.dumps(told))
    outcome = by_label(read("harbor", job))["good"].outcome
    assert (outcome.time.agent, outcome.time.verifier, outcome.time.setup) == (1200.0, 300.0, 720.0)
    assert (outcome.time.multiplier, outcome.concurrency, outcome.memory_declared) == (2.0, 2, 2048 << 20)
    assert outcome.cpus_declared == 2


def test_a_trial_without_its_result_is_booked_as_unfinished_and_later_as_the_same_trial(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(DATA / "harbor/oracle", job)
    whole = by_label(read("harbor", job))["slow"].outcome
    result = next(job.glob("slow*/result.json"))
    result.unlink()
    (result.parent / "exception.txt").write_text("Traceback:\n  File\nharbor.errors.AgentTimeoutError: after 3 s\n")
    reading = read("harbor", job)
    left = by_label(reading)["slow"].outcome
    assert (left.identity, left.complete, left.scored) == (whole.identity, False, False)
    assert (left.outcome, left.errors[0].type) == (Outcome.ERRORED, "AgentTimeoutError")
    assert any("holds no result.json" in note.said for note in reading.notes)


def test_a_result_cut_in_its_middle_is_the_same_trial_and_no_pass(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(DATA / "harbor/oracle", job)
    whole = by_label(read("harbor", job))["good"].outcome
    result = next(job.glob("good*/result.json"))
    content = result.read_bytes()
    result.write_bytes(content[: content.index(b'"verifier_result"')])
    left = by_label(read("harbor", job))["good"].outcome
    assert (left.identity, left.complete, left.outcome) == (whole.identity, False, Outcome.UNKNOWN)


def test_retries_that_harbor_deleted_are_counted(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(DATA / "harbor/oracle", job)
    told = json.loads((job / "result.json").read_text())
    told["stats"]["n_retries"] = 3
    (job / "result.json").write_text(json.dumps(told))
    assert any("tried 3 attempts again and deleted" in note.said for note in read("harbor", job).notes)


def test_a_folder_of_jobs_and_a_job_s_own_result_are_told_apart() -> None:
    assert len(read("harbor", "harbor").booked) == 6 + 4 + 1 + 1
    alone = read("harbor", "harbor/oracle/result.json")
    assert (alone.booked, [note.state for note in alone.notes]) == ([], ["foreign"])


@pytest.mark.parametrize("version", [f"ATIF-v1.{minor}" for minor in range(10)])
def test_trajectories_of_every_minor_version_are_read(version: str, tmp_path: Path) -> None:
    told = json.loads((DATA / "atif/claude-code/trajectory.json").read_text())
    told["schema_version"] = version
    file = tmp_path / "trajectory.json"
    file.write_text(json.dumps(told))
    found = read_trajectory(file).value
    assert found is not None
    assert (found.version, found.model_calls, len(found.tool_calls), len(found.sessions)) == (version, 2, 1, 1)


def test_a_trajectory_of_another_major_version_is_foreign(tmp_path: Path) -> None:
    file = tmp_path / "trajectory.json"
    file.write_text('{"schema_version": "ATIF-v2.0", "steps": []}')
    assert (read_trajectory(file).value, read_trajectory(file).foreign) == (None, True)
