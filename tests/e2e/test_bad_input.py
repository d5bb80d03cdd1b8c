"""What is wrong with the settings, the command line or the command: a sentence with a remedy.

The agent's run goes on, its exit status is kept, and nothing that was recorded is lost.
"""

import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.demo_agent import GOOD, NOBODY, agent_command, agent_environment, says
from tests.e2e.under import FAIRTRIAL, run_command, run_under, shown


@contextmanager
def settings(home: Path, text: str) -> Generator[None, None, None]:
    folder = home / ".config" / "fairtrial"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)
    yield


def test_an_unknown_setting_names_the_nearest_one_and_the_command_runs(
    home: Path, project: Path, tmp_path: Path
) -> None:
    with settings(home, '[store]\npth = "x.db"\n'), running_standin(GOOD) as server:
        environment = agent_environment(home, server.url)
        outcome = clients.run(run_command(agent_command(), tmp_path / "s.db", None), environment, project)
        required = clients.run(
            run_command(["touch", "started"], tmp_path / "s.db", None, ["--require"]), environment, project
        )
    assert outcome.returncode == 0, outcome.told()
    assert "check passed" in outcome.stdout
    assert "store.pth" in outcome.stderr
    assert "store.path" in outcome.stderr
    assert (required.returncode, (project / "started").exists()) == (78, False), required.told()
    assert "store.path" in required.stderr


@pytest.mark.parametrize(
    "options, told",
    [
        (["--upstream", "antropic=http://x"], "anthropic"),
        (["--upstream", "anthropic=nonsense"], "http"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_a_line_that_cannot_be_understood_ends_with_2_before_anything_runs(
    options: Sequence[str], told: str, home: Path, project: Path
) -> None:
    command = [*FAIRTRIAL, "run", *options, "--", "touch", "started"]
    outcome = clients.run(command, clients.clean_environment(home), project)
    assert outcome.returncode == 2, outcome.told()
    assert told in outcome.stderr
    assert not (project / "started").exists()


@pytest.mark.parametrize(
    "command, status, said", [("no-such-agent", 127, "no-such-agent"), ("./plain-file", 126, "plain-file")]
)
def test_a_command_that_cannot_start_has_the_shells_status_and_is_nobody_elses_fault(
    command: str, status: int, said: str, home: Path, project: Path, tmp_path: Path
) -> None:
    (project / "plain-file").write_text("not a program")
    under = run_under([command], agent_environment(home, NOBODY), project, kept=tmp_path / "kept")
    assert under.outcome.returncode == status, under.told()
    says(under, "fairtrial:", said)
    assert under.trial.exit_code == status
    assert under.verdict.blame not in {Blame.INFRA, Blame.MODEL, Blame.NONE}, under.told()
    assert under.verdict.terminated_by is None or under.verdict.terminated_by.cause.startswith("operator.")


@pytest.mark.parametrize("where", ["argument", "folder", "variable"])
def test_bytes_that_are_no_utf_8_cost_no_record(where: str, home: Path, project: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"odd\xff")
    folder = project / odd if where == "folder" else project
    folder.mkdir(exist_ok=True)
    more = {"NO_PROXY": odd} if where == "variable" else {}
    command = ["sh", "-c", "exit 3", *([odd] if where == "argument" else [])]
    under = run_under(command, agent_environment(home, NOBODY, **more), folder, kept=tmp_path)
    assert under.outcome.returncode == 3, under.told()
    assert under.record is not None, under.told()
    assert shown(under.store, agent_environment(home, NOBODY)).exit_code == 3


def test_without_loopback_the_command_runs_unobserved_and_is_told_why(home: Path, project: Path) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a network without loopback needs uid 0 and unshare")
    prefix = ("unshare", "-n")
    environment = agent_environment(home, NOBODY)
    command = [*FAIRTRIAL, "run", "--", "sh", "-c", "echo ran; exit 5"]
    outcome = clients.run(command, environment, project, prefix=prefix)
    assert outcome.returncode == 5, outcome.told()
    assert outcome.stdout == "ran\n"
    # Linux lets a socket be bound to 127.0.0.1 while lo is down: then the run is observed, and nobody calls.
    if "unobserved" in outcome.stderr:
        assert "loopback" in outcome.stderr, outcome.told()
