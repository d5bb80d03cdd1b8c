"""What is built is what is in the tree: sdist -> wheel -> a fresh environment."""

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.test_layout import ROOMS, modules

pytestmark = pytest.mark.slow

IMPORT_ALL = """
import importlib, pathlib, pkgutil, sys
import fairtrial
home = pathlib.Path(fairtrial.__file__).parent
assert home.is_relative_to(sys.prefix), home
names = [m.name for m in pkgutil.walk_packages([str(home)], "fairtrial.") if m.name != "fairtrial.__main__"]
for name in names:
    module = importlib.import_module(name)
    assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__
print(len(names), fairtrial.__version__)
"""


def in_tree(root: Path) -> set[str]:
    """Every file that the wheel should hold, under its name in the wheel."""
    files = {f"fairtrial/{name}" for name in ("__init__.py", "__main__.py", "py.typed")}
    for room in ROOMS:
        files |= {
            f"fairtrial/{path.relative_to(root)}"
            for path in (root / room).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
    return files


@pytest.fixture(scope="module")
def built(repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that was built from that sdist (no isolation: no network)."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(repo_root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The one wheel."""
    (path,) = built.glob("*.whl")
    return path


def test_the_wheel_from_the_sdist_holds_exactly_the_rooms(repo_root: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == in_tree(repo_root)


def test_the_wheel_carries_the_licence_and_no_hook(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert [name for name in names if name.endswith(".pth")] == []


def test_the_sdist_holds_the_rooms_once_and_the_tests(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"middleware/core/__init__.py", "tests/conftest.py", "Makefile", "LICENSE"} <= names
    assert [name for name in sorted(names) if re.match(r"fairtrial/(middleware|collectors|exporters)/.", name)] == []
    assert [name for name in sorted(names) if re.match(r"\.(venv|e2e|cache|git)/", name)] == []


def test_the_wheel_imports_in_a_fresh_environment_and_knows_its_command(wheel: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
    install = [sys.executable, "-m", "pip", "--python", str(fresh / "bin/python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, "--quiet", str(wheel)], check=True)
    # Libraries come from this environment's folder; its .pth (the checkout) is not read from PYTHONPATH.
    env = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    done = subprocess.run(
        [str(fresh / "bin/python"), "-W", "error::SyntaxWarning", "-c", IMPORT_ALL],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    helped = subprocess.run(
        [str(fresh / "bin/fairtrial"), "--help"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert helped.returncode == 0, helped.stderr
    assert "run" in helped.stdout


def imported_libraries(root: Path) -> set[str]:
    """Top-level names that the rooms and the name plate import, without the standard library and ourselves."""
    names: set[str] = set()
    for source in [*modules(root), Path("fairtrial/__init__.py"), Path("fairtrial/__main__.py")]:
        for node in ast.walk(ast.parse((root / source).read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names - sys.stdlib_module_names - {"fairtrial"}


def normal(requirement: str) -> str:
    """The name of a requirement as indexes and locks spell it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]).lower()


def test_every_library_that_the_rooms_import_is_declared(repo_root: Path) -> None:
    project = tomllib.loads((repo_root / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {normal(line) for line in declared}
    installed = packages_distributions()
    loose = [
        name
        for name in sorted(imported_libraries(repo_root))
        if not any(normal(owner) in names for owner in installed.get(name, [name]))
        and not (name == "opentelemetry" and "opentelemetry-sdk" in names)  # a namespace with many owners
    ]
    assert loose == [], "declare it in pyproject.toml and run `make lock`, or do without"


def test_every_declared_library_is_in_the_locked_list(repo_root: Path) -> None:
    project = tomllib.loads((repo_root / "pyproject.toml").read_text())

    def missing(declared: list[str], lock: str) -> list[str]:
        text = (repo_root / "requirements" / lock).read_text()
        locked = {normal(name) for name in re.findall(r"^([a-z0-9.-]+)==", text, re.MULTILINE)}
        return [name for name in map(normal, declared) if name not in locked]

    runtime = project["project"]["dependencies"]
    groups = project["dependency-groups"]
    assert missing(runtime, "runtime.txt") == []
    assert missing(groups["build"], "build.txt") == []
    assert missing([*runtime, *groups["dev"], *groups["e2e"]], "dev.txt") == [], "run `make lock`"


@pytest.mark.parametrize("lock", ["dev.txt", "runtime.txt", "build.txt"])
def test_the_locked_lists_hold_hashes_and_no_address(repo_root: Path, lock: str) -> None:
    text = (repo_root / "requirements" / lock).read_text()
    assert "://" not in text
    pins = re.findall(r"^[a-z0-9.\[\]-]+==.*(?:\n    .*)*", text, re.MULTILINE)
    assert pins
    assert [pin.split("\n")[0] for pin in pins if "--hash=sha256:" not in pin] == []
