"""What is left of a run that was parted: found by its id and its name, once, and in a merged store as well."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.store.database import open_database, open_trial_row
from fairtrial.middleware.store.merge import merge_file
from fairtrial.middleware.store.parted_runs import PartedRow, all_parted, find_parted, remember, trials_of

OWN = "0197bbbb-0000-7000-8000-00000000000"


def row(n: int, **more: object) -> PartedRow:
    told: dict[str, object] = {"id": f"{OWN}{n}", "started_ns": n, "name": "nightly_1", "trials": ["t1", "t2"], **more}
    return PartedRow(**told)  # type: ignore[arg-type]


def test_a_run_is_found_by_its_id_its_ends_and_its_name_the_newest_first(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as database:
        with database:
            for n in (1, 2):
                remember(database, row(n))
            remember(database, row(1, name="again"))
        assert [each.id[-1] for each in find_parted(database, "nightly_1")] == ["2", "1"]
        assert [each.id[-1] for each in find_parted(database, f"{OWN}1")] == ["1"]
        assert [each.id[-1] for each in find_parted(database, "000000001")] == ["1"]
        assert [each.id[-1] for each in find_parted(database, OWN)] == ["2", "1"]
        for wanted in ("nightly%", "nightlyx1", "%", "_", "again", "last"):
            assert find_parted(database, wanted) == [], wanted


def test_trials_that_are_not_in_the_store_are_left_out(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as database:
        open_trial_row(database, Trial(trial="t2"), 1, None, None)
        assert [each.trial for each in trials_of(database, row(1))] == ["t2"]


def test_it_comes_along_when_stores_are_merged_and_damage_takes_no_other(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(open_database(other)) as database, database:
        for n in (1, 2):
            remember(database, row(n))
        database.execute("INSERT INTO parted VALUES ('broken', NULL, 0, x'00ff')")
        database.execute("INSERT INTO parted VALUES ('odd', NULL, 0, 'text')")
    with closing(open_database(tmp_path / "s.db")) as database:
        for _ in range(2):
            merge_file(database, other)
        assert [each.id[-1] for each in all_parted(database)] == ["1", "2"]


def test_a_store_that_is_older_than_the_table_has_none(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    open_database(path).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE parted")
    with closing(open_database(path, read_only=True)) as database:
        assert find_parted(database, OWN) == []
