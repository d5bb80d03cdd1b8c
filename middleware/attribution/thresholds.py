"""The numbers of ours that a verdict may lean on: documented, printed with every verdict, changeable.

In: a mapping of names to numbers (`show --replay --set k=v`).  Out: a frozen `Thresholds`.
`terminated_by` uses none of them.  What this module does not do: read files or the environment.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass

from fairtrial.middleware.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Each leaf: a default, a unit in its name, and what it decides."""

    headroom_k: float = 3.0
    """Demand up to this many times the declared memory is the limit's fault, above it the model's (the post's 3x)."""

    watchdog_unknown_s: float = 90.0
    """How long a client that is not in the table of known clients waits on a silent stream before giving up, s."""

    stall_s: float = 90.0
    """A silence of the upstream (pings count as bytes) at least this long is charged to it in the ledger, s."""

    lag_share: float = 0.5
    """Part of a client's wait that our own relay must have caused for the abort to be `observer.lag`."""

    lag_s: float = 1.0
    """Lag of our own relay below this is never a reason, s."""

    box_full_share: float = 0.8
    """A container whose undying pages (shmem, tmpfs) fill at least this part of its limit at a step's start had no
    memory for that step."""

    end_grace_s: float = 2.0
    """Two things this close together are taken for one: a client's abort and its own end, a source's end and the
    trial's, s."""

    late_evidence_s: float = 5.0
    """How long after the end late evidence is waited for before a verdict counts as final, s."""


DEFAULT_THRESHOLDS = Thresholds()


def load(changes: Mapping[str, float], base: Thresholds = DEFAULT_THRESHOLDS) -> Thresholds:
    """`base` with some numbers changed.

    Raises `ConfigError` for an unknown name (and names the nearest) or for a number that is negative or not finite.
    """
    known = [field.name for field in dataclasses.fields(Thresholds)]
    for name, value in changes.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = f"Did you mean {near[0]}?" if near else f"Known names: {', '.join(known)}."
            raise ConfigError(f"No threshold is called {name!r}.", remedy=meant, key=name)
        if not math.isfinite(value) or value < 0:
            raise ConfigError(f"The threshold {name} is {value}.", remedy="Give a number of 0 or more.", key=name)
    return dataclasses.replace(base, **changes)


def as_record(thresholds: Thresholds) -> dict[str, float]:
    """Name to number, as the verdict prints them."""
    return {field.name: float(getattr(thresholds, field.name)) for field in dataclasses.fields(Thresholds)}
