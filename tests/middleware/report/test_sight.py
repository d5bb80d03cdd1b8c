"""One line says what was watched: reasons once, a family that no command has left out."""

from __future__ import annotations

from fairtrial.middleware.core.records import Coverage, FamilyCoverage
from fairtrial.middleware.report.sight import sight_line
from tests.middleware.report.trials import trial


def test_families_of_one_level_stand_together_and_a_reason_is_said_once() -> None:
    assert sight_line(trial().coverage) == "watched: model API, memory; not watched: network, node (nobody looked)"


def test_a_verifier_that_was_watched_is_named() -> None:
    seen = Coverage(families={"verifier": FamilyCoverage(level="partial", why="in\x1bpart")})
    assert sight_line(seen) == "in part: verifier (in part)"


def test_without_coverage_nothing_is_claimed() -> None:
    assert sight_line(Coverage()) == "nothing was watched"
