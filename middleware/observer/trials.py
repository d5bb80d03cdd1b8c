"""The open trials of a `serve`: opened by their first call, closed when idle or said to be over, judged, stored.

In: observations with a subject, and the names that requests bear in their paths.  Out: rows in the store, and each
closed trial's record to `on_closed`.  What this module does not do: tell whose a request is (`steps/trials.py`), read
the feed, export.

A trial that a path names (`/t/NAME/`) lives until `idle_s` without a call or until somebody says that it is over; the
others are opened and closed by the resolver.  At most `max_trials` are open: beyond that the one that was silent
longest is closed.  Nobody tells a `serve` whether a trial passed, so its outcome stays unknown.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from fairtrial.middleware.core import clock, ids
from fairtrial.middleware.core.config import Thresholds
from fairtrial.middleware.core.hello import Hello, ServeInfo
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    AttemptStarted,
    GapSeen,
    Host,
    Observation,
    TrialEnded,
    TrialStarted,
    decode,
)
from fairtrial.middleware.core.records import FAMILIES, Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.observer.machine import start_ticks
from fairtrial.middleware.store.queries import OpenTrial, TrialRow
from fairtrial.middleware.store.writer import UNCOMMITTED_S, Owner, StoreWriter

KEPT_OBSERVATIONS: Final = 1000
"""Observations of one trial kept in memory; a trial with more is read back from the store when it is judged."""
MODE: Final = "serve"
_CANDIDATES: Final = 64
"""Of so many that were silent longest the first without an open call is closed, where there are too many."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")


@dataclass(slots=True)
class OpenedTrial:
    """One open trial; times by CLOCK_MONOTONIC."""

    book: TrialBook
    name: str | None
    named: bool
    """Its requests bear its name in their path, or the settings tell its key or its peer."""
    root_span_id: str
    last_ns: int
    calls: int = 0
    attempts: int = 0
    """Begun and not ended."""


@dataclass(frozen=True, slots=True)
class ClosedTrial:
    """A trial that is stored, for whoever exports it."""

    record: Trial
    root_span_id: str


class NamedBy(Mapping[str, str]):
    """What the resolver asks about keys and peers: such a value → id of the trial that the settings name for it."""

    def __init__(self, trials: OpenTrials, names: Mapping[str, str]) -> None:
        self._trials = trials
        self._names = names

    def __getitem__(self, value: str) -> str:
        return self._trials.for_name(self._names[value])

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def trial_name(token: str, *, guarded: bool) -> str | None:
    """The name in a path's `/t/<token>/`: `NAME`, or `SECRET.NAME` at a guarded door; None when it names none."""
    name = token.partition(".")[2] if guarded else token
    return name if _NAME.fullmatch(name) else None


