"""A tool host that died under a harness that went on."""

import pytest

from tests.middleware.attribution.scene import Scene, ended, summary


def died(told: Scene, exit_code: int = 0, *, ended_by: str = "exit") -> Scene:
    return told.waited(3).gone(exit_code, ended_by=ended_by).waited()


def went_on(told: Scene, times: int = 2) -> Scene:
    for _ in range(times):
        told.call().waited(0.5)
    return told.call(tools=0)


@pytest.mark.parametrize("code", [0, 1])
def test_a_container_that_ended_by_itself_under_an_agent_that_goes_on(code: int) -> None:
    """Whatever the command then says of itself, 0 included."""
    verdict = went_on(died(Scene().call().ran(0))).end(code).verdict()
    assert (verdict.blame, verdict.cause, verdict.step) == ("harness", "harness.tool_host_dead", 1)
    assert verdict.grade == ("proved" if code else "suspected")
    assert "2 later replies asked for tools" in verdict.sentence
    assert ended(verdict) is None


def test_a_main_process_that_ended_with_an_error_may_be_the_models_doing() -> None:
    """Near-miss: the agent's command may have killed PID 1."""
    verdict = went_on(died(Scene().call().ran(0), 143)).end(1).verdict()
    assert summary(verdict) == ("harness", "suspected", "harness.tool_host_dead", 1)
    assert "turns to the model" in (verdict.flips_if or "")


def test_a_command_that_ran_as_it_ended_may_have_ended_it() -> None:
    """Near-miss."""
    told = Scene().call().ran(0)
    verdict = went_on(told.gone(0, ended_by="exit")).end(1).verdict()
    assert verdict.grade == "suspected"


def test_a_container_that_was_stopped_from_outside_is_another_rules() -> None:
    told = Scene().call().ran(0).call().waited().runtime("kill", signal=9).gone(137, ended_by="runtime_kill:9")
    assert told.call().waited().call(tools=0).end(1).verdict().cause == "container.killed"


def test_a_reply_that_was_under_way_as_the_container_ended_asked_for_tools_behind_it() -> None:
    """As a real `sleep` does it, between two turns."""
    told = Scene().call().ran(0).waited(3).gone(0, ended_by="exit")
    verdict = told.call(seconds=2.0).waited(0.5).call(tools=0).end(1).verdict()
    assert (verdict.cause, verdict.grade) == ("harness.tool_host_dead", "proved")
    assert "1 later reply asked for tools" in verdict.sentence


def test_a_container_that_ended_after_the_last_tool_is_nothing() -> None:
    """Innocent: the harness puts its box away before the last word."""
    assert died(Scene().call().ran(1)).call(tools=0).end(1).verdict().blame == "model"
