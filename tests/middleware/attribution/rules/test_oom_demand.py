"""Whose demand a kill for memory was: proofs, near-misses and what stays open."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core.observations import (
    CgroupReading,
    ContainerSeen,
    ReplyFacts,
    RequestFacts,
)
from fairtrial.middleware.core.records import MemoryLimits, Verdict, Victim
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.attribution.scene import BOX, MIB, Scene, ended, summary


def test_a_kill_of_the_whole_node_within_the_floor_is_proved() -> None:
    told = Scene(limit=None, reservation=64 * MIB).call()
    told.tell(CgroupReading(container_id="own", memory_peak=8 * MIB, oom_kill=0))
    told.ran(
        137, oom=True, memory_peak=40 * MIB, constraint="CONSTRAINT_NONE", victim=Victim(comm="py", pid=8, rss=MIB)
    )
    verdict = told.call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "proved", "node.oom", 1)
    assert "guaranteed" in verdict.sentence


@pytest.mark.parametrize("beside", [None, 30 * MIB])
def test_a_kill_of_the_whole_node_that_the_command_beside_the_container_may_have_filled_stays_suspected(
    beside: int | None,
) -> None:
    told = Scene(limit=None, reservation=64 * MIB).call()
    told.tell(CgroupReading(container_id="own", memory_peak=beside, oom_kill=0))
    told.ran(
        137, oom=True, memory_peak=40 * MIB, constraint="CONSTRAINT_NONE", victim=Victim(comm="py", pid=8, rss=MIB)
    )
    assert summary(told.call(tools=0).end(1).verdict()) == ("infra", "suspected", "node.oom", 1)


def greedy(*, limit: int = 256 * MIB, floor: int | None = 64 * MIB) -> Scene:
    """Killed at its own limit in the last tool step."""
    return Scene(limit=limit, reservation=floor).call().ran(137, oom=True).call(tools=0).end(1)


def test_a_demand_over_k_times_what_was_guaranteed_is_the_models_and_ended_the_trial_all_the_same() -> None:
    verdict = greedy().verdict()
    assert summary(verdict) == ("model", "suspected", "container.oom_kill", 1)
    assert ended(verdict) == ("container.oom_kill", "proved", 1)
    assert "4 times the 64 MiB" in verdict.sentence
    assert verdict.answers.retry == "no"


@pytest.mark.parametrize("limit, floor", [(180 * MIB, 64 * MIB), (256 * MIB, None), (64 * MIB, 64 * MIB)])
def test_a_demand_that_a_fair_limit_may_have_met_stays_open(limit: int, floor: int | None) -> None:
    assert summary(greedy(limit=limit, floor=floor).verdict()) == ("infra", "suspected", "container.oom_kill", 1)


def test_a_larger_k_makes_the_same_demand_open() -> None:
    verdict = greedy().verdict(thresholds=replace(DEFAULT_THRESHOLDS, headroom_k=5.0))
    assert summary(verdict)[0] == "infra"


def under_a_parent(full: str, *, floor: int | None = 64 * MIB) -> Scene:
    """A kill in the box `/pod/…/box`; the kernel's record says whose limit was reached.  The command uses far more than
    the floor, in a cgroup of its own."""
    told = Scene(limit=None, reservation=floor)
    seen = {"container_id": BOX, "name": "task-1", "memory_reservation": floor, "started_wall_ns": told.wall()}
    told.tell(ContainerSeen(**seen, cgroup=f"/pod/one/{BOX}"), told.events)  # type: ignore[arg-type]
    told.tell(ContainerSeen(container_id="own", role="own", cgroup="/user"), told.cgroup)
    told.tell(CgroupReading(container_id="own", memory_peak=900 * MIB, oom_kill=0))
    told.call().ran(137, oom=True, memory_peak=40 * MIB, oom_memcg=full, victim=Victim(comm="py", pid=8, rss=MIB))
    return told.call(tools=0).end(1)


def test_a_kill_by_a_parents_limit_within_the_floor_is_proved_whatever_was_used_outside_that_parent() -> None:
    verdict = under_a_parent("/pod").verdict()
    assert summary(verdict) == ("infra", "proved", "container.oom_kill", 1)
    assert "guaranteed" in verdict.sentence


@pytest.mark.parametrize(
    "told",
    [
        under_a_parent(f"/pod/one/{BOX}"),
        under_a_parent("/po"),
        under_a_parent("/pod", floor=32 * MIB),
        under_a_parent("/pod", floor=None),
        under_a_parent("/"),
    ],
    ids=["its-own-limit", "no-parent", "above-the-floor", "no-floor", "the-root"],
)
def test_a_kill_by_its_own_limit_or_above_the_floor_stays_suspected(told: Scene) -> None:
    assert summary(told.verdict()) == ("infra", "suspected", "container.oom_kill", 1)


def a_box_of_a_command(*, boxed: bool, node_wide: bool) -> Scene:
    """A command of the model's starts a container and asks for a guarantee of 8 GiB itself, or has that of the box that
    was there before set so; then a limit above strikes what it started."""
    told = Scene(box=boxed, limit=None, reservation=MIB).call()
    told.tell(CgroupReading(container_id="own", memory_peak=8 * MIB, oom_kill=0))
    box = BOX if boxed else "c1" * 32
    seen = {"container_id": box, "memory_reservation": 8192 * MIB, "cgroup": f"/pod/{box}"}
    told.tell(ContainerSeen(**seen, started_wall_ns=told.wall()), told.events)  # type: ignore[arg-type]
    told.container = box
    victim = Victim(comm="py", pid=8, rss=MIB)
    told.read("baseline").waited(0.1)
    if node_wide:
        told.oom(memory_peak=6144 * MIB, victim=victim, constraint="CONSTRAINT_NONE")
    else:
        told.oom(memory_peak=6144 * MIB, victim=victim, oom_memcg="/pod")
    return told.waited().call(tools=0).end(1)


@pytest.mark.parametrize("boxed", [False, True], ids=["its-own", "the-tasks-box-started-anew"])
@pytest.mark.parametrize("node_wide", [False, True], ids=["a-parent", "the-node"])
def test_a_guarantee_that_a_command_of_the_models_asked_for_proves_nothing(boxed: bool, node_wide: bool) -> None:
    assert summary(a_box_of_a_command(boxed=boxed, node_wide=node_wide).verdict())[:2] == ("infra", "suspected")


@pytest.mark.parametrize("reservation", [None, 32 * MIB])
def test_a_kill_of_the_whole_node_above_the_floor_or_without_one_stays_suspected(reservation: int | None) -> None:
    told = Scene(limit=None, reservation=reservation).call()
    told.ran(
        137, oom=True, memory_peak=40 * MIB, constraint="CONSTRAINT_NONE", victim=Victim(comm="py", pid=8, rss=MIB)
    )
    verdict = told.call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "node.oom", 1)


def waiting_for_the_first_reply() -> Scene:
    """The agent's first call, which its client left when it was killed."""
    return Scene().attempt(ReplyFacts(), outcome="client_disconnect", first_failure="client", request_whole=True)


