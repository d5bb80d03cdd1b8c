"""Harbor: a task's one number is a ceiling here and a floor there; a job may say which."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.middleware.doctor.kinds.read import declared, flags

GIB = 1 << 30
TASK = "[agent]\ntimeout_sec = 900.0\n[verifier]\ntimeout_sec = 120.0\n[environment]\ncpus = 2\n"


@pytest.mark.parametrize("size", ["memory_mb = 2048", 'memory = "2G"'])
def test_a_task_has_its_size_in_both_spellings_and_its_times(tmp_path: Path, size: str) -> None:
    (one,) = declared(tmp_path, f"{TASK}{size}\n", "task.toml")
    assert (one.memory_ceiling, one.cpu_ceiling) == (2 * GIB, 2.0)
    assert dict(one.times) == {"agent": 900.0, "verifier": 120.0, "build": 600.0}
    assert "`auto` is a limit (kill ceiling) on boxd, docker" in flags(one)
    assert "the declared size is the kill ceiling" in flags(one)
    assert "swap: up to 2.0 GiB more" in flags(one)


def test_a_task_without_anything_has_no_limits_at_all(tmp_path: Path) -> None:
    (one,) = declared(tmp_path, "[metadata]\nauthor = 'x'\n", "task.toml")
    assert "no memory limit" in flags(one)
    assert "no time limit (agent)" in flags(one)
    assert "auto" not in flags(one)


def test_steps_with_limits_of_their_own_are_told_apart(tmp_path: Path) -> None:
    text = f"{TASK}[[steps]]\nname = 'one'\n[steps.agent]\ntimeout_sec = 60\n[[steps]]\nname = 'two'\n"
    assert [(one.name, one.times["agent"]) for one in declared(tmp_path, text, "task.toml")] == [
        ("task", 900.0),
        ("one", 60.0),
    ]


@pytest.mark.parametrize(
    "environment, floor, ceiling, words",
    [
        ("type: docker", None, 4 * GIB, "on docker it is a limit"),
        ("type: gke", 4 * GIB, None, "on gke it is a request"),
        ("type: elsewhere", None, None, "on elsewhere it is not known"),
        (
            "type: docker, memory_enforcement_policy: guarantee, cpu_enforcement_policy: limit",
            4 * GIB,
            4 * GIB,
            "floor = ",
        ),
    ],
)
def test_a_jobs_policy_says_what_the_size_means(
    tmp_path: Path, environment: str, floor: int | None, ceiling: int | None, words: str
) -> None:
    text = f"agents: [x]\ntasks: [y]\nenvironment: {{{environment}, override_memory_mb: 4096}}\n"
    (one,) = declared(tmp_path, text)
    assert (one.memory_floor, one.memory_ceiling) == (floor, ceiling)
    assert words in flags(one)


def test_a_multiplier_of_time_is_flagged(tmp_path: Path) -> None:
    (one,) = declared(tmp_path, "agents: [x]\ndatasets: [y]\ntimeout_multiplier: 2\n")
    assert "timeout_multiplier 2" in flags(one)
