"""What is unfair about a declaration is said, with what to write; what is fair is not."""

from __future__ import annotations

import pytest

from fairtrial.middleware.doctor.declared import Declared, all_flags, headroom, summary

GIB = 1 << 30


def flags(**declared: object) -> str:
    whole: dict[str, object] = {
        "name": "x",
        "memory_floor": GIB,
        "memory_ceiling": 3 * GIB,
        "cpu_floor": 1.0,
        "cpu_ceiling": 2.0,
    }
    return " | ".join(flag.text for flag in all_flags(Declared(**(whole | declared))))  # type: ignore[arg-type]


def test_floor_below_ceiling_without_swap_and_with_a_time_limit_has_no_flag() -> None:
    assert flags(times={"agent": 900.0}, swap=0) == ""


@pytest.mark.parametrize(
    "declared, words",
    [
        ({"memory_ceiling": GIB}, "floor = ceiling = 1.0 GiB"),
        ({"memory_ceiling": None}, "no memory limit"),
        ({"swap": 3 * GIB}, "the ceiling is 3.0 GiB on one host and 6.0 GiB"),
        ({"swap": -1}, "swap without limit"),
        ({"cpu_ceiling": None}, "no CPU limit"),
        ({"cpu_ceiling": 1.0}, "CPU: floor = ceiling = 1"),
        ({"times": {"agent": None}}, "no time limit (agent)"),
    ],
)
def test_each_unfairness_is_one_flag(declared: dict[str, object], words: str) -> None:
    said = flags(**declared)
    assert words in said
    assert "|" not in said


def test_what_a_file_cannot_declare_is_not_missed() -> None:
    assert flags(limited=False, memory_ceiling=None, cpu_ceiling=None) == ""


def test_the_line_has_floor_ceiling_headroom_and_times() -> None:
    declared = Declared(name="x", memory_floor=GIB, memory_ceiling=3 * GIB, cpu_ceiling=1.5, times={"agent": 900.0})
    assert summary(declared) == (
        "memory: floor 1.0 GiB, ceiling 3.0 GiB, headroom 3 x; CPU: floor not guaranteed, ceiling 1.5; agent 15 min 0 s"
    )
    assert headroom(None, 3.0) is None
