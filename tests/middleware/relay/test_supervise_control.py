"""`run --control` as its command sees it: real processes, a real socket, and a verdict that its word does not move."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fairtrial.middleware.core.records import Outcome, Trial

ROOT = Path(__file__).resolve().parents[3]

SAYS = """
import json, os, sys, urllib.request
url = f"{os.environ['FAIRTRIAL_CONTROL_URL']}/trials/{os.environ['FAIRTRIAL_TRIAL']}/"
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
def post(page, body):
    opener.open(urllib.request.Request(url + page, json.dumps(body).encode(), method="POST"), timeout=60).read()
post("mark", {"name": "half"})
post("outcome", {"outcome": "failed"})
post("outcome", {"outcome": "passed", "reward": 1})
"""


def run(tmp_path: Path, code: str, *options: str) -> tuple[subprocess.CompletedProcess[str], Trial]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRTRIAL_", "OTEL_"))}
    environ |= {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "s"), "PYTHONPATH": str(ROOT)}
    environ |= {"XDG_CONFIG_HOME": str(tmp_path / "c")}
    record = tmp_path / "trial.json"
    words = ["run", *options, "--json", str(record), "--", sys.executable, "-c", code]
    done = subprocess.run(
        [sys.executable, "-m", "fairtrial", *words],
        env=environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert record.exists(), done.stderr
    return done, msgspec.json.decode(record.read_bytes(), type=Trial)


@pytest.mark.parametrize("code", [0, 3])
def test_what_the_command_says_stands_in_the_record_and_moves_nothing(tmp_path: Path, code: int) -> None:
    (tmp_path / "said").mkdir()
    (tmp_path / "silent").mkdir()
    done, said = run(tmp_path / "said", f"{SAYS}\nsys.exit({code})", "--control")
    _, silent = run(tmp_path / "silent", f"import sys; sys.exit({code})")
    assert done.returncode == code, done.stderr
    (booked,) = said.booked
    assert (booked.harness, booked.outcome, booked.reward, booked.inside) == ("control", Outcome.PASSED, 1.0, True)
    assert not booked.scored and said.harness is None
    assert (said.outcome, said.outcome_source) == (silent.outcome, silent.outcome_source)
    assert said.verdict is not None and silent.verdict is not None
    assert (said.verdict.blame, said.verdict.cause, said.verdict.sentence) == (
        silent.verdict.blame,
        silent.verdict.cause,
        silent.verdict.sentence,
    )
    changed = {mutation.what: mutation.new or "" for mutation in said.mutations}
    assert changed["environment FAIRTRIAL_CONTROL_URL"].endswith("/t/***")


def test_without_the_option_there_is_no_address_and_the_commands_own_option_is_none_of_ours(tmp_path: Path) -> None:
    code = "import os, sys; print(sorted(n for n in os.environ if 'CONTROL' in n), sys.argv[1:])"
    record = tmp_path / "trial.json"
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRTRIAL_", "OTEL_"))}
    environ |= {"XDG_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "s"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "fairtrial",
            "run",
            "--json",
            str(record),
            "--",
            sys.executable,
            "-c",
            code,
            "--control",
        ],
        env=environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.stdout == "[] ['--control']\n"
    assert json.loads(record.read_text())["booked"] == []


def test_a_successor_of_a_killed_observer_hears_what_is_said(tmp_path: Path) -> None:
    # The observer is the only other child of the run process, which is the command's parent.
    kill = """
import os, signal, time
run = os.getppid()
def others():
    found = set()
    for name in os.listdir("/proc"):
        try:
            stat = open(f"/proc/{name}/stat").read() if name.isdigit() else ""
        except OSError:
            continue
        if stat and stat.rpartition(")")[2].split()[:2][1] == str(run) and stat.rpartition(")")[2].split()[0] != "Z":
            found.add(int(name))
    return found - {os.getpid()}
first = others()
for pid in first:
    os.kill(pid, signal.SIGKILL)
while not others() - first:
    time.sleep(0.02)
"""
    _, trial = run(tmp_path, kill + SAYS, "--control")
    (booked,) = trial.booked
    assert (booked.harness, booked.outcome) == ("control", Outcome.PASSED)
    assert trial.coverage.gaps
