"""`export --into`: the verdict stands beside the score in files of real harnesses, and nothing else in them changed."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from fairtrial.middleware.cli import main
from fairtrial.middleware.harnesses import ADAPTERS
from fairtrial.middleware.harnesses.zipped import unpacked
from tests.middleware.harnesses.real import DATA


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("FAIRTRIAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FAIRTRIAL_STORE", str(tmp_path / "s.db"))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of Harbor's with the trajectory of one trial."""
    folder = tmp_path / "job"
    shutil.copytree(DATA / "harbor" / "attempts", folder)
    agent = folder / "wrong__MfyT69d" / "agent"
    agent.mkdir()
    shutil.copy(DATA / "atif" / "terminus-2" / "trajectory.json", agent)
    return folder


def without(text: str, *way: str) -> Any:
    """A document without the member that was put there, and without the object that had to be made for it."""
    document = json.loads(text)
    holder = document
    for step in way:
        holder = holder[step]
    del holder["fairtrial"]
    if not holder and way:
        del document[way[0]]
    return document


def test_a_trajectory_gets_the_verdict_of_its_trial_and_stays_the_same_to_its_readers(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job / "wrong__MfyT69d" / "agent" / "trajectory.json"
    path.chmod(0o640)
    before = path.read_text()
    others = {file: file.read_bytes() for file in job.rglob("*") if file.is_file() and file != path}
    assert main(["import", "harbor", str(job), "--run", "r"]) == 0
    told_before = ADAPTERS["harbor"].read(job).booked
    main(["export", "--into", str(job)])
    after = path.read_text()
    ours = json.loads(after)["extra"]["fairtrial"]
    assert ours["schema"] == "fairtrial.beside/1" and ours["run"] == "r" and ours["blame"] == "indeterminate"
    assert ours["sentence"] and ours["answers"].keys() == {"retry", "grade", "reward_valid"}
    assert without(after, "extra") == json.loads(before)
    assert ADAPTERS["harbor"].read(job).booked == told_before
    assert {file: file.read_bytes() for file in others} == others
    assert path.stat().st_mode & 0o777 == 0o640 and not list(path.parent.glob(".*"))
    assert "1 verdict written" in capsys.readouterr().out
    stamp = path.stat().st_mtime_ns
    main(["export", "--into", str(job)])
    assert path.stat().st_mtime_ns == stamp and path.read_text() == after
    assert "1 stood there already" in capsys.readouterr().out
    assert main(["import", "harbor", str(job), "--run", "r"]) == 0
    assert "nothing new" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ok.json", "529.json", "400.json"])
def test_a_json_log_of_inspect_gets_one_verdict_per_sample(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    shutil.copy(DATA / "inspect" / name, path)
    before = json.loads(path.read_text())
    assert main(["import", "inspect", str(path)]) == 0
    assert main(["export", "--into", str(path)]) == 0
    after = json.loads(path.read_text())
    for sample in after["samples"]:
        assert sample["metadata"].pop("fairtrial")["blame"] == "indeterminate"
    for old, new in zip(before["samples"], after["samples"], strict=True):
        if "metadata" not in old:
            del new["metadata"]
    assert after == before


def test_an_eval_log_keeps_every_other_member_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "ok.eval"
    shutil.copy(DATA / "inspect" / "ok.eval", path)
    before = members(path)
    assert main(["import", "inspect", str(path)]) == 0
    told_before = ADAPTERS["inspect"].read(path).booked
    assert main(["export", "--into", str(tmp_path)]) == 0
    after = members(path)
    assert after.keys() == before.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name in before if name.startswith("samples/")} and changed
    for name in changed:
        old, new = json.loads(before[name]), json.loads(after[name])
        assert new["metadata"].pop("fairtrial")["schema"] == "fairtrial.beside/1"
        assert new == {"metadata": {}} | old
    assert ADAPTERS["inspect"].read(path).booked == told_before
    whole = path.read_bytes()
    assert main(["export", "--into", str(path)]) == 0
    assert path.read_bytes() == whole


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: unpacked(archive, name, 1 << 28) for name in archive.namelist()}


def test_a_trial_that_was_not_imported_is_left_and_the_command_that_would_help_is_named(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "other" / "ok.json"
    log.parent.mkdir()
    shutil.copy(DATA / "inspect" / "ok.json", log)
    assert main(["import", "inspect", str(log)]) == 0
    path = job / "wrong__MfyT69d" / "agent" / "trajectory.json"
    before = path.read_bytes()
    assert main(["export", "--into", str(job)]) == 1
    assert path.read_bytes() == before
    assert "fairtrial import harbor" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["cut", "foreign", "theirs", "link"])
def test_a_file_that_is_damaged_or_somebody_elses_is_said_and_left(
    damage: str, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = job / "wrong__MfyT69d" / "agent" / "trajectory.json"
    assert main(["import", "harbor", str(job)]) == 0
    content = path.read_text()
    match damage:
        case "cut":
            path.write_text(content[: len(content) // 2])
        case "foreign":
            path.write_text('{"schema_version": "other-v9"}')
        case "theirs":
            path.write_text(json.dumps(json.loads(content) | {"extra": {"fairtrial": "is what we want"}}))
        case _:
            path.rename(tmp_path / "elsewhere.json")
            path.symlink_to(tmp_path / "elsewhere.json")
    before = path.read_bytes()
    capsys.readouterr()
    assert main(["export", "--into", str(job)]) == 1
    assert path.read_bytes() == before and path.is_symlink() == (damage == "link")
    said = capsys.readouterr().out
    words = {"cut": "cut off", "foreign": "no ATIF", "theirs": "did not write", "link": "is a link"}
    assert "trajectory.json" in said and words[damage] in said


@pytest.mark.parametrize("name", ["running.eval", "cut.eval"])
def test_a_log_that_still_runs_or_was_cut_off_is_left(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    source = DATA / "inspect" / ("running.eval" if name == "running.eval" else "ok.eval")
    content = source.read_bytes()
    path.write_bytes(content if name == "running.eval" else content[:-100])
    main(["import", "inspect", str(path)])
    before = path.read_bytes()
    capsys.readouterr()
    assert main(["export", "--into", str(path)]) == 1
    assert path.read_bytes() == before and name in "".join(capsys.readouterr())


def test_into_goes_with_no_option_for_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "--into", str(tmp_path), "--jsonl"]) == 2
    assert "--into writes verdicts" in capsys.readouterr().err
