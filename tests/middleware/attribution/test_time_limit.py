"""Which limit fired, and how it is known."""

import pytest

from fairtrial.middleware.attribution.case import Case
from fairtrial.middleware.attribution.time_limit import fired, named_early, timeout_of
from fairtrial.middleware.core.observations import TrialStarted
from tests.middleware.attribution.scene import Scene


@pytest.mark.parametrize(
    "command, length",
    [
        (["timeout", "60", "agent"], 60.0),
        (["/usr/bin/timeout", "-k", "5", "-s", "KILL", "--foreground", "1.5m", "agent", "-p"], 90.0),
        (["timeout", "--kill-after=5", "2h", "agent"], 7200.0),
        (["timeout", "0", "agent"], None),
        (["timeout", "soon", "agent"], None),
        (["timeout"], None),
        (["agent", "timeout", "60"], None),
        ([], None),
    ],
)
def test_a_timeout_in_the_command_is_read_as_timeout_reads_it(command: list[str], length: float | None) -> None:
    assert timeout_of(command) == length


def limited(length: str, *, lasted: float, code: int = 124) -> Scene:
    told = Scene().call().ran(0)
    first = next(o for o in told.observations if o.kind == TrialStarted.kind)
    first.value["command"] = ["timeout", length, "agent"]
    return told.waited(lasted - told.s).end(code)


@pytest.mark.parametrize(
    "lasted, code, known", [(60.05, 124, True), (60.05, 137, True), (60.05, 1, False), (20.0, 124, False)]
)
def test_it_fired_when_the_status_says_so_and_the_clock_agrees(lasted: float, code: int, known: bool) -> None:
    limit = fired(Case(limited("60", lasted=lasted, code=code).assembly()))
    assert (limit is not None) is known
    if limit is not None:
        assert (limit.limit_s, limit.source) == (60.0, "timeout(1) in the command")
        assert limit.elapsed_s == pytest.approx(lasted, abs=0.01)


def test_a_trial_without_a_limit_has_none_that_fired() -> None:
    case = Case(Scene().call().ran(0).end(124).assembly())
    assert (fired(case), named_early(case)) == (None, None)
