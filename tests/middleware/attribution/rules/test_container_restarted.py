"""Second lives: an outside restart is suspected of infra, one's own is the harness's, a policy's blames nobody."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import ExecEnded, ExecStarted
from tests.middleware.attribution.boxes import COMPOSE, asked, engine, event, failed, gone, inside, seen
from tests.middleware.attribution.scene import BOX, Scene, ended, summary

OTHER = "07" * 32


def restarted(
    *, tmpfs: list[str] | None = None, own: bool = False, by: str = "runtime_kill:15", signal: int | None = 9
) -> Scene:
    """Worked in, restarted in step 2 and worked in again."""
    told = inside(seen(Scene(), tmpfs=tmpfs or [])).call()
    if own:
        asked(told, "restart")
    if by.startswith("runtime_kill"):
        event(told, "kill", signal=15)
    gone(told, code=143, by=by, init_signal=signal)
    event(told, "start")
    if by.startswith("runtime_kill"):
        event(told, "restart")
    seen(told, tmpfs=tmpfs or [])
    return inside(told.waited())


def test_a_restart_from_outside_in_the_middle_is_suspected_of_infra() -> None:
    verdict = failed(restarted()).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.restarted", 2)
    assert "task-1 was restarted in step 2" in verdict.sentence
    assert verdict.terminated_by is None, "later steps ended normally"


def test_what_it_held_in_a_tmpfs_is_lost_with_it() -> None:
    verdict = failed(restarted(tmpfs=["/work=rw"])).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.state_lost", 2)
    assert "lost what it held in /work" in verdict.sentence


def test_a_restart_after_which_nothing_worked_ended_the_trial() -> None:
    told = inside(seen(Scene())).call()
    gone(event(told, "kill", signal=15), code=143, by="runtime_kill:15")
    event(event(told, "start"), "restart")
    verdict = failed(seen(told)).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.restarted", 2)
    assert verdict.terminated_by is not None


def test_a_restart_of_which_a_loaded_engine_told_late_struck_the_step_before() -> None:
    told = inside(seen(Scene())).call()
    told.tell(ExecStarted(container_id=BOX, exec_id="live", pid=9), told.events)
    event(told.waited(), "kill", signal=9)
    told.s += 0.05
    told.tell(ExecEnded(container_id=BOX, exec_id="live", exit_code=137), told.events)
    asked_at_s = told.s + 0.01
    told.s += 0.3
    gone(told, code=137, by="runtime_kill:9", init_signal=9)
    event(event(told, "start"), "restart")
    told.s = asked_at_s
    verdict = told.call(tools=0).end(1).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.restarted", 2)
    assert ended(verdict) == ("container.restarted", "proved", 2)


def test_a_restart_that_the_trial_asked_its_own_door_for_is_never_infra() -> None:
    verdict = failed(restarted(own=True)).verdict()
    assert summary(verdict) == ("harness", "suspected", "container.restarted", 2)
    assert verdict.terminated_by is None


def test_a_first_process_that_exited_and_a_policy_that_started_it_again_blame_nobody() -> None:
    verdict = failed(restarted(by="exit", signal=0)).verdict()
    assert verdict.blame == "model"
    assert [(p.cause, p.step) for p in verdict.present] == [("container.restarted", 2)]


def test_a_sigkill_from_outside_and_a_policy_that_started_it_again_is_suspected() -> None:
    assert failed(restarted(by="unknown", signal=9)).verdict().cause == "container.restarted"


def test_a_container_in_which_nothing_had_run_lost_nothing() -> None:
    told = seen(Scene()).call()
    gone(event(told, "kill", signal=15), code=143, by="runtime_kill:15")
    assert failed(seen(event(told, "start"))).verdict().cause is None


def test_a_restart_by_an_engine_that_was_restarted_is_the_engines() -> None:
    told = inside(seen(Scene())).call()
    engine(told, "lost")
    gone(told, code=None, by="unknown")
    engine(told, "back", restarted=True)
    verdict = failed(seen(event(told, "start"))).verdict()
    assert verdict.cause == "runtime.daemon_fault"


@pytest.mark.parametrize("same", [True, False], ids=["same service", "another service"])
def test_a_removed_container_whose_place_another_took_lost_its_files(same: bool) -> None:
    told = inside(seen(Scene(), labels=COMPOSE)).call()
    gone(event(told, "kill", signal=9), by="runtime_kill:9")
    event(told, "destroy").waited()
    service = COMPOSE if same else COMPOSE | {"com.docker.compose.service": "client"}
    seen(told, OTHER, labels=service)
    verdict = failed(inside(told, box=OTHER)).verdict()
    assert verdict.blame == "infra"
    assert verdict.cause == ("container.state_lost" if same else "container.killed")


def test_the_life_after_is_in_the_record_of_its_steps() -> None:
    trial = failed(restarted()).assembly().trial
    assert [BOX in {use.id for use in step.containers} for step in trial.steps] == [True] * 4
