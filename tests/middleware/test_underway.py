"""A run that goes on: told apart as at its end, of those over a provisional verdict, and not a byte is written."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core.observations import TrialStarted
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.observer.machine import start_ticks
from fairtrial.middleware.parted import PART_OF
from fairtrial.middleware.store.database import insert_observation, open_database, open_trial_row
from fairtrial.middleware.store.packing import Packer
from fairtrial.middleware.underway import (
    SoFar,
    as_running,
    provisional,
    provisional_of_those_over,
    runs_under_way,
    so_far,
)
from tests.middleware.attribution.scene import Scene
from tests.middleware.steps.crowd import ROOT, Crowd
from tests.middleware.test_parted import parted


def three_in_harbor(crowd: Crowd) -> None:
    """One that was killed for memory and is gone, one that is gone, one that goes on."""
    for letter, until in (("a", 6.0), ("b", 7.0), ("c", None)):
        crowd.box(letter, 0.5, until=until, project=f"task-{letter}__env", name=f"task-{letter}__env-main-1")
        for turn in range(3):
            crowd.call(1 + turn, turn, first=f"task {letter}", asks=[(None, "bash", f"{letter} {turn}")])
            crowd.ran(letter, 1.6 + turn, f"{letter} {turn}", exit_code=137 if (letter, turn) == ("a", 2) else 0)
        if letter == "a":
            crowd.killed("a", 3.65)
    crowd.host(8, 8)


def store_of(crowd: Crowd, path: Path, *, pid: int | None = None) -> Path:
    """The run as it stands in a store while it goes on; this process is its run process, or `pid` is."""
    database, packer = open_database(path), Packer()
    with database:
        for observation in crowd.observations:
            insert_observation(database, observation, packer=packer)
        owner = os.getpid() if pid is None else pid
        open_trial_row(database, Trial(trial=ROOT, run="nightly"), owner, None, start_ticks(os.getpid()))
    database.close()
    return path


def told(path: Path, **bounds: int) -> tuple[SoFar, dict[str, Trial]]:
    with closing(open_database(path, read_only=True)) as database:
        (row,) = runs_under_way(database)
        found = so_far(database, row, **bounds)
        return found, provisional_of_those_over(database, found.parts, DEFAULT_THRESHOLDS)


def test_trials_are_told_apart_and_those_that_are_over_have_the_verdict_that_they_will_have(tmp_path: Path) -> None:
    crowd = Crowd()
    three_in_harbor(crowd)
    found, records = told(store_of(crowd, tmp_path / "store.db"))
    assert [(one.id, one.name, one.over, one.calls) for one in found.parts] == [
        (f"{ROOT}.{n}", f"task-{letter}", over, 3)
        for n, letter, over in ((1, "a", True), (2, "b", True), (3, "c", False))
    ]
    assert (found.command, found.why, dict(found.unassigned)) == (["harness"], None, {})
    assert set(records) == {f"{ROOT}.1", f"{ROOT}.2"}
    crowd.end(9, oom_kill=8)
    final = parted(crowd, tmp_path / "final.db")
    for record, last in zip(records.values(), reversed(final[:2]), strict=True):
        assert record.verdict is not None
        assert last.verdict is not None
        assert (record.name, record.closed, len(record.steps)) == (last.name, "normal", 3)
        assert (record.verdict.blame, record.verdict.terminated_by) == (last.verdict.blame, last.verdict.terminated_by)
    killed = records[f"{ROOT}.1"].verdict
    assert killed is not None
    assert killed.terminated_by is not None
    assert killed.terminated_by.cause == "container.oom_kill"


def test_one_that_goes_on_can_be_judged_as_of_now_and_has_no_end(tmp_path: Path) -> None:
    crowd = Crowd()
    three_in_harbor(crowd)
    path = store_of(crowd, tmp_path / "store.db")
    found, _ = told(path)
    with closing(open_database(path, read_only=True)) as database:
        record = provisional(database, found.parts[2], DEFAULT_THRESHOLDS)
    assert (record.trial, record.ended, len(record.steps)) == (f"{ROOT}.3", None, 3)


def test_nothing_is_written(tmp_path: Path) -> None:
    crowd = Crowd()
    three_in_harbor(crowd)
    path = store_of(crowd, tmp_path / "store.db")
    before = path.read_bytes()
    told(path)
    assert path.read_bytes() == before


def test_a_run_that_is_too_large_or_takes_too_long_is_told_at_its_end(tmp_path: Path) -> None:
    crowd = Crowd()
    three_in_harbor(crowd)
    path = store_of(crowd, tmp_path / "store.db")
    found, records = told(path, max_rows=10)
    assert (found.parts, records) == ([], {})
    assert "rows are too many to be told apart while it runs" in (found.why or "")
    found, _ = told(path, within_s=0)
    assert found.parts == []
    assert "could not be read in 0 s" in (found.why or "")


@pytest.mark.parametrize("kind", ["one trial", "serve", "a part that is being closed"])
def test_what_is_one_trial_stays_one(tmp_path: Path, kind: str) -> None:
    crowd = Crowd()
    if kind == "one trial":
        crowd.talk(1, 5)
    else:
        crowd.observations.clear()
        options: dict[str, object] = {PART_OF: "another"} if kind != "serve" else {}
        crowd.tell("observer", 0, TrialStarted(run="nightly", command=["x"] if options else [], options=options))
        three_in_harbor(crowd)
    found, _ = told(store_of(crowd, tmp_path / "store.db"))
    assert (found.parts, found.why) == ([], None)


def test_a_run_whose_process_is_dead_is_not_under_way(tmp_path: Path) -> None:
    crowd = Crowd()
    three_in_harbor(crowd)
    path = store_of(crowd, tmp_path / "store.db", pid=2**22 + 1)
    with closing(open_database(path, read_only=True)) as database:
        assert runs_under_way(database) == []


def test_a_trial_that_goes_on_tells_what_struck_it_last() -> None:
    def said(scene: Scene) -> str:
        running = as_running(replace(scene.assembly().trial, verdict=scene.verdict())).verdict
        assert running is not None
        return running.sentence

    plain = "The trial still runs, so how it ends is not known yet."
    assert said(Scene().call().ran(0)) == plain
    assert said(Scene().call().ran(137, oom=True)) == f"{plain} What struck it last: container.oom_kill in step 1."
