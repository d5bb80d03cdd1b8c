"""Which observations bear on a trial."""

import msgspec

from fairtrial.middleware.core.observations import (
    HostCounters,
    Observation,
)
from fairtrial.middleware.core.records import Outcome
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.steps.assembler import assemble
from tests.middleware.steps.story import TRIAL, Story


def test_facts_of_the_whole_host_are_part_of_every_trial() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    host = Source("collector.vmstat", told.observations.append, host=told.observations[0].host)
    host.emit(HostCounters(oom_kill=3), wall_ns=told.wall(), mono_ns=1)
    assembly = assemble(told.end().observations, TRIAL)
    assert any(p.observation.kind == "host.counters" for p in assembly.placed)


def test_an_unknown_kind_of_a_newer_writer_is_skipped() -> None:
    told = Story().begin()
    told.attempt(turns=0)
    newer = msgspec.structs.replace(told.observations[-1], kind="container.teleported", seq=10_000)
    observations: list[Observation] = [*told.end().observations, newer]
    assert len(assemble(observations, TRIAL).trial.steps) == 1


def test_no_observations_are_an_incomplete_trial_and_no_error() -> None:
    trial = assemble([], TRIAL).trial
    assert (trial.closed, trial.steps, trial.outcome) == ("incomplete", [], Outcome.UNKNOWN)
    assert {family.level for family in trial.coverage.families.values()} == {"none"}
