"""`fairtrial import` and `fairtrial summary` as typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.middleware.harnesses.real import DATA

RUN = "nightly"


def fairtrial(store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(store.parent), "FAIRTRIAL_STORE": str(store)}
    command = [sys.executable, "-m", "fairtrial", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of Harbor's that was imported."""
    path = tmp_path_factory.mktemp("summary") / "store.db"
    done = fairtrial(path, "import", "harbor", str(DATA / "harbor" / "oracle"), "--run", RUN)
    assert done.returncode == 0, done.stderr
    return path


def test_an_import_says_how_each_trial_was_joined_and_a_second_one_that_nothing_is_new(store: Path) -> None:
    said = fairtrial(store, "import", "harbor", str(DATA / "harbor" / "oracle"), "--run", RUN)
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[0] == "6 trials in 6 whole files: 0 joined, 6 alone; nothing new"
    assert all("alone: " in line for line in said.stdout.splitlines()[1:7])


def test_an_import_as_json_names_trials_and_files(store: Path) -> None:
    said = fairtrial(store, "import", "harbor", str(DATA / "harbor" / "oracle"), "--run", RUN, "--json")
    told = json.loads(said.stdout)
    assert (len(told["trials"]), {note["state"] for note in told["files"]}) == (6, {"whole"})
    assert all(trial["trial"] for trial in told["trials"])


def test_a_path_without_a_trial_is_said_with_each_file(store: Path) -> None:
    said = fairtrial(store, "import", "inspect", str(DATA / "junit" / "pytest.xml"))
    assert (said.returncode, said.stdout) == (1, "")
    assert "pytest.xml is no JSON" in said.stderr


def test_a_summary_says_what_was_booked_and_what_was_watched(store: Path) -> None:
    said = fairtrial(store, "summary", "--run", RUN)
    assert said.returncode == 0, said.stderr
    assert "passed 1 · failed 2 · errored 3 of 6" in said.stdout
    assert "MOST WORTH A LOOK (5)" in said.stdout
    assert "6 trials only imported: nothing outside was watched." in " ".join(said.stdout.split())


def test_a_summary_as_json_has_its_schema(store: Path) -> None:
    told = json.loads(fairtrial(store, "summary", "--run", RUN, "--json").stdout)
    assert (told["schema"], told["trials"], told["classes"]["passed"]) == ("fairtrial.summary/1", 6, 1)
    assert told["scores"]["highest"]["passed"] == 6


def test_an_unknown_run_is_said(store: Path) -> None:
    said = fairtrial(store, "summary", "--run", "other")
    assert (said.returncode, "no trial of run 'other'" in said.stderr) == (1, True)
