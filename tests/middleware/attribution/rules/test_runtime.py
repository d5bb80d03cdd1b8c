"""An engine that breaks off a running command: infra, suspected; a client that left and an ordinary end are neither."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import CoverageChanged, DoorExec, ExecEnded, ExecStarted
from tests.middleware.attribution.boxes import engine, failed, inside, seen
from tests.middleware.attribution.scene import BOX, Scene, ended, summary


def broken_off(told: Scene, *, ended_by: str = "process", lost: bool = True, exit_code: int | None = None) -> Scene:
    """A command in the last step's tool call, whose stream ends so."""
    told.waited()
    started = told.wall()
    told.tell(ExecStarted(container_id=BOX, exec_id="x", pid=9), told.events)
    told.waited(2)
    passed = DoorExec(exec_id="x", container_id=BOX, started_wall_ns=started, duration=2.0, ended_by=ended_by)  # type: ignore[arg-type]
    told.tell(passed, told.door)
    told.tell(ExecEnded(container_id=BOX, exec_id="x", exit_code=exit_code), told.events)
    if lost:
        told.tell(CoverageChanged(source="collector.docker_events", state="lost", why="gone"), told.events)
    return told.waited()


def test_an_engine_that_died_under_the_last_command_is_suspected_and_ended_the_trial() -> None:
    verdict = broken_off(Scene().call().ran(0).call()).call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "runtime.exec_lost", 2)
    assert ended(verdict) == ("runtime.exec_lost", "suspected", 2)
    assert "broke off" in verdict.sentence


def test_a_connection_that_the_engine_reset_needs_no_lost_events() -> None:
    told = broken_off(Scene().call().ran(0).call(), ended_by="engine", lost=False)
    assert summary(told.call(tools=0).end(1).verdict()) == ("infra", "suspected", "runtime.exec_lost", 2)


def test_an_engine_that_came_back_is_only_present() -> None:
    told = broken_off(Scene().call().ran(0).call())
    told.tell(CoverageChanged(source="collector.docker_events", families=["memory", "node"]), told.events)
    verdict = told.call().ran(0).call(tools=0).end(1).verdict()
    assert verdict.cause != "runtime.exec_lost"
    assert [(row.cause, row.step) for row in verdict.present] == [("runtime.exec_lost", 2)]


def test_a_client_that_left_its_command_is_not_the_engines_doing() -> None:
    told = broken_off(Scene().call().ran(0).call(), ended_by="client")
    assert told.call(tools=0).end(1).verdict().cause is None


def test_a_command_with_an_exit_code_was_not_lost() -> None:
    told = broken_off(Scene().call().ran(0).call(), exit_code=1)
    assert told.call(tools=0).end(1).verdict().cause is None


def test_an_exit_status_of_0_is_no_score_so_the_suspicion_stays() -> None:
    verdict = broken_off(Scene().call().ran(0).call()).call(tools=0).end(0).verdict()
    assert summary(verdict) == ("infra", "suspected", "runtime.exec_lost", 2)
    assert "not a score" in verdict.sentence


# --- the engine itself ------------------------------------------------------------------------------------------------


def test_an_engine_that_went_between_two_commands_is_suspected_and_ended_the_trial() -> None:
    told = engine(inside(seen(Scene())).call(), "lost")
    verdict = failed(told).verdict()
    assert summary(verdict) == ("infra", "suspected", "runtime.daemon_fault", 2)
    assert ended(verdict) == ("runtime.daemon_fault", "suspected", 2)
    assert "engine went in step 2" in verdict.sentence


def test_an_engine_that_was_restarted_under_the_trial_says_so() -> None:
    told = engine(engine(inside(seen(Scene())).call(), "lost"), "back", restarted=True)
    assert "engine was restarted in step 2" in failed(told).verdict().sentence


def test_an_engine_of_which_nobody_can_tell_if_it_is_the_same_was_away() -> None:
    told = inside(seen(Scene())).call()
    since = told.s
    engine(engine(told, "lost").waited(), "back")
    told.gap(since=since, until=told.s, source="collector.docker_events", families=["memory", "node"])
    verdict = failed(told).verdict()
    assert verdict.cause == "runtime.daemon_fault"
    assert "was away" in verdict.sentence


def test_a_stream_that_broke_while_the_engine_lived_on_is_nothing() -> None:
    told = engine(engine(inside(seen(Scene())).call(), "lost"), "back", restarted=False)
    verdict = failed(told).verdict()
    assert verdict.blame == "model"
    assert verdict.present == []


def test_an_engine_that_was_restarted_and_ran_a_later_command_is_only_present() -> None:
    told = engine(engine(inside(seen(Scene())).call(), "lost"), "back", restarted=True)
    verdict = failed(inside(told)).verdict()
    assert [(row.cause, row.step) for row in verdict.present] == [("runtime.daemon_fault", 2)]
    assert verdict.cause is None


def test_an_engine_that_a_trial_without_containers_lost_is_nothing_to_it() -> None:
    told = engine(Scene(box=False).call().waited().call(), "lost")
    assert failed(told).verdict().cause is None


def test_an_agent_that_works_on_the_host_was_not_ended_by_its_engine() -> None:
    told = engine(Scene().call().ran(0).call().waited(), "lost")
    verdict = told.call().waited().call(tools=0).end(1).verdict()
    assert summary(verdict)[:3] == ("infra", "suspected", "runtime.daemon_fault")
    assert ended(verdict) is None


@pytest.mark.parametrize(
    "error, status, cause",
    [
        ("runtime_gone", 500, "runtime.daemon_fault"),
        ("timeout", 500, "runtime.daemon_fault"),
        ("no_network", 500, "runtime.daemon_fault"),
        ("no_space", 500, None),
        ("port_taken", 500, None),
        ("other", 500, None),
        ("no_command", 400, None),
        ("not_running", 409, None),
    ],
)
def test_a_refusal_is_the_engines_own_only_where_no_request_brings_it_about(
    error: str, status: int, cause: str | None
) -> None:
    told = inside(seen(Scene())).call().waited()
    refused = DoorExec(exec_id="x" * 8, container_id=BOX, status=status, error=error, started_wall_ns=told.wall())
    told.tell(refused, told.door)
    assert failed(told).verdict().cause == cause
