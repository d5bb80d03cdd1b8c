"""Everything that no dialect knows: it passes, and is recorded with status, times and bytes.

In and out: see `base.py`.  Nothing of the reply is read but its head, whether an error body names a type, and whether
it is HTML: gateways answer with that.
"""

from __future__ import annotations

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.dialects import base
from fairtrial.middleware.wire.dialects.base import JsonReply, ReplyReader
from fairtrial.middleware.wire.http1 import RequestHead, ResponseHead
from fairtrial.middleware.wire.redact import digest

_KEPT_BYTES = 1 << 16


class Unknown:
    """The dialect of last resort."""

    name = "unknown"
    provider: str | None = None

    def claims(self, method: str, path: str) -> bool:  # noqa: ARG002 - it takes all
        """Always."""
        return True

    def read_request(self, head: RequestHead, path: str, body: bytes) -> RequestFacts:  # noqa: ARG002 - see the head
        """The sender, and the digest of the body."""
        operation = "hello" if head.method == "HEAD" else "other"
        return base.bare_facts(head, operation, raw_digest=digest(body) if body else None)

    def read_reply(self, head: ResponseHead, request: RequestFacts) -> ReplyReader:  # noqa: ARG002 - the head is enough
        """Looks at the beginning of the body only."""
        return _Beginning(base.head_tally(head, None), status=head.status)


class _Beginning(JsonReply):
    def feed(self, piece: bytes, t_ns: int) -> bool:
        if self._size < _KEPT_BYTES:
            super().feed(piece[: _KEPT_BYTES - self._size], t_ns)
        return True

    def finish(self, *, whole: bool) -> None:
        super().finish(whole=whole)
        self.tally.terminator = None
        self.tally.unread_frames = 0

    def _read(self, body: bytes) -> bool:  # noqa: ARG002 - its form is not known
        return False
