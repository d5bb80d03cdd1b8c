"""The file of the settings, and the store that they name: the thin part that looks at the machine.

In: the environment, and overrides from the command line.  Out: a `Config`, or the path of the store.  A file that
cannot be read, or is named and not there, is a `ConfigError` with its path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from fairtrial.middleware.core.config.leaves import Effective, Leaf
from fairtrial.middleware.core.config.loading import merge
from fairtrial.middleware.core.config.tree import Config
from fairtrial.middleware.core.errors import ConfigError
from fairtrial.middleware.core.places import config_folder, state_folder


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
        return merge(toml, environ, overrides, file=path)
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
