"""Memory refused, or not to be had in time, without a kill."""

from __future__ import annotations

from fairtrial.middleware.core.observations import ContainerSeen
from fairtrial.middleware.core.records import Blame
from tests.middleware.attribution.scene import BOX, Scene, ended, summary


def begun(**counters: object) -> Scene:
    told = Scene()
    told.also |= counters
    return told.read("baseline").call()


def test_a_limit_that_was_exhausted_without_a_kill_is_a_refusal_whose_demand_is_open() -> None:
    told = begun(oom=0)
    told.also["oom"] = 1
    verdict = told.read("change").ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.memory_denied", 1)
    assert ended(verdict) == ("container.memory_denied", "proved", 1)


def test_processes_that_wait_at_a_limit_without_a_killer_are_one_too() -> None:
    told = begun(memory_under_oom=False)
    told.read("change", memory_under_oom=True)
    assert summary(told.ran(1).call(tools=0).end(1).verdict())[2] == "container.memory_denied"


def test_hits_of_a_limit_whose_killer_is_switched_off_are_refusals() -> None:
    told = Scene()
    told.tell(
        ContainerSeen(container_id=BOX, role="main", memory_limit=told.limit, oom_kill_disabled=True), told.events
    )
    told.also |= {"memory_max_hits": 0}
    told.read("baseline").call()
    told.also["memory_max_hits"] = 167
    assert summary(told.read("change").ran(1).call(tools=0).end(1).verdict())[2] == "container.memory_denied"


def test_an_exhausted_limit_that_a_kill_followed_is_the_kill() -> None:
    told = begun(oom=0)
    told.also["oom"] = 1
    verdict = told.ran(137, oom=True).call(tools=0).end(1).verdict()
    assert verdict.cause == "container.oom_kill"


def test_hits_of_the_limit_by_the_page_cache_are_nothing() -> None:
    told = begun(memory_max_hits=0, oom=0)
    told.also["memory_max_hits"] = 3699
    verdict = told.read("change").ran(1).call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.cause, verdict.present) == (Blame.MODEL, None, [])


def test_a_refusal_in_a_command_that_ended_well_is_present() -> None:
    told = begun(oom=0)
    told.also["oom"] = 1
    verdict = told.read("change").ran(0).call(tools=0).end(1).verdict()
    assert (verdict.blame, [row.cause for row in verdict.present]) == (Blame.MODEL, ["container.memory_denied"])


def test_exit_134_without_a_counter_is_the_programs_own() -> None:
    assert begun(oom=0).ran(134).call(tools=0).end(1).verdict().blame is Blame.MODEL


def stalled(*, seconds: float, hits: int, exit_code: int = 124) -> Scene:
    told = begun(psi_memory=0.0, memory_high_hits=0, memory_max_hits=0)
    told.s += 60
    told.also |= {"psi_memory": seconds, "memory_high_hits": hits}
    return told.read("change").ran(exit_code).call(tools=0).end(1)


def test_a_command_cut_short_while_it_stood_still_for_memory_leaves_the_blame_open() -> None:
    verdict = stalled(seconds=40.0, hits=9).verdict()
    assert summary(verdict)[0] == "indeterminate"
    assert ended(verdict) == ("container.memory_stall", "proved", 1)


def test_a_stall_that_was_short_or_that_nobody_cut_is_nothing() -> None:
    assert stalled(seconds=2.0, hits=9).verdict().blame is Blame.MODEL
    assert stalled(seconds=40.0, hits=9, exit_code=1).verdict().blame is Blame.MODEL
