"""The writer: rows are there, twice is once, and a store that takes nothing loses nothing."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store.database import latest_record, observations_of, open_database
from fairtrial.middleware.store.merge import merge_file
from fairtrial.middleware.store.queries import find_trial, list_trials
from fairtrial.middleware.store.writer import StoreWriter, spill_folders

Make = Callable[..., Observation]
TRIAL = "01930000-0000-7000-8000-00000000000a"


def test_what_was_put_is_read_back_whole_and_in_order(tmp_path: Path, journal: Journal, observation: Make) -> None:
    writer = StoreWriter(tmp_path / "s" / "store.db", journal)
    put = [observation(n) for n in range(1, 50)]
    for one in reversed(put):
        writer.put(one)
    writer.close()
    database = open_database(tmp_path / "s" / "store.db", read_only=True)
    assert list(observations_of(database, TRIAL)) == put
    assert stat.S_IMODE(os.stat(tmp_path / "s").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(tmp_path / "s" / "store.db").st_mode) == 0o600
    database.close()


def test_a_second_delivery_changes_nothing(tmp_path: Path, journal: Journal, observation: Make) -> None:
    writer = StoreWriter(tmp_path / "store.db", journal)
    for _ in range(3):
        writer.put(observation(1))
    writer.put(observation(1, source_id="door.model/2"))
    writer.close()
    database = open_database(tmp_path / "store.db", read_only=True)
    assert len(list(observations_of(database, TRIAL))) == 2
    database.close()


def test_a_verdict_is_a_revision_and_never_rewritten(tmp_path: Path, journal: Journal, closed_trial: Trial) -> None:
    verdict = closed_trial.verdict
    assert verdict is not None
    writer = StoreWriter(tmp_path / "store.db", journal)
    writer.close_trial(closed_trial)
    again = msgspec.structs.replace(verdict, sentence="another first")
    writer.close_trial(msgspec.structs.replace(closed_trial, verdict=again))
    second = msgspec.structs.replace(verdict, sentence="revised", revision=2)
    writer.close_trial(msgspec.structs.replace(closed_trial, verdict=second))
    writer.close()
    database = open_database(tmp_path / "store.db", read_only=True)
    bodies = database.execute("SELECT revision FROM verdicts ORDER BY revision").fetchall()
    assert bodies == [(1,), (2,)]
    record = latest_record(database, TRIAL)
    assert record is not None
    assert record.verdict == second
    assert [row.sentence for row in list_trials(database)] == ["revised"]
    database.close()


def test_trials_are_found_by_id_end_and_name(tmp_path: Path, journal: Journal, closed_trial: Trial) -> None:
    writer = StoreWriter(tmp_path / "store.db", journal)
    writer.close_trial(closed_trial)
    writer.close()
    database = open_database(tmp_path / "store.db", read_only=True)
    for wanted in ("last", TRIAL, TRIAL[-12:], TRIAL[:10], "one"):
        assert [row.trial for row in find_trial(database, wanted)] == [TRIAL]
    assert find_trial(database, "%") == []
    database.close()


@pytest.mark.parametrize("damage", ["not a database at all " * 100, "folder"])
def test_a_damaged_store_is_said_and_its_rows_come_back_from_the_spill_file(
    tmp_path: Path, journal: Journal, observation: Make, closed_trial: Trial, damage: str
) -> None:
    path = tmp_path / "store.db"
    if damage == "folder":
        path.mkdir()
    else:
        path.write_text(damage)
    writer = StoreWriter(path, journal)
    writer.put(observation(1))
    writer.close_trial(closed_trial)
    writer.put(observation(2))
    assert writer.flush(5)
    writer.close()
    assert writer.failed is not None
    assert str(path) in writer.failed
    assert len(writer.spills) == 1
    good = open_database(tmp_path / "good.db")
    merged = merge_file(good, writer.spills[0])
    assert (merged.read, merged.trials, merged.damaged) == (2, 1, 0)
    assert len(list(observations_of(good, TRIAL))) == 2
    assert latest_record(good, TRIAL) == closed_trial
    assert merge_file(good, writer.spills[0]).added == 0
    assert len(list(observations_of(good, TRIAL))) == 2
    good.close()


def test_a_full_disk_while_writing_spills_the_rest(tmp_path: Path, journal: Journal, observation: Make) -> None:
    path = tmp_path / "store.db"
    writer = StoreWriter(path, journal)
    writer.put(observation(1))
    assert writer.flush(5)
    writer.close()
    counter = sqlite3.connect(path)
    pages = counter.execute("PRAGMA page_count").fetchone()[0]
    counter.close()
    writer = StoreWriter(path, journal, page_limit=pages)
    for n in range(2, 3000):
        writer.put(observation(n))
    assert writer.flush(10)
    writer.close()
    assert writer.failed is not None
    assert "full" in writer.failed
    assert len(writer.spills) == 1
    good = open_database(tmp_path / "good.db")
    merge_file(good, path)
    merge_file(good, writer.spills[0])
    assert len(list(observations_of(good, TRIAL))) == 2999
    good.close()


@pytest.mark.root
def test_a_row_that_cannot_be_written_at_all_takes_no_other_with_it(
    tmp_path: Path, journal: Journal, observation: Make
) -> None:
    writer = StoreWriter(tmp_path / "store.db", journal)
    for at in range(1, 5):
        one = observation(at)
        writer.put(msgspec.structs.replace(one, value={"event": object()}) if at == 2 else one)
    assert writer.flush(10)
    writer.close()
    assert writer.failed is not None
    assert writer.kept_in_memory == 1
    assert journal.counts["StoreFailed", "row"] == 1
    good = open_database(tmp_path / "new.db")
    assert merge_file(good, writer.spills[0]).added == 3
    good.close()


def test_a_spill_folder_on_the_same_full_disk_gives_way_to_the_next(
    tmp_path: Path, journal: Journal, observation: Make
) -> None:
    """A real file system of 128 KiB, filled by the store itself; no row may be lost or cut in half."""
    small, other = tmp_path / "small", tmp_path / "other"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        writer = StoreWriter(small / "store.db", journal, spill_to=[small, other])
        for n in range(1, 3000):
            writer.put(observation(n))
            if n % 500 == 0:
                assert writer.flush(10)
        assert writer.flush(10)
        writer.close()
        assert writer.kept_in_memory == 0
        assert [path.parent for path in writer.spills][-1] == other
        good = open_database(tmp_path / "good.db")
        for source in (small / "store.db", *writer.spills):
            assert merge_file(good, source).damaged == 0
        assert len(list(observations_of(good, TRIAL))) == 2999
        good.close()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_another_store_is_merged_once(tmp_path: Path, journal: Journal, observation: Make, closed_trial: Trial) -> None:
    writer = StoreWriter(tmp_path / "a.db", journal)
    writer.put(observation(1))
    writer.close_trial(closed_trial)
    writer.close()
    target = open_database(tmp_path / "b.db")
    assert merge_file(target, tmp_path / "a.db").added > 0
    assert merge_file(target, tmp_path / "a.db").added == 0
    assert len(list(observations_of(target, TRIAL))) == 1
    target.close()


def test_a_newer_store_version_is_refused_with_a_sentence(tmp_path: Path, journal: Journal, observation: Make) -> None:
    database = open_database(tmp_path / "store.db")
    with database:
        database.execute("UPDATE meta SET value = '999' WHERE key = 'schema'")
    database.close()
    writer = StoreWriter(tmp_path / "store.db", journal)
    writer.put(observation(1))
    assert writer.flush(5)
    writer.close()
    assert writer.failed is not None
    assert "use the newer fairtrial" in writer.failed
    assert "damaged" not in writer.failed


def test_a_kill_9_loses_nothing_older_than_half_a_second(tmp_path: Path) -> None:
    """A real process writes, says so 0.5 s later, and is killed with signal 9."""
    program = f"""
