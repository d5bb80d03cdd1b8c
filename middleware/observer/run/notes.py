"""What the relay noted: a line of the record each, and for some a gap, a lost door, or a word at the end of the run.

In: the JSON of NOTE records.  Out: observations; `at_the_end`, what nobody could be told of while the command ran.
"""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.core.observations import DoorState, GapSeen, Note
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.wire import feed

OUT_OF_REACH: Final = "bridge.out_of_reach"
SAID_AT_THE_END: Final = frozenset({OUT_OF_REACH, "bridge.no_network", "bridge.proxy"})
"""Notes of the relay that nobody could be told of while the command ran."""


class RelayNotes:
    """The notes of one run's relay."""

    def __init__(self, book: TrialBook) -> None:
        self._book = book
        self._source = book.source
        self.at_the_end: list[str] = []
        """What the relay noted while the command ran, and the user should know."""

    def take(self, record: feed.Record) -> None:
        """Handle a NOTE."""
        facts = record.json()
        event, text = str(facts.pop("event", "")), facts.pop("text", None)
        if event == "swallowed":  # a fault of ours beside the traffic: the bytes passed, their copy did not
            at_ns = self._book.begun.wall_at(record.t_ns)
            why = f"fairtrial itself failed while it looked ({facts.get('error')})"
            families = ["model_api"]
            self._source.emit(GapSeen(source="relay", families=families, since_ns=at_ns, until_ns=at_ns, why=why))
        if event in SAID_AT_THE_END and text is not None:
            self.at_the_end.append(str(text))
        if event == OUT_OF_REACH:  # of a door that was promised: calls from there fail, and are not seen
            self._source.emit(DoorState(name="bridge", ok=False, why=str(text)))
        self._source.emit(Note(event=event, text=None if text is None else str(text), fields=facts))
