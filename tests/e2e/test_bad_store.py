"""A store or a record that cannot be written or read: a sentence with a remedy, and no row is lost.

The agent's run goes on, its exit status is kept, and nothing that was recorded is lost.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.demo_agent import GOOD, NOBODY, OVERLOAD, STORM, agent_command, agent_environment, says
from tests.e2e.under import fairtrial, missed, run_command, run_under, shown


def below_a_file(folder: Path) -> Path:
    """A path that not even root can write."""
    (folder / "file").write_text("no folder")
    return folder / "file" / "store.db"


def corrupt(folder: Path) -> Path:
    path = folder / "corrupt.db"
    path.write_bytes(b"this is no database, " * 1000)
    return path


@contextmanager
def full_disk(folder: Path) -> Generator[Path, None, None]:
    """A store on a file system that holds 64 KiB, too few for one trial."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a full file system needs uid 0 and mount")
    place = folder / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield place / "store.db"
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def check_without_store(
    store: Path, home: Path, project: Path, kept: Path, *, mend: Callable[[], Path] | None = None
) -> None:
    """A trial that fails, on a store that cannot be written: the same verdict, a sentence, and no row lost.

    `mend` makes room and says which store the rows are then brought into; without it that is a new one.
    """
    with running_standin((shell("echo hello"), say("Done.")), OVERLOAD) as server:
        environment = agent_environment(home, server.url)
        under = run_under(agent_command(), environment, project, kept=kept, store=store)
    assert under.outcome.returncode == 1, under.told()
    assert "model API: 529" in under.outcome.stdout
    assert not (told := missed(under, STORM)), told
    says(under, "fairtrial:", str(store))
    spills = re.findall(r"fairtrial import store (\S+)", under.outcome.stderr)
    assert spills, under.outcome.stderr
    saved = home / "saved.db" if mend is None else mend()
    told = ""
    for spill in spills:
        done = fairtrial("import", "store", spill, "--store", str(saved), environment=environment)
        assert done.returncode == 0, done.stderr
        told += done.stdout
        Path(spill).unlink()
    assert "damaged" not in told
    again = shown(saved, environment, under.trial.trial)
    assert again.verdict is not None
    assert (again.verdict.blame, again.verdict.cause) == (Blame.INFRA, "model_api.overloaded"), told
    replayed = shown(saved, environment, under.trial.trial, "--replay")
    assert replayed.steps == under.trial.steps


def test_a_store_that_cannot_be_written_costs_neither_the_run_nor_a_row(
    home: Path, project: Path, tmp_path: Path
) -> None:
    check_without_store(below_a_file(tmp_path), home, project, tmp_path / "kept")


def test_a_corrupt_store_costs_neither_the_run_nor_a_row_and_is_left_as_it_is(
    home: Path, project: Path, tmp_path: Path
) -> None:
    store = corrupt(tmp_path)
    before = store.read_bytes()
    check_without_store(store, home, project, tmp_path / "kept")
    assert store.read_bytes() == before


def test_a_full_store_costs_neither_the_run_nor_a_row(home: Path, project: Path, tmp_path: Path) -> None:
    with full_disk(tmp_path) as store:

        def more_room() -> Path:
            subprocess.run(["mount", "-o", "remount,size=16m", str(store.parent)], check=True)
            return store

        check_without_store(store, home, project, tmp_path / "kept", mend=more_room)


def test_commands_that_read_a_bad_store_say_so_in_a_sentence(home: Path, tmp_path: Path) -> None:
    environment = clients.clean_environment(home)
    for store in (corrupt(tmp_path), below_a_file(tmp_path), tmp_path / "nowhere.db"):
        for command in (("trials",), ("show", "last")):
            done = fairtrial(*command, "--store", str(store), environment=environment)
            assert done.returncode == 1, (done.stdout, done.stderr)
            assert str(store) in done.stderr
            assert "Traceback" not in done.stderr


def test_a_record_that_cannot_be_written_is_said_and_the_trial_is_stored(
    home: Path, project: Path, tmp_path: Path
) -> None:
    target, store = tmp_path / "no" / "such" / "folder.json", tmp_path / "store.db"
    with running_standin(GOOD) as server:
        environment = agent_environment(home, server.url)
        command = run_command(agent_command(), store, target)
        outcome = clients.run(command, environment, project)
    assert outcome.returncode == 0, outcome.told()
    assert str(target) in outcome.stderr
    assert shown(store, environment).verdict is not None


def test_a_store_that_no_text_can_name_is_refused_in_a_sentence(home: Path, project: Path, tmp_path: Path) -> None:
    store = tmp_path / os.fsdecode(b"odd\xff.db")
    under = run_under(["sh", "-c", "exit 3"], agent_environment(home, NOBODY), project, kept=tmp_path, store=store)
    assert under.outcome.returncode == 3
    says(under, "no UTF-8", "--store PATH")
