"""A verdict's work grows with the trial and not with its square: a trial of 1 000 steps has 0.2 s (`make bench`).

What is counted is the interpreter's own steps (bytecodes), not time, so a loaded machine changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.steps.placed import Assembly
from tests.middleware.attribution.scene import Scene

SHORT, LONG = 40, 120


def calm(told: Scene) -> None:
    told.call().ran(0)


def struck(told: Scene) -> None:
    told.call().ran(137, oom=True).call().ran(0)


def refused(told: Scene) -> None:
    told.refused(529).call().ran(1)


def throttled(told: Scene) -> None:
    told.call().read("call_started", cpu_throttled=told.s / 3, pids_max_hits=told.turns).ran(0)


def trial(part: Callable[[Scene], None], length: int) -> Assembly:
    told = Scene()
    for _ in range(length):
        part(told)
    return told.call(tools=0).end(1).assembly()


def bytecodes(assembly: Assembly) -> int:
    """How many the verdict takes."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        judge(assembly)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("part", [calm, struck, refused, throttled], ids=lambda part: part.__name__)
def test_three_times_the_steps_take_about_three_times_the_work(part: Callable[[Scene], None]) -> None:
    short, long = bytecodes(trial(part, SHORT)), bytecodes(trial(part, LONG))
    assert long / short < 1.3 * LONG / SHORT, f"{short} bytecodes became {long}"
