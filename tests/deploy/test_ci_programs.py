"""What deploy/ gives to CI, run by programs of others: act, gitlab-ci-local, and Jenkins' own Groovy.

The lines of the workflow are those of docs/ci.md.  A test marked dear installs fairtrial by `install.sh` as a job does.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fairtrial.middleware.core.records import Outcome
from fairtrial.middleware.demo.agent import RETRIES
from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import RunningStandIn, running_standin
from fairtrial.middleware.report.junit import junit_xml
from tests.deploy import ci_programs
from tests.deploy.ci_programs import COMMIT, Told, act, as_repository, gitlab, is_junit, jenkins
from tests.deploy.installed import as_installed, checkouts_own
from tests.e2e.clients import CLAUDE_QUIET, ToolMissing, claude_program, clean_environment
from tests.middleware.report.trials import trial

AGENT = f"{sys.executable} -m fairtrial.middleware.demo.agent --check true"
THE_PROMPT = 'say "hello"; $(touch "$HOME/owned") `touch "$HOME/owned"` $HOME using bash'


def need(name: str) -> None:
    """Skip the test, with the reason, where a program is not there."""
    reason = ci_programs.missing(name)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def claude() -> Path:
    """The folder of the real Claude Code's command."""
    try:
        return claude_program().parent
    except ToolMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A runner's, with nothing of ours in it but the Python that install.sh will find."""
    (tmp_path / "home").mkdir()
    found = clean_environment(tmp_path / "home", DOCKER_HOST=f"unix://{tmp_path}/none")
    return {**found, "PATH": f"{found['PATH']}:{sys.base_prefix}/bin"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "README").write_text("of the caller\n")
    return folder


def refusing(attempts: int) -> AbstractContextManager[RunningStandIn]:
    """A model API that is overloaded at the second call, as often as an agent asks in its first try."""
    fault = Fault(kind="http", step=1, attempts=attempts, status=529)
    return running_standin([shell("echo hello"), say("Done.")], [fault])


@pytest.fixture
def overloaded() -> Iterator[str]:
    """For the demo's agent."""
    with refusing(RETRIES + 1) as server:
        yield server.url


@pytest.fixture
def overloaded_for_claude() -> Iterator[str]:
    """For Claude Code, which asks three times."""
    with refusing(3) as server:
        yield server.url


def workflow(repo_root: Path, name: str = "agent") -> str:
    """A workflow around the step of docs/ci.md, as somebody pastes it."""
    (step,) = re.findall(r"```yaml\n(.*?)```", (repo_root / "docs" / "ci.md").read_text(), re.DOTALL)
    head = f"name: nightly\non: [push]\njobs:\n  {name}:\n    runs-on: ubuntu-latest\n    steps:\n"
    return head + str(step).replace("@COMMIT", f"@{COMMIT}").replace(
        "        env:", "        id: fair\n        env:", 1
    )


def outputs(told: Told) -> dict[str, str]:
    """The last value of each output that act tells of."""
    return dict(re.findall(r"::set-output:: ([\w-]+)=(.*)", told.text))


@pytest.mark.slow
def test_act_runs_the_step_of_the_documentation_and_gives_summary_outputs_annotation_and_artifact(
    repo_root: Path, project: Path, environ: dict[str, str], overloaded: str, tmp_path: Path
) -> None:
    need("act")
    text = workflow(repo_root)
    text = re.sub(r"command: .*", lambda _: f"command: {AGENT}", text)
    text += f"          executable: {checkouts_own(tmp_path)}\n"
    text += '      - if: always()\n        run: echo "after=${{ steps.fair.outputs.cause }}"\n'
    (project / ".github" / "workflows").mkdir(parents=True)
    (project / ".github" / "workflows" / "nightly.yml").write_text(text)
    as_repository(project, "https://github.com/team/project.git")
    kept = tmp_path / "artifacts"
    variables = {"ANTHROPIC_BASE_URL": overloaded}
    told = act(project, "push", tmp_path, environ, repo_root=repo_root, variables=variables, artifacts=kept)
    assert told.status == 1, told.text
    known = outputs(told)
    assert (known["exit-code"], known["retry"], known["blame"]) == ("75", "yes", "infra"), told.text
    assert "Summary - ## 🟠 failed (exit 1) → **infra, proved** · `model_api.overloaded` in step 2" in told.text
    assert len(re.findall(r"::(?:error|warning|notice) title=", told.text)) == 1, told.text
    assert "after=model_api.overloaded" in told.text, told.text
    files = sorted(path.name for path in (kept / "fairtrial-agent").iterdir())
    assert files == ["junit.xml", "otlp.jsonl", "summary.md", "trial.json"]


@pytest.mark.dear
@pytest.mark.slow
def test_act_runs_claude_code_every_night_and_again_when_the_first_try_left_with_75(
    repo_root: Path, project: Path, environ: dict[str, str], claude: Path, overloaded_for_claude: str, tmp_path: Path
) -> None:
    """Both workflows as they are, but for the line that installs the agent: it is here."""
    need("act")
    places = project / ".github" / "workflows"
    places.mkdir(parents=True)
    for name in ("agent.yml", "nightly.yml"):
        text = (repo_root / "deploy" / "github-action" / name).read_text()
        (places / name).write_text(text.replace("npm install -g @anthropic-ai/claude-code", "claude --version"))
    as_repository(project, "https://github.com/team/project.git")
    kept = tmp_path / "artifacts"
    variables = {"ANTHROPIC_BASE_URL": overloaded_for_claude, "CLAUDE_CODE_MAX_RETRIES": "2", **CLAUDE_QUIET}
    environ["PATH"] = f"{claude}:{environ['PATH']}"
    event = "workflow_dispatch"
    told = act(project, event, tmp_path, environ, repo_root=repo_root, variables=variables, artifacts=kept)
    assert told.status == 0, told.text
    tries = {path.name: json.loads((path / "trial.json").read_text()) for path in kept.iterdir()}
    assert sorted(tries) == ["fairtrial-fix-tests-1", "fairtrial-fix-tests-2"], told.text
    first, second = (tries[f"fairtrial-fix-tests-{n}"] for n in (1, 2))
    assert (first["outcome"], first["verdict"]["cause"], first["try"]) == ("failed", "model_api.overloaded", 1)
    assert (second["outcome"], second["verdict"]["blame"], second["try"]) == ("passed", "none", 2)


