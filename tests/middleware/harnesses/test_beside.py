"""What stands beside a score, file by file; `test_cli_beside.py` has the whole way from the store."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from fairtrial.middleware.core.observations import HarnessOutcome
from fairtrial.middleware.harnesses.beside import put_beside
from fairtrial.middleware.harnesses.splice import put
from tests.middleware.harnesses.real import DATA

OURS: dict[str, object] = {"schema": "fairtrial.beside/1", "blame": "infra"}


@pytest.fixture
def trajectory(tmp_path: Path) -> Path:
    return Path(shutil.copy(DATA / "atif" / "claude-code" / "trajectory.json", tmp_path / "trajectory.json"))


def test_a_trajectory_alone_is_written_by_its_own_path(trajectory: Path) -> None:
    (done,), notes = put_beside(trajectory, lambda _: OURS)
    assert (done.state, done.file, notes) == ("written", "trajectory.json", [])
    assert json.loads(trajectory.read_text())["extra"]["fairtrial"] == OURS


def test_a_sentence_in_the_place_of_a_verdict_leaves_the_file(trajectory: Path) -> None:
    before = trajectory.read_bytes()
    (done,), _ = put_beside(trajectory, lambda _: "is none of the chosen trials")
    assert (done.state, done.said) == ("left", "is none of the chosen trials")
    assert trajectory.read_bytes() == before


def test_a_file_that_its_harness_wrote_to_meanwhile_is_the_harnesss(
    trajectory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*arguments: object) -> object:
        with trajectory.open("a") as file:
            file.write("\n")
        return put(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("fairtrial.middleware.harnesses.beside.put", meanwhile)
    (done,), _ = put_beside(trajectory, lambda _: OURS)
    assert done.state == "left" and "changed by somebody else" in done.said
    assert "fairtrial" not in json.loads(trajectory.read_text()).get("extra", {})
    assert os.listdir(trajectory.parent) == ["trajectory.json"]


@pytest.mark.parametrize("name", ["ok.eval", "529.json"])
def test_one_sample_of_a_log_may_get_a_verdict_and_the_other_not(name: str, tmp_path: Path) -> None:
    log = Path(shutil.copy(DATA / "inspect" / name, tmp_path / name))

    def of(outcome: HarnessOutcome) -> dict[str, object] | str:
        return OURS if outcome.label == "hello/hello/1" else "was not imported"

    done, _ = put_beside(log, of)
    assert {one.label: (one.state, one.said) for one in done} == {
        "hello/hello/1": ("written", ""),
        "hello/never/1": ("left", "was not imported"),
    }
    assert {one.state for one in put_beside(log, of)[0]} == {"same", "left"}


def test_a_folder_with_both_harnesses_is_written_whole(trajectory: Path) -> None:
    agent = trajectory.parent / "job" / "trial__x" / "agent"
    agent.mkdir(parents=True)
    trajectory.rename(agent / "trajectory.json")
    (agent.parent / "trial.log").write_text("")
    shutil.copy(DATA / "inspect" / "ok.eval", trajectory.parent)
    done, notes = put_beside(trajectory.parent, lambda _: OURS)
    assert sorted((one.file, one.state) for one in done) == [
        ("job/trial__x/agent/trajectory.json", "written"),
        ("ok.eval", "written"),
        ("ok.eval", "written"),
    ]
    assert all(note.state != "foreign" for note in notes)
