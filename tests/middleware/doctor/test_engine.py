"""An engine whose clock differs from ours lays its events to wrong steps: that is said before a run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fairtrial.middleware.doctor.engine import docker
from tests.middleware.doctor.answering import answering_engine


@pytest.fixture(params=[90, -90])
def ahead_s(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def engine(tmp_path: Path, ahead_s: int) -> Iterator[str]:
    """An engine with a clock of its own."""

    def answer() -> dict[str, object]:
        now = datetime.now(UTC) + timedelta(seconds=ahead_s)
        # Nine digits of a second, as an engine writes them.
        return {"Version": "99.1", "ApiVersion": "1.51", "SystemTime": now.strftime("%Y-%m-%dT%H:%M:%S.%f") + "123Z"}

    with answering_engine(tmp_path / "s", answer) as address:
        yield address


def test_a_clock_that_is_off_is_said_with_its_direction(engine: str, ahead_s: int) -> None:
    finding = docker({"DOCKER_HOST": engine})
    assert finding.state == "partial"
    assert "its clock is 9" in finding.text.replace("89.", "90.")
    assert ("before" if ahead_s > 0 else "behind") in finding.text


@pytest.mark.parametrize(
    "told, words",
    [
        ({"ApiVersion": "1.60", "MinAPIVersion": "1.55"}, "speaks no API older than 1.55"),
        ({"ApiVersion": "1.39"}, "speaks API 1.39, and fairtrial needs 1.40"),
        ({}, "so it is no Docker engine"),
    ],
)
def test_an_engine_whose_api_is_not_spoken_is_not_ok(tmp_path: Path, told: dict[str, object], words: str) -> None:
    with answering_engine(tmp_path / "s", lambda: {"Version": "99.1", **told}) as address:
        finding = docker({"DOCKER_HOST": address})
    assert finding.state == "no"
    assert words in finding.text
    assert "the engine 99.1" in finding.text
