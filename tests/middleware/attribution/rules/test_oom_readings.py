"""What was read of a kill: the counter, the runtime's word, the exit code that hid it."""

from __future__ import annotations

from fairtrial.middleware.core.observations import (
    ContainerEvent,
)
from tests.middleware.attribution.scene import BOX, Scene, summary


def test_a_kill_that_its_command_hid_with_exit_code_0_is_seen_all_the_same() -> None:
    verdict = Scene().call().ran(0, oom=True).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 1)
    assert "ended with exit code 0" in verdict.sentence


def test_a_kill_told_by_the_runtime_alone_counts_when_the_counter_was_gone_with_its_cgroup() -> None:
    told = Scene(counters=False).call().waited()
    told.node_kills += 1
    told.tell(ContainerEvent(container_id=BOX, action="oom"), told.events)
    verdict = told.gone(137, ended_by="oom", flag=True).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 1)