def test_a_kill_before_any_reply_of_the_model_is_the_harness_alone_over_the_ceiling() -> None:
    told = waiting_for_the_first_reply().oom(victim=Victim(comm="claude", pid=300, rss=60 * MIB))
    verdict = told.gone(137, ended_by="oom").end(137).verdict()
    assert summary(verdict) == ("infra", "proved", "container.oom_kill", 1)
    assert verdict.ended_as == "never_ran"
    assert verdict.answers.reward_valid == "no"


def test_a_kill_before_the_first_reply_of_a_conversation_that_goes_on_proves_nothing() -> None:
    """`claude --continue`: what the replies of an earlier run set to work may be there still."""
    told = Scene()
    told.turns = 3
    told.attempt(ReplyFacts(), outcome="client_disconnect", first_failure="client", request_whole=True)
    verdict = told.oom().gone(137, ended_by="oom").end(137).verdict()
    assert summary(verdict)[:3] == ("infra", "suspected", "container.oom_kill")


@pytest.mark.parametrize(
    "before",
    [
        {"request": RequestFacts(operation="other"), "dialect": "unknown", "parse": "none"},
        {"request": RequestFacts(operation="count_tokens")},
        {"request": RequestFacts(operation="chat", has_tools=False, max_tokens=1)},
    ],
)
def test_a_kill_after_anything_at_all_was_answered_may_be_the_models_demand(before: dict[str, object]) -> None:
    told = Scene().attempt(ReplyFacts(status=200), outcome="ok", ttfb=0.2, **before)  # type: ignore[arg-type]
    told.attempt(ReplyFacts(), outcome="client_disconnect", first_failure="client")
    verdict = told.oom().gone(137, ended_by="oom").end(137).verdict()
    assert summary(verdict)[:3] == ("infra", "suspected", "container.oom_kill")


