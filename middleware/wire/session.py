"""Who sent a request: the trial token in its path, and the ids that known clients put into headers.

In: a target and headers.  Out: the token with the rest of the target, and an `Identity` whose ids are digests.  What
this module does not do: read bodies (a dialect finds the session that some clients put there), or resolve a token.

**Source:** reference pages harnesses.md sections 3 and 6, model-api.md sections 2 and 3.1.  A `traceparent` is kept as
a hint only: SDKs start a trace per call, Claude Code one per prompt, so it is no session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.wire.http1 import Headers
from fairtrial.middleware.wire.redact import digest, safe_value

TOKEN_PREFIX: Final = "/t/"  # noqa: S105 - a path prefix, no secret

SESSION_HEADERS: Final = (
    "x-claude-code-session-id",
    "session-id",
    "x-session-id",
    "x-harbor-session",
    "x-opencode-session",
    "x-litellm-session-id",
    "helicone-session-id",
)
"""First present wins."""

AGENT_HEADERS: Final = ("x-claude-code-agent-id",)
CALL_KEY_HEADERS: Final = ("x-irid",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the headers say about the sender; ids are digests, None is absent."""

    session_kind: str | None = None
    session: str | None = None
    agent: str | None = None
    call_key: str | None = None
    retry_count: int | None = None
    user_agent: str | None = None
    traceparent: str | None = None


def split_token(target: str) -> tuple[str | None, str]:
    """Take `/t/<token>` off the front of a target; the rest begins with a slash."""
    if "://" in target.split("?", 1)[0]:
        target = "/" + target.split("://", 1)[1].partition("/")[2]
    if not target.startswith(TOKEN_PREFIX):
        return None, target
    rest = target[len(TOKEN_PREFIX) :]
    end = min((at for at in (rest.find("/"), rest.find("?")) if at != -1), default=len(rest))
    token, left = rest[:end], rest[end:]
    return token, left if left.startswith("/") else "/" + left


def identify(headers: Headers) -> Identity:
    """Read the ids of known clients from a request's headers."""
    kind, session = _first(headers, SESSION_HEADERS)
    retry = headers.get("x-stainless-retry-count")
    return Identity(
        session_kind=kind,
        session=None if session is None else digest(session),
        agent=_digest_of(headers, AGENT_HEADERS),
        call_key=_digest_of(headers, CALL_KEY_HEADERS),
        retry_count=int(retry) if retry is not None and retry.isdecimal() and len(retry) < 6 else None,
        user_agent=safe_value(headers.get("user-agent")),
        traceparent=safe_value(headers.get("traceparent")),
    )


def _first(headers: Headers, names: tuple[str, ...]) -> tuple[str | None, str | None]:
    for name in names:
        value = headers.get(name)
        if value is not None:
            return name, value
    return None, None


def _digest_of(headers: Headers, names: tuple[str, ...]) -> str | None:
    value = _first(headers, names)[1]
    return None if value is None else digest(value)