@pytest.mark.dear
@pytest.mark.slow
def test_gitlab_ci_local_runs_claude_code_and_a_prompt_is_never_code(
    repo_root: Path, project: Path, environ: dict[str, str], claude: Path, overloaded_for_claude: str
) -> None:
    """GitLab puts variables into variables before bash reads them; `expand: false` keeps a prompt a text."""
    need("gitlab-ci-local")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo_root, capture_output=True, text=True, check=False)
    if head.returncode != 0:
        pytest.skip("this tree is no clone of a repository")
    (project / "ci").mkdir()
    template = (repo_root / "deploy" / "gitlab-ci" / "fairtrial.yml").read_text()
    (project / "ci" / "fairtrial.yml").write_text(template)
    example = "".join(line[2:] for line in template.splitlines(keepends=True)[2:9])
    assert example.lstrip().startswith("include:"), example
    text = re.sub(r" +image: .*\n", "", example).replace("Fix the failing test.", json.dumps(THE_PROMPT))
    (project / ".gitlab-ci.yml").write_text("\n".join(line[2:] for line in text.splitlines()))
    as_repository(project, "https://git.example/team/project.git")
    variables = {"FTCI_SOURCE": str(repo_root), "FTCI_REF": head.stdout.strip(), "ANTHROPIC_API_KEY": "dummy"}
    variables |= {"ANTHROPIC_BASE_URL": overloaded_for_claude, "CLAUDE_CODE_MAX_RETRIES": "2", **CLAUDE_QUIET}
    environ["PATH"] = f"{claude}:{environ['PATH']}"
    told = gitlab(project, "agent", environ, variables)
    assert "agent finished" in told.text, told.text
    assert re.search(r"FAIL +75", told.text), told.text
    assert "**infra, proved** · `model_api.overloaded` in step 2" in told.text, told.text
    cases = ET.parse(project / "fairtrial" / "junit.xml").iter("property")
    assert {"model_api.overloaded"} == {p.attrib["value"] for p in cases if p.attrib["name"] == "infra_cause"}
    assert not (Path(environ["HOME"]) / "owned").exists()


@pytest.mark.slow
def test_jenkins_groovy_takes_the_pipeline_which_tries_twice_each_in_an_empty_workspace(
    repo_root: Path, project: Path, environ: dict[str, str], overloaded: str, tmp_path: Path
) -> None:
    need("groovy")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo_root, capture_output=True, text=True, check=False)
    if head.returncode != 0:
        pytest.skip("this tree is no clone of a repository")
    as_installed(repo_root, tmp_path / "made", checkouts_own(tmp_path))
    given = f'{AGENT} --task "$PROMPT"'
    text = (repo_root / "deploy" / "jenkins" / "Jenkinsfile").read_text()
    text = text.replace("""'claude -p "\\$PROMPT"'""", shlex.quote(given).replace("$", "\\$"))
    text = text.replace("'Fix the failing test.'", repr(THE_PROMPT).replace("$HOME/", f"{environ['HOME']}/"))
    text = text.replace("https://git.example/your-organisation/fairtrial.git", str(repo_root))
    text = text.replace(COMMIT, head.stdout.strip())
    # What would be installed is put where the script's own line would find it.
    begun = 'rm -rf "\\$FTCI_DIR"\n'
    assert begun in text
    text = text.replace(begun, f'{begun}mkdir -p "\\$FTCI_DIR"; cp -R {tmp_path}/made/venv "\\$FTCI_DIR"\n', 1)
    file = tmp_path / "Jenkinsfile"
    file.write_text(text)
    told = jenkins(file, tmp_path / "workspace", project, {**environ, "ANTHROPIC_BASE_URL": overloaded})
    assert told.status == 0, told.text
    did = [line.removeprefix("did: ") for line in told.text.splitlines() if line.startswith("did: ")]
    archived = "archiveArtifacts [junit.xml, otlp.jsonl, summary.md, trial.json]"
    first = ["deleteDir", "checkout scm", "sh agent, try 1: 75", archived, "junit true"]
    assert did == ["agent any", "stage Agent", *first, *(one.replace("try 1: 75", "try 2: 0") for one in first)]
    assert not (Path(environ["HOME"]) / "owned").exists(), told.text
    assert list((tmp_path / "workspace@tmp").iterdir()) == []


def test_junit_files_are_valid_by_the_schema_of_jenkins_but_for_the_properties_of_a_case(tmp_path: Path) -> None:
    need("groovy")
    need("junit-10.xsd")
    trials = [trial(n, outcome=outcome, task="\x00 <&> ]]>") for n, outcome in enumerate(Outcome)]
    for name, content in (("run", trials), ("alone", trials[:1]), ("none", [])):
        file = tmp_path / f"{name}.xml"
        root = ET.fromstring(junit_xml(name, content))
        for case in root.iter("testcase"):
            case.remove(case[0])
        file.write_bytes(ET.tostring(root))
        assert is_junit(file) == ""
    wrong = tmp_path / "wrong.xml"
    wrong.write_text('<testsuites skipped="0" />')
    assert "'skipped' is not allowed" in is_junit(wrong)
