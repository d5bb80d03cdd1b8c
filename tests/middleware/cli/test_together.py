"""The other trials of a run are read from the store, and only of that run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from msgspec import structs

from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.cli.together import below_list, beside_one, of_run
from fairtrial.middleware.core.records import Blame, Outcome, Trial
from fairtrial.middleware.store.database import insert_trial, open_database
from tests.middleware.attribution.runs import failed_at, trial, whole_at


@pytest.fixture
def store(tmp_path: Path) -> sqlite3.Connection:
    database = open_database(tmp_path / "store.db")
    limited = trial(
        "limited",
        blame=Blame.INFRA,
        cause="model_api.rate_limited",
        attempts=[failed_at(10, status=429, key="k", per_key=True)],
    )
    beside = trial("beside", outcome=Outcome.PASSED, attempts=[whole_at(12, key="k")])
    for one, run in ((limited, "r"), (beside, "r"), (trial("alone"), "other")):
        insert_trial(database, of(one, run))
    return database


def of(one: Trial, run: str | None) -> Trial:
    return structs.replace(one, run=run)


def test_a_run_is_looked_at_as_a_whole_and_without_the_others(store: sqlite3.Connection) -> None:
    assert list(of_run(store, "r").adjusted) == ["limited"]
    assert of_run(store, "other").findings == ()


def test_show_and_trials_say_what_moved(store: sqlite3.Connection) -> None:
    one = of(trial("limited"), "r")
    said = "\n".join(beside_one(store, one, DEFAULT_THRESHOLDS, width=200))
    assert "infra, proved (model_api.rate_limited) → operator, proved (model_api.rate_limited)" in said
    assert "limited: infra, proved" in "\n".join(below_list(store, "r", width=200))


def test_a_trial_of_no_run_has_no_others(store: sqlite3.Connection) -> None:
    assert beside_one(store, of(trial("alone"), None), DEFAULT_THRESHOLDS, width=200) == []
    assert below_list(store, "other", width=200) == []
