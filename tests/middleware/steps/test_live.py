"""Progress follows the assembler's steps as far as one can see without looking ahead."""

from fairtrial.middleware.steps.assembler import assemble
from fairtrial.middleware.steps.live import LiveTrial
from tests.middleware.steps.story import TRIAL, Story


def test_steps_and_open_attempts_are_counted_as_they_come() -> None:
    told = Story().begin().box()
    told.attempt(turns=0, outcome="error")
    told.attempt(turns=0)
    told.attempt(turns=0, operation="count_tokens", body_digest="c")
    told.attempt(turns=1)
    told.attempt(turns=2, has_tools=False, body_digest="title")
    told.attempt(turns=2, started_only=True)
    live = LiveTrial()
    moves = [live.take(o) for o in told.observations]
    assert (live.step, live.open_attempts, sum(moves)) == (3, 1, 3)
    assert live.step == len(assemble(told.observations, TRIAL).trial.steps)


def test_a_repeated_delivery_changes_nothing() -> None:
    told = Story()
    told.attempt(turns=0)
    live = LiveTrial()
    for o in [*told.observations, *told.observations]:
        live.take(o)
    assert (live.step, live.open_attempts) == (1, 0)
