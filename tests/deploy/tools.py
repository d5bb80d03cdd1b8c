"""Programs for the tests of deploy/: Prometheus' for the rules, and actionlint; those of the system, and named ones.

In: PATH, ACTIONLINT_BIN, PROMTOOL and PROMETHEUS (one more of each; docs/alerts.md says how to build a 3.x).  Out:
programs by version, and the outcome of a unit test of rules.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yml"
NO_PROMTOOL = "not installed: promtool (Debian: apt-get install prometheus)"
Alerts = list[dict[str, object]]


def programs(name: str) -> dict[str, str]:
    """Version -> program, for `promtool` or `prometheus`, of all that are here; that of the system first."""
    found: dict[str, str] = {}
    for program in (shutil.which(name), os.environ.get(name.upper())):
        if program and Path(program).is_file():
            done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60)
            said = re.search(r"version (\d+\.\d+)", done.stdout + done.stderr)
            # One that was built as a Go tool knows no version of its own.
            found.setdefault(said[1] if said else "built", program)
    return found


PROMTOOLS = programs("promtool")

_BUILT = Path(__file__).parents[2] / ".cache" / "actionlint" / "actionlint"
ACTIONLINT = (
    os.environ.get("ACTIONLINT_BIN") or shutil.which("actionlint") or (str(_BUILT) if _BUILT.exists() else None)
)
NO_ACTIONLINT = "no actionlint: ACTIONLINT_BIN is not set, none is on PATH, and `make actionlint-build` has built none"


def promtool(
    folder: Path,
    rules: str,
    series: object,
    alerts: Alerts,
    *,
    step: str = "10m",
    expressions: Alerts | None = None,
    program: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one unit test of rules; their interval is the series' own, so that nine days take seconds."""
    folder.mkdir(exist_ok=True)
    (folder / "rules.yml").write_text(rules.replace("interval: 1m", f"interval: {step}"))
    one = {"interval": step, "input_series": series, "alert_rule_test": alerts, "promql_expr_test": expressions or []}
    test = {"rule_files": ["rules.yml"], "evaluation_interval": step, "tests": [one]}
    (folder / "test.yml").write_text(json.dumps(test))
    command = [program or next(iter(PROMTOOLS.values())), "test", "rules", "test.yml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def only(rules: str, *groups: str) -> str:
    """The rules with these groups alone: the others cost time and say nothing here."""
    head, *parts = rules.split("  - name: ")
    kept = [part for part in parts if part.split("\n", 1)[0] in groups]
    assert len(kept) == len(groups), groups
    return head + "".join("  - name: " + part for part in kept)


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """What a failed run said."""
    return (done.stdout + done.stderr)[-3000:]
