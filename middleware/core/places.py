"""Where things are kept, by the XDG base directory specification.  Light: the start of a run asks first.

In: the environment.  Out: paths; nothing is created.  A relative `$XDG_…` is ignored, as the specification says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


def state_folder(environ: Mapping[str, str]) -> str:
    """`$XDG_STATE_HOME/fairtrial`: the default place of the store and of the observer's log."""
    return os.path.join(_base(environ, "XDG_STATE_HOME", ".local/state"), "fairtrial")


def config_folder(environ: Mapping[str, str]) -> str:
    """`$XDG_CONFIG_HOME/fairtrial`."""
    return os.path.join(_base(environ, "XDG_CONFIG_HOME", ".config"), "fairtrial")


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> str:
    base = environ.get(variable, "")
    if base.startswith("/"):
        return base
    return os.path.join(home_folder(environ), below_home)


def home_folder(environ: Mapping[str, str]) -> str:
    """`$HOME`; where it is unset or empty, what the system knows of this user, else a folder that nobody has."""
    if home := environ.get("HOME"):
        return home
    # Loaded here: a run with a home, which is nearly every one, does without it.
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/nonexistent"
