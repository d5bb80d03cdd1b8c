"""A run with several trials as a person asks for it: by its own id, by its name, while it goes on and after."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from fairtrial.middleware import cli
from fairtrial.middleware.core.records import Run, Trial
from tests.middleware.steps.crowd import ROOT, Crowd
from tests.middleware.test_parted import parted
from tests.middleware.test_underway import store_of, three_in_harbor


@pytest.fixture
def over(tmp_path: Path) -> Path:
    """A store with a run that was parted."""
    crowd = Crowd()
    three_in_harbor(crowd)
    crowd.said(5, "nobody")
    crowd.end(9, oom_kill=8)
    parted(crowd, tmp_path / "store.db")
    return tmp_path / "store.db"


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """A store with a run that goes on."""
    crowd = Crowd()
    three_in_harbor(crowd)
    return store_of(crowd, tmp_path / "store.db")


def ask(capfd: pytest.CaptureFixture[str], store: Path, *words: str, status: int = 0) -> str:
    assert cli.main([*words, "--store", str(store)]) == status
    said = capfd.readouterr()
    return said.out if status == 0 else said.err


@pytest.mark.parametrize("wanted", [ROOT, ROOT[-12:], "nightly"])
def test_show_lists_the_trials_of_a_run_whose_own_row_is_gone(
    over: Path, capfd: pytest.CaptureFixture[str], wanted: str
) -> None:
    text = ask(capfd, over, "show", wanted)
    assert text.startswith("RUN  ")
    assert "3 trials" in text
    assert all(f"task-{letter}" in text for letter in "abc")
    assert "more: fairtrial show TRIAL · fairtrial summary --run nightly" in text
    assert ("of none of them: words 1, words.unknown 1" in text) == (wanted != "nightly")
    whole = msgspec.json.decode(ask(capfd, over, "show", wanted, "--json"), type=Run)
    assert [trial.name for trial in whole.trials] == ["task-a", "task-b", "task-c"]
    assert whole.counts["trials"] == 3


@pytest.mark.parametrize("wanted, first", [(ROOT, "RUN  "), (ROOT[-12:], "RUN  "), ("last", "TRIAL  ")])
def test_show_of_a_run_whose_fairtrial_was_killed_closes_its_trials_and_shows_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], wanted: str, first: str
) -> None:
    crowd = Crowd()
    three_in_harbor(crowd)
    said = ask(capfd, store_of(crowd, tmp_path / "store.db", pid=2**22 - 3), "show", wanted)
    assert said.startswith(first)
    assert ("held 3 trials" in said, "0 steps" in said) == (first == "RUN  ", False)


def test_a_trial_goes_before_a_run_and_nothing_stays_nothing(over: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(capfd, over, "show", "task-b").startswith("TRIAL  ")
    assert ask(capfd, over, "show", "last").startswith("TRIAL  ")
    assert "no trial matches 'nobody'" in ask(capfd, over, "show", "nobody", status=1)


def test_the_other_commands_take_the_runs_id_as_well(over: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ": 3 trials, the outcome is not known" in ask(capfd, over, "report", ROOT)
    assert json.loads(ask(capfd, over, "summary", "--run", ROOT, "--json"))["trials"] == 3
    assert len(json.loads(ask(capfd, over, "trials", "--run", ROOT, "--json"))) == 3
    assert len(json.loads(ask(capfd, over, "trials", "--run", ROOT, "--json", "-n", "2"))) == 2
    assert len({line[-1] for line in ask(capfd, over, "export", ROOT, "--jsonl").splitlines()}) > 0
    assert "no trial of run 'nobody'" in ask(capfd, over, "trials", "--run", "nobody", status=1)


def test_trials_lists_those_of_a_run_that_goes_on_behind_it(live: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(ask(capfd, live, "trials", "--run", "nightly", "--json"))
    assert [(row["trial"], row["provisional"], row["terminated_by"]) for row in rows] == [
        (ROOT, False, None),
        (f"{ROOT}.3", True, None),
        (f"{ROOT}.2", True, None),
        (f"{ROOT}.1", True, "container.oom_kill"),
    ]
    text = ask(capfd, live, "trials")
    assert "holds 3 trials so far, 2 over; told while it runs, not stored yet" in text
    assert "provisional: goes on; 3 model calls, last heard of" in text
    assert len(ask(capfd, live, "trials", "-n", "1").splitlines()) == 3


def test_show_tells_a_run_that_goes_on_and_each_of_its_trials(live: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = ask(capfd, live, "show", ROOT)
    assert "still runs; holds 3 trials so far, 2 over" in text
    whole = msgspec.json.decode(ask(capfd, live, "show", "nightly", "--json"), type=Run)
    assert {trial.name for trial in whole.trials} == {"task-a", "task-b"}, "those that are over"
    for wanted in ("task-a", f"{ROOT}.1", f"{ROOT[-10:]}.1"):
        one = msgspec.json.decode(ask(capfd, live, "show", wanted, "--json"), type=Trial)
        assert (one.trial, one.name) == (f"{ROOT}.1", "task-a")
    assert "ended by: container.oom_kill" in ask(capfd, live, "show", "task-a")
    assert "no trial matches 'task-d'" in ask(capfd, live, "show", "task-d", status=1)


def test_a_summary_counts_those_that_still_run(live: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = ask(capfd, live, "summary", "--run", "nightly")
    assert "3 trials that still run" in text
    assert "Of those that still run 2 are over: fairtrial trials --run nightly" in text
    assert json.loads(ask(capfd, live, "summary", "--run", "nightly", "--json"))["still_open"] == 3


def test_a_trial_that_goes_on_is_not_said_to_have_lost_its_end(live: Path, capfd: pytest.CaptureFixture[str]) -> None:
    listed = ask(capfd, live, "trials", "--run", "nightly")
    assert f"{ROOT[-12:]}." in listed, "a part's row bears its run's id as the run's own row does"
    text = ask(capfd, live, "show", f"{ROOT[-12:]}.3")
    assert "The trial still runs, so how it ends is not known yet." in text
    assert "may have been stopped" not in text and "closed:" not in text and "booked: " not in text
    assert re.search(r"still runs, .* so far; 3 steps; all that follows is provisional", text)
    assert "VERDICT so far (provisional)  indeterminate" in text
    assert json.loads(ask(capfd, live, "show", f"{ROOT[-12:]}.3", "--json"))["provisional"] is True
    assert json.loads(ask(capfd, live, "show", ROOT, "--json"))["provisional"] is True
    assert "over, its run goes on; 3 steps" in ask(capfd, live, "show", "task-a")
