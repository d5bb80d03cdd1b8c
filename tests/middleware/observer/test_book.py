"""The book of one trial: what is held in memory, what is read back, and what is said when it cannot be."""

from __future__ import annotations

import contextlib
import io
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import CoverageChanged, Note, TrialEnded, TrialStarted
from fairtrial.middleware.core.records import Blame, Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import this_host
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.store.database import observations_of, open_database
from fairtrial.middleware.store.writer import Owner, StoreWriter

TRIAL = "01930000-0000-7000-8000-00000000000a"
KEEP = 100
NOTES = 400


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[StoreWriter]:
    made = StoreWriter(tmp_path / "s.db", Journal(io.StringIO()), trial=TRIAL)
    yield made
    made.close()


def book(writer: StoreWriter, *, notes: int = NOTES, sealed: bool = True) -> TrialBook:
    """A trial that has begun and of which that much was noted."""
    made = TrialBook(
        TRIAL,
        writer=writer,
        journal=Journal(io.StringIO()),
        host=this_host(),
        begun=clock.now(),
        keep=KEEP,
        sealed=sealed,
    )
    made.open(TrialStarted(command=["agent"]), Owner(1, None, None), [])
    made.source.emit(CoverageChanged(source="collector.x", families=["memory"], state="lost", why="early"))
    for number in range(notes):
        made.source.emit(Note(event="n", fields={"number": number}))
    return made


def closed(made: TrialBook, writer: StoreWriter, tamper: str | None = None) -> Trial:
    """As `app.py` does it."""
    made.end(TrialEnded(exit_code=1), mono_ns=clock.mono_ns())
    written = made.mark()
    assert writer.flush(10)
    if tamper is not None:
        with contextlib.closing(sqlite3.connect(writer.path, timeout=10)) as database, database:
            database.execute(tamper)
    made.verify(written)
    return made.judge(DEFAULT_THRESHOLDS)


def stored(writer: StoreWriter) -> list[str]:
    assert writer.flush(10)
    with contextlib.closing(open_database(writer.path, read_only=True)) as database:
        return [o.kind for o in observations_of(database, TRIAL)]


def test_memory_is_bounded_and_what_was_let_go_is_judged_with_the_rest(writer: StoreWriter) -> None:
    made = book(writer)
    kinds = [o.kind for o in made.held()]
    assert len(kinds) < KEEP + 100
    assert kinds[0] == TrialStarted.kind and CoverageChanged.kind in kinds, "what says what it was stays"
    record = closed(made, writer)
    assert record.coverage.gaps == []
    assert (record.command, record.exit_code) == (["agent"], 1)
    assert len(stored(writer)) == NOTES + 3


@pytest.mark.parametrize(
    "tamper, says",
    [
        ("DELETE FROM observations WHERE seq = 50", ("1 of", "added 0", "1 of them are lost")),
        ("UPDATE observations SET body = zeroblob(9) WHERE seq IN (50, 51)", ("removed", "of them are lost")),
        ("DELETE FROM observations WHERE seq > 380", ("added 0",)),
        ("DELETE FROM observations", (f"{NOTES + 3} of {NOTES + 3}", "of them are lost")),
        ("DROP TABLE observations", ("vanished or was damaged", "of them are lost")),
    ],
    ids=["one-let-go", "overwritten", "held-ones", "all", "no-table"],
)
def test_rows_that_changed_are_a_gap_and_those_in_memory_are_put_back(
    writer: StoreWriter, tamper: str, says: tuple[str, ...]
) -> None:
    made = book(writer)
    held = sum(1 for _ in made.held())
    record = closed(made, writer, tamper)
    assert record.verdict is not None and record.verdict.blame is Blame.INDETERMINATE
    (gap,) = record.coverage.gaps
    assert gap.source == "store" and gap.why is not None
    for words in says:
        assert words in gap.why, gap.why
    if "vanished" not in gap.why:
        assert len(stored(writer)) >= held
        assert stored(writer).count(TrialStarted.kind) == 1
    assert record.command == ["agent"], "what is in memory is judged whatever the store gives"


def test_rows_that_were_in_memory_are_not_called_lost(writer: StoreWriter) -> None:
    record = closed(book(writer), writer, "DELETE FROM observations WHERE seq > 380")
    assert "lost" not in (record.coverage.gaps[0].why or "")
    assert len(stored(writer)) == NOTES + 4, "all rows and the gap"


def test_without_seals_what_cannot_be_read_back_is_a_gap_too(writer: StoreWriter) -> None:
    """A `serve` does not look whether rows were changed; a record that is not whole is never judged as if it were."""
    record = closed(book(writer, sealed=False), writer, "DELETE FROM observations WHERE seq = 50")
    (gap,) = record.coverage.gaps
    assert gap.source == "store" and "1 of" in (gap.why or "")
    assert record.verdict is not None and record.verdict.blame is Blame.INDETERMINATE


def test_a_store_that_takes_nothing_gives_nothing_back_so_nothing_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"this is no database" * 100)
    writer = StoreWriter(tmp_path / "s.db", Journal(io.StringIO()), trial=TRIAL)
    assert writer.flush(10)
    made = book(writer)
    assert sum(1 for _ in made.held()) == NOTES + 2
    assert closed(made, writer).coverage.gaps == []
    writer.close()


def test_a_successor_holds_no_more_than_its_predecessor_did(writer: StoreWriter) -> None:
    book(writer)
    assert writer.flush(10)
    made = TrialBook(
        TRIAL,
        writer=writer,
        journal=Journal(io.StringIO()),
        host=this_host(),
        begun=clock.now(),
        keep=KEEP,
        sealed=True,
    )
    assert len(made.resume()) == NOTES + 2
    assert sum(1 for _ in made.held()) < KEEP + 100
    assert closed(made, writer).coverage.gaps == []
