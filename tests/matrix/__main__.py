"""`make matrix`: runs every scenario for real, prints the confusion matrix, fails where a bar is missed.

`python -m tests.matrix [--cheap] [--told] [--at-once N] [--record] [NAME|FAMILY …]`.  `--told` prints what each missed
scenario said; `--record` writes the observations of the scenarios in `RECORDED` to tests/data/matrix, for the tests
that replay them.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.matrix.cases import ALL
from tests.matrix.confusion import Result, bars, report
from tests.matrix.healthy import MOST, TRIALS, charged
from tests.matrix.recorded import RECORDED, write
from tests.matrix.rig import running
from tests.matrix.scenario import Scenario


def main(arguments: list[str] | None = None) -> int:
    """Exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(prog="tests.matrix")
    parser.add_argument("--cheap", action="store_true", help="only the part that make test runs")
    parser.add_argument("--told", action="store_true", help="print what the agent and fairtrial said in each miss")
    parser.add_argument("--record", action="store_true", help="write tests/data/matrix anew")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names or families of scenarios")
    options = parser.parse_args(arguments)
    unknown = [n for n in options.names if not any(n in {s.name, s.family} for s in ALL)]
    if unknown:
        parser.error(f"no scenario or family is called {', '.join(unknown)}")
    chosen = [s for s in ALL if _chosen(s, options.names, cheap=options.cheap)]
    began = time.monotonic()
    results: list[Result] = []
    with running(chosen, at_once=options.at_once) as under_way:
        for number, result in enumerate(under_way.results(), 1):
            results.append(result)
            print(_line(number, len(chosen), result), flush=True)
            if options.told and result.wrong:
                print(result.told)
        recorded = dict(under_way.rig.recorded)
    print("\n".join(report(results)))
    held = True
    told = bars(results)
    if not options.names and not options.cheap:
        over = charged()
        told.append(
            (
                f"healthy trials charged over the ledger's line: {len(over)} of {TRIALS}, at most {MOST:.0%}",
                len(over) <= MOST * TRIALS,
            )
        )
    for bar, holds in told:
        held = held and holds
        print(f"{'ok    ' if holds else 'MISSED'}  {bar}")
    print(f"{len(results)} scenarios in {time.monotonic() - began:.0f} s")
    if options.record:
        for name in RECORDED:
            if name in recorded:
                print(f"recorded {write(name, recorded[name])}")
    return 0 if held else 1


def _chosen(scenario: Scenario, names: list[str], *, cheap: bool) -> bool:
    named = not names or scenario.name in names or scenario.family in names
    return named and not (cheap and scenario.dear)


def _line(number: int, total: int, result: Result) -> str:
    found = result.found.label if result.found is not None else "no verdict"
    if result.skipped is not None:
        state, found = "-", f"not run: {result.skipped}"
    elif result.wrong:
        state = "MISS (awaited)" if result.scenario.awaits else "MISS"
    else:
        state = "ok"
    return f"[{number}/{total}] {state:<5} {result.scenario.name}: {found} ({result.seconds:.1f} s)"


if __name__ == "__main__":
    sys.exit(main())
