"""Settings as they were written -> a `Config`, each value checked; pure.

In: a TOML table, environment variables, overrides, in rising order of power.  Out: `Effective`: the settings and where
each came from.  What this module does not do: look for the file (`reading.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, get_type_hints

from fairtrial.middleware.core.config.leaves import Effective, Leaf, known_fields, known_sections, mask
from fairtrial.middleware.core.config.tree import Config
from fairtrial.middleware.core.errors import ConfigError

ENV_PREFIX: Final = "FAIRTRIAL_"
_SHORT: Final = {
    "FAIRTRIAL_STORE": "store.path",
    "FAIRTRIAL_RUNTIME_DIR": "relay.runtime_dir",
    "FAIRTRIAL_UPSTREAMS": "upstreams",
    "FAIRTRIAL_ROUTES": "routes",
}
_NO_SETTINGS: Final = ("FAIRTRIAL_CONFIG", "FAIRTRIAL_RUN", "FAIRTRIAL_TRIAL")
"""Names of ours in the environment that are no settings: where the file is, and what a command under `run` is told."""

Tree = Mapping[str, object]


def load(toml: Tree, environ: Mapping[str, str], overrides: Mapping[str, Leaf]) -> Config:
    """The effective settings.  `overrides`: dotted key -> value, None meaning *not given*.  Pure.

    Raises `ConfigError` for an unknown key, a value of the wrong kind, or a section that is not a table.
    """
    return merge(toml, environ, overrides, file="the file").config


def mistyped(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that looks like a misspelt one of ours; other FAIRTRIAL_ names may be anybody's."""
    known = (*_SHORT, *_NO_SETTINGS)
    sentences: list[str] = []
    for name in sorted(environ):
        if not name.startswith(ENV_PREFIX) or "__" in name or name in known:
            continue
        import difflib

        if near := difflib.get_close_matches(name, known, n=1, cutoff=0.9):
            sentences.append(f"{name} is no variable of fairtrial's and has no effect. Did you mean {near[0]}?")
    return sentences


def merge(toml: Tree, environ: Mapping[str, str], overrides: Mapping[str, Leaf], *, file: str) -> Effective:
    """As `load`, with the source of every setting that was given; `file` is what the table's are said to come from."""
    values: dict[str, Leaf] = {}
    _take_table(toml, "", values)
    sources = dict.fromkeys(values, file)
    for name in sorted(environ):
        key = _SHORT.get(name)
        if key is None and name.startswith(ENV_PREFIX) and "__" in name:
            key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
        if key is not None and environ[name] != "":
            values[key] = _convert(key, environ[name], source=name, from_text=True)
            sources[key] = name
    for key, value in overrides.items():
        if value is not None:
            values[key] = _convert(key, value, source="the command line", from_text=False)
            sources[key] = "the command line"
    return Effective(_build(values), sources)


def _take_table(table: Tree, prefix: str, values: dict[str, Leaf]) -> None:
    for name, value in table.items():
        key = prefix + name
        if not prefix and name in known_sections():
            if not isinstance(value, dict):
                raise ConfigError(
                    f"`{name}` is a section, not a value.", remedy=f"Write `[{name}]` and its keys below.", key=name
                )
            _take_table(value, name + ".", values)
        elif not prefix and isinstance(value, dict) and value and name not in known_fields():
            _take_table(value, name + ".", values)  # an unknown section: its first key names the nearest valid one
        else:
            values[key] = _convert(key, value, source=None, from_text=False)


def _convert(key: str, value: object, *, source: str | None, from_text: bool) -> Leaf:
    where = f" (from {source})" if source else ""
    if key not in known_fields():
        raise ConfigError(f"There is no setting `{key}`{where}.", remedy=_nearest(key), key=key, source=source)
    field = known_fields()[key]
    if field.kind is dict and not from_text:
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return {str(name): str(item) for name, item in value.items()}
    elif from_text and isinstance(value, str):
        try:
            return _from_text(field.kind, value)
        except ValueError:
            pass
    elif field.kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, field.kind) and (field.kind is bool or not isinstance(value, bool)):
        assert isinstance(value, str | int | float | bool)
        return value
    table = "NAME=TEXT, parted by spaces," if from_text else "a table of texts"
    wanted = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", dict: table}
    shown = mask(key, value if isinstance(value, str) else repr(value))
    raise ConfigError(
        f"`{key}`{where} is {shown!s}, but {wanted[field.kind]} is expected.",
        remedy=f"It means: {field.doc}",
        key=key,
        source=source,
    )


def _from_text(kind: type, text: str) -> Leaf:
    if kind is bool:
        if text.lower() in {"1", "true", "yes", "on"}:
            return True
        if text.lower() in {"0", "false", "no", "off"}:
            return False
        raise ValueError(text)
    if kind is int:
        return int(text)
    if kind is float:
        return float(text)
    if kind is dict:
        pairs = [word.partition("=") for word in text.split()]
        if not all(name and equals for name, equals, _ in pairs):
            raise ValueError(text)
        return {name: item for name, _, item in pairs}
    return text


def _nearest(key: str) -> str:
    import difflib

    candidates = difflib.get_close_matches(key, list(known_fields()), n=1, cutoff=0.5)
    if not candidates:
        leaf = key.rpartition(".")[2]
        by_leaf = {known.rpartition(".")[2]: known for known in known_fields()}
        candidates = [by_leaf[name] for name in difflib.get_close_matches(leaf, list(by_leaf), n=1, cutoff=0.6)]
    if candidates:
        return f"Did you mean `{candidates[0]}`? `fairtrial config show` lists all."
    return "`fairtrial config show` lists all settings."


def _build(values: Mapping[str, Leaf]) -> Config:
    if not values:
        return Config()
    hints = get_type_hints(Config)
    parts: dict[str, object] = {}
    for field in dataclasses.fields(Config):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)
            prefix = field.name + "."
            leaves = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
            parts[field.name] = hint(**leaves)
        elif field.name in values:
            parts[field.name] = values[field.name]
    return Config(**parts)  # type: ignore[arg-type]  # every value went through _convert
