"""The entry point: `run` takes the short path, everything else goes to the commands for people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def fairtrial(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fairtrial", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
        timeout=60,
    )


def test_the_help_of_run_is_its_own(repo_root: Path) -> None:
    done = fairtrial("run", "--help", cwd=repo_root)
    assert done.returncode == 0
    assert "COMMAND keeps its stdin" in done.stdout


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["run"], "no command to run"),
        (["run", "--via", "connect", "--route", "A=http://h", "--", "true"], "no meaning with --via connect"),
        (["run", "--upstream", "antropic=http://h", "--", "true"], "Did you mean anthropic?"),
    ],
)
def test_a_line_that_cannot_be_followed_is_status_2_with_a_remedy(
    repo_root: Path, arguments: list[str], said: str
) -> None:
    done = fairtrial(*arguments, cwd=repo_root)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_short_path_loads_nothing_for_people() -> None:
    code = (
        "import sys, fairtrial.__main__\n"
        "sys.argv = ['fairtrial', 'run']\n"
        "try: fairtrial.__main__.main()\n"
        "except SystemExit as leaving: print(leaving.code)\n"
        "print(sorted({'typer', 'rich', 'msgspec', 'asyncio', 'sqlite3'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n[]\n"
