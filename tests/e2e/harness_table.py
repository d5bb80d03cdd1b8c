"""docs/harnesses.md, by runs: what real harnesses book and what fairtrial says, side by side.

    make harnesses [ARGS='--only WORD …'], or python -m tests.e2e.harness_table [--only WORD …]

In: the harnesses that tests/e2e/tools.sh installed, a Docker engine (FAIRTRIAL_TEST_DOCKER, else a private one), and
the page as it stands.  Out: the page on standard output; one line per row on standard error.  Each scenario is run
under `fairtrial run` against the stand-in model server, then the harness's own files are imported.  What could not be
run stands in the page with its reason.  `--only` runs the scenarios whose set-up and name hold one of the words, and
keeps the other rows as they stand.
Not a test: all of it takes half an hour.  `test_harness_table.py` holds the page to the list of scenarios.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import time
from pathlib import Path

from tests.e2e import clients
from tests.e2e.table.bench import Bench, NotHere, bench, stamped, version
from tests.e2e.table.in_inspect import OLDEST_ENGINE
from tests.e2e.table.page import kept, merged, page
from tests.e2e.table.rows import Row, Scenario, Setup
from tests.e2e.table.runs import rows_of
from tests.e2e.table.scenarios import SCENARIOS

PAGE = clients.REPO_ROOT / "docs" / "harnesses.md"


def wanted(scenario: Scenario, words: list[str]) -> bool:
    """Whether a scenario is to be run."""
    told = f"{scenario.setup.title} / {scenario.name} / {scenario.kind.value}"
    return not words or any(word in told for word in words)


def run_with(setup: Setup, on: Bench) -> str:
    """When and with what a section was run."""
    words = [f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"]
    if setup.runs in {"harbor", "many"}:
        words.append(f"Harbor {stamped('harbor')}")
        if setup.api == "claude-code":
            words.append(f"Claude Code {stamped('claude')}")
    elif setup.runs == "mini":
        words.append(f"mini-swe-agent {stamped('mini')}")
    elif setup.runs == "inspect":
        words.append(f"Inspect {stamped('inspect').split()[0].rpartition('==')[2]}")
    elif setup.runs == "claude":
        words.append(f"Claude Code {stamped(setup.api)}")
    if setup.runs in {"harbor", "many"} or (setup.runs in {"mini", "inspect"} and setup.where == "docker"):
        try:
            engine = on.newer(OLDEST_ENGINE) if setup.runs == "inspect" else on.engine()
            words.append(f"Docker {version(engine)}")
        except (NotHere, clients.ToolMissing):
            words.append("no Docker")
    return ", ".join(words)


def main() -> int:
    """Run what can be run; print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the other rows are kept from")
    asked = parser.parse_args()
    old, runs = kept(asked.page.read_text() if asked.page.exists() else "")
    new: list[Row] = []
    with bench() as on:
        for number, scenario in enumerate(SCENARIOS):
            if not wanted(scenario, asked.only):
                continue
            began = time.monotonic()
            rows = rows_of(scenario, on, number)
            for row in rows:
                took = f"{time.monotonic() - began:.0f} s"
                print(f"{row.section} / {row.name}: {' | '.join(row.cells)} ({took})", file=sys.stderr, flush=True)
            new += rows
            if scenario.no is None:
                runs[scenario.setup.title] = run_with(scenario.setup, on)
    print(page(merged(new, old), runs), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
