"""Where the files of real harnesses lie, and how they are read in tests."""

from __future__ import annotations

from pathlib import Path

from fairtrial.middleware.harnesses import ADAPTERS
from fairtrial.middleware.harnesses.base import Booked, Reading

DATA = Path(__file__).resolve().parents[2] / "data" / "harnesses"

WHOLE: tuple[tuple[str, str], ...] = (
    ("harbor", "harbor/oracle/good__kCa4dET/result.json"),
    ("harbor", "harbor/multi/multi__bnATgNJ/result.json"),
    ("harbor", "atif/claude-code/trajectory.json"),
    ("mini-swe-agent", "mini-swe-agent/submitted.traj.json"),
    ("mini-swe-agent", "mini-swe-agent/exit_statuses_1.yaml"),
    ("inspect", "inspect/529.json"),
    ("inspect", "inspect/ok.eval"),
    ("claude-code", "claude-code/529.stream.jsonl"),
    ("claude-code", "claude-code/ok.transcript.jsonl"),
    ("claude-code", "claude-code/ok.json"),
    ("swe-bench", "swe-bench/stand-in__model.nightly.1.json"),
    ("swe-bench", "swe-bench/logs/run_evaluation/nightly.1/stand-in__model/django__django-11099/report.json"),
    ("junit", "junit/pytest.xml"),
)
"""One file of each kind, with its harness."""


def read(harness: str, path: str | Path) -> Reading:
    """What the adapter makes of a file; a text is below `DATA`."""
    return ADAPTERS[harness].read(DATA / path)


def by_label(reading: Reading) -> dict[str, Booked]:
    """Outcomes by the beginning of what the harness calls them (Harbor adds random letters)."""
    return {one.outcome.label.split("__")[0]: one for one in reading.booked}
