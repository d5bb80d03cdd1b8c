"""What may leave the observer's memory of a request: a path without secrets, digests instead of ids and texts.

In: targets, header values, texts.  Out: values that are safe in a store, a log and a trace.  What this module does not
do: decide what is recorded; it only makes it safe.  Everything is an allow list: what is not named does not leave.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final
from urllib.parse import parse_qsl, urlencode

MAX_PATH_CHARS: Final = 512
MAX_VALUE_CHARS: Final = 200

SAFE_QUERY: Final = frozenset({"beta", "alt", "limit", "api-version", "stream"})
"""Query parameters that name a variant of the API; all others, such as `key`, may be secrets."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONG_OPAQUE: Final = re.compile(r"[A-Za-z0-9_\-]{40,}")


def digest(content: str | bytes) -> str:
    """blake2b-128 in hex: equal contents can be told, contents cannot be read back."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return blake2b(raw, digest_size=16).hexdigest()


def safe_path(target: str) -> str:
    """A request target without token, authority, secret query parameters and opaque path segments.

    The trial token must have been taken off (`session.split_token`); a `/t/…` that is left is nobody's token and is
    masked all the same.
    """
    path, _, query = target.partition("?")
    if "://" in path:
        path = "/" + path.split("://", 1)[1].partition("/")[2]
    path = re.sub(r"\A/t/[^/]*", "/t/…", path)
    path = _LONG_OPAQUE.sub("…", _CONTROL.sub("", path))[:MAX_PATH_CHARS]
    kept = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True)[:32] if name in SAFE_QUERY]
    return f"{path}?{urlencode(kept)[:MAX_VALUE_CHARS]}" if kept else path


def safe_value(value: str | None) -> str | None:
    """A header value that is shown: bounded, without control characters; None stays None."""
    if value is None:
        return None
    return _CONTROL.sub("", value)[:MAX_VALUE_CHARS] or None
