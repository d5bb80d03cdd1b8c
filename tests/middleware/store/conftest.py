"""Observations and trials for the store's tests, in the shapes that the observer writes."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from fairtrial.middleware.core.observations import Host, Observation, Subject
from fairtrial.middleware.core.records import Blame, Outcome, Trial, Verdict
from fairtrial.middleware.core.selfevents import Journal

TRIAL = "01930000-0000-7000-8000-00000000000a"


@pytest.fixture
def journal() -> Journal:
    return Journal(io.StringIO())


@pytest.fixture
def observation() -> Callable[..., Observation]:
    def make(seq: int, *, source_id: str = "door.model/1", trial: str | None = TRIAL) -> Observation:
        return Observation(
            id=f"01930000-0000-7000-8000-{seq:012x}",
            source="door.model",
            source_id=source_id,
            seq=seq,
            host=Host(name="node", boot_id="b"),
            subject=Subject(trial=trial),
            wall_ns=1_700_000_000_000_000_000 + seq,
            mono_ns=seq,
            kind="trial.note",
            value={"event": "x", "text": "y" * 50},
        )

    return make


@pytest.fixture
def closed_trial() -> Trial:
    return Trial(
        trial=TRIAL,
        name="one",
        run="nightly",
        started="2026-11-29T10:00:00.000000Z",
        ended="2026-11-29T10:00:05.000000Z",
        closed="normal",
        outcome=Outcome.FAILED,
        exit_code=1,
        verdict=Verdict(blame=Blame.MODEL, sentence="The task failed on its own."),
    )
