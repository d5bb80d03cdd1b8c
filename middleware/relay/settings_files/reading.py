"""Small things that several agents' files need: JSON with comments, TOML, folders, paths as people write them.

In: texts and paths.  Out: plain values; what makes no sense reads as empty.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator


def json_object(text: str | None) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def toml_table(text: str | None) -> dict[str, object]:
    if not text:
        return {}
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}


def without_comments(text: str) -> str:
    """JSON with comments and trailing commas as plain JSON; texts in quotes stay as they are."""
    kept = re.sub(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', lambda found: found[1] or " ", text, flags=re.DOTALL)
    return re.sub(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', lambda found: found[1] or "", kept)


def folder_names(folder: str) -> list[str]:
    """The names in a folder, none when it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def short(path: str, home: str) -> str:
    return "~" + path[len(home) :] if home != "/" and path.startswith(home.rstrip("/") + "/") else path


def upwards(folder: str) -> Iterator[str]:
    """The folder and those above it, up to the root of the repository (or of the file system)."""
    while True:
        yield folder
        parent = os.path.dirname(folder)
        if parent == folder or os.path.exists(os.path.join(folder, ".git")):
            return
        folder = parent
