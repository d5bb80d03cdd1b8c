"""`fairtrial.observation/1`: the one thing that collectors and doors write, and the values it may carry.

In: facts as their sources saw them.  Out: typed records that are stored append-only, idempotent by
(source_id, seq), and from which steps and verdicts are computed.  Nothing here judges.

Every kind is one `Value` struct below; `decode` turns a stored observation back into it and gives None for a
kind that this version does not know (a newer writer), which consumers must skip.
Durations are seconds, sizes bytes, `None` is *not observed*.  **Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import Final

import msgspec

from fairtrial.middleware.core.observations.base import Host, Observation, Subject, Value
from fairtrial.middleware.core.observations.cgroup import (
    CgroupReading,
    DiskFull,
    FdLimit,
    HostCounters,
    KernelOomKill,
    OomKill,
    PidsHit,
)
from fairtrial.middleware.core.observations.container import (
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    ExecEnded,
    ExecStarted,
    RuntimeState,
)
from fairtrial.middleware.core.observations.docker_door import DoorContainer, DoorExec, DoorImage
from fairtrial.middleware.core.observations.harness import BookedError, BookedPhase, HarnessOutcome
from fairtrial.middleware.core.observations.model_door import (
    AttemptEnded,
    AttemptStarted,
    DoorState,
    OpaqueConnection,
    ReplyFacts,
    RequestFacts,
    Sender,
    ToolUse,
)
from fairtrial.middleware.core.observations.trial import (
    CoverageChanged,
    GapSeen,
    MutationSeen,
    Note,
    TrialEnded,
    TrialStarted,
)

OBSERVATION_SCHEMA: Final = "fairtrial.observation/1"

VALUES: Final[dict[str, type[Value]]] = {
    v.kind: v
    for v in (
        TrialStarted,
        TrialEnded,
        MutationSeen,
        Note,
        CoverageChanged,
        GapSeen,
        DoorState,
        AttemptStarted,
        AttemptEnded,
        OpaqueConnection,
        ContainerSeen,
        ContainerEvent,
        ExecStarted,
        ExecEnded,
        DoorExec,
        DoorContainer,
        CgroupReading,
        OomKill,
        PidsHit,
        DiskFull,
        FdLimit,
        KernelOomKill,
        ContainerGone,
        RuntimeState,
        DoorImage,
        HostCounters,
        HarnessOutcome,
    )
}


def decode(observation: Observation) -> Value | None:
    """The typed value, or None for a kind or a shape that this version does not know."""
    value_type = VALUES.get(observation.kind)
    if value_type is None:
        return None
    try:
        return msgspec.convert(observation.value, value_type)
    except msgspec.ValidationError:
        return None


def encode_value(value: Value) -> dict[str, object]:
    """The value as plain JSON types with unobserved fields left out (a missing field reads as None)."""
    built = msgspec.to_builtins(value)
    return {k: v for k, v in built.items() if v is not None and v not in ([], {})}


__all__ = [
    "OBSERVATION_SCHEMA",
    "VALUES",
    "AttemptEnded",
    "AttemptStarted",
    "BookedError",
    "BookedPhase",
    "CgroupReading",
    "ContainerEvent",
    "ContainerGone",
    "ContainerSeen",
    "CoverageChanged",
    "DiskFull",
    "DoorContainer",
    "DoorExec",
    "DoorImage",
    "DoorState",
    "ExecEnded",
    "ExecStarted",
    "FdLimit",
    "GapSeen",
    "HarnessOutcome",
    "Host",
    "HostCounters",
    "KernelOomKill",
    "MutationSeen",
    "Note",
    "Observation",
    "OomKill",
    "OpaqueConnection",
    "PidsHit",
    "ReplyFacts",
    "RequestFacts",
    "RuntimeState",
    "Sender",
    "Subject",
    "ToolUse",
    "TrialEnded",
    "TrialStarted",
    "Value",
    "decode",
    "encode_value",
]
