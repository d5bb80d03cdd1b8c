"""JSON as most clients take it: what a strict reader refuses is tidied up, or loses the field that is not as promised.

In: a body that a typed decoder refused.  Out: the same value as strict JSON, or without one field.  Clients read with
readers that take lone surrogates (a cut emoji), a byte order mark, NaN, numbers as text; what only our reader refuses
is no fault of the sender.  What this module does not do: read a body's meaning (`dialects/`).
"""

from __future__ import annotations

import json
import math
import re
from typing import Final

import msgspec

MAX_DROPPED: Final = 16
"""Fields that one body may lose; a body with more that is not as promised is not of this API."""

_PATH: Final = re.compile(r"at `(\$[^`]*)`")
_HARMLESS: Final = ("$.usage", "$.id", "$.model", "$.created", "$.object")


def tidied(body: bytes) -> bytes | None:
    """The body as strict JSON in UTF-8, None when it is no JSON to lenient readers either."""
    try:
        value = json.loads(body.decode("utf-8-sig", "replace"), parse_constant=lambda _: None, parse_float=_finite)
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return None


def _finite(text: str) -> float | None:
    """1e999 is infinite to lenient readers, and strict JSON has no word for that."""
    value = float(text)
    return value if math.isfinite(value) else None


def refused_field(error: msgspec.ValidationError) -> str | None:
    """The place of the field that was not as promised: `$.usage.input_tokens`, `$.content[...].input`."""
    found = _PATH.search(str(error))
    return None if found is None or "." not in found.group(1) else found.group(1)


def without(body: bytes, field: str) -> bytes | None:
    """Strict JSON without that field, in every item of the lists on its way; None when nothing was there to drop."""
    value: object = msgspec.json.decode(body)
    steps = re.findall(r"\.([^.\[\]]+)|\[", field)
    return msgspec.json.encode(value) if _drop(value, steps) else None


def harmless(field: str) -> bool:
    """Whether a reply without the field still tells all that a verdict needs."""
    return field.startswith(_HARMLESS)


def is_answer(body: bytes) -> bool:
    """An object without an error in it."""
    value: object = msgspec.json.decode(body)
    return isinstance(value, dict) and not value.get("error")


def _drop(value: object, steps: list[str]) -> bool:
    """`steps`: names of fields, "" for all items of a list."""
    if not steps:
        return False
    first, rest = steps[0], steps[1:]
    if first == "":
        return isinstance(value, list) and sum(_drop(item, rest) for item in value) > 0
    if not isinstance(value, dict) or first not in value:
        return False
    if not rest or set(rest) == {""}:
        del value[first]
        return True
    return _drop(value[first], rest)
