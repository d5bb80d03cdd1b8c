"""Which rows of the store belong to what, at some 16 bytes a row: a run of hours has hundreds of thousands.

In: what a row belongs to, and its source and number.  Out: the same, by what they belong to.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Row = tuple[str, int]
"""(source id, number)."""

_Key = TypeVar("_Key", bound=Hashable)


class RowLog(Generic[_Key]):
    """Three columns: of each row what it belongs to, its source, its number there."""

    def __init__(self) -> None:
        self._key_numbers: dict[_Key, int] = {}
        self._source_numbers: dict[str, int] = {}
        self._keys = array("I")
        self._sources = array("I")
        self._seqs = array("q")

    def __len__(self) -> int:
        return len(self._seqs)

    @property
    def kept_bytes(self) -> int:
        """What the columns take."""
        return sum(map(sys.getsizeof, (self._keys, self._sources, self._seqs)))

    def add(self, key: _Key, source_id: str, seq: int) -> None:
        """Raises OverflowError for a number that no store holds."""
        self._seqs.append(seq)
        self._keys.append(self._key_numbers.setdefault(key, len(self._key_numbers)))
        self._sources.append(self._source_numbers.setdefault(sys.intern(source_id), len(self._source_numbers)))

    def counts(self) -> dict[_Key, int]:
        """How many rows belong to each."""
        found = Counter(self._keys)
        return {key: found[number] for key, number in self._key_numbers.items()}

    def rows(self) -> Iterator[tuple[_Key, list[Row]]]:
        """Its rows of each, in the order in which they came."""
        found: list[list[Row]] = [[] for _ in self._key_numbers]
        sources = list(self._source_numbers)
        for key, source, seq in zip(self._keys, self._sources, self._seqs, strict=True):
            found[key].append((sources[source], seq))
        yield from zip(self._key_numbers, found, strict=True)
