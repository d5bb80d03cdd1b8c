"""SIGKILL at random moments, a few of them: nothing older than half a second is lost, and the store stays whole.

`python -m tests.e2e.kill_points 200` does the same two hundred times; its figures stand in docs/measurements.md.
"""

from pathlib import Path

from tests.e2e.kill_points import kill_points

POINTS = 9
SEED = 29


def test_a_kill_at_any_moment_costs_at_most_the_last_half_second(tmp_path: Path) -> None:
    result = kill_points(POINTS, SEED, tmp_path)
    assert not result.broken(), "\n".join([*result.broken(), *result.table()])
    assert sum(p.stored for p in result.points) > POINTS, "the agents hardly called"
    assert result.closed["normal"] == POINTS // 3, result.closed
