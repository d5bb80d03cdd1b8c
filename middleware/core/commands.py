"""The command of an exec or a tool call, in the one form in which commands are compared and stored.

In: words as an engine or a model API tells them.  Out: a text, its digest, and whether it is a harness's own upkeep.
Commands may hold secrets and content, so what is stored is the digest.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Final

_SHELL: Final = re.compile(r"(?:\S*/)?(?:ba|da|a|z|k)?sh(?: -\S+)*? -\w*c (?P<text>.*)$", re.DOTALL)

_SEND_KEYS: Final = re.compile(r"\btmux send-keys -t \S+ -- (?P<keys>.+)", re.DOTALL)
_MOST_TYPED: Final = 64 << 10
MAX_TYPED: Final = 64
"""Keys of one reply that are told; more of them, and what it asked for is not known whole."""

UPKEEP: Final[Mapping[str, re.Pattern[str]]] = {
    "terminus-2": re.compile(r"(?:export \w+=\S+ && )*tmux "),
    "harbor": re.compile(
        r"mkdir -p /logs/verifier /logs/agent |test -d /logs/artifacts$|rm -f -- /logs/verifier/|chmod \+x /tests/\S+$"
        r"|\(/tests/\S+\) > /logs/verifier/|\[ -d /installed-agent \] \|\| mkdir "
    ),
}
"""How the shell texts begin that a harness runs for itself, as Harbor 0.26 was seen to send them."""


def shell_text(argv: tuple[str, ...] | None, command: str | None) -> str | None:
    """What the exec runs: its last argument; from an event only where `sh -c TEXT` is plain (events join the words)."""
    if argv:
        return argv[-1]
    found = None if command is None else _SHELL.match(command)
    return None if found is None else found["text"]


def typed_text(argv: tuple[str, ...] | None) -> str | None:
    """The keys that an exec types into a terminal (`tmux send-keys … -- KEYS`); None for every other command."""
    text = shell_text(argv, None)
    found = None if text is None or len(text) > _MOST_TYPED else _SEND_KEYS.search(text)
    if found is None:
        return None
    try:
        return "".join(shlex.split(found["keys"])) or None
    except ValueError:
        return None  # a quote that is not closed


def text_digest(text: str) -> str:
    """blake2b-128 hex of UTF-8: the form in which commands are compared and stored."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def is_plumbing(argv: tuple[str, ...] | None, command: str | None, healthcheck: tuple[str, ...]) -> bool | None:
    """Whether an exec is the harness's own upkeep: tmux traffic, a known harness's set-up and verifier (`UPKEEP`),
    health checks.  None when the command is not known.

    Deliberately narrow: everything else may be a tool call.  A tool call that is itself such a command is misread,
    which costs its join to the step, never an OOM's.
    """
    words = argv if argv is not None else tuple((command or "").split(" "))
    if not words or not words[0]:
        return None
    text = shell_text(argv, command) or words[-1]
    if words[0].rpartition("/")[2] == "tmux" or any(text_of.match(text) for text_of in UPKEEP.values()):
        return True
    checks = healthcheck[1:]
    return bool(checks) and (words == checks or words[-1] == checks[-1])
