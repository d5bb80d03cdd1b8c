"""Every kind of observation can be read back, and a reader skips what it does not know."""

from __future__ import annotations

import importlib
import pkgutil
from typing import get_args

import msgspec
import pytest

from fairtrial.middleware.core import observations
from fairtrial.middleware.core.observations import VALUES, Observation, Value, decode, encode_value


def observation(kind: str, value: dict[str, object]) -> Observation:
    return Observation(
        id="o1", source="test", source_id="s1", seq=1, wall_ns=1, mono_ns=1, kind=kind, value=value
    )  # fmt: skip


def sample(wanted: object) -> object:
    first = next(iter(get_args(wanted)), None)
    plain: dict[object, object] = {str: "x", int: 3, float: 0.5, bool: True}
    return first if isinstance(first, str) else plain.get(wanted, {})


def structs() -> list[type[Value]]:
    found = dict[str, type[Value]]()
    for module in pkgutil.iter_modules(observations.__path__):
        names = vars(importlib.import_module(f"{observations.__name__}.{module.name}"))
        found |= {name: v for name, v in names.items() if isinstance(v, type) and issubclass(v, Value) and v.kind}
    return list(found.values())


def test_every_value_of_the_package_is_known_to_the_reader_under_a_kind_of_its_own() -> None:
    assert {value.kind: value for value in structs()} == VALUES
    assert len(structs()) == len(VALUES)


@pytest.mark.parametrize("value_type", VALUES.values(), ids=VALUES)
def test_a_value_with_nothing_observed_comes_back_as_it_was(value_type: type[Value]) -> None:
    required = {field.name: sample(field.type) for field in msgspec.structs.fields(value_type) if field.required}
    value = msgspec.convert(required, value_type)

    assert decode(observation(value_type.kind, encode_value(value))) == value


def test_a_kind_and_a_shape_of_a_newer_writer_are_none() -> None:
    assert decode(observation("from.the.future", {})) is None
    assert decode(observation("cgroup.oom_kill", {"container_id": "c", "delta": "many"})) is None
