"""Results of real harnesses into a real store: joined, idempotent, and the verdict revised."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.closing import judged
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    ContainerSeen,
    HarnessOutcome,
    Observation,
    OomKill,
    ReplyFacts,
    RequestFacts,
    TrialEnded,
    TrialStarted,
    Value,
)
from fairtrial.middleware.core.records import Blame, EndedAs, Outcome, PhaseName, Trial, Trust
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.harnesses.base import Booked
from fairtrial.middleware.importing import Imported, import_results
from fairtrial.middleware.store.database import (
    insert_observation,
    insert_trial,
    latest_record,
    open_database,
    open_trial_row,
    record_at,
)
from fairtrial.middleware.store.queries import list_trials
from tests.middleware.harnesses.real import DATA, read

S = 10**9
TRIAL = "0197bbbb-0000-7000-8000-00000000000"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened = open_database(tmp_path / "store.db")
    yield opened
    opened.close()


def imported(database: sqlite3.Connection, harness: str, path: str | Path, run: str | None = "r") -> Imported:
    return import_results(database, harness, DATA / path, run=run, journal=Journal())


def observed(
    database: sqlite3.Connection, number: int, of: Booked, *values: Value, open_: bool = False, command: str = "harbor"
) -> str:
    """A trial that ran around a booked one, with these observations in its middle."""
    trial = f"{TRIAL}{number}"
    begin, end = (of.outcome.started_ns or 0) - S, (of.outcome.ended_ns or 0) + S
    kept: list[Observation] = []
    source = Source("test", kept.append, host=this_host(), trial=trial)
    source.emit(TrialStarted(command=[command, "run"], run="r"), wall_ns=begin, mono_ns=0)
    for value in values:
        source.emit(value, wall_ns=begin + 2 * S, mono_ns=2 * S)
    if not open_:
        source.emit(TrialEnded(exit_code=0), wall_ns=end, mono_ns=end - begin)
    with database:
        for observation in kept:
            insert_observation(database, observation)
        if open_:
            open_trial_row(database, Trial(trial=trial, run="r", started="2026-11-30T14:00:00.000000Z"), 1, None, None)
        else:
            insert_trial(database, judged(kept, trial, Journal()))
    return trial


def record(database: sqlite3.Connection, trial: str) -> Trial:
    found = latest_record(database, trial)
    assert found is not None
    return found


def test_a_job_that_was_only_imported_is_indeterminate_never_the_models(database: sqlite3.Connection) -> None:
    result = imported(database, "harbor", "harbor/oracle")
    assert [trial.alone for trial in result.trials] == [True] * 6
    for row in list_trials(database, run="r", limit=100):
        told = record(database, row.trial)
        assert told.verdict is not None
        assert (told.verdict.blame, told.verdict.cause, told.harness) == (Blame.INDETERMINATE, None, "harbor")
        assert "only imported" in told.verdict.sentence
    slow = next(record(database, t.trial or "") for t in result.trials if t.label.startswith("slow"))
    assert slow.verdict is not None
    assert (slow.outcome, slow.verdict.ended_as) == (Outcome.FAILED, EndedAs.HARNESS_TIMEOUT)
    assert slow.booked[0].reward == 0.0


@pytest.mark.parametrize(
    "harness, path",
    [("harbor", "harbor"), ("inspect", "inspect/ok.json"), ("claude-code", "claude-code"), ("junit", "junit")],
)
def test_doing_it_twice_changes_nothing(database: sqlite3.Connection, harness: str, path: str) -> None:
    first = imported(database, harness, path)
    before = dump(database)
    second = imported(database, harness, path)
    assert dump(database) == before
    assert all(trial.new for trial in first.trials)
    assert not any(trial.new for trial in second.trials)
    assert [t.trial for t in first.trials] == [t.trial for t in second.trials]


def dump(database: sqlite3.Connection) -> list[object]:
    return [
        row
        for table in ("trials", "observations", "verdicts", "sources")
        for row in database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
    ]


def test_a_label_joins_and_the_verdict_is_revised_not_rewritten(database: sqlite3.Connection) -> None:
    booked = next(b for b in read("harbor", "harbor/oracle").booked if b.outcome.label.startswith("wrong"))
    project = {"com.docker.compose.project": f"{booked.outcome.label.lower()}__env"}
    trial = observed(database, 1, booked, ContainerSeen(container_id="c" * 64, labels=project))
    result = imported(database, "harbor", "harbor/oracle")
    joined = [t for t in result.trials if not t.alone]
    assert [(t.label, t.trial, t.how) for t in joined] == [(booked.outcome.label, trial, "label")]
    before, after = record_at(database, trial, 1), record_at(database, trial, 2)
    assert before is not None
    assert after is not None
    assert (before.outcome, before.outcome_source) == (Outcome.PASSED, "exit_code")
    assert (after.outcome, after.outcome_source, after.task) == (Outcome.FAILED, "harbor", "fairtrial/wrong")
    assert after.booked[0].joined_by == "label"
    assert [phase.name for phase in after.phases] == [p.name for p in booked.outcome.phases]


def test_request_ids_join_samples_of_one_log_to_their_own_trials(database: sqlite3.Connection) -> None:
    booked = read("inspect", "inspect/400.json").booked
    trials = []
    for number, one in enumerate(booked):
        request = min(one.keys.requests)
        call = AttemptEnded(attempt=f"a{number}", request=RequestFacts(), reply=ReplyFacts(request_id=request))
        trials.append(observed(database, number, one, call, command="python"))
    result = imported(database, "inspect", "inspect/400.json")
    assert [(t.trial, t.how) for t in result.trials] == [(trial, "request_id") for trial in trials]


def test_many_trials_in_one_observed_run_are_its_parts_and_blame_nobody(database: sqlite3.Connection) -> None:
    booked = read("harbor", "harbor/attempts").booked
    times = [(b.outcome.started_ns or 0, b.outcome.ended_ns or 0) for b in booked]
    whole = Booked(
        outcome=type(booked[0].outcome)(
            harness="x", identity="x", label="x", started_ns=min(t for t, _ in times), ended_ns=max(t for _, t in times)
        )
    )
    trial = observed(database, 1, whole)
    result = imported(database, "harbor", "harbor/attempts")
    assert [t.alone for t in result.trials] == [True] * 4
    parts = [record(database, t.trial or "").booked[0].part_of for t in result.trials]
    assert parts == [trial] * 4
    assert record_at(database, trial, 2) is None


def test_a_kill_in_the_verifiers_time_is_no_step_s(database: sqlite3.Connection) -> None:
    booked = next(b for b in read("harbor", "harbor/oracle").booked if b.outcome.label.startswith("vslow"))
    verify = next(p for p in booked.outcome.phases if p.name is PhaseName.VERIFY)
    trial = observed(database, 1, booked, ContainerSeen(container_id="c" * 64))
    source = Source("late", lambda o: insert_observation(database, o), host=this_host(), trial=trial)
    with database:
        at = (verify.started_ns or 0) + S // 2
        begin = (booked.outcome.started_ns or 0) - S  # at which both clocks of the trial were read
        source.emit(OomKill(container_id="c" * 64, delta=1), wall_ns=at, mono_ns=at - begin)
    imported(database, "harbor", f"harbor/oracle/{booked.outcome.label}")
    told = record(database, trial)
    assert told.verdict is not None
    assert (told.outcome, told.verdict.terminated_by) == (Outcome.ERRORED, None)
    assert told.verdict.phase in {PhaseName.VERIFY, None}


def test_a_trial_that_still_runs_is_left_alone(database: sqlite3.Connection) -> None:
    booked = read("harbor", "harbor/terminus").booked[0]
    observed(database, 1, booked, open_=True)
    before = dump(database)
    result = imported(database, "harbor", "harbor/terminus")
    assert [(t.trial, t.new) for t in result.trials] == [(None, False)]
    assert "still runs" in result.trials[0].said
    assert dump(database) == before


def test_a_file_that_was_cut_and_is_whole_now_becomes_a_revision_of_the_same_trial(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    job = tmp_path / "job"
    shutil.copytree(DATA / "harbor/terminus", job)
    result = next(job.glob("*/result.json"))
    content = result.read_bytes()
    result.write_bytes(content[: content.index(b'"verifier_result"')])
    first = imported(database, "harbor", job).trials[0]
    result.write_bytes(content)
    second = imported(database, "harbor", job).trials[0]
    assert (first.trial, first.outcome, second.outcome) == (second.trial, Outcome.UNKNOWN, Outcome.PASSED)
    told = record(database, second.trial or "")
    assert told.verdict is not None
    assert (told.outcome, told.verdict.revision, len(told.booked)) == (Outcome.PASSED, 2, 1)


def test_a_scorer_joins_what_another_harness_left_by_name_within_the_run(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    folder = tmp_path / "django__django-11099"
    folder.mkdir()
    told = json.loads((DATA / "mini-swe-agent/submitted.traj.json").read_text()) | {"instance_id": folder.name}
    (folder / f"{folder.name}.traj.json").write_text(json.dumps(told))
    first = imported(database, "mini-swe-agent", tmp_path).trials[0]
    scored = imported(database, "swe-bench", "swe-bench/stand-in__model.nightly.1.json").trials
    joined = [t for t in scored if not t.alone]
    assert [(t.trial, t.how) for t in joined] == [(first.trial, "name")]
    after = record(database, first.trial or "")
    assert (after.outcome, after.outcome_source) == (Outcome.PASSED, "swe-bench")
    assert [b.harness for b in after.booked] == ["swe-bench", "mini-swe-agent"]
    assert not any(t.new for t in imported(database, "swe-bench", "swe-bench/stand-in__model.nightly.1.json").trials)


def test_no_text_of_a_task_or_an_agent_is_stored(database: sqlite3.Connection, tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(DATA / "harbor/oracle", job)
    result = next(job.glob("slow*/result.json"))
    told = json.loads(result.read_text())
    told["exception_info"]["exception_message"] = "SECRET-WORDS of the agent (exit code 137)"
    result.write_text(json.dumps(told))
    trial = next(t.trial for t in imported(database, "harbor", job).trials if t.label.startswith("slow"))
    stored = record(database, trial or "")
    assert "SECRET-WORDS" not in str(stored)
    assert "SECRET-WORDS" not in "\n".join(database.iterdump())


@pytest.mark.parametrize("source", ["control", "import.harbor"])
def test_a_name_that_the_trial_itself_chose_joins_nothing(database: sqlite3.Connection, source: str) -> None:
    booked = read("harbor", "harbor/oracle/good__kCa4dET/result.json").booked[0]
    trial = observed(database, 1, booked, command="sh")
    kept: list[Observation] = []
    word = HarnessOutcome(harness="x", identity="x", label=booked.outcome.label, joined_by="trial_id")
    Source(source, kept.append, host=this_host(), trial=trial).emit(word, trust=Trust.INSIDE)
    with database:
        insert_observation(database, kept[0])
    (result,) = imported(database, "harbor", "harbor/oracle/good__kCa4dET/result.json").trials
    assert (result.trial == trial) == (source != "control")


def test_an_agents_own_transcript_that_stands_alone_is_a_trial_of_its_run(database: sqlite3.Connection) -> None:
    """Its word proves nothing, and is not lost: a trial of no run whose end nobody recorded would be a lie."""
    (trial,) = imported(database, "claude-code", "claude-code/529.transcript.jsonl").trials
    record = latest_record(database, trial.trial or "")
    assert record is not None
    assert record.verdict is not None
    assert (record.run, record.outcome, record.closed) == ("r", Outcome.ERRORED, "normal")
    assert (record.verdict.blame, "only imported" in record.verdict.sentence) == (Blame.INDETERMINATE, True)
