"""The action and the workflow, run step by step as GitHub's runner does: status, summary, annotations, artifacts.

The command is the demo's agent against the stand-in; the fairtrial is this checkout's own, so nothing is installed here
(`test_ci_install.py` does that).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.deploy.installed import as_installed, checkouts_own
from tests.deploy.runner import Machine, run_action, run_job
from tests.e2e.clients import clean_environment

ACTION = Path("deploy/github-action/action.yml")
AGENT = f"{sys.executable} -m fairtrial.middleware.demo.agent --check true"
OVERLOADED = Fault(kind="http", step=1, attempts=99, status=529)


@pytest.fixture
def executable(tmp_path: Path) -> str:
    """A `fairtrial` of this checkout, as somebody may have installed it on a runner of his own."""
    return checkouts_own(tmp_path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A runner with a workspace and nothing of ours in its environment."""
    for name in ("work", "temp", "home"):
        (tmp_path / name).mkdir()
    environ = clean_environment(tmp_path / "home", DOCKER_HOST=f"unix://{tmp_path}/none", PYTHONPATH=os.getcwd())
    return Machine(workspace=tmp_path / "work", temp=tmp_path / "temp", environ=environ)


@pytest.fixture
def overloaded() -> Iterator[str]:
    """A model API that is overloaded for ever after the first tool."""
    with running_standin([shell("echo hello"), say("Done.")], [OVERLOADED]) as server:
        yield server.url


@pytest.fixture
def healthy() -> Iterator[str]:
    """One that answers."""
    with running_standin([shell("echo hello"), say("Done.")]) as server:
        yield server.url


def with_url(machine: Machine, url: str, **more: str) -> Machine:
    return Machine(
        workspace=machine.workspace,
        temp=machine.temp,
        environ={**machine.environ, "ANTHROPIC_BASE_URL": url, **more},
        repositories=machine.repositories,
    )


def test_an_overloaded_api_is_75_with_the_verdict_first_and_all_artifacts(
    repo_root: Path, machine: Machine, executable: str, overloaded: str
) -> None:
    ran = run_action(repo_root / ACTION, {"command": AGENT, "executable": executable}, with_url(machine, overloaded))
    assert ran.status == 75, ran.told
    assert ran.summary.startswith("## 🟠 failed (exit 1) → **infra, proved** · `model_api.overloaded` in step 2\n")
    assert ran.summary.rstrip().splitlines()[-1].startswith("> Exit status 75")
    assert [line.split(" ")[0] for line in ran.annotations] == ["::warning"]
    told = ran.outputs[""]
    assert (told["exit-code"], told["retry"], told["blame"], told["grade"]) == ("75", "yes", "infra", "proved")
    assert (told["cause"], told["outcome"]) == ("model_api.overloaded", "failed")
    kept = ran.artifacts["fairtrial-agent"]
    assert sorted(path.name for path in kept.iterdir()) == ["junit.xml", "otlp.jsonl", "summary.md", "trial.json"]
    record = json.loads((kept / "trial.json").read_text())
    assert (record["trial"], record["run"], record["task"]) == (told["trial"], "nightly agent", "agent")
    case = ET.parse(kept / "junit.xml").find(".//testcase")
    assert case is not None
    assert {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}["infra_cause"] == told["cause"]
    spans = [json.loads(line) for line in (kept / "otlp.jsonl").read_text().splitlines()]
    assert spans[0]["resourceSpans"]


def test_a_failure_of_the_agents_own_keeps_its_status_and_is_no_retry(
    repo_root: Path, machine: Machine, executable: str, healthy: str
) -> None:
    command = f"{AGENT}\nexit 3\n"
    ran = run_action(repo_root / ACTION, {"command": command, "executable": executable}, with_url(machine, healthy))
    assert (ran.status, ran.outputs[""]["retry"]) == (3, "no"), ran.told
    assert ran.outputs[""]["blame"] != "infra"


def test_a_pass_is_a_short_summary_without_annotations(
    repo_root: Path, machine: Machine, executable: str, healthy: str
) -> None:
    ran = run_action(repo_root / ACTION, {"command": AGENT, "executable": executable}, with_url(machine, healthy))
    assert (ran.status, ran.annotations) == (0, []), ran.told
    assert ran.summary.startswith("## ✅ passed (exit 0) → nothing to blame\n")


