"""The table of scenarios keeps its promises: every cause that is built is done, and the parts are large enough."""

from __future__ import annotations

from typing import Final

import pytest

from fairtrial.middleware.core.causes import CAUSES
from fairtrial.middleware.core.records import Blame
from tests.matrix.cases import ALL
from tests.matrix.scenario import Kind, Scenario

UNDONE: Final = {
    "node.oom": "a node out of memory would kill what else runs here",
    "observer.relay_fault": "no known fault of ours makes the relay break a call; its rule has tests of its own",
    "observer.door_unreachable": "a loopback port cannot be kept from being bound here",
    "container.evicted": "no Kubernetes here",
    "node.pressure": "no Kubernetes here",
    "node.lost": "the only node is this one",
    "node.contention": "a neighbour's load is not steady enough on a machine that others use",
    "container.memory_stall": "memory.high needs cgroup v2",
    "container.memory_denied": "no scenario yet",
    "container.disk_slow": "no scenario yet",
    "container.fd_limit": "no scenario yet",
    "model_api.slow": "needs a frozen reference of call durations",
    "model_api.degraded": "needs a provider's incident",
    "network.dns": "no control vantage here",
    "network.unreachable": "no control vantage here",
    "network.reset": "no control vantage here",
    "network.slow": "no control vantage here",
    "network.mirror": "no control vantage here",
    "network.blocked": "no egress door here",
    "clock.skew": "the clock is the machine's",
    "harness.timeout": "needs passed trials of the same task",
    "harness.swallowed": "no scenario yet",
    "operator.policy": "no egress door here",
    "task.broken": "needs a harness's own result",
    "task.verifier_fault": "needs a harness's own result",
    "task.impossible_limits": "needs a harness's own result",
    "unknown.outside": "no trace of signals here",
}
"""Causes without a scenario, each with the reason."""


def test_every_cause_has_a_scenario_or_a_reason_why_not() -> None:
    done = {str(s.right.cause) for s in ALL if s.right.cause not in {None, "open"}}
    done |= {s.right.ended[0] for s in ALL if s.right.ended is not None and s.right.ended != "open"}
    assert set(CAUSES) - done == set(UNDONE)


@pytest.mark.parametrize("scenario", ALL, ids=lambda s: s.name)
def test_what_is_right_keeps_to_the_table_of_causes(scenario: Scenario) -> None:
    right = scenario.right
    named = {str(right.cause)} - {"None", "open"}
    if right.ended is not None and right.ended != "open":
        named.add(right.ended[0])
    assert named | right.present <= set(CAUSES)
    if right.cause not in {None, "open"}:
        assert right.blame <= set(CAUSES[str(right.cause)].may_blame), "the table allows no such blame"


@pytest.mark.parametrize("scenario", ALL, ids=lambda s: s.name)
def test_what_is_innocent_is_never_said_to_be_infras(scenario: Scenario) -> None:
    innocent = scenario.kind in {Kind.LOOK_ALIKE, Kind.CLEAN}
    assert not (innocent and Blame.INFRA in scenario.right.blame)
    assert scenario.kind is not Kind.INFRA or Blame.INFRA in scenario.right.blame
    assert scenario.what and scenario.why


def test_there_are_enough_of_each_kind() -> None:
    kinds = [s.kind for s in ALL]
    assert len(ALL) >= 60
    assert kinds.count(Kind.INFRA) >= 30
    assert kinds.count(Kind.LOOK_ALIKE) >= 30
    assert kinds.count(Kind.CLEAN) >= 10
