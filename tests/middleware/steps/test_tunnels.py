"""Opaque connections stand in the record by their start, and are no calls."""

from __future__ import annotations

from fairtrial.middleware.core.observations import DoorState, Observation, OpaqueConnection, TrialEnded, TrialStarted
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.steps.assembler import assemble

EPOCH_NS = 1_700_000_000 * 10**9


def test_connections_are_listed_by_their_start_and_the_model_api_is_not_said_to_be_watched() -> None:
    kept: list[Observation] = []
    source = Source("door.egress", kept.append, host=this_host(), trial="t")
    source.emit(TrialStarted(command=["x"], options={"via": "connect"}), wall_ns=EPOCH_NS, mono_ns=1)
    source.emit(DoorState(door="egress", name="connect"), wall_ns=EPOCH_NS, mono_ns=1)
    for host, started_s in (("second", 2), ("first", 1)):
        value = OpaqueConnection(host=host, port=443, ok=True, started_wall_ns=EPOCH_NS + started_s * 10**9, errno=104)
        source.emit(value, wall_ns=EPOCH_NS + 3 * 10**9, mono_ns=4)
    source.emit(TrialEnded(exit_code=1), wall_ns=EPOCH_NS + 4 * 10**9, mono_ns=5)
    trial = assemble(kept, "t").trial
    assert [one.host for one in trial.connections] == ["first", "second"]
    assert trial.connections[0].errno == "104"
    assert (trial.steps, trial.side_calls) == ([], [])
    family = trial.coverage.families["model_api"]
    assert (family.level, family.why) == ("none", "--via connect: connections are measured, calls are not read")
    assert trial.coverage.doors == {"egress.connect": "on"}
