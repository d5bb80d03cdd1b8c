"""What a run left: its status and the records of its trials, once the harness's own files were imported."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.demo.faults import Fault, catalogue
from tests.e2e.table.rows import Scenario
from tests.e2e.under import Under, fairtrial, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The harness's exit status; the trials in the order of the scenario's names."""

    status: int
    trials: list[Trial]


def faults(scenario: Scenario) -> tuple[Fault, ...]:
    """The stand-in's; they strike calls without tools as well, since terminus-2 has no others."""
    found = catalogue(1)[scenario.fault] if scenario.fault is not None else ()
    return tuple(replace(fault, side_calls=scenario.setup.api == "terminus-2") for fault in found)


def imported(under: Under, harness: str, path: Path, environment: Mapping[str, str]) -> Ran:
    """A run of one trial.  What the harness did not leave, or not whole enough to be read, books nothing."""
    asked = ("--run", "table", "--store", str(under.store))
    done = fairtrial("import", harness, str(path), *asked, environment=environment)
    if done.returncode != 0:
        print(f"import: {done.stdout}{done.stderr}", file=sys.stderr)
    listed = fairtrial("trials", "--json", "--store", str(under.store), environment=environment)
    rows = json.loads(listed.stdout)
    observed = [row["trial"] for row in rows if row["exit_code"] is not None or row["signal"]]
    return Ran(
        status=under.outcome.returncode, trials=[shown(under.store, environment, trial) for trial in observed[:1]]
    )
