"""What of the bridge is there from the start: which requests are looked at, and whether a body can name a door.

The rest (`bridge.py`) is loaded with the first body that does: most commands make no container, and those that do name
no door in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.route import Editor, Thinking

TARGET: Final = re.compile(
    rb"(?P<version>/v\d+\.\d+)?/containers/(?:(?P<create>create)|(?P<container>[^/?]+)/exec)(?:\?.*)?", re.DOTALL
)
"""Where a container or an exec is asked for."""


class BridgeFront:
    """An `Editor` for doors on these ports; `make` gives the one that edits, asked once and late."""

    def __init__(self, ports: Iterable[int], make: Callable[[], Editor]) -> None:
        self._needles = tuple(f":{port}/t/".encode() for port in ports)
        self._make = make
        self._bridge: Editor | None = None

    def wants(self, head: RequestHead) -> bool:
        """Whether a container or an exec is asked for, and there is a door that it could be given."""
        return bool(self._needles) and head.method == b"POST" and TARGET.fullmatch(head.target) is not None

    def edit(self, head: RequestHead, body: bytes) -> Thinking | None:
        """At once None where no door is named."""
        plain = body.replace(b"\\/", b"/")
        if not any(needle in plain for needle in self._needles):
            return None
        return self._editor().edit(head, body)

    def not_edited(self, why: str) -> None:
        """See `route.Editor`."""
        self._editor().not_edited(why)

    def _editor(self) -> Editor:
        if self._bridge is None:
            self._bridge = self._make()
        return self._bridge
