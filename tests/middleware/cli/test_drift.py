"""`fairtrial drift` on a real store: weeks of steady trials, then a slow hour."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.middleware.cli import main
from fairtrial.middleware.cli.drift import show_drift
from fairtrial.middleware.core.records import Attempt, Blame, Call, Step, Trial, Verdict
from fairtrial.middleware.store.database import insert_trial, open_database

NOW_S = 1_795_996_800
HOUR_S = 3600


def stamp(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def trial_at(at_s: int, first_token: float) -> Trial:
    """Ten calls within five minutes."""
    chance = random.Random(at_s)
    calls = [
        Call(
            id=f"{at_s}-{n}",
            provider="anthropic",
            model="m",
            stream=True,
            outcome="ok",
            output_tokens=100,
            attempts=[
                Attempt(
                    outcome="ok",
                    first_token=(first := first_token * chance.uniform(0.9, 1.1)),
                    duration=first + 2.0,
                    started=stamp(at_s + 30 * n),
                )
            ],
        )
        for n in range(10)
    ]
    return Trial(
        trial=f"t{at_s}",
        started=stamp(at_s),
        ended=stamp(at_s + 300),
        closed="normal",
        verdict=Verdict(blame=Blame.NONE, sentence="…"),
        steps=[Step(index=n + 1, calls=[each]) for n, each in enumerate(calls)],
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The last three hours of each of eight days; the last two hours of the last day are twice as slow."""
    path = tmp_path / "s.db"
    database = open_database(path)
    with database:
        for day in range(8):
            for ten in range(18):
                at_s = NOW_S - day * 24 * HOUR_S - ten * 600
                insert_trial(database, trial_at(at_s, 2.0 if day == 0 and ten < 12 else 1.0))
    database.close()
    return path


def test_a_slow_hour_is_told_drawn_and_wakes_cron(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_drift(store, hours=3, model=None, alarm=True, as_json=False, width=80, now_s=NOW_S) == 1
    out = capsys.readouterr().out
    assert "► anthropic m  first token: drifting since " in out
    assert "times what is usual; 2s, usually 1s" in out
    assert "tokens/s: steady" in out
    assert "█" in out


def test_json_has_the_points_and_seconds_of_the_epoch(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_drift(store, hours=3, model="m", alarm=False, as_json=True, width=80, now_s=NOW_S) == 0
    told = {one["signal"]: one for one in json.loads(capsys.readouterr().out)}
    assert set(told) == {"ttft", "duration", "token_rate"}
    assert told["ttft"]["state"] == "drifting"
    assert abs(told["ttft"]["since"] - (NOW_S - 11 * 600)) <= 1200
    assert told["ttft"]["ratio"] == pytest.approx(2.0, rel=0.1)
    assert len(told["ttft"]["points"]) == 18
    assert told["ttft"]["by"] == "hour of the day"


def test_a_window_without_calls_and_a_store_that_is_not_there(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_drift(store, hours=1, model=None, alarm=True, as_json=False, width=80, now_s=NOW_S + 9 * HOUR_S) == 0
    assert "no call of a closed trial" in capsys.readouterr().out
    assert main(["drift", "--store", str(tmp_path / "none.db")]) == 1
    assert "there is no store" in capsys.readouterr().err
    assert main(["drift", "--store", str(store), "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), list)
