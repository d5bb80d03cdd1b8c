"""Open trials of a serve: which token names one, when they are over, and how many there may be."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core.hello import DoorInfo, Hello, ServeInfo
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    GapSeen,
    ReplyFacts,
    RequestFacts,
    Subject,
    TrialStarted,
    decode,
)
from fairtrial.middleware.core.records import Blame, Outcome
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.observer.trials import KEPT_OBSERVATIONS, OpenTrials, trial_name
from fairtrial.middleware.store.database import latest_record, observations_of, open_database
from fairtrial.middleware.store.queries import list_open_rows
from fairtrial.middleware.store.writer import StoreWriter

SECOND = 1_000_000_000
ASKED = RequestFacts(operation="chat", has_tools=True)


class Many:
    """Open trials on a real store; `at` is what the relay's clock says."""

    def __init__(self, store: Path, serve: ServeInfo) -> None:
        self.start_ns = time.monotonic_ns()
        hello = Hello(
            pid=os.getpid(),
            wall_ns=time.time_ns(),
            mono_ns=self.start_ns,
            run="nightly",
            doors=[DoorInfo(name="anthropic", host="api.anthropic.com", port=443)],
            serve=serve,
        )
        self.journal = Journal(open(os.devnull, "w"))  # noqa: SIM115 - closed by `close`
        self.writer = StoreWriter(store, self.journal)
        self.began: dict[str, str | None] = {}
        """Open trial -> its trace, as they were told."""
        self.trials = OpenTrials(
            hello,
            self.writer,
            self.journal,
            this_host(),
            thresholds=DEFAULT_THRESHOLDS,
            on_opened=lambda trial, _span, trace: self.began.__setitem__(trial, trace),
        )
        self.source = Source("door.model", self.trials.take, host=this_host())
        self.store = store

    def call(self, trial: str, at_s: float, *, end: bool = True) -> None:
        """A call of a trial at this many seconds after the start."""
        at_ns = self.start_ns + round(at_s * SECOND)
        self.trials.now(at_ns)
        attempt = f"{trial}/{at_s}"
        self.source.emit(AttemptStarted(attempt=attempt, request=ASKED), subject=Subject(trial=trial), mono_ns=at_ns)
        if end:
            ended = AttemptEnded(attempt=attempt, request=ASKED, outcome="ok", reply=ReplyFacts(status=200))
            self.source.emit(ended, subject=Subject(trial=trial), mono_ns=at_ns)

    def close(self) -> None:
        self.writer.close()
        self.journal._stream.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def many(store: Path) -> Iterator[Many]:
    with contextlib.closing(Many(store, ServeInfo(idle_s=10.0, max_trials=3))) as made:
        yield made


@pytest.mark.parametrize(
    "token, guarded, name",
    [
        ("django-1", False, "django-1"),
        ("SECRET.django-1", True, "django-1"),
        ("SECRET.a.b", True, "a.b"),
        ("SECRET", True, None),
        ("SECRET.", True, None),
        ("a/b", False, None),
        ("", False, None),
        (".a", False, None),
        ("x" * 129, False, None),
    ],
)
def test_the_name_in_a_path(token: str, guarded: bool, name: str | None) -> None:
    assert trial_name(token, guarded=guarded) == name


def test_a_name_opens_a_trial_once(many: Many) -> None:
    one, two = many.trials["one"], many.trials["two"]
    assert one != two and many.trials["one"] == one
    assert list(many.began) == [one, two]
    assert "a/b" not in many.trials and many.trials.get("") is None
    assert many.trials.named("one") == one == many.trials.named(one)
    assert many.trials.named("three") is None


def test_a_trial_is_idle_by_the_relays_clock_but_not_within_a_call(many: Many) -> None:
    one, two = many.trials["one"], many.trials["two"]
    many.call(one, 0)
    many.call(two, 1, end=False)
    assert many.trials.idle(many.start_ns + 9 * SECOND) == []
    assert many.trials.idle(many.start_ns + 60 * SECOND) == [one]


