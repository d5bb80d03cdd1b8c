"""The settings: one tree of frozen dataclasses, and a pure loader.

In: a TOML table, environment variables, and overrides from the command line, in rising order of power.  Out: a
`Config`.  `load` reads no file and no environment of its own; `read` is the thin part that does.  An unknown key
or a value of the wrong kind is a `ConfigError` that names the nearest valid key.

Where a setting may be written::

    [end]                              in $FAIRTRIAL_CONFIG, else $XDG_CONFIG_HOME/fairtrial/config.toml
    verdict_wait_s = 0.5
    FAIRTRIAL_END__VERDICT_WAIT_S=0.5  in the environment: section and key joined by two underscores
    FAIRTRIAL_SERVE__UPSTREAMS="anthropic=https://… openai=https://…"      a table: NAME=TEXT, parted by spaces

`FAIRTRIAL_STORE` and `FAIRTRIAL_RUNTIME_DIR` are short for `store.path` and `relay.runtime_dir`; `FAIRTRIAL_UPSTREAMS`
and `FAIRTRIAL_ROUTES` are the two keys without a section.  Every leaf has a default, its unit in its name, and a
sentence (`describe`).  Standard library only: the relay process loads this.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping
from typing import Final, get_type_hints

from fairtrial.middleware.core.errors import ConfigError
from fairtrial.middleware.core.masking import mask_value
from fairtrial.middleware.core.places import config_folder, state_folder

ENV_PREFIX: Final = "FAIRTRIAL_"
_SHORT: Final = {
    "FAIRTRIAL_STORE": "store.path",
    "FAIRTRIAL_RUNTIME_DIR": "relay.runtime_dir",
    "FAIRTRIAL_UPSTREAMS": "upstreams",
    "FAIRTRIAL_ROUTES": "routes",
}
_NO_SETTINGS: Final = ("FAIRTRIAL_CONFIG", "FAIRTRIAL_RUN", "FAIRTRIAL_TRIAL")
"""Names of ours in the environment that are no settings: where the file is, and what a command under `run` is told."""

Leaf = str | int | float | bool | dict[str, str] | None
Tree = Mapping[str, object]


def _doc(text: str) -> dict[str, object]:
    return {"doc": text}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where observations and verdicts are kept."""

    path: str | None = dataclasses.field(
        default=None, metadata=_doc("The SQLite file; unset: $XDG_STATE_HOME/fairtrial/store.db.")
    )
    keep_limit_bytes: int = dataclasses.field(
        default=256 << 20,
        metadata=_doc(
            "Files of attempts that a harness deletes, kept beside the store, bytes; full: the oldest go; 0: none."
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RelayConfig:
    """The process that the agent's traffic goes through."""

    runtime_dir: str | None = dataclasses.field(
        default=None,
        metadata=_doc(
            "Folder for sockets and the list of doors; unset: $XDG_RUNTIME_DIR/fairtrial, else /tmp/fairtrial-UID."
        ),
    )
    feed_limit_bytes: int = dataclasses.field(
        default=16 << 20,
        metadata=_doc("Copies waiting for the observer, bytes; what does not fit is dropped and counted."),
    )
    close_grace_s: float = dataclasses.field(
        default=0.02, metadata=_doc("How long open connections may end by themselves once the command is gone, s.")
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EndConfig:
    """How long the end of a run waits for its verdict, at most: usually it takes some milliseconds, and a verdict that
    is late on a busy machine is still what a person at a red run wants to read."""

    verdict_wait_s: float = dataclasses.field(
        default=1.0, metadata=_doc("Longest wait for the verdict when no container was watched, s.")
    )
    verdict_wait_containers_s: float = dataclasses.field(
        default=2.5, metadata=_doc("Longest wait for the verdict when a container was watched, s.")
    )
    verdict_wait_start_s: float = dataclasses.field(
        default=2.0,
        metadata=_doc("Longest wait when the command was over before the observer was up, or it was started again, s."),
    )
    verdict_wait_asked_s: float = dataclasses.field(
        default=10.0,
        metadata=_doc(
            "Longest wait with --gate or --json, where the answer is what the run is for, and after several trials, s."
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Defaults for options of `fairtrial run`."""

    adapt: bool = dataclasses.field(default=False, metadata=_doc("As --adapt."))
    require: bool = dataclasses.field(default=False, metadata=_doc("As --require."))
    docker: bool = dataclasses.field(
        default=True, metadata=_doc("Look for a Docker engine and watch this trial's containers.")
    )
    docker_door: bool = dataclasses.field(
        default=True,
        metadata=_doc(
            "Let the command reach that engine through a socket of ours, which sees its execs (DOCKER_HOST)."
        ),
    )
    bridge_door: bool = dataclasses.field(
        default=True,
        metadata=_doc(
            "Let agents in containers reach the model doors: they then listen on the engine's bridge too, and a door's "
            "URL in the Env of a container or an exec is rewritten."
        ),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """`fairtrial serve`: one door per upstream, for as long as the machine is up."""

    upstreams: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str], metadata=_doc("Name -> URL of a model API: a door each.")
    )
    address: str = dataclasses.field(
        default="127.0.0.1", metadata=_doc("Where doors listen that `serve.listen` does not name: an IP address.")
    )
    port: int = dataclasses.field(
        default=8790,
        metadata=_doc("Port of the first such door; the next ones follow in the order of `serve.upstreams`; 0: any."),
    )
    listen: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str],
        metadata=_doc("Name -> where its door listens, else than above: HOST:PORT or unix:/PATH."),
    )
    access_token: str | None = dataclasses.field(
        default=None, metadata=_doc("Secret that every request must bear: in its path (/t/SECRET/…) or a header.")
    )
    access_file: str | None = dataclasses.field(
        default=None, metadata=_doc("File that holds that secret, instead of the secret itself.")
    )
    unguarded: bool = dataclasses.field(
        default=False, metadata=_doc("Serve whoever reaches a door beyond loopback, without a secret (a closed pod).")
    )
    keys: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str],
        metadata=_doc("Trial's name -> API key: calls that bear this key and no name are that trial's."),
    )
    peers: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str],
        metadata=_doc("Trial's name -> IP address of its client, such as a container's, where nothing else tells."),
    )
    run: str | None = dataclasses.field(default=None, metadata=_doc("Name of the run that the trials belong to."))
    drain_s: float = dataclasses.field(
        default=30.0, metadata=_doc("After SIGTERM: how long open calls may go on before they are cut, s.")
    )
    flush_s: float = dataclasses.field(
        default=10.0, metadata=_doc("After that: how long verdicts and telemetry are waited for, s.")
    )
    idle_s: float = dataclasses.field(
        default=1800.0, metadata=_doc("A trial without a call for this long is closed, s.")
    )
    max_trials: int = dataclasses.field(
        default=2000, metadata=_doc("Open trials at most; beyond it the one that was idle longest is closed.")
    )
    health: str = dataclasses.field(
        default="127.0.0.1:8789",
        metadata=_doc("Where /healthz, /readyz and /startupz answer: HOST:PORT, or off."),
    )
    health_hosts: str = dataclasses.field(
        default="",
        metadata=_doc("Host names by which they and /metrics may be asked for, besides addresses and localhost."),
    )
    metrics: str = dataclasses.field(
        default="127.0.0.1:9464", metadata=_doc("Where /metrics answers Prometheus: HOST:PORT, or off.")
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyConfig:
    """What is kept of the content; nothing by default, secrets never."""

    content: bool = dataclasses.field(
        default=False,
        metadata=_doc("Keep the free text of command lines: a prompt given as an argument, commands in containers."),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExportConfig:
    """Traces, beside the `OTEL_…` variables (docs/telemetry.md)."""

    genai_names: str = dataclasses.field(
        default="newest",
        metadata=_doc("Which generation of the GenAI attribute names is written: newest, or 1.41."),
    )
    pending_limit_bytes: int = dataclasses.field(
        default=256 << 20,
        metadata=_doc("Spans that wait in the store for a collector, bytes; beyond it the oldest go and are counted."),
    )
    log: str | None = dataclasses.field(
        default=None,
        metadata=_doc("File that takes the JSON log, beside the store where it is relative; `-`: observer.log."),
    )
    wait_s: float = dataclasses.field(
        default=10.0, metadata=_doc("How long the observer of a run goes on sending after the verdict, at most, s.")
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The numbers of ours that a verdict may lean on: each is printed with the verdict that used it.

    `terminated_by` uses none of them, but for the client's watchdog, which tells a stall from an impatient client, and
    `slow_share`, which tells a command that was held up from one that met its limit in passing.
    """

    headroom_k: float = dataclasses.field(
        default=3.0,
        metadata=_doc("Demand up to this many times the declared memory is the limit's fault, above it the model's."),
    )
    watchdog_unknown_s: float = dataclasses.field(
        default=90.0,
        metadata=_doc("How long a client of unknown kind bears a silent stream before it gives up, s."),
    )
    stall_s: float = dataclasses.field(
        default=90.0,
        metadata=_doc("An upstream's silence (pings count as bytes) of at least this long is charged to it, s."),
    )
    quiet_s: float = dataclasses.field(
        default=2.0,
        metadata=_doc("A client that closes a reply with pings and no words for at least this long had a watchdog, s."),
    )
    storm_attempts: float = dataclasses.field(
        default=20.0,
        metadata=_doc("So many attempts that could not succeed, for one step, are a retry storm of the harness."),
    )
    together_p: float = dataclasses.field(
        default=0.01,
        metadata=_doc("Trials of one node, host or minute fail together below this p of Fisher's exact test."),
    )
    ledger_share: float = dataclasses.field(
        default=0.1,
        metadata=_doc("Outside time below this part of the limit that fired is not why it fired."),
    )
    lag_share: float = dataclasses.field(
        default=0.5,
        metadata=_doc("Part of a client's wait that our own relay must have caused for `observer.lag`."),
    )
    lag_s: float = dataclasses.field(
        default=1.0, metadata=_doc("Lag of our own relay below this is never a reason, s.")
    )
    box_full_share: float = dataclasses.field(
        default=0.8,
        metadata=_doc("A container has no memory for a step when undying pages fill this part of its limit before it."),
    )
    own_share: float = dataclasses.field(
        default=0.8,
        metadata=_doc("Part of a limit's fill (tasks, disk) from which on it is the model's."),
    )
    others_share: float = dataclasses.field(
        default=0.5,
        metadata=_doc("Part of a limit's fill that the trial must have less of for it to be the infrastructure's."),
    )
    slow_share: float = dataclasses.field(
        default=0.1,
        metadata=_doc("Part of a command's time that must be lost to a limit or a neighbour before it is told."),
    )
    end_grace_s: float = dataclasses.field(
        default=2.0,
        metadata=_doc("Two things this close are taken for one: a client's abort and its end, a source's and ours, s."),
    )
    late_evidence_s: float = dataclasses.field(
        default=5.0, metadata=_doc("How long after the end a verdict may still be revised by late evidence, s.")
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings.  `upstreams` and `routes` are as the options of `run`: provider -> URL, variable -> URL."""

    store: StoreConfig = dataclasses.field(default_factory=StoreConfig)
    relay: RelayConfig = dataclasses.field(default_factory=RelayConfig)
    end: EndConfig = dataclasses.field(default_factory=EndConfig)
    run: RunConfig = dataclasses.field(default_factory=RunConfig)
    serve: ServeConfig = dataclasses.field(default_factory=ServeConfig)
    privacy: PrivacyConfig = dataclasses.field(default_factory=PrivacyConfig)
    export: ExportConfig = dataclasses.field(default_factory=ExportConfig)
    verdict: Thresholds = dataclasses.field(default_factory=Thresholds)
    upstreams: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str], metadata=_doc("Provider -> URL, as --upstream NAME=URL.")
    )
    routes: dict[str, str] = dataclasses.field(
        default_factory=dict[str, str], metadata=_doc("Variable -> URL, as --route VAR=URL.")
    )


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


def load(toml: Tree, environ: Mapping[str, str], overrides: Mapping[str, Leaf]) -> Config:
    """The effective settings.  `overrides`: dotted key -> value, None meaning *not given*.  Pure.

    Raises `ConfigError` for an unknown key, a value of the wrong kind, or a section that is not a table.
    """
    return _merge(toml, environ, overrides, file="the file").config


def config_path(environ: Mapping[str, str]) -> str:
    """The file that `read` looks at: `$FAIRTRIAL_CONFIG`, else `$XDG_CONFIG_HOME/fairtrial/config.toml`."""
    if chosen := environ.get("FAIRTRIAL_CONFIG"):
        return chosen
    return os.path.join(config_folder(environ), "config.toml")


def read(environ: Mapping[str, str], overrides: Mapping[str, Leaf]) -> Config:
    """`load` with the file of `config_path`; a file that is not there is empty, unless `$FAIRTRIAL_CONFIG` names it."""
    return read_sources(environ, overrides).config


def read_sources(environ: Mapping[str, str], overrides: Mapping[str, Leaf]) -> Effective:
    """As `read`, with the source of every setting that was given."""
    path = config_path(environ)
    toml: dict[str, object] = {}
    try:
        with open(path, "rb") as file:
            import tomllib

            toml = tomllib.load(file)
    except FileNotFoundError:
        if environ.get("FAIRTRIAL_CONFIG"):
            raise ConfigError(
                f"The configuration file {path} does not exist.",
                remedy="Correct --config or FAIRTRIAL_CONFIG, or leave it out.",
                source=path,
            ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The configuration file {path} cannot be read: {error}.",
            remedy="Correct the file, or point FAIRTRIAL_CONFIG at another one.",
            source=path,
        ) from error
    try:
        return _merge(toml, environ, overrides, file=path)
    except ConfigError as error:
        if error.source is None:
            error.source = path
            error.what = f"In {path}: {error.what}"
        raise


def store_path(config: Config, environ: Mapping[str, str], cwd: str) -> str:
    """The store's file as an absolute path.  Raises `ConfigError` for one that is no UTF-8: it is told as text."""
    path = os.path.join(cwd, config.store.path or os.path.join(state_folder(environ), "store.db"))
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"The store's path {path!r} holds bytes that are no UTF-8.", remedy="Name another store with --store PATH."
        ) from None
    return path


def store_file(environ: Mapping[str, str], chosen: str | None = None) -> str:
    """The store that is meant: `chosen` (--store), else the settings', else the default.  Raises `ConfigError`."""
    return store_path(read(environ, {"store.path": chosen}), environ, os.getcwd())


def describe(effective: Effective) -> list[Setting]:
    """Every leaf in the order of the tree, secrets masked, for `config show`."""
    fields = _fields()
    return [
        Setting(key, _mask(key, value), effective.sources.get(key), fields[key].doc)
        for key, value in _leaves(effective.config)
    ]


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


def to_tree(config: Config) -> dict[str, object]:
    """The settings as plain tables, unmasked, such that `load(to_tree(c), {}, {}) == c`; None leaves are left out."""
    tree: dict[str, object] = {}
    for key, value in _leaves(config):
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


# --- how it works ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    kind: type
    optional: bool
    doc: str


def _leaf_fields(cls: type, prefix: str) -> Iterator[tuple[str, _Field]]:
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
        yield key, _Field(kind, optional, str(field.metadata["doc"]))


@functools.cache
def _fields() -> dict[str, _Field]:
    """Every leaf by its dotted key.  Made when first asked for: a run without settings does not pay for it."""
    return dict(_leaf_fields(Config, ""))


@functools.cache
def _sections() -> frozenset[str]:
    return frozenset(key.split(".")[0] for key in _fields() if "." in key)


def _leaves(config: Config) -> Iterator[tuple[str, Leaf]]:
    for key in _fields():
        value: object = config
        for part in key.split("."):
            value = getattr(value, part)
        assert value is None or isinstance(value, str | int | float | bool | dict)
        yield key, value


def _merge(toml: Tree, environ: Mapping[str, str], overrides: Mapping[str, Leaf], *, file: str) -> Effective:
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
        if not prefix and name in _sections():
            if not isinstance(value, dict):
                raise ConfigError(
                    f"`{name}` is a section, not a value.", remedy=f"Write `[{name}]` and its keys below.", key=name
                )
            _take_table(value, name + ".", values)
        elif not prefix and isinstance(value, dict) and value and name not in _fields():
            _take_table(value, name + ".", values)  # an unknown section: its first key names the nearest valid one
        else:
            values[key] = _convert(key, value, source=None, from_text=False)


def _convert(key: str, value: object, *, source: str | None, from_text: bool) -> Leaf:
    where = f" (from {source})" if source else ""
    if key not in _fields():
        raise ConfigError(f"There is no setting `{key}`{where}.", remedy=_nearest(key), key=key, source=source)
    field = _fields()[key]
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
    shown = _mask(key, value if isinstance(value, str) else repr(value))
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

    candidates = difflib.get_close_matches(key, list(_fields()), n=1, cutoff=0.5)
    if not candidates:
        leaf = key.rpartition(".")[2]
        by_leaf = {known.rpartition(".")[2]: known for known in _fields()}
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


def _mask(key: str, value: Leaf) -> Leaf:
    if isinstance(value, dict):
        return {name: mask_value(f"{key}.{name}", item) for name, item in value.items()}
    if isinstance(value, str):
        return mask_value(key, value)
    return value
