"""The observation itself, and what all its values share.

In: nothing.  Out: `Observation`, and `Value`, the base of the typed values beside this module.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import ClassVar

from fairtrial.middleware.core.records import PhaseName, Record, Trust


class Host(Record, frozen=True, kw_only=True):
    """The machine whose clock stamped the observation."""

    name: str | None = None
    boot_id: str | None = None


class Subject(Record, frozen=True, kw_only=True):
    """What the observation is about; all optional, nothing joins by container *name*."""

    trial: str | None = None
    call: str | None = None
    exec: str | None = None
    container_id: str | None = None
    pod_uid: str | None = None
    cgroup: str | None = None
    pid: int | None = None
    node: str | None = None


class Observation(Record, frozen=True, kw_only=True):
    """A fact with a time, a source and a trust.

    `wall_ns`: ns since the Unix epoch; `mono_ns`: CLOCK_MONOTONIC of `host` (order within one host);
    `uncertainty_s`: the fact happened within wall ± this.  `value` is the kind's struct as plain JSON types.
    """

    id: str
    source: str
    source_id: str
    seq: int
    host: Host = Host()
    subject: Subject = Subject()
    phase: PhaseName | None = None
    wall_ns: int
    mono_ns: int
    uncertainty_s: float = 0.0
    trust: Trust = Trust.HOST
    kind: str
    value: dict[str, object]


class Value(Record, frozen=True, kw_only=True):
    """Base of the typed values; `kind` names the observation kind it belongs to."""

    kind: ClassVar[str] = ""
