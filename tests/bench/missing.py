"""The budgets of DESIGN section 7 that this command does not measure, each with the reason, so that none is forgotten.

`python -m tests.bench missing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.bench.rows import Row

_NOT_MEASURED: Final = (
    ("`compare` of 2 x 10 000 trials", "s", 5, "`compare` is not built yet"),
    ("kill -9 of fairtrial, loss", "s", 0.5, "held by tests of run and store, not a matter of speed"),
    ("A/A: 200 scripted trials with and without fairtrial", "", None, "no bench of it yet"),
)


def rows(*, quick: bool = False) -> Iterator[Row]:
    """No figures."""
    del quick
    for what, unit, budget, how in _NOT_MEASURED:
        yield Row(what=what, value=None, unit=unit, budget=budget, how=how)