def test_a_harness_with_many_trials_is_told_whole_with_ten_annotations_at_most(
    repo_root: Path, machine: Machine, executable: str, overloaded: str
) -> None:
    """Each by a name of its own in the address, as a harness would; all of them in every file."""
    names = [f"task-{n}" for n in range(1, 13)]
    start = f'ANTHROPIC_BASE_URL="$url.$n" {AGENT} --task "$n: make a file." &'
    command = f"url=$ANTHROPIC_BASE_URL\nfor n in {' '.join(names)}; do {start} done\nwait\nexit 1\n"
    ran = run_action(repo_root / ACTION, {"command": command, "executable": executable}, with_url(machine, overloaded))
    assert ran.status != 0, ran.told
    assert ran.summary.startswith("## Run nightly agent: 12 trials, the outcome is not known\n"), ran.summary[:2000]
    assert len(ran.annotations) == 10, ran.annotations
    assert "3 more trials with something to say" in ran.annotations[-1]
    kept = ran.artifacts["fairtrial-agent"]
    assert sorted(path.name for path in kept.iterdir()) == ["junit.xml", "otlp.jsonl", "run.json", "summary.md"]
    record = json.loads((kept / "run.json").read_text())
    assert sorted(one["name"] for one in record["trials"]) == sorted(names)
    cases = ET.parse(kept / "junit.xml").iter("testcase")
    assert sorted(case.attrib["name"] for case in cases) == sorted(f"agent: {name}" for name in names)
    spans = (kept / "otlp.jsonl").read_text()
    assert all(one["trial"] in spans for one in record["trials"])


def test_no_input_of_ours_reaches_the_agent_and_its_text_is_never_code(
    repo_root: Path, machine: Machine, executable: str
) -> None:
    evil = '$(touch "$HOME/owned"); `touch "$HOME/owned"` "; touch owned #'
    probe = 'env | grep ^FTCI_ || true; printf "%s" "$PROMPT" > said'
    here = with_url(machine, "http://127.0.0.1:9", PROMPT=evil)
    ran = run_action(repo_root / ACTION, {"command": probe, "executable": executable, "task": evil, "try": "1"}, here)
    assert ran.status == 0, ran.told
    assert (machine.workspace / "said").read_text() == evil
    assert "FTCI_" not in ran.told
    assert sorted(path.name for path in machine.workspace.iterdir()) == ["said"]
    assert not (Path(machine.environ["HOME"]) / "owned").exists()


def test_a_run_that_was_not_observed_is_said_and_keeps_the_commands_status(
    repo_root: Path, machine: Machine, tmp_path: Path
) -> None:
    broken = tmp_path / "fairtrial"
    broken.write_text("#!/bin/sh\nexit 70\n")
    broken.chmod(0o755)
    ran = run_action(repo_root / ACTION, {"command": "true", "executable": str(broken)}, machine)
    assert ran.status == 70
    assert ran.summary.startswith("## ⚪ not observed")


def test_the_workflows_first_try_leaves_with_0_and_asks_for_a_second(
    repo_root: Path, machine: Machine, executable: str, overloaded: str, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "README").write_text("of the caller\n")
    source = tmp_path / "source"
    (source / "deploy").mkdir(parents=True)
    (source / "deploy" / "ci").symlink_to(repo_root / "deploy" / "ci")
    here = Machine(
        workspace=machine.workspace,
        temp=machine.temp,
        environ={**with_url(machine, overloaded).environ},
        repositories={"": project, "owner/fairtrial": source},
    )
    as_installed(repo_root, machine.temp / "fairtrial", executable)
    for name in ("requirements", "fairtrial"):
        (source / name).symlink_to(repo_root / name)
    inputs = {
        "command": AGENT,
        "fairtrial-repository": "owner/fairtrial",
        "fairtrial-ref": "0" * 40,
        "retry": "true",
    }
    ran = run_job(repo_root / "deploy/github-action/agent.yml", "agent", inputs, {"ANTHROPIC_API_KEY": "k"}, here)
    assert ran.status == 0, ran.told
    assert ran.outputs[""] == {"retry": "yes", "blame": "infra", "cause": "model_api.overloaded"}
    assert sorted(path.name for path in machine.workspace.iterdir()) == ["README"]
    assert list(ran.artifacts) == ["fairtrial-agent-1"]
