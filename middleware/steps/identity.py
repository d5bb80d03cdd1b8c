"""Which conversation a request belongs to: keys that group attempts, computed from facts alone.

In: the facts of one request.  Out: hashable keys.  Which *trial* a request belongs to was decided at the door, by the
token in its path; a client's own ids only group within a trial, because any client may send any id.
What this module does not do: read headers or bodies (that is `wire/dialects`), or decide roles (`roles.py`).
"""

from __future__ import annotations

import re
from typing import Final

from fairtrial.middleware.core.observations import RequestFacts

SessionKey = tuple[str | None, str | None]

NO_SESSION: Final[SessionKey] = (None, None)
"""Clients that send no session id: within one trial they are taken for one session."""

SPAWNS: Final = re.compile(r"task|agent|delegate", re.IGNORECASE)
"""A tool of such a name sets another agent to work."""


def session_key(request: RequestFacts) -> SessionKey:
    """The client's session, or `NO_SESSION`."""
    if request.session is None:
        return NO_SESSION
    return (request.session_kind, request.session)


def same_history(one: RequestFacts, other: RequestFacts) -> bool:
    """Whether two requests ask for the same turn of the same conversation, whatever else differs (model, tools,
    limits).

    Needs a readable history on both sides: two unreadable bodies are never the same turn.  One may know less of its
    end than the other: over a WebSocket Codex sends only what is new, and after a cut all of it again.  What both know
    is compared.
    """
    known = min(len(one.message_digests), len(other.message_digests))
    if one.history_len is None or not known:
        return False
    firsts = {one.first_user_digest, other.first_user_digest} - {None}
    return (
        one.history_len == other.history_len
        and one.assistant_turns == other.assistant_turns
        and one.message_digests[-known:] == other.message_digests[-known:]
        and len(firsts) <= 1
    )


def extends(later: RequestFacts, earlier: RequestFacts) -> bool:
    """Whether the later request's history begins with the earlier one's.

    Each request carries the digests of its last messages only, so the overlap is compared; without an overlap the first
    user message decides.
    """
    if later.history_len is None or earlier.history_len is None or later.history_len <= earlier.history_len:
        return False
    first_kept = later.history_len - len(later.message_digests)
    overlap = earlier.history_len - first_kept
    if overlap > 0 and earlier.message_digests:
        width = min(overlap, len(earlier.message_digests))
        return later.message_digests[overlap - width : overlap] == earlier.message_digests[-width:]
    return later.first_user_digest == earlier.first_user_digest
