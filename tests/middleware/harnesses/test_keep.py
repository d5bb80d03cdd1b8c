"""Files that a harness deletes are saved on sight: by a script that does as Harbor 0.26.0 does (trial/queue.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fairtrial.middleware.harnesses.harbor import read
from fairtrial.middleware.harnesses.keep import Keeper, jobs_folder, make_room

HARBOR = """
import datetime, json, os, pathlib, shutil, sys, time
now = lambda: datetime.datetime.now(datetime.UTC).isoformat()
jobs, attempts = pathlib.Path(sys.argv[1]), int(sys.argv[2])
def seen(file):
    # Waits until a process beside us, or our parent, has the file open, as time passes in a real trial; at most 30 s.
    end, wanted = time.monotonic() + 30, os.stat(file)
    while "nowait" not in sys.argv and time.monotonic() < end:
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                if str(os.getppid()) not in (parent, process.name):
                    continue
                if any(os.path.samestat(os.stat(fd), wanted) for fd in (process / "fd").iterdir()): return
            except OSError:
                pass
        time.sleep(0.01)
trial = jobs / "2026-11-30" / "hello__abc1234"
for attempt in range(1, attempts + 1):
    for below in ("agent", "verifier"):
        (trial / below).mkdir(parents=True, exist_ok=True)
    (trial / "config.json").write_text(json.dumps({"trial_name": trial.name}))
    (trial / "trial.log").write_text(f"attempt {attempt}\\n")
    (trial / "agent" / "trajectory.json").write_text(json.dumps({"schema_version": "ATIF-v1.8", "session_id": "s",
        "agent": {"name": "a", "version": "1"}, "steps": [{"step_id": 1, "source": "agent", "message": "x"}]}))
    failed = attempt < attempts
    result = {"trial_name": trial.name, "task_name": "hello", "started_at": now(), "finished_at": now(),
        "config": {"trial_name": trial.name}, "exception_info": None,
        "verifier_result": {"rewards": {"reward": 1.0}}}
    if failed:
        result["verifier_result"] = None
        result["exception_info"] = {"exception_type": "EnvironmentStartTimeoutError", "exception_message": "",
            "occurred_at": now(), "policy": {"should_retry": True, "has_valid_reward": False}}
    (trial / "result.json").write_text(json.dumps(result))
    if failed:
        seen(trial / "result.json")
        shutil.rmtree(trial)  # at once behind the last write, as Harbor does
"""


def harbor(jobs: Path, attempts: int) -> None:
    subprocess.run([sys.executable, "-c", HARBOR, str(jobs), str(attempts)], check=True, timeout=60)


def until(done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if done():
            return True
        time.sleep(0.01)
    return done()


@pytest.mark.parametrize("there", ["jobs", "parent", "nothing"])
def test_each_deleted_attempt_is_kept_whole_and_the_last_one_is_left_to_its_harness(tmp_path: Path, there: str) -> None:
    jobs = tmp_path / "out" / "jobs"
    {"jobs": jobs, "parent": jobs.parent, "nothing": tmp_path}[there].mkdir(parents=True, exist_ok=True)
    keeper = Keeper(jobs, tmp_path / "keep", limit_bytes=1 << 20)
    harbor(jobs, 3)
    assert until(lambda: len(keeper.kept) == 2), keeper.kept
    keeper.close()
    assert [(kept.name, kept.attempt, kept.missed) for kept in keeper.kept] == [
        ("hello__abc1234", 1, 0),
        ("hello__abc1234", 2, 0),
    ]
    for kept in keeper.kept:
        told = json.loads((kept.folder / "result.json").read_text())
        assert told["exception_info"]["exception_type"] == "EnvironmentStartTimeoutError"
        assert (kept.folder / "trial.log").read_text() == f"attempt {kept.attempt}\n"
        assert (kept.folder / "agent" / "trajectory.json").exists()
    assert (jobs / "2026-11-30" / "hello__abc1234" / "result.json").exists()
    assert sorted(path.name for path in (tmp_path / "keep" / "hello__abc1234").iterdir()) == ["1", "2"]


def test_what_was_kept_is_read_as_attempts_that_were_tried_again(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    keeper = Keeper(jobs, tmp_path / "keep", limit_bytes=1 << 20)
    harbor(jobs, 3)
    assert until(lambda: len(keeper.kept) == 2)
    keeper.close()
    told = [one.outcome for one in read(tmp_path / "keep").booked]
    assert [(o.retried, o.try_, o.errors[0].type) for o in told] == [
        (True, 1, "EnvironmentStartTimeoutError"),
        (True, 2, "EnvironmentStartTimeoutError"),
    ]
    last = read(jobs).booked[0].outcome
    assert len({last.identity, *(o.identity for o in told)}) == 3


def test_a_run_in_which_nothing_is_deleted_keeps_nothing(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    keeper = Keeper(jobs, tmp_path / "keep", limit_bytes=1 << 20)
    harbor(jobs, 1)
    keeper.close()
    assert keeper.kept == []
    assert not (tmp_path / "keep").exists()


def test_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    keeper = Keeper(jobs, tmp_path / "keep", limit_bytes=64)
    harbor(jobs, 2)
    assert until(lambda: keeper.missed > 0)
    keeper.close()
    assert sum(kept.bytes for kept in keeper.kept) <= 64


def test_the_oldest_runs_go_when_the_folder_is_full(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "middle", "old")):
        file = tmp_path / name / "trial" / "1" / "result.json"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x" * 1000)
        os.utime(file, (1_000_000 - age, 1_000_000 - age))
    assert make_room(tmp_path, 10_000) == 7000
    assert make_room(tmp_path, 2700) == 700
    assert sorted(path.name for path in tmp_path.iterdir()) == ["middle", "new"]
    assert make_room(tmp_path / "none", 5) == 5


def test_a_second_observer_of_the_run_overwrites_nothing(tmp_path: Path) -> None:
    for expected in (["1"], ["1", "2"]):
        jobs = tmp_path / f"jobs{len(expected)}"
        jobs.mkdir()
        keeper = Keeper(jobs, tmp_path / "keep", limit_bytes=1 << 20)
        harbor(jobs, 2)
        assert until(lambda: len(keeper.kept) == 1)  # noqa: B023 - called at once
        keeper.close()
        assert sorted(path.name for path in (tmp_path / "keep" / "hello__abc1234").iterdir()) == expected


@pytest.mark.parametrize(
    "command, folder",
    [
        (["harbor", "run", "-p", "tasks"], "/w/jobs"),
        (["uvx", "harbor", "job", "start", "--jobs-dir=out"], "/w/out"),
        (["sh", "-c", "exec /opt/bin/harbor run -o /data/jobs -n 4"], "/data/jobs"),
        (["harbor", "view", "jobs"], None),
        (["claude", "-p", "run harbor run"], "/w/jobs"),
        (["python", "train.py"], None),
    ],
)
def test_where_harbor_writes_is_read_from_its_command(command: list[str], folder: str | None) -> None:
    found = jobs_folder(command, Path("/w"))
    assert (None if found is None else str(found)) == folder
