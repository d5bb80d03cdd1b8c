"""The linters that know GitHub's, GitLab's and the shell's rules have nothing to say about what deploy/ gives to CI."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.tools import ACTIONLINT, NO_ACTIONLINT

WORKFLOWS = ("agent.yml", "nightly.yml")
SCHEMAS = {
    "github-action/action.yml": ("vendor.github-actions",),
    "github-action/agent.yml": ("vendor.github-workflows",),
    "github-action/nightly.yml": ("vendor.github-workflows",),
    "gitlab-ci/fairtrial.yml": ("vendor.gitlab-ci", "--data-transform", "gitlab-ci"),
}
BIN = Path(sys.executable).parent


def told(command: list[str], folder: Path) -> str:
    """Everything a linter says; nothing when it is content."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture
def copied(repo_root: Path, tmp_path: Path) -> Path:
    """A repository with the workflows where their users put them."""
    places = tmp_path / ".github" / "workflows"
    places.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for name in WORKFLOWS:
        shutil.copy(repo_root / "deploy" / "github-action" / name, places)
    (tmp_path / "action").mkdir()
    shutil.copy(repo_root / "deploy" / "github-action" / "action.yml", tmp_path / "action")
    return tmp_path


@pytest.mark.parametrize("name", list(SCHEMAS))
def test_each_file_is_one_by_its_schema(repo_root: Path, name: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", *SCHEMAS[name]]
    assert told([*command, f"deploy/{name}"], repo_root) == ""


def test_zizmor_finds_no_weakness_of_any_grade(copied: Path) -> None:
    assert told([str(BIN / "zizmor"), "--offline", "--persona", "pedantic", str(copied)], copied) == ""


def test_actionlint_and_shellcheck_have_nothing_to_say_of_the_workflows(copied: Path) -> None:
    if ACTIONLINT is None:
        pytest.skip(NO_ACTIONLINT)
    assert told([ACTIONLINT, "-shellcheck", str(BIN / "shellcheck")], copied) == ""


def test_shellcheck_has_nothing_to_say_of_the_scripts(repo_root: Path) -> None:
    scripts = sorted(str(path) for path in (repo_root / "deploy" / "ci").glob("*.sh"))
    assert len(scripts) == 3
    assert told([str(BIN / "shellcheck"), *scripts], repo_root) == ""


def test_no_expression_stands_inside_a_shell_line(repo_root: Path) -> None:
    """Whatever is put in by the runner is code by then; inputs reach a step as variables only."""
    for path in (repo_root / "deploy" / "github-action").glob("*.yml"):
        for block in re.findall(r"run: (?:\|\n((?: {10,}.*\n?)+)|(.*))", path.read_text()):
            assert "${{" not in "".join(block), (path.name, block)


def test_every_action_is_pinned_by_its_commit(repo_root: Path) -> None:
    used = [
        line.split("uses:")[1].split("#")[0].strip()
        for path in (repo_root / "deploy" / "github-action").glob("*.yml")
        for line in path.read_text().splitlines()
        if re.match(r"\s*(- )?uses:", line)
    ]
    assert len(used) >= 4
    assert [name for name in used if not name.startswith("./") and not re.search(r"@[0-9a-f]{40}$", name)] == []
