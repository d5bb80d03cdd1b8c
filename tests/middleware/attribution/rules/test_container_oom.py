"""The OOM rule: happened, what it ended, and whose demand; each with a positive, a near-miss and an innocent case."""

from dataclasses import replace

import msgspec
import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core.observations import (
    CgroupReading,
    ContainerEvent,
    ContainerSeen,
    OomKill,
    ReplyFacts,
    RequestFacts,
)
from fairtrial.middleware.core.records import MemoryLimits, PhaseName, Trust, Verdict, Victim
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.attribution.scene import BOX, MIB, Scene, ended, full_tmpfs, summary


def oom_in_last_tool_step() -> Scene:
    return Scene().call().ran(0).call().ran(137, oom=True, victim=Victim(comm="python3", pid=8433, rss=60 * MIB))


def test_a_kill_in_the_last_tool_step_is_what_ended_a_failed_trial_and_whose_demand_is_open() -> None:
    verdict = oom_in_last_tool_step().call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
    assert ended(verdict) == ("container.oom_kill", "proved", 2)
    assert verdict.questions.happened.answer == "yes"
    assert verdict.questions.outcome_differs.answer == "unknown"
    for words in (
        "python3 (pid 8433, resident 60 MiB)",
        "step 2",
        "limit of 64 MiB",
        "Whose demand it was is open",
        "192 MiB",
    ):
        assert words in verdict.sentence
    assert verdict.flips_if is not None
    assert "192 MiB" in verdict.flips_if


def test_the_main_process_killed_with_its_container_is_what_ended_the_trial() -> None:
    told = Scene().call().ran(0).call().waited()
    told.oom(victim=Victim(comm="sleep", pid=100, rss=MIB)).gone(137, ended_by="oom", flag=True)
    verdict = told.end(137).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
    assert "The container died with it." in verdict.sentence
    assert verdict.ended_as == "killed"


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


def test_a_kill_followed_by_a_tool_step_that_ended_normally_in_the_same_container_is_present() -> None:
    verdict = oom_in_last_tool_step().call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert ended(verdict) is None
    assert [(p.cause, p.step) for p in verdict.present] == [("container.oom_kill", 2)]


def test_a_later_command_that_was_killed_too_is_no_sign_of_recovery() -> None:
    verdict = oom_in_last_tool_step().call().ran(137).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)


def test_a_later_step_in_another_container_is_no_sign_of_recovery() -> None:
    told = oom_in_last_tool_step().call()
    told.container = "d" * 64
    told.tell(ContainerSeen(container_id=told.container, name="other", role="main"), told.events)
    verdict = told.ran(0).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)


def test_an_agent_whose_tools_run_without_the_runtime_recovers_when_a_result_comes_back() -> None:
    struck = Scene(box=False).call().waited().oom().waited()
    recovered = struck.call().waited().call(tools=0).end(1).verdict()
    assert summary(recovered)[0] == "model"
    assert [p.cause for p in recovered.present] == ["container.oom_kill"]


def test_exit_code_137_and_a_sticky_flag_without_a_moved_counter_are_no_kill_for_memory() -> None:
    verdict = Scene().call().ran(137).call(tools=0).end(1).gone(137, ended_by="runtime_kill:9", flag=True).verdict()
    assert verdict.blame == "model"
    assert ended(verdict) is None
    assert "a process of the trial killed it" in verdict.sentence


def test_a_passed_trial_with_a_harmless_kill_has_blame_none_and_the_kill_present() -> None:
    verdict = oom_in_last_tool_step().call().ran(0).call(tools=0).end(0).verdict()
    assert summary(verdict) == ("none", None, None, None)
    assert ended(verdict) is None
    assert verdict.answers.reward_valid == "yes"
    assert "step 3 ended normally" in verdict.present[0].why


def test_an_agent_that_finished_its_turn_after_the_kill_and_exited_0_was_not_ended_by_it() -> None:
    verdict = oom_in_last_tool_step().call(tools=0).end(0).verdict()
    assert summary(verdict) == ("none", None, None, None)
    assert ended(verdict) is None


def test_a_box_filled_by_step_1_gives_one_verdict_for_step_1_and_names_the_steps_it_spoiled() -> None:
    verdict = full_tmpfs(4).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 1)
    assert ended(verdict) == ("container.oom_kill", "proved", 1)
    assert "steps 2-4 ran in a box without memory" in verdict.sentence
    assert "Whose demand it was is open" in verdict.sentence
    assert "exit code 0" in verdict.sentence
    assert verdict.ended_as == "unknown"


