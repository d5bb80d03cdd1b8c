"""When the model is due, and what keeps it from being due."""

import msgspec
import pytest

from fairtrial.middleware.core.observations import (
    CoverageChanged,
    OpaqueConnection,
    ReplyFacts,
    TrialEnded,
    TrialStarted,
)
from tests.middleware.attribution.scene import Scene, model_failed, summary


def test_a_failed_trial_with_whole_replies_and_everything_watched_is_the_models() -> None:
    verdict = model_failed().verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert verdict.terminated_by is None
    assert verdict.ended_as == "agent.finished"
    assert verdict.questions.happened.answer == "no"
    assert verdict.questions.happened.by != []
    assert (verdict.answers.retry, verdict.answers.grade, verdict.answers.reward_valid) == ("no", "yes", "yes")
    assert "each of its 3 model calls brought a whole reply" in verdict.sentence


def test_families_that_nobody_watched_are_named_and_the_blame_stands() -> None:
    verdict = model_failed(families=("memory",)).verdict()
    assert summary(verdict) == ("model", "suspected", None, None)
    assert "Not watched: CPU, disk, network and the node." in verdict.sentence


@pytest.mark.parametrize(
    "families, not_at_all, flips",
    [
        (("memory", "cpu", "disk", "node"), "", "network failed it, which was watched in part"),
        (
            ("memory", "cpu", "node"),
            "Not watched: disk. ",
            "disk or network failed it, which nobody watched, or in part",
        ),
    ],
)
def test_what_was_watched_in_part_is_not_said_to_be_unwatched(
    families: tuple[str, ...], not_at_all: str, flips: str
) -> None:
    told = Scene(families=families)
    told.tell(CoverageChanged(source="collector.network", families=["network"], why="partial: bytes are not counted"))
    verdict = told.call().ran(0).call().ran(1).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", None, None)
    assert f"{not_at_all}Watched in part: network." in verdict.sentence
    assert verdict.flips_if == f"turns to infra if {flips}"


def test_a_trial_in_which_a_kill_for_memory_could_have_been_missed_is_nobodys() -> None:
    verdict = model_failed(counters=False, vmstat=False).verdict()
    assert summary(verdict) == ("indeterminate", None, None, None)
    assert "kill for memory could have been missed" in verdict.sentence


@pytest.mark.parametrize("counters, vmstat", [(True, False), (False, True)])
def test_either_the_containers_counter_or_the_hosts_makes_kills_observable(counters: bool, vmstat: bool) -> None:
    assert model_failed(counters=counters, vmstat=vmstat).verdict().blame == "model"


def test_a_moved_counter_of_the_host_without_one_of_the_container_leaves_it_open() -> None:
    told = Scene(counters=False).call().ran(1)
    told.node_kills = 1
    assert told.call(tools=0).end(1).verdict().blame == "indeterminate"


def test_a_moved_counter_of_the_host_is_somebody_elses_when_the_containers_own_stood_still() -> None:
    told = Scene().call().ran(1)
    told.node_kills = 1
    assert told.call(tools=0).end(1).verdict().blame == "model"


def test_a_call_whose_end_was_not_seen_leaves_it_open() -> None:
    verdict = Scene().call().ran(0).attempt_begun().end(1).verdict()
    assert verdict.blame == "indeterminate"
    assert "step 2" in verdict.sentence


def test_a_reply_that_could_not_be_read_whole_leaves_it_open() -> None:
    told = Scene().call().ran(0)
    told.attempt(ReplyFacts(status=200), parse="partial", parse_why="the tee overran")
    verdict = told.end(1).verdict()
    assert verdict.blame == "indeterminate"
    assert "the tee overran" in verdict.sentence


def test_a_door_without_traffic_is_nobodys_even_when_the_command_ended_well() -> None:
    assert Scene().waited().end(1).verdict().blame == "indeterminate"
    passed = Scene().waited().end(0).verdict()
    assert passed.blame == "indeterminate"
    assert "No model call came through the door" in passed.sentence


