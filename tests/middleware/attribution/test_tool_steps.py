"""What counts as a normal end of a tool step in a container."""

import pytest

from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.attribution.tool_steps import first_normal_after
from tests.middleware.attribution.scene import BOX, Scene


def found(told: Scene, container: str = BOX) -> int | None:
    case = Case(told.end(1).assembly())
    later = first_normal_after(case, case.containers[container], 1)
    return None if later is None else later[0]


@pytest.mark.parametrize("code, step", [(0, 2), (1, 2), (127, 2), (137, None), (126, None), (None, None)])
def test_a_known_code_that_is_no_kill_is_a_normal_end(code: int | None, step: int | None) -> None:
    assert found(Scene().call().ran(137, oom=True).call().ran(code).call(tools=0)) == step


def test_a_step_with_a_kill_is_not_normal_whatever_its_code() -> None:
    assert found(Scene().call().ran(137, oom=True).call().ran(0, oom=True).call(tools=0)) is None


def test_without_execs_a_result_that_came_back_counts() -> None:
    told = Scene(box=False).call().waited().oom().waited().call().waited().call(tools=0)
    assert found(told, "own") == 2


def test_a_result_that_came_back_from_a_container_that_was_gone_does_not_count() -> None:
    told = Scene().call().waited().oom().gone(137, ended_by="oom").waited().call().waited().call(tools=0)
    assert found(told) is None


def test_a_command_that_the_harness_runs_after_the_agents_last_word_is_no_tool_step() -> None:
    """The harness's own check, in the same container, after a reply that asked for no tool."""
    assert found(Scene().call().ran(137, oom=True).call(tools=0).ran(1)) is None
    assert found(Scene().call().ran(137, oom=True).call(tools=0).ran(0)) is None
