"""Containers that were not made and images that were not pulled before the agent began: whose doing, by the refusal."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import DoorImage
from tests.middleware.attribution.boxes import asked, failed, inside, seen
from tests.middleware.attribution.scene import Scene, summary


def pulled(told: Scene, error: str | None, status: int = 200) -> Scene:
    told.tell(DoorImage(image="task:1", status=status, error=error, started_wall_ns=told.wall()), told.events)
    return told.waited(0.1)


def refused(error: str, action: str = "start", status: int = 500) -> Scene:
    return asked(Scene(box=False), action, status=status, error=error)


@pytest.mark.parametrize(
    "error, blame",
    [
        ("runtime_gone", "infra"),
        ("no_space", "infra"),
        ("no_network", "infra"),
        ("other", "infra"),
        ("port_taken", "operator"),
        ("no_device", "operator"),
        ("bad_mount", "operator"),
        ("no_command", "task"),
        ("no_image", "task"),
    ],
)
def test_a_container_that_could_not_be_started_never_ran_and_is_whose_refusal_it_is(error: str, blame: str) -> None:
    verdict = refused(error).end(1).verdict()
    assert summary(verdict)[:3] == (blame, "suspected", "container.start_failed")
    assert verdict.ended_as == "never_ran"
    assert (verdict.answers.grade, verdict.answers.reward_valid) == ("no", "no")


@pytest.mark.parametrize(
    "error, blame",
    [
        ("rate_limited", "infra"),
        ("registry_error", "infra"),
        ("timeout", "infra"),
        ("dns", "infra"),
        ("denied", "operator"),
        ("tls", "operator"),
        ("no_image", "task"),
    ],
)
def test_an_image_that_could_not_be_pulled_tells_why_its_container_was_not_made(error: str, blame: str) -> None:
    told = asked(pulled(Scene(box=False), error), "create", status=404, error="no_image")
    verdict = told.end(1).verdict()
    assert summary(verdict)[:3] == (blame, "suspected", "container.image_pull")
    assert "image task:1 could not be pulled" in verdict.sentence.lower()


def test_what_went_well_at_last_is_no_failure() -> None:
    told = seen(asked(asked(Scene(), "start", status=500, error="timeout"), "start", status=204))
    assert failed(inside(told)).verdict().blame == "model"
    told = seen(pulled(pulled(Scene(), "timeout"), None))
    assert failed(inside(told)).verdict().blame == "model"


def test_what_was_refused_after_the_first_question_may_be_the_models_own_wish() -> None:
    told = inside(seen(Scene())).call().waited()
    asked(told, "create", status=404, error="no_image")
    verdict = failed(pulled(told, "registry_error")).verdict()
    assert verdict.blame == "model"
    assert verdict.cause is None


def test_a_trial_that_ran_all_the_same_is_suspected_and_was_not_ended_by_it() -> None:
    told = asked(Scene(), "start", status=500, error="runtime_gone")
    verdict = failed(inside(seen(told))).verdict()
    assert summary(verdict)[:3] == ("infra", "suspected", "container.start_failed")
    assert verdict.terminated_by is None
    assert verdict.ended_as != "never_ran"


def test_an_agent_whose_calls_are_unseen_is_never_proof_against_the_engine() -> None:
    """It may have asked for that container itself."""
    for error in ("runtime_gone", "registry_error"):
        assert refused(error).end(1).verdict().grade == "suspected"
