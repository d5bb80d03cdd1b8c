"""`make bench`: measures the budgets that are built, prints a table, and fails where one is
missed by more than the measurement's own noise.

`python -m tests.bench [--markdown] [--quick] [PART …]` runs only the named parts (`make bench ARGS=soak`); `--markdown`
prints the tables of docs/measurements.md instead, with the machine they were measured on; `--quick` shows that every
part works, in seconds: its figures mean nothing, only counts (rows without a unit) can break.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from fairtrial.middleware.observer.machine import cpu_model
from tests.bench.rows import Row

PARTS = (
    "relay",
    "aborts",
    "memory",
    "agents",
    "soak",
    "serve",
    "books",
    "export",
    "collectors",
    "spikes",
    "churn",
    "docker",
    "start_end",
    "missing",
)
HEADER = ("what", "measured", "budget", "holds", "how")


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 when a measured budget does not hold."""
    parser = argparse.ArgumentParser(prog="tests.bench")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args(arguments)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"no part is called {part}; there are {', '.join(PARTS)}")
    write = markdown_line if options.markdown else plain_line
    if options.markdown:
        print(f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine()}.")
    broken: list[str] = []
    took: dict[str, float] = {}
    for part in options.parts or PARTS:
        rows: Callable[..., Iterator[Row]] = importlib.import_module(f"tests.bench.{part}").rows
        print(f"\n### {part}\n\n{markdown_head()}" if options.markdown else f"\n{part}", flush=True)
        part_s = time.monotonic()
        for row in rows(quick=options.quick):
            print(write(row), flush=True)
            if row.held is False and not (options.quick and row.unit):
                broken.append(row.what)
        took[part] = time.monotonic() - part_s
    seconds = ", ".join(f"{part} {took_s:.0f}" for part, took_s in took.items())
    print(
        f"\n{len(broken)} budgets missed: {'; '.join(broken) or 'none'}\n{sum(took.values()):.0f} s in all: {seconds}"
    )
    return 1 if broken else 0


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """As `HEADER` names them."""
    noise = f" ± {row.noise:.2g}" if row.noise else ""
    figure = "not measured" if row.value is None else f"{row.value:.4g}{noise} {row.unit}"
    budget = "" if row.budget is None else f"{row.sense} {row.budget:g} {row.unit}"
    holds = {True: "ok", False: "BROKEN", None: "-"}[row.held]
    return row.what, figure, budget, "noise" if row.only_within_noise else holds, row.how


def plain_line(row: Row) -> str:
    """For a terminal."""
    what, figure, budget, holds, how = cells(row)
    return f"  {holds:<7}{what:<74}{figure:<24}{budget:<18}{how}".rstrip()


def markdown_head() -> str:
    """The two lines above the rows."""
    return f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}"


def markdown_line(row: Row) -> str:
    """One row of a table of docs/measurements.md."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells(row))} |"


def machine() -> str:
    """Where it was measured: processor, cores, kernel, Python."""
    cpu = cpu_model() or platform.machine()
    return f"{cpu}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"


if __name__ == "__main__":
    raise SystemExit(main())