def test_a_kill_while_the_first_reply_still_streams_may_be_the_models_demand() -> None:
    told = Scene()
    told.s += 1.0
    told.oom()
    told.s -= 1.0
    told.attempt(
        ReplyFacts(status=200, started_content=True), outcome="client_disconnect", seconds=2.0, ttfb=0.3, reused=False
    )
    verdict = told.gone(137, ended_by="oom").end(137).verdict()
    assert (verdict.blame, verdict.grade) == ("infra", "suspected")


@pytest.mark.parametrize(
    "request_facts",
    [RequestFacts(operation="count_tokens"), RequestFacts(operation="other"), RequestFacts(operation="chat")],
)
def test_a_kill_with_no_readable_call_of_the_agent_at_the_door_proves_nothing(request_facts: RequestFacts) -> None:
    told = Scene().attempt(ReplyFacts(), outcome="client_disconnect", request=request_facts)
    verdict = told.oom().gone(137, ended_by="oom").end(137).verdict()
    assert summary(verdict)[:3] == ("infra", "suspected", "container.oom_kill")


def test_a_kill_with_a_call_of_which_no_end_was_seen_proves_nothing() -> None:
    verdict = Scene().attempt_begun().oom().gone(137, ended_by="oom").end(137).verdict()
    assert (verdict.blame, verdict.grade) == ("infra", "suspected")


def test_a_kill_before_any_call_was_seen_at_the_door_stays_suspected_because_the_door_may_be_bypassed() -> None:
    verdict = Scene().waited().oom().gone(137, ended_by="oom").end(137).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", None)


def with_declared(told: Scene, declared: int) -> Verdict:
    assembly = told.assembly()
    limits = msgspec.structs.replace(assembly.trial.limits, memory=MemoryLimits(declared=declared, ceiling=64 * MIB))
    trial = msgspec.structs.replace(assembly.trial, limits=limits)
    return judge(Assembly(trial=trial, placed=assembly.placed, attempt_call=assembly.attempt_call))


def test_a_demand_beyond_k_times_what_is_declared_is_the_models_and_the_kill_is_still_what_ended_it() -> None:
    verdict = with_declared(Scene().call().ran(137, oom=True).end(1), 16 * MIB)
    assert summary(verdict) == ("model", "proved", "container.oom_kill", 1)
    assert ended(verdict) == ("container.oom_kill", "proved", 1)
    assert "already 4 times the 16 MiB that the task declares" in verdict.sentence


@pytest.mark.parametrize("declared", [32, 64])
def test_a_demand_within_k_times_what_is_declared_stays_open(declared: int) -> None:
    """Near-miss."""
    verdict = with_declared(Scene().call().ran(137, oom=True).end(1), declared * MIB)
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 1)


def test_a_demand_beyond_it_that_was_recovered_is_present() -> None:
    """Innocent."""
    verdict = with_declared(Scene().call().ran(137, oom=True).call().ran(1).call(tools=0).end(1), 16 * MIB)
    assert (verdict.blame, verdict.cause) == ("model", None)
