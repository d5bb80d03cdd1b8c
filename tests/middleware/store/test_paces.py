"""Each trial is counted once, whoever counts."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.store import paces
from fairtrial.middleware.store.database import insert_trial, open_database

KEY = ("p", "m", "ttft", 7)


def summed(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in {*one, *other}}


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    made = open_database(tmp_path / "s.db")
    for name in ("a", "b"):
        with made:
            insert_trial(made, Trial(trial=name, started="2026-11-30T08:00:00.000000Z", closed="normal"))
    return made


def test_what_was_counted_is_not_counted_again(database: sqlite3.Connection) -> None:
    assert paces.uncounted(database) == ["a", "b"]
    paces.add(database, ["a"], {KEY: {"3": 1}}, summed)
    assert paces.uncounted(database) == ["b"]
    paces.add(database, ["b"], {KEY: {"3": 2, "4": 1}}, summed)
    assert list(paces.stored(database, 0)) == [(KEY, {"3": 3, "4": 1})]
    assert list(paces.stored(database, 8)) == []
    with pytest.raises(sqlite3.IntegrityError):
        paces.add(database, ["a"], {KEY: {"3": 9}}, summed)
    assert list(paces.stored(database, 0)) == [(KEY, {"3": 3, "4": 1})]
    database.close()


def test_an_older_store_does_not_know_of_it(database: sqlite3.Connection, tmp_path: Path) -> None:
    assert paces.has_table(database)
    database.close()
    bare = sqlite3.connect(tmp_path / "bare.db")
    assert not paces.has_table(bare)
    bare.close()