class OpenTrials(Mapping[str, str]):
    """All open trials.  As a mapping it is what the resolver asks: a path's token → trial id, opened when it is new."""

    def __init__(
        self,
        hello: Hello,
        writer: StoreWriter,
        journal: Journal,
        host: Host,
        *,
        thresholds: Thresholds,
        on_opened: Callable[[str, str, str | None], None],
    ) -> None:
        """`on_opened` is told of each trial that is open from now on, its root span and its trace, once its row is on
        the way to the store."""
        self._hello = hello
        self._serve = hello.serve or ServeInfo()
        self._writer = writer
        self._journal = journal
        self._host = host
        self._thresholds = thresholds
        self._on_opened = on_opened
        self._start = clock.Instant(hello.wall_ns, hello.mono_ns)
        self._owner = Owner(hello.pid, host.boot_id, start_ticks(hello.pid))
        self._open: OrderedDict[str, OpenedTrial] = OrderedDict()
        """The one that was silent longest first."""
        self._by_name: dict[str, str] = {}
        self._now_ns = hello.mono_ns
        self.opened = 0
        self.evicted: deque[OpenedTrial] = deque()
        """Taken out because there were too many: somebody must `judge` them."""

    # --- the mapping ----------------------------------------------------------------------------------------------

    def __getitem__(self, token: str) -> str:
        name = trial_name(token, guarded=self._serve.guarded)
        if name is None:
            raise KeyError(token)
        return self.for_name(name)

    def for_name(self, name: str) -> str:
        """The open trial of a name that an operator or a path gives; opened when it is new."""
        known = self._by_name.get(name)
        if known is None:
            known = ids.new_id()
            self.open(known, name, named=True)
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    # --- begin ----------------------------------------------------------------------------------------------------

    @property
    def open_ids(self) -> tuple[str, ...]:
        """The one that was silent longest first."""
        return tuple(self._open)

    def named(self, wanted: str) -> str | None:
        """The open trial of this name or id."""
        if wanted in self._open:
            return wanted
        found = self._by_name.get(wanted)
        return found or next((key for key, opened in self._open.items() if opened.name == wanted), None)

    def open(self, trial: str, name: str | None, *, named: bool = False) -> None:
        """A trial begins now: with the call that is being looked at."""
        book = self._book(trial, self._now_ns)
        span = ids.new_span_id()
        started = TrialStarted(
            name=name,
            run=self._hello.run,
            trace_id=ids.new_trace_id(),
            root_span_id=span,
            options={"mode": MODE, "named": named},
        )
        book.open(started, self._owner, self._hello.doors)
        self._add(trial, OpenedTrial(book, name, named, span, self._now_ns))
        self.opened += 1
        self._on_opened(trial, span, started.trace_id)

    def _book(self, trial: str, mono_ns: int) -> TrialBook:
        return TrialBook(
            trial,
            writer=self._writer,
            journal=self._journal,
            host=self._host,
            begun=clock.Instant(self._start.wall_at(mono_ns), mono_ns),
            keep=KEPT_OBSERVATIONS,
        )

    def _add(self, trial: str, opened: OpenedTrial) -> None:
        self._open[trial] = opened
        if opened.named and opened.name is not None:
            self._by_name[opened.name] = trial
        if len(self._open) > self._serve.max_trials:
            oldest = tuple(islice(self._open, _CANDIDATES))
            silent = next((key for key in oldest if not self._open[key].attempts), oldest[0])
            evicted = self.take_out(silent)
            assert evicted is not None
            self.evicted.append(evicted)

    def is_ours(self, row: OpenTrial) -> bool:
        """Whether a trial that the store calls open belongs to this relay process."""
        return (row.pid, row.boot_id, row.start_ticks) == (
            self._owner.pid,
            self._owner.boot_id,
            self._owner.start_ticks,
        )

    def take_over(self, row: TrialRow, *, since_ns: int | None) -> bool:
        """A predecessor's open trial goes on, with a gap to now from what it had not committed when it died.

        `since_ns`: when it died, CLOCK_MONOTONIC.  False: its requests do not bear its name, so nobody could tell that
        they are its own; it can only be closed.
        """
        now = clock.now()
        book = self._book(row.trial, now.mono_ns - max(0, now.wall_ns - row.started_ns))
        begun = next((o for o in book.resume() if o.kind == TrialStarted.kind), None)
        said = decode(begun) if begun is not None else TrialStarted()
        assert isinstance(said, TrialStarted)
        named = bool(said.options.get("named")) and row.name is not None
        root = said.root_span_id or ids.new_span_id()
        self._add(row.trial, OpenedTrial(book, row.name, named, root, now.mono_ns))
        self._on_opened(row.trial, root, said.trace_id)
        gap = GapSeen(
            source="observer",
            families=list(FAMILIES),
            since_ns=None if since_ns is None else now.wall_at(since_ns) - round(UNCOMMITTED_S * 1e9),
            until_ns=now.wall_ns,
            why="the observer process was killed or crashed",
        )
        book.source.emit(gap)
        return named

    # --- while it goes on -----------------------------------------------------------------------------------------

    def now(self, mono_ns: int) -> None:
        """The time of what is looked at, by the relay's CLOCK_MONOTONIC."""
        self._now_ns = max(self._now_ns, mono_ns)

    def take(self, observation: Observation) -> None:
        """The sink of the tracker.  What concerns no trial in particular (a gap of the feed) concerns each."""
        trial = observation.subject.trial
        opened = self._open.get(trial) if trial is not None else None
        if opened is None:
            self._writer.put(observation)
            if trial is None and observation.kind == GapSeen.kind:
                gap = decode(observation)
                assert gap is not None
                for each in self._open.values():
                    each.book.source.emit(gap, wall_ns=observation.wall_ns, mono_ns=observation.mono_ns)
            return
        opened.book.take(observation)
        if observation.kind == AttemptStarted.kind:
            opened.attempts += 1
            opened.calls += 1
        elif observation.kind == AttemptEnded.kind:
            opened.attempts = max(0, opened.attempts - 1)
        opened.last_ns = max(opened.last_ns, observation.mono_ns)
        self._open.move_to_end(observation.subject.trial or "")

    def idle(self, now_ns: int) -> list[str]:
        """Trials named by their path that had no call for `idle_s`."""
        before_ns = now_ns - round(self._serve.idle_s * 1e9)
        return [
            trial
            for trial, opened in self._open.items()
            if opened.named and not opened.attempts and opened.last_ns <= before_ns
        ]

    # --- end ------------------------------------------------------------------------------------------------------

    def take_out(self, trial: str) -> OpenedTrial | None:
        """The trial is over from now on; its name may begin another.  It must be given to `judge`."""
        opened = self._open.pop(trial, None)
        if opened is None:
            return None
        if opened.name is not None and self._by_name.get(opened.name) == trial:
            del self._by_name[opened.name]
        return opened

    def judge(self, opened: OpenedTrial, *, whole: bool, why: str) -> ClosedTrial:
        """Close the books of a trial that was taken out; may run in a thread.  `whole`: its end was seen."""
        opened.book.end(TrialEnded(closed="normal" if whole else "incomplete", why=why), mono_ns=opened.last_ns)
        return ClosedTrial(opened.book.judge(self._thresholds), opened.root_span_id)
