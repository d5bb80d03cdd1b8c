"""opencode's configuration: global < project < `OPENCODE_CONFIG_CONTENT`.

In: the environment, the working folder, and files through a callable.  Out: `Findings`, and the inline configuration
with a provider's address set.
**Source:** opencode configuration reference.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from fairtrial.middleware.relay.environment import split_origin
from fairtrial.middleware.relay.settings_files.findings import Findings, Override, ReadText
from fairtrial.middleware.relay.settings_files.reading import json_object, short, upwards, without_comments


def find(at: int, environ: Mapping[str, str], home: str, cwd: str, reader: ReadText) -> Findings:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    files = [os.path.join(folder, name) for folder in upwards(cwd) for name in ("opencode.jsonc", "opencode.json")]
    if chosen := environ.get("OPENCODE_CONFIG"):
        files.append(os.path.join(cwd, chosen))
    files += [os.path.join(base, "opencode", name) for name in ("opencode.jsonc", "opencode.json", "config.json")]
    sources = [("OPENCODE_CONFIG_CONTENT", environ.get("OPENCODE_CONFIG_CONTENT"))]
    sources += [(short(path, home), reader(path)) for path in files]
    overrides: list[Override] = []
    seen: set[str] = set()
    for path, text in sources:
        providers = json_object(without_comments(text or "")).get("provider")
        for name, provider in providers.items() if isinstance(providers, dict) else ():
            options = provider.get("options") if isinstance(provider, dict) else None
            url = options.get("baseURL") if isinstance(options, dict) else None
            if not isinstance(url, str) or name in seen:
                continue
            seen.add(name)
            why_not = None if split_origin(url) is not None else "It is no http(s) address"
            overrides.append(
                Override(
                    tool="opencode",
                    path=path,
                    key=f"provider.{name}.options.baseURL",
                    url=url,
                    door=None if why_not else f"opencode.{name}",
                    why_not=why_not,
                )
            )
    return Findings(tool="opencode", at=at, overrides=tuple(overrides))


def set_base_url(tree: dict[str, object], dotted: str, value: str) -> None:
    """Set `provider.<name>.options.baseURL`; the name itself may hold dots."""
    first, _, rest = dotted.partition(".")
    name, options, leaf = rest.rsplit(".", 2)
    for part in (first, name, options):
        child = tree.get(part)
        if not isinstance(child, dict):
            child = tree[part] = {}
        tree = child
    tree[leaf] = value
