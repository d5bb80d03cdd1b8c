"""A run that held several trials: each has its rows, its verdict and its end, and none has another's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fairtrial.middleware.closing import judged, recover_orphans
from fairtrial.middleware.core.observations import GapSeen, Host, KernelOomKill, TrialStarted
from fairtrial.middleware.core.records import Blame, Trial, Victim
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.parted import PART_OF, PartedRun
from fairtrial.middleware.steps.parting import part
from fairtrial.middleware.store.database import (
    insert_observation,
    latest_record,
    observations_of,
    open_database,
    open_trial_row,
)
from fairtrial.middleware.store.merge import merge_file
from fairtrial.middleware.store.queries import list_trials
from fairtrial.middleware.store.writer import Owner, StoreWriter
from tests.middleware.steps.crowd import EPOCH_NS, ROOT, Crowd, box_id

AFTER = 1


def store_of(crowd: Crowd, path: Path, *, pid: int) -> None:
    """The run as it stands in a store while it is open."""
    database = open_database(path)
    with database:
        for observation in crowd.observations:
            insert_observation(database, observation)
        open_trial_row(database, Trial(trial=ROOT, run="nightly"), pid, None, AFTER)
    database.close()


def parted(crowd: Crowd, path: Path) -> list[Trial]:
    """The run, parted and judged; its trials as the store has them."""
    store_of(crowd, path, pid=os.getpid())
    journal = Journal()
    writer = StoreWriter(path, journal)
    facts = crowd.facts()
    parting = part(facts, named=True)
    assert parting is not None
    run = PartedRun(facts, parting, writer=writer, host=Host(), owner=Owner(os.getpid(), None, None), closed="normal")
    run.open()
    for trial, rows in run.split(crowd.observations).items():
        writer.close_trial(judged(rows, trial, journal))
    writer.close(30)
    assert writer.failed is None
    return records(path)


def records(path: Path) -> list[Trial]:
    """Of all trials in the store, the oldest first."""
    database = open_database(path, read_only=True)
    try:
        found = [latest_record(database, row.trial) for row in reversed(list_trials(database, limit=100))]
    finally:
        database.close()
    return [record for record in found if record is not None]


def two_with_boxes(crowd: Crowd) -> None:
    for letter, start in (("a", 1.0), ("b", 1.1)):
        crowd.box(letter, 0.5)
        for turn in range(3):
            crowd.call(start + turn, turn, first=f"task {letter}", asks=[(None, "bash", f"{letter} {turn}")])
            crowd.ran(letter, start + turn + 0.6, f"{letter} {turn}", exit_code=137 if letter == "a" else 0)


def test_each_trial_has_its_own_steps_container_and_row_and_the_runs_row_is_gone(tmp_path: Path) -> None:
    crowd = Crowd()
    two_with_boxes(crowd)
    crowd.end(9)
    trials = parted(crowd, tmp_path / "store.db")
    assert [[step.index for step in trial.steps] for trial in trials] == [[1, 2, 3], [1, 2, 3]]
    assert [trial.environment.container_ids for trial in trials] == [[box_id("a")], [box_id("b")]]
    assert {(trial.run, trial.closed, trial.outcome.value) for trial in trials} == {("nightly", "normal", "unknown")}
    assert len({trial.trial for trial in trials} | {ROOT}) == 3
    assert len({trial.trace_id for trial in trials}) == 2
    joins = {(tool.join, tool.container_id) for trial in trials for step in trial.steps for tool in step.tools}
    assert {join for join, _ in joins} == {"text"}


@pytest.mark.parametrize("logged", [True, False], ids=["kernel log", "counter alone"])
def test_an_oom_in_one_trial_touches_no_other(tmp_path: Path, logged: bool) -> None:
    crowd = Crowd()
    two_with_boxes(crowd)
    crowd.killed("a", 3.65, logged=logged)
    crowd.end(9, oom_kill=8)
    one, two = parted(crowd, tmp_path / "store.db")
    assert one.verdict is not None
    assert one.verdict.terminated_by is not None
    assert one.verdict.terminated_by.cause == "container.oom_kill"
    assert two.verdict is not None
    assert two.verdict.terminated_by is None
    assert "oom" not in str(two.verdict).lower().replace("headroom", ""), two.verdict
    assert sum(use.oom_kills or 0 for step in two.steps for use in step.containers) == 0


def test_a_kill_in_the_cgroup_that_all_share_is_given_to_none_and_said_to_be_open(tmp_path: Path) -> None:
    crowd = Crowd()
    for name in ("one", "two"):
        crowd.talk(1, 3, named=name, first=name, asks=[(None, "bash", name)])
    kill = KernelOomKill(victim=Victim(comm="python3", pid=5), container_id="own", task_memcg="/user.slice")
    crowd.tell("kernel_log", 2.7, kill)
    crowd.end(9, oom_kill=8)
    for trial in parted(crowd, tmp_path / "store.db"):
        assert trial.verdict is not None
        assert trial.verdict.terminated_by is None
        assert trial.verdict.blame not in {Blame.INFRA, Blame.MODEL}, trial.verdict


def test_an_api_that_fails_for_one_trial_is_the_infra_of_that_one_alone(tmp_path: Path) -> None:
    crowd = Crowd()
    crowd.talk(1, 3, named="good", session="g")
    crowd.talk(1.2, 1, named="bad", session="b", asks=[("t", "Bash", "ls")])
    for n in range(3):
        crowd.call(4 + n, 1, named="bad", session="b", brings=["t"], ok=False)
    crowd.end(9)
    good, bad = parted(crowd, tmp_path / "store.db")
    assert (good.name, bad.name) == ("good", "bad")
    assert bad.verdict is not None
    assert bad.verdict.terminated_by is not None
    assert (bad.verdict.terminated_by.cause, bad.verdict.terminated_by.step) == ("model_api.overloaded", 2)
    assert good.verdict is not None
    assert (good.verdict.terminated_by, good.verdict.present, good.verdict.against) == (None, [], [])


def test_a_word_stands_beside_its_trial_and_moves_neither_blame_nor_end(tmp_path: Path) -> None:
    crowd, silent = Crowd(), Crowd()
    for each in (crowd, silent):
        two_with_boxes(each)
    crowd.said(2.25, "box-a")
    crowd.said(400, "box-b", outcome="passed")
    crowd.said(400, "nobody", outcome="failed")
    crowd.said(400, None)
    for each in (crowd, silent):
        each.killed("a", 3.65)
        each.end(9, oom_kill=8)
    (tmp_path / "silent").mkdir()
    one, two = parted(crowd, tmp_path / "store.db")
    first, second = parted(silent, tmp_path / "silent" / "store.db")
    assert ([mark.about for mark in one.marks], [mark.step for mark in one.marks]) == (["box-a"], [2])
    assert ([mark.about for mark in two.marks], one.booked) == ([], [])
    assert [(each.label, each.inside, each.outcome.value) for each in two.booked] == [("box-b", True, "passed")]
    for said, unsaid in ((one, first), (two, second)):
        assert said.verdict is not None
        assert unsaid.verdict is not None
        assert (said.outcome, said.ended, said.phases) == (unsaid.outcome, unsaid.ended, unsaid.phases)
        for field in ("blame", "grade", "cause", "sentence", "terminated_by", "ended_as", "answers"):
            assert getattr(said.verdict, field) == getattr(unsaid.verdict, field)
    database = open_database(tmp_path / "store.db", read_only=True)
    left = [o for o in observations_of(database, ROOT) if o.source == "control"]
    again = [judged(observations_of(database, each.trial), each.trial, Journal()) for each in (one, two)]
    database.close()
    assert len(left) == 2, "what fits none stays with the run"
    assert [(each.marks, each.booked) for each in again] == [(each.marks, each.booked) for each in (one, two)]


def test_words_of_no_trial_are_counted_by_why() -> None:
    crowd = Crowd()
    two_with_boxes(crowd)
    for name in ("box-a", "nobody", "nobody", None):
        crowd.said(5, name)
    facts = crowd.facts()
    parting = part(facts, named=True)
    assert parting is not None
    with open(os.devnull, "w") as nowhere:
        writer = StoreWriter(Path(os.devnull), Journal(nowhere))
        run = PartedRun(facts, parting, writer=writer, host=Host(), owner=Owner(1, None, None), closed="normal")
        writer.close()
    assert run.unassigned == {"words": 3, "words.run": 1, "words.unknown": 2}


def test_a_gap_reaches_the_trials_of_its_time_only(tmp_path: Path) -> None:
    crowd = Crowd()
    crowd.talk(1, 2, named="early")
    crowd.talk(20, 2, named="late")
    since, until = EPOCH_NS + 20 * 10**9, EPOCH_NS + 21 * 10**9
    crowd.tell("observer", 21, GapSeen(source="feed", families=["model_api"], since_ns=since, until_ns=until))
    crowd.end(30)
    early, late = parted(crowd, tmp_path / "store.db")
    assert (early.coverage.gaps, len(late.coverage.gaps)) == ([], 1)


def test_a_failed_call_of_nobody_is_a_gap_for_those_that_may_have_made_it(tmp_path: Path) -> None:
    crowd = Crowd()
    for name, start in (("one", 1), ("two", 20)):
        crowd.talk(start, 3, session=name, first=name)
    crowd.call(2.1, 0, first="stray", tools=None, system="other", ok=False)
    crowd.end(30)
    one, two = parted(crowd, tmp_path / "store.db")
    assert [gap.why for gap in one.coverage.gaps] == [
        "a model call of this run failed, and nothing tells which trial made it"
    ]
    assert two.coverage.gaps == []


def test_what_a_trial_is_made_of_can_be_read_again_and_taken_to_another_store(tmp_path: Path) -> None:
    crowd = Crowd()
    two_with_boxes(crowd)
    crowd.end(9)
    trials = parted(crowd, tmp_path / "store.db")
    other = open_database(tmp_path / "other.db")
    merge_file(other, tmp_path / "store.db")
    for name in ("store.db", "other.db"):
        database = open_database(tmp_path / name, read_only=True)
        for trial in trials:
            kept = list(observations_of(database, trial.trial))
            assert {o.subject.trial for o in kept} == {trial.trial}
            again = judged(kept, trial.trial, Journal())
            assert (again.steps, again.verdict) == (trial.steps, trial.verdict)
            begun = next(o for o in kept if o.kind == TrialStarted.kind)
            options = begun.value["options"]
            assert isinstance(options, dict)
            assert options[PART_OF] == ROOT
        database.close()
    other.close()


def test_a_killed_run_is_parted_at_the_next_start_and_its_trials_are_closed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    crowd = Crowd()
    crowd.box("z", 0.5, until=5, mark="over")
    crowd.talk(1, 3, named="over")
    crowd.talk(1.2, 3, named="open")
    store_of(crowd, path, pid=2**22 - 3)
    writer = StoreWriter(path, Journal())
    assert recover_orphans(path, writer, Journal()) == 1
    writer.close(30)
    assert [(trial.name, trial.closed, len(trial.steps)) for trial in records(path)] == [
        ("over", "normal", 3),
        ("open", "recovered", 3),
    ]
