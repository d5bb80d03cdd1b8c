"""An engine that breaks off a running command: infra, suspected; a client that left and an ordinary end are neither."""

from __future__ import annotations

from fairtrial.middleware.core.observations import CoverageChanged, DoorExec, ExecEnded, ExecStarted
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
