"""The table of causes is closed, whole and readable."""

import string

import pytest

from fairtrial.middleware.core.causes import CAUSES, answers
from fairtrial.middleware.core.records import Answer, Blame, Grade

NAMED = [
    "model_api.overloaded",
    "model_api.server_error",
    "model_api.unreachable",
    "model_api.truncated",
    "model_api.stalled",
    "model_api.rate_limited",
    "model_api.timeout",
    "model_api.slow",
    "model_api.client_error",
    "model_api.poison_request",
    "model_api.degraded",
    "gateway.error",
    "container.oom_kill",
    "container.oom_residual",
    "container.memory_denied",
    "container.memory_stall",
    "container.killed",
    "container.restarted",
    "container.state_lost",
    "container.evicted",
    "container.service_died",
    "container.cpu_throttled",
    "container.disk_slow",
    "container.disk_full",
    "container.pids_limit",
    "container.fd_limit",
    "container.start_failed",
    "container.image_pull",
    "node.oom",
    "node.pressure",
    "node.contention",
    "node.lost",
    "runtime.daemon_fault",
    "runtime.exec_lost",
    "network.dns",
    "network.tls",
    "network.unreachable",
    "network.reset",
    "network.slow",
    "network.mirror",
    "network.proxy",
    "network.blocked",
    "clock.skew",
    "harness.timeout",
    "harness.inner_timeout",
    "harness.client_timeout",
    "harness.watchdog",
    "harness.killed",
    "harness.tool_host_dead",
    "harness.retry_storm",
    "harness.compaction_storm",
    "harness.swallowed",
    "harness.crashed",
    "operator.auth",
    "operator.budget",
    "operator.quota",
    "operator.policy",
    "operator.endpoint",
    "operator.cancelled",
    "task.broken",
    "task.verifier_fault",
    "task.impossible_limits",
    "observer.relay_fault",
    "observer.lag",
    "observer.door_unreachable",
    "observer.limit",
    "unknown.outside",
]


def test_the_table_holds_exactly_the_causes_of_the_records_page() -> None:
    assert sorted(CAUSES) == sorted(NAMED)
    assert all(cause.name == name for name, cause in CAUSES.items())


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_each_row_can_be_read(name: str) -> None:
    cause = CAUSES[name]
    assert cause.may_blame
    assert cause.template[0].isupper() or cause.template.startswith(("{", "fairtrial"))
    assert cause.template.endswith((".", ")."))
    assert cause.advice.endswith(".")
    list(string.Formatter().parse(cause.template))


def test_a_cause_without_a_source_is_not_built() -> None:
    assert [c.name for c in CAUSES.values() if c.built and not c.sources] == []


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        CAUSES["new"] = CAUSES["node.oom"]  # type: ignore[index]


@pytest.mark.parametrize("grade", [Grade.PROVED, Grade.SUSPECTED])
@pytest.mark.parametrize("blame", [b for b in Blame if b not in {Blame.NONE, Blame.INDETERMINATE}])
def test_every_blame_has_its_answers(blame: Blame, grade: Grade) -> None:
    found = answers(blame, grade)
    assert found.grade in Answer
    if blame is not Blame.MODEL and grade is Grade.PROVED:
        assert found.reward_valid is Answer.NO


def test_indeterminate_leaves_all_three_open() -> None:
    found = answers(Blame.INDETERMINATE, None)
    assert {found.retry, found.grade, found.reward_valid} == {Answer.UNKNOWN}
