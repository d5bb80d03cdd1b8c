"""The demo as a person sees it; four of its six trials need neither Docker nor root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.middleware.demo.box import Ceiling, memory_ceiling
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
    assert list(tmp_path.glob(".local/**/*.db")) == [], "the user's own store is left alone"


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
