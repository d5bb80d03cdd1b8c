"""Trials that fail together: one minute, one host, one node; told by Fisher's test, or not at all."""

from __future__ import annotations

import random

import pytest

from fairtrial.middleware.attribution.across import WITHOUT_SCIPY, across, scipys_fisher
from fairtrial.middleware.attribution.thresholds import load
from fairtrial.middleware.core.records import Blame, Grade, Outcome, Trial
from tests.middleware.attribution.runs import failed_at, trial

DNS = "model_api.unreachable"
fisher = scipys_fisher()
statistics = pytest.mark.skipif(fisher is None, reason="the extra [stats] is not installed")


def unreachable(name: str, at: float, *, node: str = "node-1", grade: Grade = Grade.SUSPECTED) -> Trial:
    return trial(
        name, lasted_s=at + 5, blame=Blame.INFRA, grade=grade, cause=DNS, node=node, attempts=[failed_at(at)], host=name
    )


def well(name: str, *, node: str = "node-1", host: str | None = None, outcome: Outcome = Outcome.PASSED) -> Trial:
    return trial(name, node=node, outcome=outcome, host=host or name, lasted_s=3600)


def blip(nodes: int = 2) -> list[Trial]:
    """A name that could not be resolved for 65 s: eight trials that were there, on so many nodes; twelve went on."""
    struck = [unreachable(f"s{n}", 300 + 8 * n, node=f"node-{n % nodes}") for n in range(8)]
    return [*struck, *(well(f"w{n}", node=f"node-{n % nodes}") for n in range(12))]


@statistics
def test_a_dns_blip_of_65_seconds_on_two_nodes_is_not_one_trials_own_doing() -> None:
    found = across(blip())
    assert len(found.adjusted) == 8
    moved = found.adjusted["s0"]
    assert (moved.blame, moved.grade, moved.cause) == (Blame.INFRA, Grade.PROVED, DNS)
    assert "8 trials had model_api.unreachable within 57 s" in moved.why
    assert "p = " in moved.why
    assert found.off is None


@statistics
def test_a_blip_of_one_node_may_be_one_trials_doing_and_stays_suspected() -> None:
    """Near-miss: an agent can break its own machine's network."""
    found = across(blip(nodes=1))
    assert [f.kind for f in found.findings] == ["minute"]
    assert found.adjusted == {}


@statistics
def test_the_same_failures_spread_over_the_hour_are_no_blip() -> None:
    """Near-miss."""
    spread = [unreachable(f"s{n}", 300 + 400 * n, node=f"node-{n % 2}") for n in range(8)]
    assert across([*spread, *(well(f"w{n}") for n in range(12))]).findings == ()


@statistics
def test_an_indeterminate_trial_of_a_blip_was_not_alone() -> None:
    told = blip()
    told[0] = trial("s0", lasted_s=305, blame=Blame.INDETERMINATE, grade=None, cause=DNS, attempts=[failed_at(300)])
    moved = across(told).adjusted["s0"]
    assert (moved.blame, moved.grade) == (Blame.INFRA, Grade.SUSPECTED)


@statistics
def test_a_node_whose_trials_fail_takes_away_the_proof_against_the_model() -> None:
    bad = [trial(f"b{n}", node="bad") for n in range(8)]
    good = [well(f"g{n}", node="good") for n in range(16)]
    found = across([*bad, *good, trial("g", node="good")])
    assert {(m.blame, m.grade) for m in found.adjusted.values()} == {(Blame.MODEL, Grade.SUSPECTED)}
    assert sorted(found.adjusted) == [f"b{n}" for n in range(8)]
    assert "8 of 8 trials of node bad failed, and 1 of 17 elsewhere" in found.adjusted["b0"].why


@statistics
def test_a_node_that_had_one_hard_task_is_not_at_fault() -> None:
    """Innocent."""
    hard = [trial(f"b{n}", node="bad", task="hard") for n in range(8)]
    assert across([*hard, *(well(f"g{n}", node="good") for n in range(16))]).adjusted == {}


@statistics
def test_a_host_that_fails_where_another_does_not_is_told() -> None:
    # Not one minute: each an hour after the other.
    bad = [
        trial(
            f"b{n}", at_s=3600 * n, lasted_s=60, node=f"n{n % 2}", blame=Blame.INFRA, grade=Grade.SUSPECTED,
            cause="gateway.error", host="gw", attempts=[failed_at(3600 * n + 30)],
        )
        for n in range(6)
    ]  # fmt: skip
    found = across([*bad, *(well(f"g{n}", host="direct") for n in range(8))])
    assert "host" in {f.kind for f in found.findings}
    assert {(m.blame, m.grade) for m in found.adjusted.values()} == {(Blame.INFRA, Grade.PROVED)}


@statistics
def test_healthy_runs_are_left_alone() -> None:
    """A hundred runs of twenty trials whose failures fall where chance puts them: few findings, and no new proof."""
    chance = random.Random(6)
    found = proofs = 0
    for _ in range(100):
        run: list[Trial] = []
        for n in range(20):
            at = chance.uniform(60, 3500)
            node = f"node-{chance.randrange(3)}"
            failed = chance.random() < 0.15
            run.append(unreachable(f"t{n}", at, node=node) if failed else well(f"t{n}", node=node))
        told = across(run)
        found += bool(told.findings)
        proofs += any(m.grade is Grade.PROVED for m in told.adjusted.values())
    assert found <= 8
    assert proofs <= 4


@statistics
def test_the_level_is_a_threshold() -> None:
    assert across(blip(), load({"together_p": 1e-30})).adjusted == {}


def test_without_the_extra_the_rules_are_off_and_it_is_said() -> None:
    found = across(blip())
    assert (found.off is None) is (fisher is not None)
    if fisher is None:
        assert found.off == WITHOUT_SCIPY


@pytest.mark.parametrize("run", [[], [well("a")], [trial("a"), trial("b")]])
def test_a_run_of_none_or_few_says_nothing(run: list[Trial]) -> None:
    found = across(run)
    assert (found.findings, found.adjusted) == ((), {})


def test_the_order_of_trials_does_not_matter() -> None:
    told = blip()
    one, other = across(told), across(reversed(told))
    assert one == other
