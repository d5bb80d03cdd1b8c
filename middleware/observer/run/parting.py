"""Whether the command ran several trials, and how each of them ends.

In: every observation of the run.  Out: a `Parting` as far as can be told, and a `FinishedRun`.  A fault in telling
apart leaves the run one trial.
"""

from __future__ import annotations

from fairtrial.middleware.core.config import Thresholds
from fairtrial.middleware.core.hello import Hello
from fairtrial.middleware.core.observations import Host, Observation, TrialEnded
from fairtrial.middleware.core.selfevents import Journal, RecordIgnored
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.observer.machine import start_ticks
from fairtrial.middleware.observer.many import FinishedRun
from fairtrial.middleware.parted import PartedRun
from fairtrial.middleware.steps.parting import Parting, part
from fairtrial.middleware.steps.run_facts import RunFacts
from fairtrial.middleware.store.writer import Owner, StoreWriter


class TellingApart:
    """The facts of one run that may tell trials apart."""

    def __init__(self, hello: Hello, journal: Journal, *, host: Host) -> None:
        self._hello = hello
        self._journal = journal
        self._host = host
        self._facts = RunFacts(hello.trial)

    @property
    def too_many(self) -> bool:
        """Trials had names, but they are too many, or too strange, to be told apart."""
        return self._facts.too_many and self._facts.named

    def look(self, observation: Observation) -> None:
        """What may tell trials apart; a fault in it leaves the run one trial."""
        try:
            self._facts.take(observation)
        except Exception as error:  # noqa: BLE001 - nothing may keep an observation from its book
            self._facts.too_many = True
            self._journal.note(RecordIgnored(label="facts", detail=repr(error)))

    def parted(self) -> Parting | None:
        """Whether the command ran several trials, as far as can be told now."""
        try:
            return part(self._facts, named=self._facts.named)
        except Exception as error:  # noqa: BLE001 - what cannot be parted stays one trial
            self._journal.note(RecordIgnored(label="parting", detail=repr(error)))
            return None

    def finished(
        self,
        parting: Parting,
        book: TrialBook,
        writer: StoreWriter,
        *,
        thresholds: Thresholds,
        ended: TrialEnded,
    ) -> FinishedRun:
        """What gives each trial its record; nothing is written yet."""
        hello = self._hello
        owner = Owner(hello.pid, self._host.boot_id, start_ticks(hello.pid))
        parted = PartedRun(
            self._facts,
            parting,
            writer=writer,
            host=self._host,
            owner=owner,
            closed=ended.closed,
            ended=ended,
        )
        return FinishedRun(parted, book, writer, self._journal, thresholds=thresholds, whole=hello.json is not None)
