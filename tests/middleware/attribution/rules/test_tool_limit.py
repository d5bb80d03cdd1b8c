"""A limit for one command that fired: nobody's when outside time filled a part of it, nothing when it did not."""

from __future__ import annotations

import msgspec
import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.core.observations import ExecEnded, ExecStarted, ToolUse
from fairtrial.middleware.core.records import Limits, Outcome, TimeLimits, Verdict
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.attribution.delays import IDLE, dispatched
from tests.middleware.attribution.scene import BOX, Scene, ended

WRAPPED = ["timeout", "30", "/bin/sh", "-c", "(12 characters)"]
PLAIN = ["/bin/sh", "-c", "(12 characters)"]


def cut(
    delay: float = 0.1,
    length: float = 30.0,
    *,
    code: int | None = 124,
    command: list[str] = PLAIN,
    goes_on: bool = False,
    **facts: object,
) -> Scene:
    """One command through the Docker door whose start took so long and that ran for so long, and the agent gives up."""
    told = Scene()
    told.also |= IDLE
    told.read("baseline")
    name = told.name("text")
    told.call(tool_calls=[ToolUse(id=name, name="bash", text_digest=name)])
    begun = told.s
    told.s += delay
    told.tell(ExecStarted(container_id=BOX, exec_id=name, pid=9, text_digest=name), told.events)
    told.s = begun
    dispatched(told, delay, then=length - delay, exec_id=name, text_digest=name, command=command, **facts)
    told.tell(ExecEnded(container_id=BOX, exec_id=name, exit_code=code), told.events)
    told.waited(0.1)
    if goes_on:
        told.call().ran(0)
    return told.call(tools=0).end(1)


def judged(told: Scene, *, limit: float | None = 30.0) -> Verdict:
    """Under the limit for tools that the harness declared."""
    assembly = told.assembly()
    declared = Limits(time=TimeLimits(tool=limit, source="the harness's settings"))
    trial = msgspec.structs.replace(assembly.trial, limits=declared, outcome=Outcome.FAILED)
    return judge(Assembly(trial=trial, placed=assembly.placed, attempt_call=assembly.attempt_call))


def test_a_slow_start_that_filled_part_of_the_limit_leaves_the_blame_open() -> None:
    verdict = judged(cut(12.0))
    assert (verdict.blame, verdict.cause) == ("indeterminate", None)
    assert "the time limit of 30 s of a command fired (as the harness's settings says)" in verdict.sentence
    assert "a container engine that was slow to answer (11 s)" in verdict.sentence
    assert ended(verdict) is None
    assert verdict.ended_as == "agent.finished"


def test_a_client_that_left_at_the_limit_is_a_cut_command_as_well() -> None:
    assert judged(cut(12.0, code=None, ended_by="client")).blame == "indeterminate"


def test_a_slow_start_below_a_tenth_of_the_limit_is_the_models() -> None:
    """Near-miss: 2 s above an ordinary start."""
    assert judged(cut(3.0)).blame == "model"


@pytest.mark.parametrize(
    "told, limit",
    [
        (cut(12.0, 20.0), 30.0),
        (cut(12.0, 90.0), 30.0),
        (cut(12.0, code=1), 30.0),
        (cut(12.0), None),
        (cut(12.0, goes_on=True), 30.0),
    ],
    ids=["time was left", "it was not that limit", "it ended by itself", "no limit is known", "the agent went on"],
)
def test_a_command_that_no_known_limit_ended_is_the_models(told: Scene, limit: float | None) -> None:
    """Near-miss."""
    assert judged(told, limit=limit).blame == "model"


def test_a_command_that_met_its_limit_by_itself_is_the_models() -> None:
    """Innocent: a long sleep, an endless loop."""
    assert judged(cut()).blame == "model"
    assert judged(cut(30.0 - 29.9, 30.1, command=WRAPPED), limit=None).blame == "model"


def test_a_timer_in_the_box_begins_after_the_start_and_is_not_eaten_by_it() -> None:
    """Near-miss: the start took 12 s, and timeout(1) then counted its own 30."""
    assert judged(cut(12.0, 42.1, command=WRAPPED), limit=None).blame == "model"
