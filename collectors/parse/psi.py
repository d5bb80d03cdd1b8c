"""Pressure stall information: `/proc/pressure/*` and the `*.pressure` files of a cgroup.

In: the bytes of one file.  Out: cumulative stall times in microseconds.  The averages are not read: a delta of
totals over a step says more.  **Source:** kernel Documentation/accounting/psi.rst.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """`some`: at least one task waited; `full`: all did (None where the kernel does not say: cpu before 5.13)."""

    some_us: int
    full_us: int | None = None


def parse_pressure(raw: bytes) -> Pressure:
    """Raises ValueError without a `some` line with a total."""
    totals: dict[bytes, int] = {}
    for line in raw.splitlines():
        word, _, rest = line.partition(b" ")
        _, mark, total = rest.rpartition(b"total=")
        if mark:
            totals[word] = int(total)
    if b"some" not in totals:
        raise ValueError("a pressure file without a total")
    return Pressure(some_us=totals[b"some"], full_us=totals.get(b"full"))
