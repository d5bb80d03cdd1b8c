"""`fairtrial show TRIAL --replay`: the stored observations judged again, and how far the verdict is from turning.

In: the stored trial, its observations, thresholds.  Out: the lines below the trial.  What this module does not do:
change the store (a replay is looked at, not kept).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fairtrial.middleware.attribution.margins import margins
from fairtrial.middleware.attribution.thresholds import Thresholds
from fairtrial.middleware.closing import beside
from fairtrial.middleware.core.observations import Observation
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.report.replay import margin_lines, replay_lines
from fairtrial.middleware.steps.assembler import assemble


def replayed(
    stored: Trial,
    record: Trial,
    kept: Sequence[Observation],
    *,
    thresholds: Thresholds,
    store: Path,
    width: int,
) -> list[str]:
    """What changed, and what would change it."""
    if stored.verdict is None or record.verdict is None:
        return []
    lines = replay_lines(stored.verdict, record.verdict, observations=len(kept), width=width)
    assembly = assemble(kept, record.trial)
    found = margins(assembly, thresholds, yardsticks=beside(store, assembly.trial, Journal()))
    edges = [(m.name, m.value, m.at, m.becomes) for m in found.found]
    return [*lines, "", *margin_lines(record.verdict, edges, asked=found.asked, known=found.known, width=width)]
