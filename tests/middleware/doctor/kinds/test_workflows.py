"""Workflows: limits in time of jobs, and what `container.options` gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.middleware.doctor.kinds.read import declared, flags

GIB = 1 << 30


def test_a_job_without_a_limit_has_githubs_six_hours(tmp_path: Path) -> None:
    (one,) = declared(tmp_path, "on: push\njobs: {a: {runs-on: x, steps: []}}")
    assert dict(one.times) == {"job": 21600.0}
    assert "no timeout-minutes: 6 h" in flags(one)
    assert "memory" not in flags(one)


def test_a_job_and_its_steps_have_the_limits_that_are_written(tmp_path: Path) -> None:
    text = "on: push\njobs: {a: {timeout-minutes: 30, steps: [{name: agent, timeout-minutes: 20}]}}"
    (one,) = declared(tmp_path, text)
    assert (dict(one.times), flags(one)) == ({"job": 1800.0, "step agent": 1200.0}, "")


@pytest.mark.parametrize("options", ["--memory 2g --memory-swap=2g --cpus 2", "-m 2g --memory-swap 2g --cpus=2"])
def test_the_limits_of_a_container_job_are_its_options(tmp_path: Path, options: str) -> None:
    text = f"on: push\njobs: {{a: {{timeout-minutes: 5, container: {{image: x, options: '{options}'}}}}}}"
    (one,) = declared(tmp_path, text)
    assert (one.memory_ceiling, one.swap, one.cpu_ceiling) == (2 * GIB, 0, 2.0)


def test_a_container_job_without_options_has_no_limit(tmp_path: Path) -> None:
    (one,) = declared(tmp_path, "on: push\njobs: {a: {timeout-minutes: 5, container: {image: x}}}")
    assert "no memory limit" in flags(one)


def test_a_called_workflow_and_an_expression_are_said_to_be_elsewhere(tmp_path: Path) -> None:
    text = "on: push\njobs: {a: {uses: ./b.yml}, c: {timeout-minutes: '${{ inputs.x }}'}}"
    called, later = declared(tmp_path, text)
    assert "its limits stand there" in flags(called)
    assert "known only when it runs" in flags(later)


@pytest.mark.parametrize("text, seconds", [("3h 30m", 12600), ("90 minutes", 5400), ("2 hours", 7200), ("60", 60)])
def test_gitlabs_durations(tmp_path: Path, text: str, seconds: float) -> None:
    (one,) = declared(tmp_path, f"job: {{script: [x], timeout: {text}}}", ".gitlab-ci.yml")
    assert dict(one.times) == {"job": seconds}


def test_a_gitlab_job_takes_the_default_or_is_flagged(tmp_path: Path) -> None:
    (one,) = declared(tmp_path, "default: {timeout: 1h}\njob: {script: [x]}", ".gitlab-ci.yml")
    assert dict(one.times) == {"job": 3600.0}
    (one,) = declared(tmp_path, "job: {script: [x]}", ".gitlab-ci.yml")
    assert "no timeout" in flags(one)
