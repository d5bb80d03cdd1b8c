"""Closed trials become histograms once; a store that cannot be written is counted in memory, with the same result."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairtrial.middleware.analysis.drift import SLOT_S
from fairtrial.middleware.analysis.paces import of_trial, read_series
from fairtrial.middleware.core.records import Attempt, Blame, Call, Step, Trial, Verdict
from fairtrial.middleware.store.database import insert_trial, open_database

AT_S = 1_795_996_800


def call(**more: object) -> Call:
    facts: dict[str, object] = {
        "id": "c",
        "provider": "p",
        "model": "m",
        "stream": True,
        "outcome": "ok",
        "output_tokens": 100,
        "attempts": [
            Attempt(outcome="error", duration=9.0, started="2026-11-29T00:00:00.000000Z"),
            Attempt(
                outcome="ok",
                first_token=1.0,
                duration=3.0,
                started=datetime.fromtimestamp(AT_S, UTC).isoformat().replace("+00:00", "Z"),
            ),
        ],
        **more,
    }
    return Call(**facts)  # type: ignore[arg-type]  # a test's keywords


def trial(name: str, *calls: Call) -> Trial:
    return Trial(
        trial=name,
        started="2026-11-30T08:00:00.000000Z",
        closed="normal",
        verdict=Verdict(blame=Blame.NONE, sentence="…"),
        steps=[Step(index=1, calls=list(calls))],
    )


def test_a_call_gives_three_signals_of_its_last_attempt() -> None:
    slot = AT_S // SLOT_S
    assert list(of_trial(trial("t", call()))) == [
        ("p", "m", "duration", slot, 3.0),
        ("p", "m", "ttft", slot, 1.0),
        ("p", "m", "token_rate", slot, 50.0),
    ]


def test_what_failed_was_a_probe_or_was_not_streamed_gives_less() -> None:
    assert list(of_trial(trial("t", call(outcome="error")))) == []
    assert list(of_trial(trial("t", call(role="probe")))) == []
    assert list(of_trial(trial("t", call(attempts=[])))) == []
    assert [signal for _, _, signal, _, _ in of_trial(trial("t", call(stream=False)))] == ["duration"]
    assert [signal for _, _, signal, _, _ in of_trial(trial("t", call(output_tokens=3)))] == ["duration", "ttft"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    database = open_database(path)
    with database:
        insert_trial(database, trial("one", call(), call()))
    database.close()
    return path


def totals(database: sqlite3.Connection, *, writable: bool) -> dict[str, int]:
    series = read_series(database, 0, writable=writable)
    return {signal: sum(len(slots) for slots in by_slot.values()) for (_, _, signal), by_slot in series.items()}


def test_each_trial_is_counted_once_and_later_ones_are_added(store: Path) -> None:
    database = open_database(store)
    assert totals(database, writable=True) == {"duration": 2, "ttft": 2, "token_rate": 2}
    assert totals(database, writable=True) == {"duration": 2, "ttft": 2, "token_rate": 2}
    with database:
        insert_trial(database, trial("two", call()))
    assert totals(database, writable=True) == {"duration": 3, "ttft": 3, "token_rate": 3}
    assert database.execute("SELECT count(*) FROM paced").fetchone() == (2,)
    database.close()


def test_a_store_that_may_only_be_read_is_counted_in_memory(store: Path) -> None:
    database = open_database(store, read_only=True)
    assert totals(database, writable=False) == {"duration": 2, "ttft": 2, "token_rate": 2}
    assert totals(database, writable=True) == {"duration": 2, "ttft": 2, "token_rate": 2}
    database.close()
    writing = open_database(store)
    assert writing.execute("SELECT count(*) FROM paced").fetchone() == (0,)
    writing.execute("DROP TABLE paced")
    writing.commit()
    writing.close()
    older = open_database(store, read_only=True)
    assert totals(older, writable=False) == {"duration": 2, "ttft": 2, "token_rate": 2}
    older.close()
