"""Typed internal events: one object owns its log line and its counter, so nothing logs or counts by hand.

In: `Journal.note(Event(...))` from any room of the observer process.  Out: one structured line in the
observer's log and one counter by event name and bounded label.  Never a line per item: repeated events of one
name and label are counted always and logged at powers of two.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, fields
from typing import TextIO

from fairtrial.middleware.core.masking import mask_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base: subclasses are named noun + past verb; the field `label`, where there is one, is of bounded cardinality."""

    @property
    def key(self) -> tuple[str, str]:
        """Name and label under which the event is counted."""
        return type(self).__name__, str(getattr(self, "label", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed(Event):
    """The store could not be opened or written; observations go to the spill file."""

    label: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIgnored(Event):
    """A feed record could not be used; the run goes on."""

    label: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFailed(Event):
    """An exporter could not deliver; the record in the store is complete."""

    label: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorFailed(Event):
    """A collector ended by an exception; its family is no longer covered."""

    label: str
    detail: str


class Journal:
    """Counts events and writes them as JSON lines to a stream (the observer's stderr is its log file)."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self.counts: Counter[tuple[str, str]] = Counter()

    def note(self, event: Event) -> None:
        """Count the event; write its line the 1st, 2nd, 4th, 8th … time."""
        self.counts[event.key] += 1
        times = self.counts[event.key]
        if times & (times - 1):
            return
        line = {"at_ns": time.time_ns(), "event": type(event).__name__, "times": times}
        line |= {f.name: mask_text(str(getattr(event, f.name))) for f in fields(event)}
        try:
            self._stream.write(json.dumps(line, default=str) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            return
