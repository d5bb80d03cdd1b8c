"""The mechanism of the end, and *unknown* where only the harness could tell."""

from collections.abc import Callable

import pytest

from tests.middleware.attribution.scene import Scene, full_tmpfs, model_failed, storm


@pytest.mark.parametrize(
    "build, mechanism",
    [
        (model_failed, "agent.finished"),
        (storm, "agent.gave_up"),
        (full_tmpfs, "unknown"),
        (lambda: Scene().call().ran(0).end(0), "agent.finished"),
        (lambda: Scene().call().ran(137, oom=True).end(1), "agent.gave_up"),
        (lambda: Scene().call().ran(0).end(None, signal=11), "agent.crashed"),
        (lambda: Scene().call().ran(0).end(None, signal=9), "killed"),
        (lambda: Scene().call().ran(0).end(143), "killed"),
        (lambda: Scene().refused(401).end(1), "never_ran"),
        (lambda: Scene().call().ran(0).end(1), "unknown"),
        (lambda: Scene().call().ran(0), "unknown"),
        (lambda: Scene().call().ran(0).end(None), "unknown"),
    ],
)
def test_each_end_has_its_mechanism(build: Callable[[], Scene], mechanism: str) -> None:
    assert build().verdict().ended_as == mechanism
