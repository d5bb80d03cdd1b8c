"""The composition names what is there, its files are in order, and the dashboard asks for series that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.config import ServeConfig
from fairtrial.middleware.core.hosts import is_our_host
from tests.deploy.tools import NO_PROMTOOL, PROMTOOLS

COMPOSE = Path("deploy/compose.yaml")


def test_every_file_that_is_named_is_there(repo_root: Path) -> None:
    text = (repo_root / COMPOSE).read_text()
    named = re.findall(r"file: (\./\S+)", text)
    assert len(named) == 7
    assert [name for name in named if not (repo_root / "deploy" / name).is_file()] == []


def test_no_port_is_open_to_others(repo_root: Path) -> None:
    published = re.findall(r'"((?:[\d.]+:)?[\d-]{4,}:[\d-]+)"', (repo_root / COMPOSE).read_text())
    assert len(published) == 6
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_prometheus_asks_by_a_name_that_the_metrics_page_answers_to(repo_root: Path) -> None:
    """Other names than an address, `localhost` and those that are set get a 403, and FairtrialDown wakes people."""
    compose = (repo_root / COMPOSE).read_text()
    scraped = (repo_root / "deploy" / "prometheus" / "prometheus.yml").read_text()
    (target,) = re.findall(r'job_name: fairtrial\n.*?targets: \["([^"]+)"\]', scraped, re.DOTALL)
    (named,) = re.findall(r"FAIRTRIAL_SERVE__HEALTH_HOSTS: (\S+)", compose)
    names = frozenset(named.split(","))
    assert is_our_host(target, names)
    assert not is_our_host(target, ())
    assert f"  {target.partition(':')[0]}:\n    build:" in compose


def test_there_are_as_many_ports_as_upstreams(repo_root: Path) -> None:
    compose = (repo_root / COMPOSE).read_text()
    (upstreams,) = re.findall(r"FAIRTRIAL_SERVE__UPSTREAMS: \$\{\w+:-(.+)\}", compose)
    (first, last) = re.findall(r"127\.0\.0\.1:(\d+)-(\d+):\1-\2", compose)[0]
    plan = ServeConfig(upstreams=dict(one.split("=", 1) for one in upstreams.split()))
    assert [int(first), int(last)] == [plan.port, plan.port + len(plan.upstreams) - 1]


def test_it_is_a_composition_by_the_specification(repo_root: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def expressions(repo_root: Path) -> list[str]:
    board = json.loads((repo_root / "deploy" / "grafana" / "fairtrial.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_the_dashboard_is_what_its_maker_writes(repo_root: Path) -> None:
    maker = repo_root / "deploy" / "grafana" / "make_dashboard.py"
    assert subprocess.run([sys.executable, str(maker), "--check"], check=False, timeout=60).returncode == 0


def test_the_dashboard_and_the_rules_ask_for_series_that_are_written(repo_root: Path) -> None:
    rules = (repo_root / "deploy" / "prometheus" / "rules.yml").read_text()
    recorded = set(re.findall(r"record: (\S+)", rules))
    written = {value for name, value in vars(semconv).items() if name.startswith("M_")}
    endings = re.compile(r"_(total|bucket|count|sum|info)$")
    for text in (*expressions(repo_root), rules):
        asked = set(re.findall(r"\bfairtrial_[a-z0-9_]+", text))
        assert {endings.sub("", name) for name in asked} <= written
        assert set(re.findall(r"\bfairtrial:[a-z0-9_:]+", text)) <= recorded


def test_the_dashboards_expressions_can_be_read(repo_root: Path, tmp_path: Path) -> None:
    if not PROMTOOLS:
        pytest.skip(NO_PROMTOOL)
    rows = [
        {"record": f"r{number}", "expr": expression.replace("$__range", "1d")}
        for number, expression in enumerate(expressions(repo_root))
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rows}]}))
    for program in PROMTOOLS.values():
        command = [program, "check", "rules", str(tmp_path / "rules.yml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