def test_a_failed_command_while_connections_failed_in_its_container_leaves_it_open() -> None:
    told = Scene().call().ran(1)
    told.failed_connections = 3
    told.read("change")
    verdict = told.call(tools=0).end(1).verdict()
    assert verdict.blame == "indeterminate"
    assert "3 connections could not be opened" in verdict.sentence


def test_a_command_that_succeeded_while_connections_failed_says_nothing() -> None:
    told = Scene().call().ran(0)
    told.failed_connections = 3
    told.read("change")
    assert told.call(tools=0).end(1).verdict().blame == "model"


def test_a_command_that_was_killed_by_an_unknown_hand_is_only_suspected() -> None:
    verdict = Scene().call().waited().call(tools=0).end(None, signal=9).verdict()
    assert summary(verdict) == ("model", "suspected", None, None)
    assert "SIGKILL" in verdict.sentence
    assert verdict.terminated_by is None


def test_a_command_that_crashed_by_its_own_fault_is_not_said_to_be_killed() -> None:
    verdict = Scene().call().ran(0).call(tools=0).end(None, signal=11).verdict()
    assert summary(verdict) == ("model", "proved", None, None)


# --- the model is due only when it had finished ---------------------------------------------------------------------


def test_an_agent_that_stopped_by_itself_while_the_model_waited_for_a_tool_is_nobodys() -> None:
    verdict = Scene().call().ran(0).call().waited().end(1).verdict()
    assert summary(verdict) == ("indeterminate", None, None, None)
    said = "The command exited 1 while the model waited for the result of its tool call (step 2: bash)"
    assert said in verdict.sentence
    assert "by a bug or a limit of its own" in verdict.sentence
    assert verdict.answers.grade == "unknown"


@pytest.mark.parametrize("code, words", [(124, "which is what timeout(1) gives"), (137, "exit code 137"), (143, "143")])
def test_a_command_that_was_cut_short_in_the_middle_of_a_tool_call_is_nobodys(code: int, words: str) -> None:
    verdict = Scene().call().waited().end(code).verdict()
    assert summary(verdict) == ("indeterminate", None, None, None)
    assert words in verdict.sentence
    assert "had no result yet (step 1: bash)" in verdict.sentence


def test_a_command_that_died_by_a_signal_in_the_middle_of_a_tool_call_is_nobodys() -> None:
    verdict = Scene().call().waited().end(None, signal=9).verdict()
    assert summary(verdict) == ("indeterminate", None, None, None)
    assert "SIGKILL" in verdict.sentence
    assert verdict.terminated_by is None


def test_an_agent_that_ended_after_a_command_that_ended_well_may_have_been_done_by_it() -> None:
    verdict = Scene().call().ran(1).call().ran(0).end(1).verdict()
    assert summary(verdict) == ("model", "suspected", None, None)
    assert "without asking the model again" in verdict.sentence


def test_what_came_from_outside_still_comes_before_an_agent_that_stopped_by_itself() -> None:
    assert Scene().call().ran(137, oom=True).end(1).verdict().cause == "container.oom_kill"


@pytest.mark.parametrize("reason", ["max_tokens", "length"])
def test_a_last_reply_that_reached_its_token_limit_says_so(reason: str) -> None:
    verdict = Scene().call().ran(0).call(tools=0, stop_reason=reason).end(1).verdict()
    assert verdict.blame == "model"
    assert f"token limit that the client had asked for ({reason})" in verdict.sentence


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_could_not_be_started_never_ran_and_is_the_operators(code: int) -> None:
    told = Scene()
    told.tell(TrialEnded(exit_code=code, why="The command 'clade' was not found on PATH."), told.runner)
    verdict = told.verdict()
    assert summary(verdict) == ("operator", "proved", None, None)
    assert verdict.sentence == "The trial never ran. The command 'clade' was not found on PATH."
    assert verdict.ended_as == "never_ran"
    assert verdict.answers.reward_valid == "no"


def test_a_command_that_itself_ended_with_127_did_run() -> None:
    assert Scene().waited().end(127).verdict().blame == "indeterminate"


