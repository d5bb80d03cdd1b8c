"""Stops from outside: told by the runtime while the trial was using the container; teardown explains nothing."""

import msgspec
import pytest

from fairtrial.middleware.core.observations import DoorContainer, ExecEnded, ExecStarted
from fairtrial.middleware.core.records import Verdict
from tests.middleware.attribution.scene import BOX, Scene, ended, summary


def test_a_stop_through_the_runtime_while_a_command_ran_is_suspected_of_infra() -> None:
    told = Scene().call().ran(0).call()
    told.tell(ExecStarted(container_id=BOX, exec_id="live", pid=9), told.events)
    told.waited().runtime("kill", signal=9).gone(137, ended_by="runtime_kill:9")
    verdict = told.waited().call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.killed", 2)
    assert ended(verdict) == ("container.killed", "proved", 2)
    assert "SIGKILL" in verdict.sentence
    assert "Nothing says who did" in verdict.sentence


def test_a_stop_before_the_agent_was_done_is_found_when_it_went_on_in_vain() -> None:
    told = Scene().call().waited().runtime("kill", signal=15).gone(143, ended_by="runtime_kill:15")
    verdict = told.waited().call().waited().call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.killed", 1)


def test_the_harnesss_own_stop_after_the_last_step_explains_nothing() -> None:
    told = Scene().call().ran(1).call(tools=0).waited()
    told.runtime("kill", signal=15).waited(10).runtime("kill", signal=9).gone(137, ended_by="runtime_kill:9")
    verdict = told.end(1).verdict()
    assert verdict.blame == "model"
    assert verdict.present == []
    assert ended(verdict) is None


def test_a_stop_after_the_commands_end_explains_nothing() -> None:
    told = Scene().call().ran(1).call(tools=0).end(1)
    verdict = told.runtime("kill", signal=9).gone(137, ended_by="runtime_kill:9").verdict()
    assert verdict.blame == "model"


def test_the_trials_own_kill_of_pid_1_is_never_infra() -> None:
    told = Scene().call().waited().gone(143, ended_by="exit")
    verdict = told.waited().call(tools=0).end(1).verdict()
    assert verdict.blame == "model"
    assert ended(verdict) is None


def test_a_container_that_vanished_with_137_and_without_a_trace_is_nobodys() -> None:
    told = Scene().call().waited().gone(137, ended_by="unknown")
    verdict = told.waited().call(tools=0).end(1).verdict()
    assert verdict.blame == "indeterminate"
    assert "nothing says by whom" in verdict.sentence


def struck(*, before_s: float, exit_code: int = 137) -> Scene:
    """A command that died shortly before the runtime told of the stop; the harness gave up."""
    told = Scene().call().ran(0).call()
    told.tell(ExecStarted(container_id=BOX, exec_id="live", pid=9), told.events)
    told.waited().tell(ExecEnded(container_id=BOX, exec_id="live", exit_code=exit_code), told.events)
    return told.waited(before_s).runtime("kill", signal=9).gone(137, ended_by="runtime_kill:9").waited().end(1)


def test_a_command_whose_death_was_told_a_moment_before_the_stop_was_struck_by_it() -> None:
    assert summary(struck(before_s=0.003).verdict()) == ("infra", "suspected", "container.killed", 2)


def test_a_command_that_had_ended_before_the_stop_was_not() -> None:
    assert struck(before_s=0.003, exit_code=1).verdict().cause is None
    assert struck(before_s=2.0).verdict().cause is None


def stopped_at_the_door(asked: dict[str, object]) -> Verdict:
    """The trial's own client asks the Docker door for a kill while a command of the trial runs."""
    told = Scene().call().ran(0).call()
    told.tell(ExecStarted(container_id=BOX, exec_id="live", pid=9), told.events)
    request = {"action": "kill", "container_id": BOX, "status": 204, "duration": 0.2, **asked}
    at = {"started_wall_ns": told.waited().wall()}
    told.tell(msgspec.convert({**request, **at}, DoorContainer), told.events)
    told.waited(0.1).runtime("kill", signal=9).gone(137, ended_by="runtime_kill:9")
    return told.waited().call(tools=0).end(1).verdict()


