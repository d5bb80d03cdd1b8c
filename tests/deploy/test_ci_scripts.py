"""The scripts of deploy/ci alone: what they start, what they pass on, what they install."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.deploy.installed import checkouts_own
from tests.e2e.clients import clean_environment

RUN = Path("deploy/ci/run.sh")


def run(repo_root: Path, folder: Path, command: str, **more: str) -> list[str]:
    """The words that `run.sh` would give to fairtrial: a program that prints its arguments stands in its place."""
    shown = folder / "shown"
    shown.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    shown.chmod(0o755)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "FTCI_DIR": str(folder / "dir"), "FTCI_COMMAND": command}
    done = subprocess.run(
        [repo_root / RUN],
        env={**environ, "FTCI_FAIRTRIAL": str(shown), **more},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize(
    "command, words",
    [
        ('printf "%s" "a b" \'c d\' $TWO "${TWO}"', ["printf", "%s", "a b", "c d", "x", "y", "x y"]),
        ("env -p '*' x", None),
        ("printf ~", None),
        ("printf a && true", None),
        ("printf a\nprintf b", None),
        ("cd /", None),
        ("X=1 printf x", None),
        ('printf "$(echo x)"', None),
        ("printf `echo x`", None),
        ('printf "${TWO:-x}" $$ $?', None),
        ("printf {a,b} ${A}{c,d}", None),
        ("printf 'unclosed", None),
        ("nosuchprogram -p x", None),
    ],
)
def test_a_plain_line_is_started_as_it_is_and_all_else_by_bash(
    repo_root: Path, tmp_path: Path, command: str, words: list[str] | None
) -> None:
    given = run(repo_root, tmp_path, command, TWO="x y")
    started = given[given.index("--") + 1 :]
    if words is not None:
        assert started == words
    else:
        assert started == ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(tmp_path / "dir" / "command.sh")]
        assert (tmp_path / "dir" / "command.sh").read_text() == f"{command}\n"


def test_options_are_words_of_their_own_whatever_is_in_them(repo_root: Path, tmp_path: Path) -> None:
    evil = "-- sh -c 'touch owned'"
    given = run(
        repo_root,
        tmp_path,
        "true",
        FTCI_TASK=evil,
        FTCI_RUN="nightly",
        FTCI_TRY="2",
        FTCI_ADAPT="true",
        FTCI_ARGUMENTS="--upstream=anthropic=https://gateway.example/a b\n\n--verbose\n",
    )
    options = given[: given.index("true") - 1]
    assert options[options.index("--task") + 1] == evil
    assert options[-2:] == ["--upstream=anthropic=https://gateway.example/a b", "--verbose"]
    assert {"--gate", "--adapt", "--json", "--store"} <= set(options)


def test_without_a_gate_none_is_asked_for(repo_root: Path, tmp_path: Path) -> None:
    assert "--gate" not in run(repo_root, tmp_path, "true", FTCI_GATE="false")


def test_a_run_that_is_killed_whole_still_has_a_report(repo_root: Path, tmp_path: Path) -> None:
    """As by a runner that cancels a job: the step's processes are gone, the step `always()` comes behind."""
    program = checkouts_own(tmp_path)
    environ = clean_environment(
        tmp_path, FTCI_DIR=str(tmp_path / "dir"), FTCI_FAIRTRIAL=program, DOCKER_HOST=f"unix://{tmp_path}/none"
    )
    step = subprocess.Popen(
        [repo_root / RUN],
        env={**environ, "FTCI_COMMAND": f"touch {tmp_path}/begun; sleep 600"},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    listed = [program, "trials", "--store", str(tmp_path / "dir" / "store.db")]
    deadline = time.monotonic() + 60
    while subprocess.run(listed, env=environ, capture_output=True, check=False).returncode != 0:
        assert time.monotonic() < deadline, "the trial was never opened"
    os.killpg(step.pid, signal.SIGKILL)
    step.wait()
    done = subprocess.run(
        [repo_root / "deploy" / "ci" / "report.sh"],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    report = tmp_path / "dir" / "report"
    assert done.returncode == 0, done.stderr
    assert (report / "summary.md").read_text().startswith("## ⚪ unknown (exit ?) → **indeterminate**"), done.stderr
    assert sorted(path.name for path in report.iterdir()) == ["junit.xml", "otlp.jsonl", "summary.md", "trial.json"]


@pytest.mark.slow
def test_install_makes_a_fairtrial_that_runs_and_a_second_time_is_nothing_to_do(
    repo_root: Path, tmp_path: Path
) -> None:
    """From the locked lists by hash, as any runner; the checkout gets no file."""
    before = subprocess.run(["git", "status", "--porcelain"], cwd=repo_root, capture_output=True, check=False).stdout
    environ = dict(os.environ, FTCI_DIR=str(tmp_path / "dir"), PATH=f"{sys.base_prefix}/bin:{os.environ['PATH']}")
    command = [repo_root / "deploy" / "ci" / "install.sh"]
    first = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (first.returncode, first.stdout.split()[:1]) == (0, ["fairtrial"]), first.stdout + first.stderr
    again = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    program = tmp_path / "dir" / "venv" / "bin" / "fairtrial"
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "DOCKER_HOST": f"unix://{tmp_path}/none"}
    ran = subprocess.run([program, "run", "--", "true"], env=home, cwd=tmp_path, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    after = subprocess.run(["git", "status", "--porcelain"], cwd=repo_root, capture_output=True, check=False).stdout
    assert after == before
