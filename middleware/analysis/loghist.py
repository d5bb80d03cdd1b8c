"""A sparse histogram with logarithmic buckets: mergeable, small as JSON, quantiles within about one percent.

In: positive numbers.  Out: counts per power of `GAMMA`, and quantiles from them.  A value that is not positive counts
in the lowest bucket.  **Source:** the DDSketch idea (Masson, Rim, Lee: VLDB 2019) without its collapsing: latencies
span so few powers that a cap is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

GAMMA: Final = 1.02
_LOG_GAMMA: Final = math.log(GAMMA)
_LOWEST: Final = -1200
"""About 5e-11: everything at or under it is one bucket."""
_HIGHEST: Final = 1200


class LogHistogram:
    """Counts by bucket; `len` is how many values."""

    __slots__ = ("_counts", "_total")

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts: dict[int, int] = dict(counts or {})
        self._total = sum(self._counts.values())

    def __len__(self) -> int:
        return self._total

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogHistogram) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, value: float) -> None:
        """Count one value; NaN is not counted."""
        if value != value:  # noqa: PLR0124 - the one value that is not itself
            return
        bucket = _LOWEST if value <= 0 else round(math.log(value) / _LOG_GAMMA) if value != math.inf else _HIGHEST
        bucket = min(_HIGHEST, max(_LOWEST, bucket))
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self._total += 1

    def merge(self, other: LogHistogram) -> None:
        """Add the counts of another."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self._total += other._total

    def quantile(self, q: float) -> float | None:
        """The value under which a share `q` (0 to 1) of the values lies; None for none."""
        if not self._total:
            return None
        rank, seen = q * (self._total - 1), 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen > rank:
                return math.exp(bucket * _LOG_GAMMA)
        raise AssertionError("counts do not add up")

    def as_json(self) -> dict[str, int]:
        """Bucket -> count, as `from_json` reads it."""
        return {str(bucket): count for bucket, count in sorted(self._counts.items())}

    @classmethod
    def from_json(cls, counts: Mapping[str, int]) -> LogHistogram:
        """Raises `ValueError` for what is no such mapping."""
        return cls({int(bucket): int(count) for bucket, count in counts.items()})

    @classmethod
    def of(cls, values: Iterable[float]) -> LogHistogram:
        """A histogram of these."""
        made = cls()
        for value in values:
            made.add(value)
        return made
