"""A kill counter that was read late tells of the moment that the kernel log, or the runtime, has for its kill."""

from __future__ import annotations

import pytest

from fairtrial.middleware.core.observations import CgroupReading, ContainerEvent, KernelOomKill, OomKill, Value
from fairtrial.middleware.core.records import Victim
from fairtrial.middleware.steps.assembler import assemble
from tests.middleware.steps.story import BOX, TRIAL, Story

BASH = (("toolu_1", "Bash", None),)


def record(container: str | None = BOX, path: str | None = None) -> KernelOomKill:
    return KernelOomKill(victim=Victim(comm="tail", pid=9), container_id=container, task_memcg=path)


EVENT = ContainerEvent(container_id=BOX, action="oom")


def told(first: list[Value], total: int | None = 1, *, late: list[Value] | None = None) -> list[int]:
    """Kills of each of three steps: `first` is told in step 1, the counter's rise and `late` in step 3."""
    tale = Story().begin().box()
    tale.attempt(turns=0, tools=BASH)
    tale.s += 0.5
    for value in first:
        tale.tell(value, u=0.01)
    tale.s += 0.5
    tale.attempt(turns=1, tools=BASH)
    tale.s += 0.5
    tale.attempt(turns=2)
    tale.s += 0.2
    for value in (*(late or []), OomKill(container_id=BOX, delta=1, total=total)):
        tale.tell(value)
    tale.s += 0.5
    trial = assemble(tale.end().observations, TRIAL).trial
    return [sum(use.oom_kills or 0 for use in step.containers) for step in trial.steps]


@pytest.mark.parametrize("first", [[record()], [EVENT], [record(), EVENT]], ids=["kernel", "runtime", "both"])
def test_a_late_reading_is_of_the_step_in_which_the_kill_was(first: list[Value]) -> None:
    assert told(first) == [1, 0, 0]


def test_a_record_that_came_before_its_container_was_found_is_known_by_its_path() -> None:
    assert told([record(None, f"/docker/{BOX}")]) == [1, 0, 0]
    assert told([record(None, f"/kubepods/pod1/{BOX}/inner")]) == [1, 0, 0]
    assert told([record(None, f"/docker/{'d' * 64}")]) == [0, 0, 1], "another container's"


@pytest.mark.parametrize(
    "first, total, late",
    [
        ([], 1, []),
        ([record()], None, []),
        ([EVENT], 2, []),
        ([EVENT], 1, [EVENT]),
        ([], 1, [record()]),
    ],
    ids=["nothing-told", "no-total", "fewer-told", "one-event-more", "told-in-time"],
)
def test_where_the_numbers_differ_the_counter_stays_where_it_was_read(
    first: list[Value], total: int | None, late: list[Value]
) -> None:
    assert told(first, total, late=late)[2] == 1


@pytest.mark.parametrize(
    "tools, read_at, late_s, steps",
    [
        pytest.param((), None, 0.1, [1, 0], id="read first when a reply without a tool was there"),
        pytest.param((), "call_started", 0.1, [0, 1], id="read in this step before"),
        pytest.param((), None, 1.5, [0, 1], id="read long after"),
        pytest.param(BASH, None, 0.1, [0, 1], id="a tool of this step may be it"),
    ],
)
def test_a_counter_first_read_when_no_tool_of_the_step_can_have_begun_tells_of_the_step_before(
    tools: tuple[tuple[str, str, str | None], ...], read_at: str | None, late_s: float, steps: list[int]
) -> None:
    tale = Story().begin().box()
    tale.attempt(turns=0, tools=BASH)
    tale.read("call_ended", oom_kill=0)
    tale.s += 0.5
    begun_s = tale.s
    tale.attempt(turns=1, tools=tools, seconds=0.05)
    if read_at is not None:
        tale.tell(CgroupReading(container_id=BOX, edge="call_started", oom_kill=0), s=begun_s + 0.001)
    tale.tell(OomKill(container_id=BOX, delta=1, total=1), s=begun_s + late_s)
    tale.s = begun_s + late_s + 0.1
    observations = sorted(tale.end(1).observations, key=lambda one: one.wall_ns)
    trial = assemble(observations, TRIAL).trial
    assert [sum(use.oom_kills or 0 for use in step.containers) for step in trial.steps] == steps


def test_a_kill_that_the_kernel_log_has_a_moment_behind_its_counter_is_one_kill() -> None:
    tale = Story().begin().box()
    tale.attempt(turns=0, tools=BASH)
    tale.read("call_ended", oom_kill=0)
    tale.s += 0.5
    begun_s = tale.s
    tale.attempt(turns=1, seconds=0.05)
    tale.tell(OomKill(container_id=BOX, delta=1, total=1), s=begun_s + 0.1)
    tale.tell(record(), s=begun_s + 0.101)
    tale.s = begun_s + 0.2
    observations = sorted(tale.end(1).observations, key=lambda one: one.wall_ns)
    trial = assemble(observations, TRIAL).trial
    assert [sum(use.oom_kills or 0 for use in step.containers) for step in trial.steps] == [0, 1]


def test_a_kill_before_any_tool_is_not_moved_before_the_first_call() -> None:
    tale = Story().begin().box()
    tale.attempt(turns=0, seconds=0.05)
    tale.tell(OomKill(container_id=BOX, delta=1, total=1))
    trial = assemble(tale.end(1).observations, TRIAL).trial
    assert [sum(use.oom_kills or 0 for use in step.containers) for step in trial.steps] == [1]
