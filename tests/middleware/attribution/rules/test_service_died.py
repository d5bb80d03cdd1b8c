"""Dead services: ended from outside is suspected, one's own doing is the harness's, an exit by itself blames nobody."""

from __future__ import annotations

import pytest

from tests.middleware.attribution.boxes import SERVICE, asked, engine, event, failed, gone, inside, seen
from tests.middleware.attribution.scene import Scene, summary


def beside() -> Scene:
    """A box with a database beside it; step 1 worked."""
    return inside(seen(seen(Scene()), SERVICE, role="service", name="db-1")).call()


def test_a_service_that_somebody_outside_stopped_is_suspected_of_infra() -> None:
    told = beside()
    gone(event(told, "kill", SERVICE, signal=9), SERVICE, by="runtime_kill:9")
    verdict = failed(inside(told, exit_code=1)).verdict()
    assert summary(verdict) == ("infra", "suspected", "container.service_died", 2)
    assert "db-1" in verdict.sentence


def test_a_service_whose_first_process_was_killed_from_outside_is_suspected_of_infra() -> None:
    told = gone(beside(), SERVICE, init_signal=9)
    assert summary(failed(inside(told, exit_code=1)).verdict())[:3] == ("infra", "suspected", "container.service_died")


def test_a_service_that_the_trial_stopped_through_its_own_door_is_never_infra() -> None:
    told = asked(beside(), "stop", SERVICE)
    gone(event(told, "kill", SERVICE, signal=15), SERVICE, code=0, by="runtime_kill:15")
    assert summary(failed(told).verdict())[:3] == ("harness", "suspected", "container.service_died")


@pytest.mark.parametrize("code, blame", [(0, "model"), (1, "indeterminate"), (139, "indeterminate")])
def test_a_service_that_exited_by_itself_blames_nobody_and_with_an_error_clears_nobody(code: int, blame: str) -> None:
    told = gone(beside(), SERVICE, code=code, by="exit", init_signal=0)
    verdict = failed(told).verdict()
    assert verdict.blame == blame
    assert verdict.cause is None


def test_a_service_whose_namespace_is_shared_may_have_been_killed_by_the_agent() -> None:
    told = inside(seen(seen(Scene()), SERVICE, role="service", own_pid_namespace=False)).call()
    verdict = failed(gone(told, SERVICE, init_signal=9)).verdict()
    assert verdict.blame == "indeterminate"


def test_a_service_that_goes_in_the_teardown_explains_nothing() -> None:
    told = inside(beside()).call(tools=0).waited()
    gone(event(told, "kill", SERVICE, signal=15), SERVICE, code=0, by="runtime_kill:15")
    assert told.end(1).verdict().blame == "model"


def test_a_service_that_went_with_its_engine_is_the_engines() -> None:
    told = engine(beside(), "lost")
    gone(told, SERVICE, code=None)
    assert failed(engine(told, "back", restarted=True)).verdict().cause == "runtime.daemon_fault"


@pytest.mark.parametrize("facts", [{"code": 1, "by": "exit", "init_signal": 0}, {"by": "runtime_kill:9"}])
def test_a_service_that_the_models_own_command_started_is_the_models(facts: dict[str, object]) -> None:
    told = inside(seen(Scene())).call().waited()
    seen(told, SERVICE, role="service", name="db-1").waited()
    gone(told, SERVICE, **facts)  # type: ignore[arg-type]
    assert failed(inside(told, exit_code=1)).verdict().blame == "model"
