"""Amounts as files write them -> bytes, cores, seconds.

In: a scalar of YAML or TOML.  Out: a number.  Raises `Unreadable` with the sentence to print.  The dialects differ:
Docker's `g` is 1024³ and so is its `gb`; Kubernetes' `G` is 1000³ and only `Gi` is 1024³.

**Source:** compose specification (byte values, durations); Kubernetes' `resource.Quantity`.
"""

from __future__ import annotations

import math
import re
from typing import Final

_DOCKER_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_KUBERNETES_UNITS: Final = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": float(1 << 10),
    "Mi": float(1 << 20),
    "Gi": float(1 << 30),
    "Ti": float(1 << 40),
    "Pi": float(1 << 50),
    "Ei": float(1 << 60),
}
_NUMBER: Final = r"([+-]?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h)")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class Unreadable(ValueError):
    """A part of a file is not what it should be; the message is for people and names the place."""


class Unknown(Unreadable):
    """What a variable or an expression holds: known only when it runs, and no fault of the file."""


def docker_bytes(value: object) -> int:
    """`512m`, `1.5gb`, 1073741824; `-1` stays -1 (no limit)."""
    found = re.fullmatch(rf"{_NUMBER}\s*([bkmgt]?)b?", str(value).strip().lower())
    if isinstance(value, bool) or found is None:
        raise Unreadable(f"{value!r} is no size such as 512m or 2g")
    return int(_finite(float(found[1]) * _DOCKER_UNITS[found[2]], value))


def kubernetes_quantity(value: object) -> float:
    """`500m`, `2Gi`, 4."""
    found = re.fullmatch(rf"{_NUMBER}([A-Za-z]*)", str(value).strip())
    if isinstance(value, bool) or found is None or found[2] not in _KUBERNETES_UNITS:
        raise Unreadable(f"{value!r} is no quantity such as 500m or 2Gi")
    return _finite(float(found[1]) * _KUBERNETES_UNITS[found[2]], value)


def number(value: object) -> float:
    """A plain number, also as a text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unreadable(f"{value!r} is no number")
    try:
        return _finite(float(value), value)
    except (ValueError, OverflowError):
        raise Unreadable(f"{value!r} is no number") from None


def duration_s(value: object) -> float:
    """`1m30s` of a compose file; a plain number is seconds."""
    text = str(value).strip()
    parts = _DURATION.findall(text)
    if parts and "".join(f"{amount}{unit}" for amount, unit in parts) == text:
        return _finite(sum(float(amount) * _SECONDS[unit] for amount, unit in parts), value)
    return number(value)


def _finite(amount: float, value: object) -> float:
    if not math.isfinite(amount):
        raise Unreadable(f"{value!r} is no number")
    return amount
