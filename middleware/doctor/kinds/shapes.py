"""Documents that may hold anything -> the shapes that a reader wants, or a sentence.

In: what a YAML or TOML parser gave.  Out: mappings, lists, texts.  Raises `Unreadable` that names the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from fairtrial.middleware.doctor.quantities import Unknown, Unreadable

T = TypeVar("T")


def mapping(value: object, where: str) -> Mapping[str, Any]:
    """A mapping; nothing at all counts as an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Unreadable(f"{where} is no table but {_kind(value)}")
    return cast("Mapping[str, Any]", value)


def table_of(document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The mapping at a path of keys; {} where it ends early."""
    found: Mapping[str, Any] = document
    for depth, key in enumerate(path, 1):
        found = mapping(found.get(key), ".".join(path[:depth]))
    return found


def rows(value: object, where: str) -> list[Mapping[str, Any]]:
    """A list of mappings; nothing at all counts as an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unreadable(f"{where} is no list but {_kind(value)}")
    return [mapping(one, f"{where}[{index}]") for index, one in enumerate(cast("list[object]", value))]


def amount(table: Mapping[str, Any], key: str, where: str, read: Callable[[object], T]) -> T | None:
    """The amount under a key, None where there is none; the place is named when it is none."""
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, str) and "$" in value:
        raise Unknown(f"{where}.{key} is {value}: known only when it runs")
    try:
        return read(value)
    except ValueError as error:
        raise Unreadable(f"{where}.{key}: {error}") from None


def _kind(value: object) -> str:
    kinds = {"str": "a text", "list": "a list", "bool": "true or false", "int": "a number", "float": "a number"}
    name = type(value).__name__
    return kinds.get(name, name)
