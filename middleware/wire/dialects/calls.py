"""Tool calls as a reply brings them, bounded in number and size.

In: ids, names and pieces of arguments, as long and as many as a stranger likes.  Out: `ToolUse` values that fit a
store, and the digest of the command in the arguments.  What this module does not do: know an API (the dialects do).

Bounds: 512 calls of one reply, ids and names of 200 characters, arguments of 1 MiB per call and 4 MiB of all open calls
together; a call whose arguments are longer stays, without a digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final

from fairtrial.middleware.core.observations import ToolUse
from fairtrial.middleware.wire.dialects import base

MAX_CALLS: Final = 512
MAX_RESULTS: Final = 512
MAX_OPEN_ARGUMENT_BYTES: Final = 4 << 20


def tool_use(name: str | None, tool: str | None, command: str | None = None) -> ToolUse:
    """A call by its id (`name`), its tool and its command's digest."""
    return ToolUse(id=base.as_text(name), name=base.as_text(tool), text_digest=command)


def result_ids(ids: Iterable[str | None]) -> list[str]:
    """The ids of a request's tool results, the newest that fit."""
    return [name[:200] for name in ids if name][-MAX_RESULTS:]


class Arguments:
    """The arguments of open calls, which come in pieces."""

    def __init__(self) -> None:
        self._open: dict[Hashable, bytearray | None] = {}
        """None: too long to be kept."""
        self._bytes = 0

    def add(self, call: Hashable, piece: str) -> None:
        """Take the next piece of a call's arguments."""
        known = self._open.get(call, _NONE)
        if known is None or (known is _NONE and len(self._open) >= MAX_CALLS):
            return
        raw = piece.encode("utf-8", "surrogatepass")
        if len(known) + len(raw) > base.MAX_ARGUMENT_BYTES or self._bytes + len(raw) > MAX_OPEN_ARGUMENT_BYTES:
            self._bytes -= len(known)
            self._open[call] = None
            return
        if known is _NONE:
            known = self._open[call] = bytearray()
        known += raw
        self._bytes += len(raw)

    def take(self, call: Hashable) -> str | None:
        """The call is over: the digest of its command."""
        known = self._open.pop(call, None)
        if known is None:
            return None
        self._bytes -= len(known)
        return base.arguments_digest(bytes(known)) if known else None

    def clear(self) -> None:
        """Nothing of them is needed any more."""
        self._open.clear()
        self._bytes = 0


_NONE: Final = bytearray()


class Numbering:
    """Ids for calls and results in an API that has none: see `base.numbered_call`."""

    def __init__(self, turn: int | None) -> None:
        self._turn = turn
        self._names: Counter[str] = Counter()

    def next(self, tool: str | None) -> str:
        """The id of the next call of this tool."""
        name = (tool or "")[:100]
        number = self._names[name]
        if name in self._names or len(self._names) < MAX_CALLS:
            self._names[name] += 1
        return base.numbered_call(self._turn, name, number)
