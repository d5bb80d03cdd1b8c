"""Time that a command did not have: throttling, the disk, neighbours, the node's memory."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.records import Blame
from tests.middleware.attribution.scene import Scene, ended, summary

COUNTERS: dict[str, object] = {
    "cpu_used": 0.0,
    "cpu_throttled": 0.0,
    "psi_cpu": 0.0,
    "psi_io": 0.0,
    "psi_memory": 0.0,
    "memory_max_hits": 0,
    "memory_high_hits": 0,
}
HOST: dict[str, object] = {"steal_s": 0.0, "cpu_busy_s": 0.0, "psi_memory": 0.0}


def worked(
    exit_code: int | None = 124, *, host: dict[str, object] | None = None, length: float = 100.0, **moved: object
) -> Scene:
    """One command of so many seconds; what the counters had moved by at its end."""
    told = Scene()
    told.also |= COUNTERS
    told.host_also |= HOST
    told.read("baseline").call()
    told.s += length
    told.also |= moved
    told.host_also |= host or {}
    return told.read("change").ran(exit_code).call(tools=0).end(1)


def test_a_command_cut_short_while_it_was_throttled_leaves_the_blame_open_and_names_the_fact() -> None:
    verdict = worked(cpu_throttled=60.0, psi_cpu=55.0).verdict()
    assert summary(verdict)[0] == "indeterminate"
    assert ended(verdict) == ("container.cpu_throttled", "proved", 1)
    assert "for 55 s of the 101 s" in verdict.sentence
    assert verdict.flips_if is not None


def test_an_endless_loop_at_its_quota_never_comes_out_as_infra() -> None:
    verdict = worked(cpu_throttled=190.0, psi_cpu=95.0, cpu_used=5.0).verdict()
    assert verdict.blame is Blame.INDETERMINATE


def test_throttling_below_a_tenth_of_the_time_is_nothing() -> None:
    assert worked(cpu_throttled=9.0, psi_cpu=9.0).verdict().blame is Blame.MODEL


def test_throttling_summed_over_cores_is_cut_to_what_pressure_saw() -> None:
    assert worked(cpu_throttled=60.0, psi_cpu=4.0).verdict().blame is Blame.MODEL


def test_a_throttled_command_that_ended_by_itself_is_present() -> None:
    verdict = worked(1, cpu_throttled=60.0, psi_cpu=60.0).verdict()
    assert (verdict.blame, verdict.cause, ended(verdict)) == (Blame.MODEL, None, None)
    assert [row.cause for row in verdict.present] == ["container.cpu_throttled"]


def test_an_unread_counter_is_no_zero_and_no_loss() -> None:
    assert worked(cpu_throttled=None, psi_cpu=80.0).verdict().cause is None


def test_a_command_cut_short_while_it_waited_for_the_disk_leaves_the_blame_open() -> None:
    verdict = worked(psi_io=70.0).verdict()
    assert (verdict.blame, ended(verdict)) == (Blame.INDETERMINATE, ("container.disk_slow", "proved", 1))


def test_a_model_that_is_cut_short_with_no_loss_at_all_is_due() -> None:
    assert worked().verdict().blame is Blame.MODEL


def test_the_largest_loss_is_told_and_not_the_sum() -> None:
    verdict = worked(psi_io=30.0, cpu_throttled=50.0, psi_cpu=50.0).verdict()
    assert ended(verdict) == ("container.cpu_throttled", "proved", 1)
    assert "for 50 s" in verdict.sentence


@pytest.mark.parametrize(
    "host, moved, cause",
    [
        ({"cpu_busy_s": 190.0}, {"psi_cpu": 60.0, "cpu_used": 20.0}, "node.contention"),
        ({"steal_s": 60.0}, {}, "node.contention"),
        ({"psi_memory": 50.0}, {"psi_memory": 45.0}, "node.pressure"),
    ],
    ids=["neighbours", "stolen", "memory of the node"],
)
def test_what_the_node_took_is_told_as_the_nodes(host: dict[str, object], moved: dict[str, object], cause: str) -> None:
    verdict = worked(host=host, **moved).verdict()  # type: ignore[arg-type]
    assert (verdict.blame, ended(verdict)) == (Blame.INDETERMINATE, (cause, "proved", 1))


@pytest.mark.parametrize(
    "host, moved",
    [
        ({"cpu_busy_s": 190.0}, {"psi_cpu": 60.0, "cpu_used": 185.0}),
        ({"cpu_busy_s": 50.0}, {"psi_cpu": 60.0, "cpu_used": 5.0}),
        ({"psi_memory": 1.0}, {"psi_memory": 45.0}),
        ({"steal_s": 3.0}, {}),
    ],
    ids=["its own processes wait for each other", "idle neighbours", "an idle node", "little stolen"],
)
def test_what_the_container_did_to_itself_is_not_the_nodes(host: dict[str, object], moved: dict[str, object]) -> None:
    verdict = worked(host=host, **moved).verdict()  # type: ignore[arg-type]
    assert ended(verdict) is None
    assert verdict.blame is Blame.MODEL
