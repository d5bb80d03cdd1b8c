"""The end of a run with several trials: the same from memory and from the store, and without forged rows."""

from __future__ import annotations

import contextlib
import io
import sqlite3
from pathlib import Path

import msgspec
import pytest

from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import TrialEnded
from fairtrial.middleware.core.records import Blame, Run, Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import this_host
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.observer.many import FinishedRun
from fairtrial.middleware.parted import PartedRun
from fairtrial.middleware.steps.parting import part
from fairtrial.middleware.steps.run_facts import RunFacts
from fairtrial.middleware.store.writer import Owner, StoreWriter
from tests.middleware.steps.crowd import EPOCH_NS, ROOT, Crowd

ENDED = TrialEnded(exit_code=0)


def crowd() -> Crowd:
    """Two trials of 60 calls, and one that its API ended."""
    told = Crowd()
    for name in ("one", "two"):
        told.talk(1, 60, named=name, session=name, every=0.6)
    told.talk(1.1, 1, named="bad", session="b", asks=[("t", "Bash", "ls")])
    for n in range(3):
        told.call(4 + n, 1, named="bad", session="b", brings=["t"], ok=False)
    told.end(99)
    return told


def finished(path: Path, *, keep: int | None, tamper: str | None = None, told: Crowd | None = None) -> FinishedRun:
    """As `app.py` does it."""
    journal = Journal(io.StringIO())
    writer = StoreWriter(path, journal, trial=ROOT)
    facts = RunFacts(ROOT)
    begun = clock.Instant(EPOCH_NS, 0)
    book = TrialBook(
        ROOT, writer=writer, journal=journal, host=this_host(), begun=begun, keep=keep, sealed=True, also=facts.take
    )
    for observation in (told or crowd()).observations:
        book.take(observation)
    assert book.whole_in_memory is (keep is None)
    parting = part(facts, named=True)
    assert parting is not None
    assert writer.flush(30)
    book.verify(book.mark(), keep=False)
    if tamper is not None:
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as database, database:
            database.execute(tamper)
    parted = PartedRun(facts, parting, writer=writer, host=this_host(), owner=Owner(1, None, None), closed="normal")
    run = FinishedRun(parted, book, writer, journal, thresholds=DEFAULT_THRESHOLDS, whole=True)
    run.judge_all(None)
    writer.close(30)
    assert writer.failed is None
    return run


def record(run: FinishedRun) -> Run:
    content = run.record(run="nightly", command=["harness"], exit_code=0)
    assert content is not None
    return msgspec.json.decode(content, type=Run)


def by_name(run: FinishedRun) -> dict[str, Trial]:
    return {trial.name or "": trial for trial in record(run).trials}


def test_a_run_that_memory_does_not_hold_is_judged_as_one_that_it_holds(tmp_path: Path) -> None:
    told = crowd()
    one, other = (finished(tmp_path / f"{keep}.db", keep=keep, told=told) for keep in (None, 50))
    first, second = by_name(one), by_name(other)
    assert set(first) == set(second) == {"one", "two", "bad"}
    for name, trial in first.items():
        assert (trial.steps, trial.coverage, trial.closed) == (
            second[name].steps,
            second[name].coverage,
            second[name].closed,
        )
    assert [len(first[name].steps) for name in ("one", "two", "bad")] == [60, 60, 2]
    assert one.lines(run="nightly", ended=ENDED, verbose=False) == other.lines(
        run="nightly", ended=ENDED, verbose=False
    )


def test_the_record_of_the_run_names_counts_and_the_gate_asks_for_a_retry(tmp_path: Path) -> None:
    run = finished(tmp_path / "s.db", keep=None)
    whole = record(run)
    assert (whole.run, whole.command, whole.exit_code, whole.unassigned) == ("nightly", ["harness"], 0, {})
    assert whole.counts["trials"] == 3
    assert whole.counts["ended_by_outside"] == 1
    assert run.gate == 75
    assert "ended from outside, proved · model_api.overloaded: bad in step 2" in "\n".join(
        run.lines(run="nightly", ended=ENDED, verbose=False)
    )


@pytest.mark.parametrize(
    "tamper",
    ["DELETE FROM observations WHERE seq = 30", "UPDATE observations SET body = x'00' WHERE seq = 30"],
    ids=["removed", "changed"],
)
def test_rows_that_somebody_took_away_are_said_and_nothing_is_concluded_without_them(
    tmp_path: Path, tamper: str
) -> None:
    trials = by_name(finished(tmp_path / "s.db", keep=50, tamper=tamper))
    struck = [name for name, trial in trials.items() if any(gap.source == "store" for gap in trial.coverage.gaps)]
    assert struck
    for name in struck:
        verdict = trials[name].verdict
        assert verdict is not None
        assert verdict.blame is Blame.INDETERMINATE