def test_a_box_filled_without_a_kill_makes_the_later_kill_a_residual_of_the_step_that_wrote() -> None:
    told = Scene().call()
    told.ran(0).shmem = 60 * MIB
    verdict = told.call().ran(137, oom=True).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_residual", 2)
    assert "60 MiB that step 1 had written" in verdict.sentence


def test_a_box_that_is_only_half_full_makes_no_residual() -> None:
    told = Scene().call()
    told.ran(0).shmem = 30 * MIB
    verdict = told.call().ran(137, oom=True).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)


def test_kills_in_several_steps_of_a_box_that_kept_nothing_begin_with_the_first_that_nothing_followed() -> None:
    told = Scene().call().ran(137, oom=True).call().ran(0).call().ran(137, oom=True).call().ran(137, oom=True)
    verdict = told.end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 3)
    assert [(p.cause, p.step) for p in verdict.present] == [("container.oom_kill", 1), ("container.oom_kill", 4)]


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


def test_a_greedy_command_that_a_leaner_one_followed_is_present() -> None:
    told = Scene(limit=256 * MIB, reservation=64 * MIB).call().ran(137, oom=True).call().ran(0).call(tools=0).end(1)
    assert [p.cause for p in told.verdict().present] == ["container.oom_kill"]


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


def test_a_kill_in_the_verifiers_time_is_told_and_does_not_end_the_agent() -> None:
    told = Scene().call().ran(0).call(tools=0)
    told.oom(told=False)
    told.observations[-1] = msgspec.structs.replace(told.observations[-1], phase=PhaseName.VERIFY)
    verdict = told.end(1).verdict()
    assert summary(verdict)[:3] == ("infra", "suspected", "container.oom_kill")
    assert verdict.phase == "verify"
    assert ended(verdict) is None


def test_a_kill_after_the_agents_last_word_struck_the_verifier_and_not_the_agent() -> None:
    verdict = Scene().call().ran(0).call(tools=0).ran(137, oom=True).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)
    assert verdict.phase == "verify"
    assert ended(verdict) is None
    assert "said its last word" in verdict.sentence


def test_a_verifier_that_ended_well_after_the_last_word_is_no_recovery_of_the_agent() -> None:
    verdict = Scene().call().ran(137, oom=True).call(tools=0).ran(0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 1)


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


def test_a_kill_in_teardown_explains_nothing() -> None:
    told = Scene().call().ran(1).call(tools=0).end(1)
    told.waited(3).oom()
    assert summary(told.verdict()) == ("model", "proved", None, None)


def test_a_kill_that_only_the_agent_told_of_is_not_heard() -> None:
    told = Scene().call().ran(1)
    told.tell(ContainerEvent(container_id=BOX, action="oom"), told.events, trust=Trust.INSIDE)
    verdict = told.call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "proved", None, None)


def test_escape_codes_in_a_victims_name_do_not_reach_the_sentence() -> None:
    told = Scene().call().ran(137, oom=True, victim=Victim(comm="\x1b[31mpy\nx", pid=9, rss=MIB)).end(1)
    sentence = told.verdict().sentence
    assert "\x1b" not in sentence
    assert "\n" not in sentence


def second_container(*, after_the_reply: bool) -> Scene:
    """A second container, with a limit of its own, in which a process is killed in step 2."""
    told = Scene()
    if after_the_reply:
        told.call().ran(0).call().waited()
    second = ContainerSeen(container_id="c2" * 32, name="mine", memory_limit=12 * MIB, started_wall_ns=told.wall())
    told.tell(second, told.events)
    if not after_the_reply:
        told.call().ran(0).call().waited()
    told.kills += 1
    told.tell(OomKill(container_id="c2" * 32, delta=1, memory_limit=12 * MIB))
    told.kills -= 1
    told.node_kills += 1
    told.tell(CgroupReading(container_id="c2" * 32, oom_kill=1, edge="last"))
    return told.call(tools=0).end(1)


def test_a_kill_in_a_container_that_a_command_of_the_trial_started_is_nobodys_ceiling() -> None:
    verdict = second_container(after_the_reply=True).verdict()
    assert verdict.blame == "model"
    assert ended(verdict) is None
    assert [p.cause for p in verdict.present] == ["container.oom_kill"]


def test_a_kill_in_a_second_container_of_the_harness_is_suspected_as_ever() -> None:
    verdict = second_container(after_the_reply=False).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.oom_kill", 2)


# --- a ceiling that was headroom enough -----------------------------------------------------------------------------


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