def test_a_run_inside_another_run_points_to_the_trial_that_saw_its_calls() -> None:
    told = Scene()
    outer = "0197aaaa-0000-7000-8000-bd80e485e2b1"
    told.observations[0] = msgspec.structs.replace(
        told.observations[0], value={"options": {"joined": {"ANTHROPIC_BASE_URL": "anthropic"}, "outer_trial": outer}}
    )
    verdict = told.waited().end(1).verdict()
    assert verdict.blame == "indeterminate"
    assert "fairtrial show bd80e485e2b1" in verdict.sentence
    assert "settings file" not in verdict.sentence


def test_a_container_that_was_not_joined_is_told_with_its_reason_and_what_to_do() -> None:
    told = Scene(counters=False, vmstat=False).call().ran(1)
    why = "a container was not joined, because 1 other trial uses this engine and it carries no mark of ours"
    told.tell(CoverageChanged(source="collector.docker_events", families=["memory"], why=why, containers_missed=True))
    verdict = told.call(tools=0).end(1).verdict()
    assert verdict.blame == "indeterminate"
    assert "carries no mark of ours" in verdict.sentence
    assert "-e FAIRTRIAL_TRIAL" in verdict.sentence


def test_families_that_are_watched_and_judged_cost_no_grade_and_are_not_named() -> None:
    verdict = model_failed().verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert "Recorded, not judged yet" not in verdict.sentence
    assert "Not watched" not in verdict.sentence


def test_a_kill_that_the_trial_went_on_after_is_named() -> None:
    verdict = Scene().call().ran(137, oom=True).call().ran(0).call(tools=0).end(1).verdict()
    assert verdict.blame == "model"
    assert "the trial went on after the kill for memory in step 1" in verdict.sentence
    assert "step 2 ended normally in the same container" in verdict.sentence


def test_a_last_call_that_something_unknown_broke_off_is_nobodys() -> None:
    """The command ended with a container of its own, while its first call was open: no rule tells of that."""
    told = Scene().ran(2)
    told.attempt(
        ReplyFacts(), outcome="client_disconnect", first_failure="client", closed_by="client", request_whole=True
    )
    verdict = told.gone(137).end(2).verdict()
    assert verdict.blame == "indeterminate"
    assert "never brought a whole reply" in verdict.sentence


def opaque(*connections: OpaqueConnection) -> Scene:
    """A trial under `--via connect`."""
    told = Scene()
    told.tell(TrialStarted(command=["agent"], options={"via": "connect"}), told.runner)
    for one in connections:
        told.tell(one, told.runner)
    return told


def test_calls_that_nobody_read_blame_nobody_and_say_what_their_connections_went_through() -> None:
    api = OpaqueConnection(host="api.anthropic.com", port=443, provider="anthropic", ok=True, max_wait=12.0)
    cut = msgspec.structs.replace(api, closed_by="upstream", close_kind="fin", cut=True)
    failed = OpaqueConnection(host="api.anthropic.com", provider="anthropic", stage="dns", error="no such\x1b[2J name")
    other = OpaqueConnection(host="pypi.org", ok=True, max_gap=500.0)
    verdict = opaque(api, cut, failed, other).waited().end(1).verdict()
    assert summary(verdict) == ("indeterminate", None, None, None)
    for words in (
        "3 connections to api.anthropic.com",
        "1 never stood (dns: no such",
        "1 ended by the upstream without TLS's close_notify",
        "the longest silence 12",
    ):
        assert words in verdict.sentence
    assert "pypi" not in verdict.sentence
    assert "\x1b" not in verdict.sentence


def test_a_connect_door_through_which_nothing_came_asks_for_the_variable() -> None:
    assert "HTTPS_PROXY" in opaque().waited().end(1).verdict().sentence


def test_a_kill_for_memory_is_told_whether_calls_are_read_or_not() -> None:
    verdict = opaque(OpaqueConnection(host="h", ok=True)).waited().ran(137, oom=True).end(1).verdict()
    assert verdict.cause == "container.oom_kill"
    assert verdict.blame == "infra"