def test_one_too_many_closes_the_one_that_was_silent_longest_and_is_in_no_call(many: Many) -> None:
    busy, silent, active = many.trials["busy"], many.trials["silent"], many.trials["active"]
    many.call(busy, 0, end=False)
    many.call(silent, 1)
    many.call(active, 2)
    fourth = many.trials["fourth"]
    assert [opened.book.trial for opened in many.trials.evicted] == [silent]
    assert set(many.trials.open_ids) == {busy, active, fourth}
    assert many.trials["silent"] != silent, "its name begins another"


def test_a_flood_of_names_stays_within_the_bound_and_is_quick(many: Many) -> None:
    for number in range(3000):
        many.trials[f"name-{number}"]
    assert len(many.trials.open_ids) == 3
    assert len(many.trials.evicted) == 2997
    assert len(many.trials) == 3, "names of those that are over are forgotten"


def test_a_gap_of_the_feed_is_a_gap_of_each_open_trial(many: Many) -> None:
    one, two = many.trials["one"], many.trials["two"]
    many.source.emit(GapSeen(source="feed", lost_records=5))
    many.writer.flush(10)
    with contextlib.closing(open_database(many.store, read_only=True)) as database:
        for trial in (one, two):
            gaps = [decode(o) for o in observations_of(database, trial) if o.kind == GapSeen.kind]
            assert gaps == [GapSeen(source="feed", lost_records=5)]


def test_a_judged_trial_has_its_run_its_evidence_and_an_unknown_outcome(many: Many) -> None:
    one = many.trials["one"]
    many.call(one, 1)
    opened = many.trials.take_out(one)
    assert opened is not None and many.trials.take_out(one) is None
    closed = many.trials.judge(opened, whole=True, why="idle")
    record = closed.record
    assert (record.name, record.run, record.outcome, record.closed) == ("one", "nightly", Outcome.UNKNOWN, "normal")
    assert record.verdict is not None and record.verdict.blame is Blame.INDETERMINATE
    assert len(record.steps) == 1
    many.writer.flush(10)
    with contextlib.closing(open_database(many.store, read_only=True)) as database:
        assert latest_record(database, one) == record
        assert list_open_rows(database) == []


def test_a_long_trial_is_kept_in_the_store_and_judged_whole(many: Many) -> None:
    one = many.trials["one"]
    calls = KEPT_OBSERVATIONS
    for number in range(calls):
        many.call(one, number / 1000)
    opened = many.trials.take_out(one)
    assert opened is not None
    assert sum(1 for _ in opened.book.held()) < KEPT_OBSERVATIONS + 100, "memory is given back"
    record = many.trials.judge(opened, whole=True, why="idle").record
    attempts = sum(len(call.attempts) for step in record.steps for call in step.calls)
    assert attempts == calls


def test_a_successor_goes_on_with_named_trials_and_says_the_gap(many: Many, store: Path) -> None:
    named = many.trials["one"]
    many.call(named, 0)
    many.trials.open("01930000-0000-7000-8000-00000000000b", None)
    many.writer.flush(10)
    with contextlib.closing(Many(store, ServeInfo())) as successor:
        with contextlib.closing(open_database(store, read_only=True)) as database:
            rows = [row for row, owner in list_open_rows(database) if successor.trials.is_ours(owner)]
        since_ns = time.monotonic_ns() - SECOND
        told = {row.trial: successor.trials.take_over(row, since_ns=since_ns) for row in rows}
        assert told == {named: True, "01930000-0000-7000-8000-00000000000b": False}
        assert successor.trials["one"] == named
        assert successor.began[named] == many.began[named] is not None, "its trace is that of its calls before"
        opened = successor.trials.take_out(named)
        assert opened is not None
        held = list(opened.book.held())
        kinds = [o.kind for o in held]
        assert kinds.count(TrialStarted.kind) == 1 and kinds[-1] == GapSeen.kind
        gap = decode(held[-1])
        assert isinstance(gap, GapSeen) and gap.since_ns is not None and gap.until_ns is not None
        assert 0.9 < (gap.until_ns - gap.since_ns) / SECOND < 60
