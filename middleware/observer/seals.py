"""What was handed to the store, as 16 bytes a row: enough to tell later which rows are still what they were.

In: observations as they are written, and as they are read back.  Out: who changed.  Under `fairtrial run` the agent has
our uid and could edit the store; the observations themselves would cost kilobytes each for as long as a trial lasts.
The seals convict; they give nothing back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

from fairtrial.middleware.core.observations import Observation

_SIZE: Final = 16
_NONE: Final = bytes(_SIZE)
_FARTHEST: Final = 1 << 16
"""Numbers of one source that are left out at once; a row that says more (a forged one, read back) is kept apart."""


@dataclass(frozen=True, slots=True)
class Compared:
    """`genuine`: rows that are as they were written, each once.  `changed` were, and are so no more; `added` never
    were."""

    genuine: list[Observation]
    changed: int
    added: int


class Seals:
    """Of all rows of one trial, by source and number."""

    def __init__(self) -> None:
        self._key = os.urandom(_SIZE)
        self._lines: dict[str, bytearray] = {}
        self._apart: dict[tuple[str, int], bytes] = {}

    def add(self, observation: Observation) -> None:
        """A row is about to be written.  The first with a number counts, as in the store."""
        source, seq = observation.source_id, observation.seq
        line = self._lines.setdefault(source, bytearray())
        end = seq * _SIZE
        if seq < 1 or end > len(line) + _FARTHEST * _SIZE:
            self._apart.setdefault((source, seq), self._of(observation))
            return
        if end > len(line):
            line.extend(bytes(end - len(line)))
        if line[end - _SIZE : end] == _NONE:
            line[end - _SIZE : end] = self._of(observation)

    def mark(self) -> Mapping[str, int]:
        """How far each source has come by now."""
        return {source: len(line) // _SIZE for source, line in self._lines.items()}

    def holds(self, observation: Observation) -> bool:
        """Whether a row that was read back is as it was written."""
        source, seq = observation.source_id, observation.seq
        line = self._lines.get(source, b"")
        return self._of(observation) in (line[(seq - 1) * _SIZE : seq * _SIZE], self._apart.get((source, seq)))

    def compare(self, stored: Iterable[Observation], upto: Mapping[str, int], *, keep: bool = True) -> Compared:
        """Look at what the store holds.  A row that is missing has changed, unless it came after `upto`.

        Without `keep` no genuine row is given back: they may be more than memory should hold.
        """
        seen = {source: bytearray(len(line) // _SIZE) for source, line in self._lines.items()}
        apart: set[tuple[str, int]] = set()
        genuine: list[Observation] = []
        added = 0
        for row in stored:
            source, seq = row.source_id, row.seq
            line, marks = self._lines.get(source, b""), seen.get(source, bytearray())
            if 1 <= seq <= len(marks) and not marks[seq - 1] and line[(seq - 1) * _SIZE : seq * _SIZE] == self._of(row):
                marks[seq - 1] = 1
            elif (source, seq) not in apart and self._apart.get((source, seq)) == self._of(row):
                apart.add((source, seq))
            else:
                # One that was written, but differently, is missing below.
                added += not self._knows(source, seq)
                continue
            if keep:
                genuine.append(row)
        changed = len(self._apart) - len(apart)
        for source, last in upto.items():
            line, marks = self._lines[source], seen[source]
            changed += sum(
                not marks[at] and line[at * _SIZE : (at + 1) * _SIZE] != _NONE for at in range(min(last, len(marks)))
            )
        return Compared(genuine, changed, added)

    def _knows(self, source: str, seq: int) -> bool:
        line = self._lines.get(source, b"")
        within = seq >= 1 and line[(seq - 1) * _SIZE : seq * _SIZE] not in (b"", _NONE)
        return within or (source, seq) in self._apart

    def _of(self, observation: Observation) -> bytes:
        return blake2b(msgspec.json.encode(observation), digest_size=_SIZE, key=self._key).digest()
