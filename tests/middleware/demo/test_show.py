"""The demo as a person sees it; four of its six trials need neither Docker nor root."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.middleware.demo.box import Ceiling, memory_ceiling
from fairtrial.middleware.demo.show import Row, _block
from fairtrial.middleware.demo.trials import TRIALS

ANYWHERE = [trial.name for trial in TRIALS if not trial.needs_ceiling]


def demo(tmp_path: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = dict(os.environ) | {"HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none"} | environ
    command = [sys.executable, "-m", "fairtrial", "demo", *words]
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)


def test_six_trials_of_which_two_are_model_failures_and_four_run_anywhere() -> None:
    assert len(TRIALS) == 6
    assert len(ANYWHERE) == 4
    assert [trial.expected[0] for trial in TRIALS].count("model") == 2


@pytest.mark.parametrize("name", ANYWHERE)
def test_a_trial_is_judged_as_it_was_written_down_beforehand(name: str, tmp_path: Path) -> None:
    os.environ.pop("FAIRTRIAL_STORE", None)
    done = demo(tmp_path, "--only", name, "--json", PYTHONPATH=os.getcwd())
    assert done.returncode == 0, done.stderr + done.stdout
    (row,) = json.loads(done.stdout)
    assert row["as_expected"]
    assert row["skipped"] is None
    assert f"[1/1] {name}" in done.stderr
    stores = [path.name for path in tmp_path.glob(".local/**/*.db")]
    assert stores == ["demo.db"], "the user's own store is left alone"


def test_the_demo_ends_with_the_next_steps_and_they_work_as_typed(tmp_path: Path) -> None:
    demo(tmp_path, "--only", "own-kill-9", PYTHONPATH=os.getcwd())
    done = demo(tmp_path, "--only", "own-kill-9", PYTHONPATH=os.getcwd())
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Look closer:")]
    words = line.partition("fairtrial show ")[2].split()
    shown = subprocess.run(
        [sys.executable, "-m", "fairtrial", "show", *words], cwd=os.getcwd(), capture_output=True, text=True, check=True
    )
    assert "· own-kill-9" in shown.stdout, "the name means the newest"
    assert re.search("Now your own:  .*fairtrial run --", done.stdout)


def test_progress_is_one_line_each_and_says_where_the_memory_limits_stand(tmp_path: Path) -> None:
    done = demo(tmp_path, "--only", "own-kill-9", PYTHONPATH=os.getcwd(), COLUMNS="40")
    begun, ended = done.stderr.splitlines()
    assert begun == "[1/1] own-kill-9: the model's command kills itself with signal 9 (exit 137, as after an OOM) …"
    assert ended == "      → model, suspected"


def test_a_narrow_terminal_gets_a_block_for_each_trial() -> None:
    row = Row(
        name="one",
        what="something",
        booked="failed (exit 1)",
        ended_by="model_api.truncated (proved)",
        verdict="infra, proved · model_api.truncated in step 2",
        sentence="The model API cut the answer in the middle of the stream, and the agent gave up at once.",
        as_expected=True,
    )
    lines = _block(row, 60)
    assert lines[:3] == ["", "one", "  booked:   failed (exit 1)"]
    assert max(len(line) for line in lines) <= 60
    assert _block(replace(row, skipped="not run: no engine"), 60) == ["", "one", "  not run: no engine"]
    assert "NOT AS WRITTEN" in _block(replace(row, as_expected=False), 200)[-1]


def test_the_table_names_what_was_booked_what_ended_it_and_the_verdict(tmp_path: Path) -> None:
    done = demo(tmp_path, "--only", "529-storm", PYTHONPATH=os.getcwd())
    for word in ("booked", "ended by", "verdict", "failed (exit 1)", "model_api.overloaded", "529 x 6"):
        assert word in done.stdout


@pytest.mark.docker
@pytest.mark.parametrize("name", [trial.name for trial in TRIALS if trial.needs_ceiling])
def test_the_oom_trials_in_a_real_container(name: str, tmp_path: Path, docker_host: str) -> None:
    done = demo(tmp_path, "--only", name, "--json", DOCKER_HOST=docker_host, PYTHONPATH=os.getcwd())
    (row,) = json.loads(done.stdout)
    assert row["skipped"] is None
    assert row["as_expected"], row


@pytest.mark.root
@pytest.mark.parametrize("name", [trial.name for trial in TRIALS if trial.needs_ceiling])
def test_the_oom_trials_in_a_cgroup_where_no_engine_answers(name: str, tmp_path: Path) -> None:
    done = demo(tmp_path, "--only", name, "--json", PYTHONPATH=os.getcwd())
    (row,) = json.loads(done.stdout)
    assert row["skipped"] is None or row["skipped"].startswith("not run: no Docker engine answers; ")
    assert row["as_expected"], row


def test_where_there_is_no_ceiling_the_reason_is_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    with memory_ceiling() as ceiling:
        if isinstance(ceiling, Ceiling):
            assert ceiling.kind == "cgroup"
        else:
            assert "no Docker engine answers" in ceiling
