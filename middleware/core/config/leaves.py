"""The leaves of the tree by their dotted keys: what kind each is, what it holds, and how they are shown and written.

In: a `Config`.  Out: `describe` for a person, `to_tree` for another process, and the table of what may be set, which
`loading.py` checks by.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import get_type_hints

from fairtrial.middleware.core.config.tree import Config
from fairtrial.middleware.core.masking import mask_value

Leaf = str | int | float | bool | dict[str, str] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One leaf of the tree, for printing: `value` is masked where it may hold a secret; `source` None: the default."""

    key: str
    value: Leaf
    source: str | None
    doc: str


@dataclasses.dataclass(frozen=True, slots=True)
class Effective:
    """Settings and, for each key that was given, where it came from: a file, a variable, the command line."""

    config: Config
    sources: dict[str, str]


def describe(effective: Effective) -> list[Setting]:
    """Every leaf in the order of the tree, secrets masked, for `config show`."""
    fields = known_fields()
    return [
        Setting(key, mask(key, value), effective.sources.get(key), fields[key].doc)
        for key, value in leaves(effective.config)
    ]


def to_tree(config: Config) -> dict[str, object]:
    """The settings as plain tables, unmasked, such that `load(to_tree(c), {}, {}) == c`; None leaves are left out."""
    tree: dict[str, object] = {}
    for key, value in leaves(config):
        if value is None:
            continue
        section, _, leaf = key.rpartition(".")
        if not section:
            tree[leaf] = value
            continue
        table = tree.setdefault(section, {})
        assert isinstance(table, dict)
        table[leaf] = value
    return tree


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """What a leaf may hold; `optional`: None as well."""

    kind: type
    optional: bool
    doc: str


def _leaf_fields(cls: type, prefix: str) -> Iterator[tuple[str, Field]]:
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        key = prefix + field.name
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            yield from _leaf_fields(hint, key + ".")
            continue
        optional = hint == str | None
        kind = str if optional else getattr(hint, "__origin__", hint)
        yield key, Field(kind, optional, str(field.metadata["doc"]))


@functools.cache
def known_fields() -> dict[str, Field]:
    """Every leaf by its dotted key.  Made when first asked for: a run without settings does not pay for it."""
    return dict(_leaf_fields(Config, ""))


@functools.cache
def known_sections() -> frozenset[str]:
    """The tables of the tree."""
    return frozenset(key.split(".")[0] for key in known_fields() if "." in key)


def leaves(config: Config) -> Iterator[tuple[str, Leaf]]:
    """Every leaf's dotted key and its value, in the order of the tree."""
    for key in known_fields():
        value: object = config
        for part in key.split("."):
            value = getattr(value, part)
        assert value is None or isinstance(value, str | int | float | bool | dict)
        yield key, value


def mask(key: str, value: Leaf) -> Leaf:
    """The value without the secrets in it."""
    if isinstance(value, dict):
        return {name: mask_value(f"{key}.{name}", item) for name, item in value.items()}
    if isinstance(value, str):
        return mask_value(key, value)
    return value
