"""The ledger of spans: each stands in exactly one state, is claimed by one process, and is claimed once."""

from __future__ import annotations

import io
import multiprocessing
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.database import insert_trial, open_database, open_trial_row, record_at
from fairtrial.middleware.store.exports import Batch, Claimed, Counts, Wanted
from fairtrial.middleware.store.schema import STATEMENTS
from fairtrial.middleware.store.writer import StoreWriter
from tests.fakes.traced import a_trial, a_verdict

SECOND = 1_000_000_000
MANY = 1 << 40


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened = open_database(tmp_path / "store.db")
    yield opened
    opened.close()


def a_batch(*numbers: int, body: bytes = b"body") -> Batch:
    return Batch(ids=b"".join(number.to_bytes(8, "big") for number in numbers), body=body)


def wanted(trial: str = "t", *, done: int = 0, newest: int = 1) -> Wanted:
    return Wanted(trial=trial, root="r", parent=None, revision=done, newest=newest)


def put(database: sqlite3.Connection, *batches: Batch, trial: str = "t", limit: int = MANY) -> bool:
    return exports.add(database, wanted(trial), batches, now_ns=0, limit_bytes=limit)


def take(database: sqlite3.Connection, now_ns: int = SECOND, lease_ns: int = SECOND) -> Claimed:
    claimed = exports.claim(database, now_ns=now_ns, lease_ns=lease_ns)
    assert claimed is not None
    return claimed


def test_a_production_is_added_once_whoever_is_faster(database: sqlite3.Connection) -> None:
    assert put(database, a_batch(1, 2))
    assert not put(database, a_batch(1, 2))
    assert exports.counts(database) == Counts(produced=2, pending=2)
    assert exports.add(database, wanted(done=1, newest=2), [a_batch(3)], now_ns=0, limit_bytes=MANY)
    assert exports.used_ids(database, "t") == {n.to_bytes(8, "big") for n in (1, 2, 3)}


def test_batches_leave_in_order_and_with_their_bodies(database: sqlite3.Connection) -> None:
    put(database, a_batch(1, body=b"one"), a_batch(2, 3, body=b"two"))
    first, second = take(database), take(database)
    assert (first.batch, second.batch.body, second.batch.spans) == (a_batch(1, body=b"one"), b"two", 2)
    assert exports.claim(database, now_ns=SECOND, lease_ns=SECOND) is None
    assert exports.counts(database) == Counts(produced=3, pending=3), "under way is not lost"


def test_each_end_is_counted_exactly(database: sqlite3.Connection) -> None:
    put(database, *(a_batch(n, n + 100) for n in range(5)))
    exports.settle(database, take(database).row, 0)
    exports.settle(database, take(database).row, 1)
    exports.settle(database, take(database).row, 99)
    exports.drop(database, take(database).row, "http_4xx")
    exports.put_back(database, take(database).row)
    assert exports.counts(database) == Counts(
        produced=10, exported=3, pending=2, dropped={"rejected": 3, "http_4xx": 2}
    )
    assert database.execute("SELECT count(body) FROM export_batches").fetchone() == (1,), "bodies leave with the answer"


def test_who_does_not_settle_in_time_has_sent_without_an_answer(database: sqlite3.Connection) -> None:
    put(database, a_batch(1, 2), a_batch(3))
    late = take(database, now_ns=SECOND, lease_ns=SECOND)
    assert take(database, now_ns=2 * SECOND + 1).batch == a_batch(3), "it is not given to another one"
    exports.settle(database, late.row, 0)
    exports.put_back(database, late.row)
    exports.drop(database, late.row, "http_4xx")
    exports.split(database, late, [a_batch(1), a_batch(2)])
    assert exports.counts(database) == Counts(produced=3, pending=1, dropped={"unconfirmed": 2})
    exports.expire(database, 10 * SECOND)
    assert exports.counts(database) == Counts(produced=3, dropped={"unconfirmed": 3})


