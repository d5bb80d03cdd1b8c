"""Rows that are packed against earlier ones: whole again for every reader, and small."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fairtrial.middleware.core.observations import Host, Observation, Subject
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store.database import (
    StoreVersion,
    all_observations,
    insert_observation,
    observations_of,
    open_database,
)
from fairtrial.middleware.store.merge import merge_file
from fairtrial.middleware.store.packing import DEPTH, Packer
from fairtrial.middleware.store.schema import SCHEMA_VERSION, pack
from fairtrial.middleware.store.writer import StoreWriter
from tests.middleware.store.conftest import TRIAL

OTHER = "01930000-0000-7000-8000-00000000000b"


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def step(number: int, trial: str = TRIAL, source_id: str = "door.model/1") -> tuple[Observation, Observation]:
    """A call in a conversation that grows."""
    request = {
        "model": "claude-sonnet-4-5",
        "history_len": 2 * number,
        "body_digest": digest(f"{trial}{number}"),
        "tools_digest": digest("tools"),
        "message_digests": [digest(f"{trial}{at}") for at in range(max(0, number - 8), number)],
        "session": digest(trial),
    }
    made = [
        Observation(
            id=f"01930000-0000-7000-8000-{8 * number + edge:012x}",
            source="door.model",
            source_id=source_id,
            seq=2 * number + edge,
            host=Host(name="node", boot_id="699f9fbb-ada0-4102-a9e6-9b65f089b4c2"),
            subject=Subject(trial=trial),
            wall_ns=1_700_000_000_000_000_000 + number * 10**9 + edge,
            mono_ns=number * 10**9 + edge,
            kind=kind,
            value={"attempt": digest(f"a{trial}{number}"), "conn": 1, "request": request, **more},
        )
        for edge, (kind, more) in enumerate(
            [
                ("attempt.started", {}),
                ("attempt.ended", {"outcome": "ok", "duration": number / 7, "reply": {"status": 200, "text": "x"}}),
            ]
        )
    ]
    return made[0], made[1]


def steps(count: int, trial: str = TRIAL, source_id: str = "door.model/1") -> list[Observation]:
    return [each for number in range(1, count + 1) for each in step(number, trial, source_id)]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(open_database(tmp_path / "s.db")) as opened:
        yield opened


def insert(database: sqlite3.Connection, rows: list[Observation], packer: Packer | None = None) -> None:
    packer = packer or Packer()
    with database:
        for row in rows:
            insert_observation(database, row, packer=packer)


def bodies(database: sqlite3.Connection) -> int:
    return int(database.execute("SELECT sum(length(body)) FROM observations").fetchone()[0])


def test_rows_come_back_as_they_were_in_less_than_half_the_room(tmp_path: Path, database: sqlite3.Connection) -> None:
    rows = steps(60)
    insert(database, rows)
    assert list(observations_of(database, TRIAL)) == rows
    assert list(all_observations(database)) == rows
    with contextlib.closing(open_database(tmp_path / "plain.db")) as plain, plain:
        for row in rows:
            insert_observation(plain, row)
        assert list(observations_of(plain, TRIAL)) == rows
        assert bodies(database) < bodies(plain) / 2


def test_trials_that_share_a_source_are_read_alone(database: sqlite3.Connection) -> None:
    one, two = steps(40), [msgspec.structs.replace(o, seq=o.seq + 1000) for o in steps(40, OTHER)]
    insert(database, [each for pair in zip(one, two, strict=True) for each in pair])
    assert list(observations_of(database, TRIAL)) == one
    assert list(observations_of(database, OTHER)) == two


def test_a_row_is_read_before_the_one_that_it_was_packed_against(database: sqlite3.Connection) -> None:
    """Rows are given by wall time, which steps back when somebody sets the clock."""
    rows = [msgspec.structs.replace(o, wall_ns=2 * 10**18 - o.wall_ns) for o in steps(400)]
    insert(database, rows)
    assert list(observations_of(database, TRIAL)) == rows[::-1]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE observations SET body = zeroblob(9) WHERE seq = {}",
        "UPDATE observations SET body = 'text' WHERE seq = {}",
        "UPDATE observations SET sampled = 'text' WHERE seq = {}",
        "UPDATE observations SET sampled = 9223372036854775807 WHERE seq = {}",
        "DELETE FROM observations WHERE seq = {}",
    ],
)
@pytest.mark.parametrize("seq", [2, 11, 34, 81])
def test_a_damaged_row_takes_few_others_with_it(database: sqlite3.Connection, damage: str, seq: int) -> None:
    rows = steps(60)
    insert(database, rows)
    with contextlib.suppress(sqlite3.IntegrityError), database:
        database.execute(damage.format(seq))
    left = list(observations_of(database, TRIAL))
    by_id = {o.id: o for o in rows}
    assert all(by_id.get(o.id) == o for o in left), "what is given is what was stored"
    assert len(left) >= len(rows) - 1 - DEPTH


def test_a_second_delivery_is_nothing_that_others_are_packed_against(database: sqlite3.Connection) -> None:
    first, ended = step(1)
    again = msgspec.structs.replace(first, value={**first.value, "conn": 77777})
    later = step(2)
    packer = Packer()
    insert(database, [first, ended], packer)
    insert(database, [again], Packer())
    insert(database, [again, *later], packer)
    assert list(observations_of(database, TRIAL)) == [first, ended, *later]
    forged = Packer()
    insert(database, [again], forged)
    insert(database, list(step(3)), forged)
    assert list(observations_of(database, TRIAL)) == [first, ended, *later, *step(3)]


def test_rows_that_come_out_of_order_stand_for_themselves(database: sqlite3.Connection) -> None:
    rows = steps(20)
    insert(database, rows[::-1])
    assert list(observations_of(database, TRIAL)) == rows
    assert {s for (s,) in database.execute("SELECT sampled FROM observations")} <= {0, 1}


def test_a_store_and_a_spill_file_are_merged_whole(tmp_path: Path, database: sqlite3.Connection) -> None:
    rows = steps(40)
    insert(database, rows)
    (tmp_path / "spill.jsonl").write_bytes(b"".join(msgspec.json.encode(o) + b"\n" for o in rows))
    for source in (tmp_path / "s.db", tmp_path / "spill.jsonl"):
        with contextlib.closing(open_database(tmp_path / f"into-{source.name}.db")) as into:
            merged = merge_file(into, source)
            assert (merged.read, merged.damaged) == (len(rows), 0)
            assert list(observations_of(into, TRIAL)) == rows
            assert merge_file(into, source).added == 0


@pytest.mark.parametrize("how", ["DELETE FROM observations WHERE seq % 3 = 0", "UPDATE observations SET body = '{}'"])
def test_what_is_restored_can_be_read_whatever_stood_there(tmp_path: Path, journal: Journal, how: str) -> None:
    writer = StoreWriter(tmp_path / "w.db", journal, trial=TRIAL)
    rows = steps(40)
    for row in rows[:60]:
        writer.put(row)
    assert writer.flush(10)
    with contextlib.closing(sqlite3.connect(tmp_path / "w.db", timeout=10)) as other, other:
        other.execute(how)
    writer.restore(rows[:60])
    for row in rows[60:]:
        writer.put(row)
    writer.close()
    with contextlib.closing(open_database(tmp_path / "w.db", read_only=True)) as database:
        assert list(observations_of(database, TRIAL)) == rows


def test_nothing_is_packed_against_rows_of_a_file_that_was_removed(tmp_path: Path, journal: Journal) -> None:
    writer = StoreWriter(tmp_path / "w.db", journal, trial=TRIAL)
    rows = steps(40)
    for row in rows[:60]:
        writer.put(row)
    assert writer.flush(10)
    for file in tmp_path.glob("w.db*"):
        file.unlink()
    writer.restore([])
    for row in rows[60:]:
        writer.put(row)
    writer.close()
    with contextlib.closing(open_database(tmp_path / "w.db", read_only=True)) as database:
        assert list(observations_of(database, TRIAL)) == rows[60:]


# --- a store of version 1 ---------------------------------------------------------------------------------------------

VERSION_1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "INSERT INTO meta VALUES ('schema', '1')",
    "CREATE TABLE sources (id INTEGER PRIMARY KEY, source_id TEXT NOT NULL UNIQUE, sample BLOB)",
    "CREATE TABLE trial_keys (id INTEGER PRIMARY KEY, trial TEXT NOT NULL UNIQUE)",
    """CREATE TABLE observations (
        source INTEGER NOT NULL, seq INTEGER NOT NULL, trial INTEGER NOT NULL, wall_ns INTEGER NOT NULL,
        sampled INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (source, seq)) WITHOUT ROWID""",
    "CREATE INDEX observations_by_trial ON observations (trial, wall_ns)",
)


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    path = tmp_path / "one.db"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for statement in VERSION_1:
            database.execute(statement)
        first, *rest = steps(10)
        sample = msgspec.json.encode(first)
        database.execute("INSERT INTO sources VALUES (1, ?, ?)", (first.source_id, pack(sample)))
        database.execute("INSERT INTO trial_keys VALUES (1, ?)", (TRIAL,))
        for row, sampled in [(first, 0), *((row, 1) for row in rest)]:
            packed = pack(msgspec.json.encode(row), sample if sampled else b"")
            values = (1, row.seq, 1, row.wall_ns, sampled, packed)
            database.execute("INSERT INTO observations VALUES (?, ?, ?, ?, ?, ?)", values)
    return path


def test_what_version_1_wrote_is_read_and_gone_on_with(version_1: Path) -> None:
    with contextlib.closing(open_database(version_1, read_only=True)) as database:
        assert list(observations_of(database, TRIAL)) == steps(10)
    with contextlib.closing(open_database(version_1)) as database:
        insert(database, steps(30))
        assert list(observations_of(database, TRIAL)) == steps(30)
        assert list(all_observations(database)) == steps(30)


def test_only_a_reader_leaves_an_older_store_as_it_is(version_1: Path) -> None:
    def version() -> int:
        with contextlib.closing(sqlite3.connect(version_1)) as database:
            return int(database.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0])

    open_database(version_1, read_only=True).close()
    assert version() == 1
    open_database(version_1).close()
    assert version() == SCHEMA_VERSION, "an older program must not read what comes now"


def test_a_store_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    open_database(tmp_path / "s.db").close()
    later = str(SCHEMA_VERSION + 1)
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as database, database:
        database.execute("UPDATE meta SET value = ?", (later,))
    for read_only in (True, False):
        with pytest.raises(StoreVersion):
            open_database(tmp_path / "s.db", read_only=read_only)
    with contextlib.closing(sqlite3.connect(tmp_path / "s.db")) as database:
        assert database.execute("SELECT value FROM meta").fetchall() == [(later,)]


def test_a_whole_store_of_version_1_is_imported(tmp_path: Path, version_1: Path) -> None:
    open_database(version_1).close()
    with contextlib.closing(open_database(tmp_path / "into.db")) as into:
        assert merge_file(into, version_1).read == 20
        assert list(observations_of(into, TRIAL)) == steps(10)
