"""`make bench`: measures the budgets of DESIGN section 7 that are built, prints a table, and fails where one is broken.

`python -m tests.bench [start_end …]` runs only the named parts.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator

from tests.bench.rows import Row

PARTS = ("start_end", "relay")


def main(chosen: list[str]) -> int:
    """Exit status 1 when a measured budget does not hold."""
    broken = 0
    for part in chosen or PARTS:
        rows: Callable[[], Iterator[Row]] = importlib.import_module(f"tests.bench.{part}").rows
        print(f"\n{part}")
        for row in rows():
            figure = "not measured" if row.value is None else f"{row.value:.4g} {row.unit}"
            budget = "" if row.budget is None else f"{row.sense} {row.budget:g} {row.unit}"
            mark = {True: "ok", False: "BROKEN", None: "-"}[row.held]
            print(f"  {mark:<7}{row.what:<62}{figure:<16}{budget:<18}{row.how}", flush=True)
            broken += row.held is False
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
