"""Each alert of the rules reaches the right people, and the configuration is one that the tools accept."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CONFIG = Path("deploy/alertmanager/alertmanager.yml")
RULES = Path("deploy/prometheus/rules.yml")

pytestmark = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="not installed: amtool (Debian: apt-get install prometheus-alertmanager)"
)


def amtool(root: Path, *arguments: str) -> str:
    done = subprocess.run(["amtool", *arguments], cwd=root, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts(root: Path) -> dict[str, dict[str, str]]:
    """Alert -> its labels, as the rules give them."""
    text = (root / RULES).read_text()
    found = re.findall(r"- alert: (\w+).*?labels: \{severity: (\w+), cause: (\w+)\}", text, re.DOTALL)
    return {name: {"alertname": name, "severity": severity, "cause": cause} for name, severity, cause in found}


def receiver(root: Path, labels: dict[str, str]) -> str:
    written = [f"{name}={value}" for name, value in labels.items()]
    return amtool(root, "config", "routes", "test", f"--config.file={CONFIG}", *written).strip()


def test_the_configuration_is_accepted(repo_root: Path) -> None:
    assert "SUCCESS" in amtool(repo_root, "check-config", str(CONFIG))


def test_each_alert_goes_to_those_who_can_act(repo_root: Path) -> None:
    due = {
        "FairtrialProviderOutage": "oncall",
        "FairtrialDown": "oncall",
        "FairtrialOwnLosses": "fairtrial",
        "FairtrialOwnLag": "fairtrial",
    }
    found = {name: receiver(repo_root, labels) for name, labels in alerts(repo_root).items()}
    assert len(found) == 12
    assert {name: where for name, where in found.items() if where != "evals"} == due


def test_whoever_adds_an_alert_says_what_to_do(repo_root: Path) -> None:
    """docs/alerts.md has a section for each, under the anchor that the alert names."""
    page = (repo_root / "docs" / "alerts.md").read_text()
    sections = {line.removeprefix("### ").strip().lower() for line in page.splitlines() if line.startswith("### ")}
    assert {name.lower() for name in alerts(repo_root)} == sections


def test_prometheus_accepts_its_configuration(repo_root: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("not installed: promtool (Debian: apt-get install prometheus)")
    command = ["promtool", "check", "config", "deploy/prometheus/prometheus.yml"]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
