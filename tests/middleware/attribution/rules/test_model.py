"""When the model is due, and what keeps it from being due."""

import pytest

from fairtrial.middleware.core.observations import ReplyFacts
from tests.middleware.attribution.scene import Scene, model_failed, summary


def test_a_failed_trial_with_whole_replies_and_everything_watched_is_the_models() -> None:
    verdict = model_failed().verdict()
    assert summary(verdict) == ("model", "proved", None, None)
    assert verdict.terminated_by is None
    assert verdict.ended_as == "agent.finished"
    assert verdict.questions.happened.answer == "no"
    assert verdict.questions.happened.by != []
    assert (verdict.answers.retry, verdict.answers.grade, verdict.answers.reward_valid) == ("no", "yes", "yes")
    assert "all 3 model calls brought a whole reply" in verdict.sentence


def test_families_that_nobody_watched_are_named_and_the_blame_stands() -> None:
    verdict = model_failed(families=("memory",)).verdict()
    assert summary(verdict) == ("model", "suspected", None, None)
    assert "Not watched: CPU, disk, network and the node." in verdict.sentence


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
    verdict = Scene().call().waited().end(None, signal=9).verdict()
    assert summary(verdict) == ("model", "suspected", None, None)
    assert "SIGKILL" in verdict.sentence
    assert verdict.terminated_by is None


def test_a_command_that_crashed_by_its_own_fault_is_not_said_to_be_killed() -> None:
    verdict = Scene().call().ran(0).call(tools=0).end(None, signal=11).verdict()
    assert summary(verdict) == ("model", "proved", None, None)
