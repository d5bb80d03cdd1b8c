"""The numbers of ours that a verdict may lean on: documented, printed with every verdict, changeable.

In: a mapping of names to numbers (`show --replay --set k=v`).  Out: a frozen `Thresholds`.
The shape stands in `core/config/`, since they are settings (`[verdict]`).  What this module does not do: read files
or the environment.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping

from fairtrial.middleware.core.config import Thresholds
from fairtrial.middleware.core.errors import ConfigError

__all__ = ["DEFAULT_THRESHOLDS", "Thresholds", "as_record", "load", "thresholds_of"]

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


def thresholds_of(record: Mapping[str, float]) -> Thresholds:
    """Those of a stored verdict; what it does not know, or no version knows any more, is as by default."""
    known = {field.name for field in dataclasses.fields(Thresholds)}
    return dataclasses.replace(DEFAULT_THRESHOLDS, **{n: v for n, v in record.items() if n in known})


def as_record(thresholds: Thresholds) -> dict[str, float]:
    """Name to number, as the verdict prints them."""
    return {field.name: float(getattr(thresholds, field.name)) for field in dataclasses.fields(Thresholds)}
