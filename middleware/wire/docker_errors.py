"""What kind of refusal an engine's error message tells, in a closed set of words.

In: the text of `{"message": …}`, or of the `error` line of a pull.  Out: one word, None for a message of no known kind.
The text itself is not kept: it holds names and paths.  A message is written by the engine, but its words may be those
of an image or a command that the agent chose: a kind *suggests* whose doing it was.
**Source:** moby and containerd error texts of 20.10 to 28 (daemon/errors.go, distribution/errors.go), OCI runtime.
"""

from __future__ import annotations

import re
from typing import Final

_MOST_CHARS: Final = 4096

_KINDS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        # The first that fits; the narrow ones first.
        ("rate_limited", r"toomanyrequests|too many requests|pull rate limit|http 429\b"),
        ("no_space", r"no space left on device|disk quota exceeded"),
        (
            "denied",
            r"pull access denied|unauthorized|authentication required|access to the resource is denied|http 403\b",
        ),
        (
            "no_image",
            r"no such image|manifest.* (?:unknown|not found)|repository .* not found|not found: manifest|http 404\b",
        ),
        ("bad_name", r"invalid reference format|invalid tag|must be lowercase"),
        ("dns", r"no such host|server misbehaving|temporary failure in name resolution"),
        ("tls", r"x509:|tls:|certificate"),
        ("registry_error", r"(?:http|http status:?|status code:?) 5\d\d\b"),
        ("unreachable", r"connection refused|no route to host|network is unreachable|connection reset by peer"),
        ("timeout", r"timeout|deadline exceeded|timed out|awaiting headers"),
        ("port_taken", r"port is already allocated|address already in use"),
        ("name_taken", r"is already in use by container"),
        ("no_command", r"executable file not found|exec format error|no such file or directory|permission denied"),
        ("no_device", r"could not select device driver|nvidia|no such device"),
        ("bad_mount", r"bind source path does not exist|invalid mount|mounts denied"),
        ("not_running", r"is not running|is paused|is restarting"),
        ("no_container", r"no such container|no such exec"),
        ("no_network", r"could not find bridge|network .* not found|failed to create endpoint|failed to set up"),
        ("runtime_gone", r"containerd|shim|ttrpc|transport is closing|runtime connection|cannot connect"),
    )
)
OTHER: Final = "other"
"""A refusal in words that are not known here."""


def kind_of(message: str) -> str | None:
    """The first kind whose words stand in the message."""
    text = message[:_MOST_CHARS]
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), None)
