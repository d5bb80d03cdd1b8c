"""In CI a skipped test is a failure, unless its reason is on the list (tests/conftest.py)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPPED = """
import pytest

def test_runs():
    pass

def test_skips_itself():
    pytest.skip("no moon tonight")
"""


def run_skipping_tests(repo_root: Path, folder: Path, *, ci: bool, allowed: str = "", body: str = SKIPPED) -> str:
    """The output of pytest, with our conftest, on a test that skips; the last line is the exit status."""
    (folder / "tests").mkdir()
    shutil.copy(repo_root / "tests/conftest.py", folder / "tests")
    (folder / "tests/allowed_skips.txt").write_text(f"# a comment\n\n{allowed}\n")
    (folder / "tests/test_moon.py").write_text(body)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    docker: x\n    root: x\n    e2e: x\n    slow: x\n")
    environ = {name: value for name, value in os.environ.items() if name != "FAIRTRIAL_CI"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder / "tests")],
        cwd=folder,
        env={**environ, "FAIRTRIAL_CI": "1"} if ci else environ,
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{done.stdout}\n{done.returncode}"


@pytest.mark.parametrize("body", [SKIPPED, 'import pytest\npytest.importorskip("no_such_module")\n'])
def test_a_skip_fails_in_ci_and_is_named_with_its_reason(repo_root: Path, tmp_path: Path, body: str) -> None:
    output = run_skipping_tests(repo_root, tmp_path, ci=True, body=body)
    assert output.endswith("\n1")
    assert "must run in CI" in output
    assert "no moon tonight" in output or "no_such_module" in output


def test_what_failed_is_named_before_the_details_in_ci(repo_root: Path, tmp_path: Path) -> None:
    body = "def test_new():\n    assert not 'details'\n"
    output = run_skipping_tests(repo_root, tmp_path, ci=True, body=body)
    name = "test_moon.py::test_new"
    assert output.index("what failed (1)") < output.index(name) < output.index("assert not 'details'")
    assert output.endswith("\n1")


def test_a_skip_on_the_list_passes_in_ci(repo_root: Path, tmp_path: Path) -> None:
    output = run_skipping_tests(repo_root, tmp_path, ci=True, allowed=r"test_moon\.py::test_skips_itself: no moon")
    assert output.endswith("\n0")


def test_a_skip_is_only_a_skip_on_a_persons_machine(repo_root: Path, tmp_path: Path) -> None:
    output = run_skipping_tests(repo_root, tmp_path, ci=False)
    assert output.endswith("\n0")
    assert "1 passed, 1 skipped" in output


def test_a_missing_engine_is_a_reason_that_a_person_can_act_on(
    repo_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRTRIAL_TEST_DOCKER", f"unix://{tmp_path}/none.sock")
    body = "import pytest\n\n@pytest.mark.docker\ndef test_engine():\n    pass\n"
    output = run_skipping_tests(repo_root, tmp_path, ci=True, body=body)
    assert output.endswith("\n1")
    assert "set FAIRTRIAL_TEST_DOCKER" in output
