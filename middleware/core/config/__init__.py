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

from fairtrial.middleware.core.config.leaves import Effective, Leaf, Setting, describe, to_tree
from fairtrial.middleware.core.config.loading import ENV_PREFIX, Tree, load, mistyped
from fairtrial.middleware.core.config.reading import config_path, read, read_sources, store_file, store_path
from fairtrial.middleware.core.config.tree import (
    Config,
    EndConfig,
    ExportConfig,
    PrivacyConfig,
    RelayConfig,
    RunConfig,
    ServeConfig,
    StoreConfig,
    Thresholds,
)

__all__ = [
    "ENV_PREFIX",
    "Config",
    "Effective",
    "EndConfig",
    "ExportConfig",
    "Leaf",
    "PrivacyConfig",
    "RelayConfig",
    "RunConfig",
    "ServeConfig",
    "Setting",
    "StoreConfig",
    "Thresholds",
    "Tree",
    "config_path",
    "describe",
    "load",
    "mistyped",
    "read",
    "read_sources",
    "store_file",
    "store_path",
    "to_tree",
]
