"""The recipes for GitLab CI and Jenkins: their shell lines, run as those runners do, on the newest commit here."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template
from xml.etree import ElementTree as ET

import pytest
from ruamel.yaml import YAML

from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.deploy.installed import as_installed, checkouts_own
from tests.e2e.clients import clean_environment

AGENT = f"{sys.executable} -m fairtrial.middleware.demo.agent --check true"


@pytest.fixture
def environ(repo_root: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """A job's, with an API that is overloaded for ever and this repository as the source of fairtrial."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo_root, capture_output=True, text=True, check=False)
    if head.returncode != 0:
        pytest.skip("this tree is no clone of a repository")
    overloaded = Fault(kind="http", step=1, attempts=99, status=529)
    (tmp_path / "home").mkdir()
    with running_standin([shell("echo hello"), say("Done.")], [overloaded]) as server:
        yield clean_environment(
            tmp_path / "home",
            ANTHROPIC_BASE_URL=server.url,
            DOCKER_HOST=f"unix://{tmp_path}/none",
            PYTHONPATH=os.getcwd(),
            FTCI_SOURCE=str(repo_root),
            FTCI_REF=head.stdout.strip(),
            FTCI_COMMAND=AGENT,
        )


def bash(script: str, environ: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], env=environ, cwd=folder, capture_output=True, text=True, check=False
    )


def infra_cause(junit: Path) -> str | None:
    told = {p.attrib["name"]: p.attrib["value"] for p in ET.parse(junit).iter("property")}
    return told.get("infra_cause")


def test_gitlabs_lines_leave_75_and_the_files_that_the_job_keeps(
    repo_root: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    job = YAML(typ="safe", pure=True).load(repo_root / "deploy" / "gitlab-ci" / "fairtrial.yml")[".fairtrial"]
    assert job["retry"] == {"max": 1, "exit_codes": 75}
    project = tmp_path / "project"
    project.mkdir()
    own = {"CI_JOB_ID": f"test-{os.getpid()}", "CI_PROJECT_DIR": str(project), "CI_JOB_NAME": "agent"}
    variables = {
        name: Template(value).safe_substitute(own) for name, value in job["variables"].items() if isinstance(value, str)
    }
    known = {**variables, **environ, **own}
    ftci_dir = Path(f"/tmp/fairtrial-{own['CI_JOB_ID']}")
    try:
        as_installed(repo_root, ftci_dir, checkouts_own(tmp_path))
        make = next(line for line in job["before_script"] if not line.startswith("export"))
        assert make == 'mkdir -m 0700 "$FTCI_DIR"'
        refused = bash("\n".join(job["before_script"]), known, project)
        assert "File exists" in refused.stderr  # what somebody else put there is not used
        job["before_script"] = [line for line in job["before_script"] if line != make]
        # before_script and script are one shell, after_script is another.
        ran = bash("\n".join([*job["before_script"], *job["script"]]), known, project)
        assert ran.returncode == 75, ran.stdout + ran.stderr
        after = bash("\n".join(job["after_script"]), known, project)
        assert not ftci_dir.exists()
    finally:
        subprocess.run(["rm", "-rf", str(ftci_dir)], check=True)
    assert after.stdout.startswith("## 🟠 failed (exit 1) → **infra, proved**"), after.stderr
    assert infra_cause(project / job["artifacts"]["reports"]["junit"]) == "model_api.overloaded"
    assert [path.name for path in project.iterdir()] == ["fairtrial"]


def test_jenkins_step_leaves_75_and_the_files_that_it_archives(
    repo_root: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    text = (repo_root / "deploy" / "jenkins" / "Jenkinsfile").read_text()
    _, _, rest = text.partition('script: """')
    script = rest.partition('"""')[0].replace("${attempt}", "1").replace("\\$", "$")
    assert script.startswith("#!/usr/bin/env bash\n")
    workspace, beside = tmp_path / "workspace", tmp_path / "workspace@tmp"
    workspace.mkdir()
    # The step empties its folder first, so what would be installed is put where the script's own line would find it.
    as_installed(repo_root, tmp_path / "made", checkouts_own(tmp_path))
    script = script.replace(
        'rm -rf "$FTCI_DIR"', f'rm -rf "$FTCI_DIR"; mkdir -p "$FTCI_DIR"; cp -R {tmp_path}/made/venv "$FTCI_DIR"', 1
    )
    script = script.replace("""'claude -p "$PROMPT"'""", shlex.quote(AGENT))
    known = {**environ, "WORKSPACE": str(workspace), "WORKSPACE_TMP": str(beside), "JOB_NAME": "nightly"}
    ran = bash(script, known, workspace)
    assert ran.returncode == 75, ran.stdout + ran.stderr
    assert infra_cause(workspace / "fairtrial" / "junit.xml") == "model_api.overloaded"
    assert [path.name for path in workspace.iterdir()] == ["fairtrial"]
