"""Who was killed for memory: the harness's own processes, the model's that bear their names, and strangers."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import (
    ContainerSeen,
)
from fairtrial.middleware.core.records import Victim
from tests.middleware.attribution.scene import MIB, Scene, summary


def test_a_named_victim_of_the_harness_is_no_proof_because_a_process_can_name_itself() -> None:
    told = Scene().call().ran(137, oom=True, victim=Victim(comm="claude", pid=300, rss=63 * MIB))
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 1)
    assert "the harness's agent CLI" in verdict.sentence


@pytest.mark.parametrize("where", ["tool", None])
@pytest.mark.parametrize("comm", ["claude", "mini"])
def test_a_program_of_the_models_that_is_called_as_an_agent_is_none_that_the_agent_outlived(
    comm: str, where: str | None
) -> None:
    """Innocent: `comm` is the file's name, or whatever the process calls itself; the agent asked its model three times
    more, and results came back."""
    told = Scene().call().waited().call().waited().oom(victim=Victim(comm=comm, pid=777, role=where)).waited()
    verdict = told.call().waited().call().waited().call(tools=0).end(1).verdict()
    assert (verdict.blame, verdict.cause) == ("model", None), verdict.sentence


def test_an_agent_cli_that_asked_nothing_more_is_the_harness_s() -> None:
    told = Scene().call().ran(0).call().waited().oom(victim=Victim(comm="claude", pid=777, role="tool"))
    verdict = told.waited().end(137).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
    assert "the harness's agent CLI" in verdict.sentence


@pytest.mark.parametrize("where", ["main", "tool", None])
def test_a_tmux_is_told_as_the_harness_s_wherever_the_collector_found_it(where: str | None) -> None:
    """The collector's word is the place in the tree of processes, as a real kernel log and tmux gave it: main."""
    told = Scene().call().ran(0).call().waited().oom(victim=Victim(comm="tmux: server", pid=29089, role=where))
    verdict = told.waited().end(1).verdict()
    assert "tmux: server (pid 29089), the harness's tmux," in verdict.sentence


def shared_cgroup(*, strangers: int, victim_role: str | None) -> Scene:
    told = Scene(box=False).call()
    told.tell(ContainerSeen(container_id="own", role="own", memory_limit=64 * MIB, strangers=strangers, join="own"))
    victim = None if victim_role is None else Victim(comm="x", pid=9, role=victim_role)
    return told.waited().oom(victim=victim).waited().call(tools=0).end(1)


def test_a_strangers_death_in_a_shared_cgroup_is_not_the_trials() -> None:
    verdict = shared_cgroup(strangers=3, victim_role="outside").verdict()
    assert (verdict.blame, verdict.terminated_by, verdict.cause) == ("model", None, None)


def test_a_death_without_a_name_in_a_shared_cgroup_is_suspected_only() -> None:
    verdict = shared_cgroup(strangers=3, victim_role=None).verdict()
    assert (verdict.blame, verdict.cause) == ("infra", "container.oom_kill")
    assert verdict.terminated_by is not None
    assert verdict.terminated_by.grade == "suspected"
    assert "Other processes share this cgroup" in verdict.sentence


@pytest.mark.parametrize("strangers, role", [(0, None), (3, "descendant"), (3, "command")])
def test_a_death_of_the_commands_own_process_ended_the_trial(strangers: int, role: str | None) -> None:
    verdict = shared_cgroup(strangers=strangers, victim_role=role).verdict()
    assert verdict.blame == "infra"
    assert verdict.terminated_by is not None
    assert verdict.terminated_by.grade == "proved"


def own_kill_then_signal(*, seconds: float, kills: int = 1, signal: int = 9, role: str | None = None) -> Scene:
    """A kill in the command's own cgroup, which it shares, then the command's end by a signal."""
    told = Scene(box=False).call()
    told.tell(ContainerSeen(container_id="own", role="own", memory_limit=64 * MIB, strangers=3, join="own"))
    victim = None if role is None else Victim(comm="x", pid=9, role=role)
    return told.waited().oom(delta=kills, victim=victim).waited(seconds).end(None, signal=signal)


def test_a_command_that_is_gone_right_behind_the_one_kill_is_named_as_the_likely_victim() -> None:
    verdict = own_kill_then_signal(seconds=0.1).verdict()
    assert "most likely it was the one that was killed" in verdict.sentence
    assert verdict.terminated_by is not None
    assert (verdict.grade, verdict.terminated_by.grade) == ("suspected", "suspected")


def test_a_kill_that_is_counted_only_behind_the_commands_end_names_it_as_well() -> None:
    told = Scene(box=False).call()
    told.tell(ContainerSeen(container_id="own", role="own", memory_limit=64 * MIB, strangers=3, join="own"))
    verdict = told.waited().end(None, signal=9).waited(-0.9).oom().verdict()
    assert "most likely it was the one that was killed" in verdict.sentence


@pytest.mark.parametrize(
    "told",
    [
        own_kill_then_signal(seconds=30),
        own_kill_then_signal(seconds=0.1, kills=2),
        own_kill_then_signal(seconds=0.1, signal=15),
        own_kill_then_signal(seconds=0.1, role="descendant"),
    ],
    ids=["long before", "two kills", "another signal", "the kernel named another"],
)
def test_a_command_that_may_have_ended_otherwise_is_not_named(told: Scene) -> None:
    assert "most likely" not in told.verdict().sentence


def test_escape_codes_in_a_victims_name_do_not_reach_the_sentence() -> None:
    told = Scene().call().ran(137, oom=True, victim=Victim(comm="\x1b[31mpy\nx", pid=9, rss=MIB)).end(1)
    sentence = told.verdict().sentence
    assert "\x1b" not in sentence
    assert "\n" not in sentence
