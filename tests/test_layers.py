"""Who may import whom: the contracts in pyproject.toml hold, name what breaks them, and forget no module."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.test_layout import ROOMS, modules

SHARED_BY_ALL = {"fairtrial.middleware"}  # a signpost between the floors, no code


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter on the tree in `folder`, without a cache; `folder` wins over the installed checkout."""
    program = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return subprocess.run(
        [sys.executable, "-c", program, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def copy_of_the_rooms(repo_root: Path, folder: Path) -> Path:
    """The rooms, the name plate with its links, and the contracts."""
    for name in (*ROOMS, "fairtrial"):
        shutil.copytree(repo_root / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repo_root / "pyproject.toml", folder)
    return folder


def test_the_tree_keeps_the_contracts(repo_root: Path) -> None:
    done = lint_imports(repo_root)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_neighbour_that_imports_a_neighbour_is_named(repo_root: Path, tmp_path: Path) -> None:
    tree = copy_of_the_rooms(repo_root, tmp_path)
    (tree / "collectors" / "nosy.py").write_text('"""Bad."""\n\nimport fairtrial.exporters\n')
    done = lint_imports(tree)
    assert done.returncode == 1
    assert "fairtrial.collectors.nosy -> fairtrial.exporters" in done.stdout


def test_a_heavy_library_in_the_relay_process_is_named(repo_root: Path, tmp_path: Path) -> None:
    tree = copy_of_the_rooms(repo_root, tmp_path)
    (tree / "middleware" / "relay" / "heavy.py").write_text('"""Bad."""\n\nimport aiohttp\n')
    done = lint_imports(tree)
    assert done.returncode == 1
    assert "fairtrial.middleware.relay.heavy -> aiohttp" in done.stdout


def test_every_module_stands_in_a_layer(repo_root: Path) -> None:
    contracts = tomllib.loads((repo_root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {name.strip(" ()") for row in contracts[0]["layers"] for name in re.split("[|:]", row)}
    names = {
        ".".join(("fairtrial", *source.with_suffix("").parts)).removesuffix(".__init__")
        for source in modules(repo_root)
    }
    loose = [
        name
        for name in sorted(names - SHARED_BY_ALL)
        if not any(name == layer or name.startswith(f"{layer}.") for layer in layers)
    ]
    assert loose == [], "give the module a layer in pyproject.toml"