@pytest.mark.parametrize("named", [{}, {"container_id": None, "container_named": BOX[:12]}, {"action": "remove"}])
def test_a_stop_that_the_trial_asked_its_own_door_for_is_not_infra(named: dict[str, object]) -> None:
    verdict = stopped_at_the_door(named)
    assert summary(verdict) == ("harness", "suspected", "harness.killed", 2)
    assert ended(verdict) is None
    assert "own side" in verdict.sentence


def test_a_harness_that_clears_up_right_after_a_stop_from_outside_did_not_ask_for_it() -> None:
    told = Scene().call().ran(0).call()
    told.tell(ExecStarted(container_id=BOX, exec_id="live", pid=9), told.events)
    told.waited().runtime("kill", signal=9).gone(137, ended_by="runtime_kill:9").waited(0.3)
    request = DoorContainer(action="remove", container_id=BOX, status=204, duration=0.1, started_wall_ns=told.wall())
    told.tell(request, told.events)
    verdict = told.call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.killed", 2)
    assert ended(verdict) == ("container.killed", "proved", 2)


def test_a_harness_that_clears_up_after_the_last_word_while_its_own_check_hangs_killed_nothing() -> None:
    told = Scene().call().ran(1).call(tools=0)
    told.tell(ExecStarted(container_id=BOX, exec_id="check", pid=9), told.events)
    told.s += 0.3
    request = DoorContainer(action="remove", container_id=BOX, status=204, duration=0.1, started_wall_ns=told.wall())
    told.tell(request, told.events)
    told.runtime("kill", signal=9).gone(137, ended_by="runtime_kill:9")
    assert told.end(1).verdict().cause is None


def test_a_stop_whose_client_left_before_the_answer_was_asked_for_all_the_same() -> None:
    assert stopped_at_the_door({"status": None}).cause == "harness.killed"


@pytest.mark.parametrize("other", [{"container_id": "c1" * 32}, {"status": 404}, {"action": "wait"}])
def test_a_request_of_the_trials_that_stopped_nothing_explains_no_stop(other: dict[str, object]) -> None:
    assert stopped_at_the_door(other).cause == "container.killed"


def paused(*, unpaused: bool = False, own: bool = False) -> Verdict:
    """The box is paused while a command runs in it."""
    told = Scene().call().ran(0).call()
    told.tell(ExecStarted(container_id=BOX, exec_id="live", pid=9), told.events)
    at = told.waited().wall()
    if own:
        told.tell(DoorContainer(action="pause", container_id=BOX, status=204, started_wall_ns=at), told.events)
    told.waited(0.1).runtime("pause").waited()
    if unpaused:
        told.runtime("unpause")
    return told.waited().call(tools=0).end(1).verdict()


def test_a_pause_from_outside_that_was_not_taken_back_is_suspected() -> None:
    verdict = paused()
    assert summary(verdict) == ("infra", "suspected", "container.killed", 2)
    assert "paused container task-1" in verdict.sentence


def test_a_pause_that_was_taken_back_is_nothing() -> None:
    assert paused(unpaused=True).cause is None


def test_a_pause_that_the_trial_asked_its_own_door_for_is_not_infra() -> None:
    assert paused(own=True).cause == "harness.killed"


def test_a_stop_before_the_first_step_names_none() -> None:
    told = Scene()
    told.tell(ExecStarted(container_id=BOX, exec_id="live", pid=9), told.events)
    told.waited().runtime("kill", signal=9).gone(137, ended_by="runtime_kill:9")
    verdict = told.waited().call(tools=0).end(1).verdict()
    assert (verdict.cause, verdict.step) == ("container.killed", None)
    assert "step" not in verdict.sentence