def test_a_time_to_wait_holds_all_also_those_that_come_later(database: sqlite3.Connection) -> None:
    put(database, a_batch(1))
    exports.hold(database, 50 * SECOND)
    put(database, a_batch(2), trial="u")
    assert not exports.is_due(database, 49 * SECOND)
    assert exports.claim(database, now_ns=49 * SECOND, lease_ns=1) is None
    assert exports.is_due(database, 50 * SECOND)
    assert [take(database, now_ns=50 * SECOND).trial, take(database, now_ns=50 * SECOND).trial] == ["t", "u"]


def test_a_clock_that_jumped_back_holds_nobody_for_ever(database: sqlite3.Connection) -> None:
    put(database, a_batch(1))
    exports.hold(database, 10_000 * SECOND + exports.FAR_NS)
    assert exports.is_due(database, 9_000 * SECOND)


def test_a_full_outbox_drops_its_oldest_and_counts_them(database: sqlite3.Connection) -> None:
    put(database, a_batch(1, 2, body=bytes(range(256))), limit=300)
    put(database, a_batch(3, body=bytes(range(255, -1, -1))), trial="u", limit=300)
    assert exports.counts(database) == Counts(produced=3, pending=1, dropped={"store_limit": 2})
    assert take(database).trial == "u"


def test_a_batch_that_was_too_large_is_replaced_by_its_halves(database: sqlite3.Connection) -> None:
    put(database, a_batch(1, 2, 3))
    exports.split(database, take(database), [a_batch(1), a_batch(2, 3)])
    assert exports.counts(database) == Counts(produced=3, pending=3)
    assert [take(database).batch, take(database).batch] == [a_batch(1), a_batch(2, 3)]


def test_a_damaged_body_is_counted_and_the_next_one_goes(database: sqlite3.Connection) -> None:
    put(database, a_batch(1), a_batch(2))
    database.execute("UPDATE export_batches SET body = x'00' WHERE id = 1")
    database.commit()
    assert take(database).batch == a_batch(2)
    assert exports.counts(database).dropped == {"damaged": 1}


def test_a_trial_is_wanted_from_its_close_to_its_production_and_again_when_it_is_revised(
    database: sqlite3.Connection,
) -> None:
    trial = a_trial()
    with database:
        open_trial_row(database, trial, 1, None, None)
        exports.want(database, trial.trial, "cd" * 8, "ef" * 8, 5)
    assert exports.wanted(database) == []
    assert not exports.anything_left(database)
    with database:
        insert_trial(database, trial)
    (one,) = exports.wanted(database)
    assert (one.trial, one.root, one.parent, one.revision, one.newest) == (trial.trial, "cd" * 8, "ef" * 8, 0, 1)
    assert exports.anything_left(database)
    exports.add(database, one, [], now_ns=0, limit_bytes=MANY)
    assert exports.wanted(database) == []
    revised = a_trial(trial=trial.trial, verdict=a_verdict(revision=2))
    with database:
        insert_trial(database, revised)
    assert [(w.revision, w.newest) for w in exports.wanted(database)] == [(1, 2)]
    assert exports.wanted(database, revised=False) == []
    assert record_at(database, trial.trial, 1) == trial
    assert record_at(database, trial.trial, 2) == revised
    assert record_at(database, trial.trial, 3) is None


def test_the_counts_of_some_trials_are_theirs(database: sqlite3.Connection) -> None:
    put(database, a_batch(1))
    put(database, a_batch(2, 3), trial="u")
    assert exports.counts(database, ["u"]) == Counts(produced=2, pending=2)
    assert exports.counts(database, ["t", "u"]) == exports.counts(database)
    assert exports.laid_out(database, "u") is not None
    assert exports.laid_out(database, "nobody") is None


def test_the_writer_notes_that_a_trace_is_wanted(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "s.db", Journal(io.StringIO()))
    writer.want_trace("t", "cd" * 8, None)
    assert writer.flush(10)
    writer.close()
    database = open_database(tmp_path / "s.db")
    known = exports.laid_out(database, "t")
    database.close()
    assert known is not None
    assert (known.root, known.parent, known.revision) == ("cd" * 8, None, 0)


