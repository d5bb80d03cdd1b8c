"""Who was killed for memory: the harness's own processes, the model's that bear their names, and strangers."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import ContainerSeen, ExecStarted, ToolUse
from fairtrial.middleware.core.records import Victim
from tests.middleware.attribution.scene import BOX, MIB, Scene, summary


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


def tmux_killed(lived_s: float | None, *, comm: str = "tmux: server", **fields: object) -> Scene:
    """A victim of tmux's name in the second of three steps; an agent beside the box that types into a terminal of it.
    The first reply came 0.1 s after the trial's start, the kill 3.1 s after it."""
    told = Scene(limit=256 * MIB, reservation=64 * MIB).call().waited().call()
    told.oom(victim=Victim(comm=comm, pid=29089, rss=200 * MIB, role="main"), lived_s=lived_s, **fields)  # type: ignore[arg-type]
    return told.waited().call().waited().call(tools=0).end(1)


@pytest.mark.parametrize("lived_s", [2.95, 3.0, 60.0])
def test_a_tmux_that_stood_before_the_first_reply_is_the_harness_s(lived_s: float) -> None:
    """What comes back from a terminal that died is no sign of its recovery; 2.95: within the slack of the clocks."""
    verdict = tmux_killed(lived_s).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
    assert "tmux: server (pid 29089, resident 200 MiB), the harness's tmux," in verdict.sentence


def test_a_tmux_whose_start_nobody_saw_is_told_as_the_harness_s() -> None:
    verdict = tmux_killed(None).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
    assert "the harness's tmux" in verdict.sentence


@pytest.mark.parametrize("comm", ["tmux", "tmux: server", "tmux-hog"])
def test_a_program_that_the_model_started_under_tmuxs_name_is_none_of_the_harness_s(comm: str) -> None:
    """Innocent of the harness: it began behind a reply that asked for tools; results came back afterwards."""
    verdict = tmux_killed(1.5, comm=comm).verdict()
    assert (verdict.blame, verdict.cause) == ("model", None), verdict.sentence
    assert [p.cause for p in verdict.present] == ["container.oom_kill"]


def test_such_a_program_that_nothing_followed_is_judged_by_its_greed_as_any_command() -> None:
    told = Scene(limit=256 * MIB, reservation=64 * MIB).call().waited()
    told.ran(137, oom=True, victim=Victim(comm="tmux-hog", pid=7, rss=200 * MIB, role="main"), lived_s=0.5)
    verdict = told.call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", "container.oom_kill", 1)
    assert "the harness's" not in verdict.sentence


def test_a_start_before_any_reply_is_the_harness_s() -> None:
    """Near-miss: the agent has asked, and no tool can be at work yet."""
    told = Scene(limit=256 * MIB, reservation=64 * MIB).attempt_begun(2.0)
    told.oom(victim=Victim(comm="tmux: server", pid=7, role="main"), lived_s=0.5)
    assert "the harness's tmux" in told.waited().end(1).verdict().sentence


@pytest.mark.parametrize("digest, harness", [("tmux-traffic", True), ("typed-by-the-model", False)])
def test_a_client_that_carries_the_harness_s_keys_is_its_own_and_a_command_of_the_models_is_not(
    digest: str, *, harness: bool
) -> None:
    told = Scene(limit=256 * MIB, reservation=64 * MIB)
    asked = [ToolUse(id="toolu-1", name="bash", text_digest="typed-by-the-model")]
    told.call(tool_calls=asked).waited()
    told.tell(ExecStarted(container_id=BOX, exec_id="e1", pid=29089, plumbing=True, text_digest=digest), told.events)
    told.oom(victim=Victim(comm="tmux: client", pid=29089, role="exec"), lived_s=0.3, exec_id="e1")
    assert ("the harness's tmux" in told.waited().end(1).verdict().sentence) is harness


def test_a_program_of_tmuxs_name_that_is_only_guessed_into_the_harness_s_exec_is_not_the_harness_s() -> None:
    """Its parents are not known, and while it died the harness was looking at its terminal."""
    told = Scene(limit=256 * MIB, reservation=64 * MIB).call().waited()
    told.tell(ExecStarted(container_id=BOX, exec_id="e1", pid=301, plumbing=True, text_digest="look"), told.events)
    told.oom(victim=Victim(comm="tmux-hog", pid=29089), lived_s=0.3, exec_id="e1", only_live_exec=True)
    assert "the harness's" not in told.waited().end(1).verdict().sentence


@pytest.mark.parametrize("known", [True, False])
def test_a_tmux_of_a_container_that_was_started_anew_is_the_harness_s_until_a_reply_came_in_its_new_life(
    *, known: bool
) -> None:
    """Where the engine does not tell when that life began, nobody knows that a reply came in it."""
    told = Scene(limit=256 * MIB, reservation=64 * MIB).call().ran(0).waited(1.0)
    again = ContainerSeen(
        container_id=BOX,
        name="task-1",
        memory_limit=256 * MIB,
        memory_reservation=64 * MIB,
        started_wall_ns=told.wall() if known else None,
    )
    told.tell(again, told.events)
    told.waited(2.0).oom(victim=Victim(comm="tmux: server", pid=7, role="main"), lived_s=1.5)
    assert "the harness's tmux" in told.waited().end(1).verdict().sentence


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
