"""A scenario repeats its last step and survives its JSON form."""

import msgspec
import pytest

from fairtrial.middleware.demo.faults import Fault
from fairtrial.middleware.demo.script import Scenario, Step, dump_scenario, load_scenario, say, shell


def test_the_last_step_repeats_for_ever() -> None:
    scenario = Scenario(steps=(shell("ls"), say("done")))
    assert [scenario.step_at(index).text for index in range(4)] == [None, "done", "done", "done"]


def test_a_scenario_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        Scenario(steps=())


def test_only_a_step_with_commands_or_a_tool_calls_tools() -> None:
    assert shell("ls").calls_tools
    assert Step(tool="submit").calls_tools
    assert not say("done").calls_tools


def test_a_scenario_reads_back_from_json_as_it_was_written() -> None:
    scenario = Scenario(
        steps=(
            shell("ls", "pwd", text="Let me look."),
            Step(tool="submit", arguments={"answer": "x"}, cache_read_tokens=7),
        ),
        faults=(Fault(kind="http", status=429, headers={"retry-after": "2"}, attempts=None),),
        side_text=None,
        models=("m",),
    )
    assert load_scenario(dump_scenario(scenario)) == scenario


def test_a_wrong_kind_of_fault_is_refused_with_its_place() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"faults\[0\]\.kind|faults"):
        load_scenario(b'{"steps": [{}], "faults": [{"kind": "meteor"}]}')