def claim_all(path: str, found: multiprocessing.Queue[list[bytes]]) -> None:
    database = open_database(Path(path))
    mine: list[bytes] = []
    while (claimed := exports.claim(database, now_ns=SECOND, lease_ns=3600 * SECOND)) is not None:
        mine.append(claimed.batch.ids)
        exports.settle(database, claimed.row, 0)
    database.close()
    found.put(mine)


def test_processes_that_share_a_store_never_claim_the_same_batch(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database = open_database(path)
    put(database, *(a_batch(n) for n in range(60)))
    context = multiprocessing.get_context("spawn")
    found: multiprocessing.Queue[list[bytes]] = context.Queue()
    processes = [context.Process(target=claim_all, args=(str(path), found)) for _ in range(2)]
    for process in processes:
        process.start()
    claimed = [ids for _ in processes for ids in found.get(timeout=60)]
    for process in processes:
        process.join(30)
    assert sorted(claimed) == sorted(a_batch(n).ids for n in range(60))
    assert exports.counts(database) == Counts(produced=60, exported=60)
    database.close()


class Ledger(RuleBasedStateMachine):
    """Any order of what can happen to batches keeps the books balanced and gives no id away twice."""

    def __init__(self) -> None:
        super().__init__()
        self.database = sqlite3.connect(":memory:")
        for statement in STATEMENTS:
            self.database.execute(statement)
        self.now_ns = SECOND
        self.numbers = iter(range(1 << 30))
        self.produced = 0
        self.out: list[Claimed] = []
        self.sent: list[bytes] = []

    @rule(sizes=st.lists(st.integers(1, 4), max_size=4), limit=st.sampled_from([60, MANY]))
    def produce(self, sizes: list[int], limit: int) -> None:
        batches = [a_batch(*(next(self.numbers) for _ in range(size))) for size in sizes]
        assert put(self.database, *batches, trial=str(next(self.numbers)), limit=limit)
        self.produced += sum(sizes)

    @rule(lease=st.integers(1, 5))
    def claim(self, lease: int) -> None:
        claimed = exports.claim(self.database, now_ns=self.now_ns, lease_ns=lease * SECOND)
        if claimed is not None:
            self.out.append(claimed)

    @rule(seconds=st.integers(1, 10))
    def time_passes(self, seconds: int) -> None:
        self.now_ns += seconds * SECOND

    @rule()
    def expire(self) -> None:
        exports.expire(self.database, self.now_ns)

    @rule(seconds=st.integers(1, 10))
    def hold(self, seconds: int) -> None:
        exports.hold(self.database, self.now_ns + seconds * SECOND)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), end=st.sampled_from(["taken", "partly", "refused", "unknown", "unsent", "too large"]))
    def answer(self, data: st.DataObject, end: str) -> None:
        claimed = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        ids = [claimed.batch.ids[at : at + 8] for at in range(0, len(claimed.batch.ids), 8)]
        if end in ("taken", "partly", "unknown"):
            self.sent += ids
        match end:
            case "taken" | "partly":
                exports.settle(self.database, claimed.row, 1 if end == "partly" else 0)
            case "refused" | "unknown":
                exports.drop(self.database, claimed.row, end)
            case "unsent":
                exports.put_back(self.database, claimed.row)
            case _:
                exports.split(self.database, claimed, [Batch(ids=one, body=b"") for one in ids])

    @invariant()
    def produced_is_exported_and_pending_and_dropped(self) -> None:
        counts = exports.counts(self.database)
        assert counts.produced == self.produced == counts.exported + counts.pending + counts.lost

    @invariant()
    def no_id_was_sent_twice(self) -> None:
        assert len(self.sent) == len(set(self.sent))

    def teardown(self) -> None:
        self.database.close()


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
