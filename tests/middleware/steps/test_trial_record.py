"""The trial's own fields are what was seen and nothing else."""

import pytest

from fairtrial.middleware.core.observations import (
    MutationSeen,
)
from fairtrial.middleware.core.records import Outcome
from fairtrial.middleware.steps.assembler import assemble
from tests.middleware.steps.story import BOX, TRIAL, Story


@pytest.mark.parametrize(
    "exit_code, signal, outcome",
    [(0, None, Outcome.PASSED), (2, None, Outcome.FAILED), (None, 9, Outcome.FAILED), (None, None, Outcome.UNKNOWN)],
)
def test_the_outcome_is_what_the_exit_status_says(exit_code: int | None, signal: int | None, outcome: Outcome) -> None:
    trial = assemble(Story().begin().end(exit_code, signal).observations, TRIAL).trial
    assert trial.outcome is outcome
    assert trial.outcome_source == (None if outcome is Outcome.UNKNOWN else "exit_code")


def test_environment_limits_and_mutations_are_taken_from_what_was_seen() -> None:
    told = Story().begin(["claude", "-p", "x"]).box()
    change = MutationSeen(what="env ANTHROPIC_BASE_URL", old=None, new="http://127.0.0.1:1/t/x")
    told.tell(change)
    told.tell(change)
    trial = assemble(told.end().observations, TRIAL).trial
    assert trial.command == ["claude", "-p", "x"]
    assert trial.environment.runtime == "docker"
    assert trial.environment.container_ids == [BOX]
    assert trial.environment.hour_of_week is not None
    assert trial.limits.memory.ceiling == 64 << 20
    assert trial.limits.enforced_by == "docker"
    assert [m.what for m in trial.mutations] == ["env ANTHROPIC_BASE_URL"]