import io, sys, time
from pathlib import Path
from fairtrial.middleware.core.observations import Observation, Subject
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store.writer import StoreWriter, spill_folders
writer = StoreWriter(Path({str(tmp_path / "store.db")!r}), Journal(io.StringIO()))
for n in range(1, 200):
    writer.put(Observation(id=str(n), source="s", source_id="s/1", seq=n, wall_ns=n, mono_ns=n, kind="k",
                           value={{}}, subject=Subject(trial="t")))
time.sleep(0.5)
print("written", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "written\n"
        child.kill()
    database = open_database(tmp_path / "store.db", read_only=True)
    assert len(list(observations_of(database, "t"))) == 199
    database.close()


def test_two_writers_share_one_store(tmp_path: Path, journal: Journal, observation: Make) -> None:
    writers = [StoreWriter(tmp_path / "store.db", journal) for _ in range(2)]
    for n in range(1, 300):
        for number, writer in enumerate(writers):
            writer.put(observation(n, source_id=f"door.model/{number}"))
    deadline = time.monotonic() + 20
    assert all(writer.flush(max(0.0, deadline - time.monotonic())) for writer in writers)
    for writer in writers:
        writer.close()
        assert writer.failed is None
    database = open_database(tmp_path / "store.db", read_only=True)
    assert len(list(observations_of(database, TRIAL))) == 598
    database.close()


@pytest.mark.parametrize("store", ["/tmp", "/dev/full", "/proc/x/store.db", "/sys/store.db"])
def test_a_mistyped_store_leaves_no_spill_file_in_a_folder_of_the_system(store: str) -> None:
    assert [folder.name for folder in spill_folders(Path(store))] == [f"fairtrial-spill-{os.getuid()}"]


def test_the_spill_file_lies_beside_a_store_of_ones_own(tmp_path: Path) -> None:
    assert spill_folders(tmp_path / "store.db")[0] == tmp_path.resolve()


def test_a_store_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "store.db")
    for read_only in (True, False):
        with pytest.raises(OSError, match="no regular file"):
            open_database(tmp_path / "store.db", read_only=read_only)


def test_without_a_place_for_temporary_files_the_spill_stays_beside_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    assert spill_folders(tmp_path / "store.db") == [tmp_path.resolve()]
    assert spill_folders(Path("/dev/full")) == []
