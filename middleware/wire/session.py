"""Who sent a request: the trial token in its path, and the ids that known clients put into headers.

In: a target and headers.  Out: the token with the rest of the target, an `Identity` whose ids are digests, and the
`Claims` from which `steps/trials.py` tells the trial.  What this module does not do: read bodies (a dialect finds the
session that some clients put there), or decide whose a request is.

**Source:** reference pages harnesses.md sections 3 and 6, model-api.md sections 2 and 3.1; W3C Baggage section 3.3.
A `traceparent` is kept as a hint only: SDKs start a trace per call, Claude Code one per prompt, so it is no session.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from urllib.parse import parse_qsl, unquote

import msgspec

from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.claims import Claims
from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire.http1 import Headers, RequestHead
from fairtrial.middleware.wire.redact import digest, safe_value

TOKEN_PREFIX: Final = "/t/"  # noqa: S105 - a path prefix, no secret
TRIAL_HEADER: Final = "x-fairtrial-trial"
TRIAL_BAGGAGE: Final = semconv.TRIAL
MAX_NAME_CHARS: Final = 128
MAX_TURN_METADATA_CHARS: Final = 1 << 16

SESSION_HEADERS: Final = (
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "conversation_id",
    "x-session-id",
    "x-session-affinity",
    "x-harbor-session",
    "x-opencode-session",
    "x-litellm-session-id",
    "helicone-session-id",
    "x-portkey-trace-id",
)
"""First present wins."""

THREAD_HEADERS: Final = ("thread-id",)
AGENT_HEADERS: Final = ("x-claude-code-agent-id",)
PARENT_AGENT_HEADERS: Final = ("x-claude-code-parent-agent-id", "x-codex-parent-thread-id")
CALL_KEY_HEADERS: Final = ("x-irid",)
PURPOSE_HEADERS: Final = ("x-openai-subagent",)
KEY_HEADERS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_SIGV4_KEY: Final = re.compile(r"AWS4-HMAC-SHA256\s+Credential=([^/,\s]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the headers say about the sender; ids are digests, None is absent."""

    session_kind: str | None = None
    session: str | None = None
    agent: str | None = None
    parent_agent: str | None = None
    purpose: str | None = None
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
        parent_agent=_digest_of(headers, PARENT_AGENT_HEADERS),
        purpose=_word(_first(headers, PURPOSE_HEADERS)[1]),
        call_key=_digest_of(headers, CALL_KEY_HEADERS),
        retry_count=int(retry) if retry is not None and retry.isdecimal() and len(retry) < 6 else None,
        user_agent=safe_value(headers.get("user-agent")),
        traceparent=safe_value(headers.get("traceparent")),
    )


KEY_CHARS: Final = 12


def short_key(key: str | None) -> str | None:
    """A digest as it is stored: long enough to tell the keys of a run apart."""
    return None if key is None else key[:KEY_CHARS]


class KeyDigest:
    """Turns API keys into digests that nobody can look up: keyed with a secret that never leaves this process.

    The same object must be used for the aliases and for the requests.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret[:64]

    def of(self, key: str) -> str:
        """Of a key as it stands in a configuration, without "Bearer "."""
        return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16, key=self._secret).hexdigest()

    def of_request(self, head: RequestHead) -> str | None:
        """Of the key that a request carries: in a header, or as `?key=`; None without one.

        Signed requests (SigV4) differ each time: of them the access key's id counts.
        """
        for name in KEY_HEADERS:
            value = head.headers.get(name)
            if value is None:
                continue
            signed = _SIGV4_KEY.match(value)
            if signed is not None:
                return self.of(signed.group(1))
            scheme, space, rest = value.partition(" ")
            return self.of(rest.strip() if space and scheme.lower() in {"bearer", "basic"} else value)
        query = head.target.partition("?")[2]
        for name, value in parse_qsl(query)[:32] if "key=" in query else ():
            if name == "key":
                return self.of(value)
        return None


def claims(
    head: RequestHead,
    request: RequestFacts,
    *,
    attempt: str,
    at_ns: int,
    door: str,
    peer: str | None,
    keys: KeyDigest | None,
) -> Claims:
    """All that one request says about whose it is."""
    headers = head.headers
    turn = _codex_turn(headers)
    ids = [(name, digest(value)) for name in (*SESSION_HEADERS, *THREAD_HEADERS) if (value := headers.get(name))]
    ids += [("x-codex-turn-metadata", turn[name]) for name in ("session_id", "thread_id") if name in turn]
    if request.session is not None and request.session_kind is not None:
        ids.append((request.session_kind, request.session))
    if request.agent is not None:
        ids.append(("agent", request.agent))
    if request.call_key is not None:
        ids.append((CALL_KEY_HEADERS[0], request.call_key))
    if request.previous_response is not None:
        ids.append(("previous_response_id", request.previous_response))
    trace = _TRACEPARENT.match(headers.get("traceparent") or "")
    return Claims(
        attempt=attempt,
        at_ns=at_ns,
        request=request,
        door=door,
        peer=peer,
        token=split_token(head.target)[0],
        named=_name(headers.get(TRIAL_HEADER)),
        baggage=_name(_baggage(headers)),
        key=keys.of_request(head) if keys is not None else None,
        ids=tuple(dict.fromkeys(ids)),
        parents=() if request.parent_agent is None else (("agent", request.parent_agent),),
        trace=trace.group(1) if trace is not None else None,
    )


def said_name(head: RequestHead, token: str | None) -> str | None:
    """What a client of a `run` calls its trial: behind the token in its path, in a header, or as baggage."""
    named = None if token is None else unquote(token.partition(".")[2])
    return _name(named) or _name(head.headers.get(TRIAL_HEADER)) or _name(_baggage(head.headers))


def _codex_turn(headers: Headers) -> dict[str, str]:
    """Digests of the ids in Codex's turn metadata, where they stand in a header."""
    said = headers.get("x-codex-turn-metadata")
    if said is None or len(said) > MAX_TURN_METADATA_CHARS:
        return {}
    try:
        value: object = msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    if not isinstance(value, dict):
        return {}
    return {str(name): digest(each) for name, each in value.items() if isinstance(each, str) and each}


def _baggage(headers: Headers) -> str | None:
    """The value of our member; properties behind a semicolon are not read."""
    for member in (headers.joined("baggage") or "")[:8192].split(","):
        name, equals, value = member.partition("=")
        if equals and name.strip() == TRIAL_BAGGAGE:
            return unquote(value.partition(";")[0].strip())
    return None


def _name(value: str | None) -> str | None:
    """A name that people read: bounded, without control characters; None when nothing is left."""
    safe = safe_value(value)
    return None if safe is None else safe.strip()[:MAX_NAME_CHARS] or None


def _word(value: str | None) -> str | None:
    """A short plain word, None for anything else."""
    return value if value is not None and re.fullmatch(r"[a-z][a-z_-]{0,39}", value) else None


def _first(headers: Headers, names: tuple[str, ...]) -> tuple[str | None, str | None]:
    for name in names:
        value = headers.get(name)
        if value is not None:
            return name, value
    return None, None


def _digest_of(headers: Headers, names: tuple[str, ...]) -> str | None:
    value = _first(headers, names)[1]
    return None if value is None else digest(value)
