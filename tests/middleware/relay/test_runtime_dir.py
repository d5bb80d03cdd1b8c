"""The run's folder is short, private and ours, and a nested run finds the doors in it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.core.errors import HostError
from fairtrial.middleware.core.ids import new_id
from fairtrial.middleware.relay import runtime_dir


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="ft-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_the_folder_is_private_and_goes_away(short: Path) -> None:
    made = runtime_dir.create({"XDG_RUNTIME_DIR": str(short)}, new_id())
    assert made.path.startswith(f"{short}/fairtrial/")
    assert os.stat(made.path).st_mode & 0o777 == 0o700
    assert os.stat(short / "fairtrial").st_mode & 0o777 == 0o700
    made.write_doors("t", {1: "anthropic"})
    made.remove()
    assert not os.path.exists(made.path)


def test_a_nested_run_finds_the_doors_of_its_outer_trial_only(short: Path) -> None:
    trial = new_id()
    environ = {"XDG_RUNTIME_DIR": str(short)}
    made = runtime_dir.create(environ, trial)
    made.write_doors(trial, {4711: "anthropic", 4712: "openai"}, {"url": "unix:///x.sock"})
    assert os.stat(f"{made.path}/doors.json").st_mode & 0o777 == 0o600
    inside = {**environ, "FAIRTRIAL_TRIAL": trial}
    assert runtime_dir.outer_doors(inside) == {4711: "anthropic", 4712: "openai"}
    assert runtime_dir.outer_doors({**environ, "FAIRTRIAL_TRIAL": new_id()}) == {}
    assert runtime_dir.outer_doors({**environ, "FAIRTRIAL_TRIAL": "../" + trial}) == {}
    assert runtime_dir.outer_doors(environ) == {}
    Path(f"{made.path}/doors.json").write_text("{")
    assert runtime_dir.outer_doors(inside) == {}


def test_a_long_path_is_refused_with_the_setting_that_shortens_it(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="too long for a unix socket") as caught:
        runtime_dir.create({}, new_id(), chosen=str(tmp_path / ("x" * 90)))
    assert "FAIRTRIAL_RUNTIME_DIR" in caught.value.remedy


def test_a_long_or_broken_xdg_folder_falls_back_to_tmp(short: Path) -> None:
    (short / "file").write_text("")
    for broken in (str(short / "file"), f"/{'x' * 90}"):
        made = runtime_dir.create({"XDG_RUNTIME_DIR": broken}, new_id())
        assert made.path.startswith(f"/tmp/fairtrial-{os.getuid()}/")
        made.remove()


def test_a_chosen_folder_has_no_substitute(short: Path) -> None:
    (short / "file").write_text("")
    with pytest.raises(HostError, match="cannot be used"):
        runtime_dir.create({"XDG_RUNTIME_DIR": str(short)}, new_id(), chosen=str(short / "file"))


def test_a_folder_that_others_may_write_is_not_used(short: Path) -> None:
    (short / "fairtrial").mkdir()
    (short / "fairtrial").chmod(0o777)
    made = runtime_dir.create({"XDG_RUNTIME_DIR": str(short)}, new_id())
    assert made.path.startswith("/tmp/fairtrial-")
    made.remove()
