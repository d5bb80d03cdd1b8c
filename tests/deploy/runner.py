"""Does what GitHub's runner does with the steps of a composite action or of one job, on this machine and offline.

In: an `action.yml`, or a workflow and the name of a job; inputs and secrets.  Out: `Ran`: each step's status, outputs,
the job summary, the annotations, the artifacts.  As the runner: `${{ … }}` is put in as text before a step's shell sees
it, `shell: bash` is `bash --noprofile --norc -eo pipefail FILE`, each step has files of its own behind `$GITHUB_OUTPUT`
and `$GITHUB_STEP_SUMMARY`, and after a failed step only those run whose `if` says `always()`.  `uses:` is known for two
actions: checkout (copies a folder) and upload-artifact (copies files).  An expression beyond names, `==`, `!=`, `&&`
and `always()` is refused.

Also a command, run in the workspace: `PYTHONPATH=REPO python -m tests.deploy.runner REPO/deploy/…/action.yml
command='claude -p …'`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_ANNOTATION = re.compile(r"^::(error|warning|notice) ")


@dataclass(slots=True)
class Ran:
    """What the steps left behind; `status` is the first failed step's, `told` all that they printed."""

    status: int = 0
    told: str = ""
    summary: str = ""
    outputs: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    results: dict[str, str] = field(default_factory=dict[str, str])
    artifacts: dict[str, Path] = field(default_factory=dict[str, Path])

    @property
    def annotations(self) -> list[str]:
        """The lines that the runner would show as annotations."""
        return [line for line in self.told.splitlines() if _ANNOTATION.match(line)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A runner: a workspace with the repository, a temporary folder, and what a checkout of a repository gives."""

    workspace: Path
    temp: Path
    environ: Mapping[str, str]
    repositories: Mapping[str, Path] = field(default_factory=dict[str, Path])
    workflow: str = "nightly agent"
    job: str = "agent"


def run_action(path: Path, inputs: Mapping[str, str], machine: Machine) -> Ran:
    """The steps of a composite action, as a job's step `uses` it."""
    action = _read(path)
    given = {name: str(one.get("default", "")) for name, one in action["inputs"].items()} | dict(inputs)
    ran = _steps(action["runs"]["steps"], given, {}, machine, {"GITHUB_ACTION_PATH": str(path.parent)})
    contexts = _contexts(given, {}, machine, ran)
    ran.outputs[""] = {name: _put_in(one["value"], contexts) for name, one in action["outputs"].items()}
    return ran


def run_job(path: Path, job: str, inputs: Mapping[str, str], secrets: Mapping[str, str], machine: Machine) -> Ran:
    """The steps of one job of a reusable workflow, with the inputs of a caller."""
    workflow = _read(path)
    declared = workflow["on"]["workflow_call"]["inputs"]
    given = {name: _text(one.get("default", "")) for name, one in declared.items()} | dict(inputs)
    missing = [name for name, one in declared.items() if one.get("required") and name not in inputs]
    assert not missing, f"required and not given: {missing}"
    ran = _steps(workflow["jobs"][job]["steps"], given, secrets, machine, {})
    contexts = _contexts(given, secrets, machine, ran)
    ran.outputs[""] = {name: _put_in(value, contexts) for name, value in workflow["jobs"][job]["outputs"].items()}
    return ran


def _read(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)


def _text(value: object) -> str:
    """As the runner makes texts of values: booleans in small letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _steps(
    steps: list[dict[str, Any]],
    inputs: Mapping[str, str],
    secrets: Mapping[str, str],
    machine: Machine,
    more: Mapping[str, str],
) -> Ran:
    ran = Ran()
    for number, step in enumerate(steps):
        name = str(step.get("id") or number)
        contexts = _contexts(inputs, secrets, machine, ran)
        condition = str(step.get("if", "success()"))
        if not _holds(condition, contexts, failed=ran.status != 0):
            ran.results[name] = "skipped"
            continue
        status = (
            _uses(step, contexts, machine, ran) if "uses" in step else _shell(step, name, contexts, machine, more, ran)
        )
        ran.results[name] = "success" if status == 0 else "failure"
        ran.status = ran.status or status
    return ran


def _contexts(
    inputs: Mapping[str, str], secrets: Mapping[str, str], machine: Machine, ran: Ran
) -> dict[str, Mapping[str, str]]:
    return {
        "inputs": inputs,
        "secrets": secrets,
        "github": {"workflow": machine.workflow, "job": machine.job, "workspace": str(machine.workspace)},
        "runner": {"temp": str(machine.temp)},
        **{f"steps.{step}.outputs": values for step, values in ran.outputs.items()},
    }


def _value(name: str, contexts: Mapping[str, Mapping[str, str]]) -> str:
    context, _, leaf = name.rpartition(".")
    if re.fullmatch(r"[\w.-]+", name) is None or not context:
        raise NotImplementedError(f"an expression that this runner does not know: {name}")
    if not context.startswith("steps.") and context not in contexts:
        raise NotImplementedError(f"a context that this runner does not know: {name}")
    return contexts.get(context, {}).get(leaf, "")


def _put_in(text: object, contexts: Mapping[str, Mapping[str, str]]) -> str:
    """Twice, since the default of an input may be an expression itself."""
    once = _EXPRESSION.sub(lambda found: _value(found[1], contexts), _text(text))
    return _EXPRESSION.sub(lambda found: _value(found[1], contexts), once) if once != _text(text) else once


def _holds(condition: str, contexts: Mapping[str, Mapping[str, str]], *, failed: bool) -> bool:
    parts = [part.strip() for part in condition.split("&&")]
    if failed and "always()" not in parts:
        return False
    return all(_one(part, contexts) for part in parts if part not in ("always()", "success()"))


def _one(part: str, contexts: Mapping[str, Mapping[str, str]]) -> bool:
    found = re.fullmatch(r"([\w.-]+) (==|!=) '([^']*)'", part)
    if found is None:
        raise NotImplementedError(f"a condition that this runner does not know: {part}")
    same = _put_in(_value(found[1], contexts), contexts) == found[3]
    return same if found[2] == "==" else not same


def _shell(
    step: Mapping[str, Any],
    name: str,
    contexts: Mapping[str, Mapping[str, str]],
    machine: Machine,
    more: Mapping[str, str],
    ran: Ran,
) -> int:
    assert step["shell"] == "bash", step
    files = Path(tempfile.mkdtemp(dir=machine.temp, prefix="_runner_"))
    script = files / "step.sh"
    script.write_text(_put_in(step["run"], contexts))
    output, summary = files / "output", files / "summary"
    output.touch()
    summary.touch()
    environ = {
        **machine.environ,
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(machine.workspace),
        "RUNNER_TEMP": str(machine.temp),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(summary),
        **more,
        **{key: _put_in(value, contexts) for key, value in step.get("env", {}).items()},
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=machine.workspace / _put_in(step.get("working-directory", "."), contexts),
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    ran.told += f"##[group]{step.get('name', name)}\n{done.stdout}"
    if done.returncode:
        ran.told += f"##[error]Process completed with exit code {done.returncode}.\n"
    pairs = [line.split("=", 1) for line in output.read_text().splitlines()]
    ran.outputs[name] = {pair[0]: pair[1] for pair in pairs}
    written = summary.read_bytes()
    assert len(written) <= 1024 * 1024, "the runner refuses a summary over 1 MiB"
    ran.summary += written.decode()
    return done.returncode


def _uses(step: Mapping[str, Any], contexts: Mapping[str, Mapping[str, str]], machine: Machine, ran: Ran) -> int:
    action, _, pin = step["uses"].partition("@")
    assert re.fullmatch(r"[0-9a-f]{40}", pin), f"not pinned: {step['uses']}"
    given = {key: _put_in(value, contexts) for key, value in step.get("with", {}).items()}
    if action == "actions/checkout":
        target = machine.workspace / given.get("path", ".")
        shutil.copytree(machine.repositories[given.get("repository", "")], target, symlinks=True, dirs_exist_ok=True)
        return 0
    assert action == "actions/upload-artifact", action
    found = Path(given["path"])
    kept = machine.temp / "_artifacts" / given["name"]
    if found.is_dir():
        shutil.copytree(found, kept, dirs_exist_ok=True)
        ran.artifacts[given["name"]] = kept
    ran.told += f"##[group]{step.get('name')}\n{given['name']}: {sorted(p.name for p in kept.glob('*'))}\n"
    return 0


def main(arguments: list[str]) -> int:
    """Run one action in the working folder, print what it said and then its summary; its status."""
    path, *pairs = arguments
    inputs = dict(pair.split("=", 1) for pair in pairs)
    with tempfile.TemporaryDirectory() as temp:
        machine = Machine(workspace=Path.cwd(), temp=Path(temp), environ=os.environ)
        ran = run_action(Path(path).resolve(), inputs, machine)
        print(ran.told, "---- job summary ----", ran.summary, "---- outputs ----", sep="\n")
        print("\n".join(f"{name}={value}" for name, value in ran.outputs[""].items()))
    return ran.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
