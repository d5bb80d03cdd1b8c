"""Whose a request is: what it and its connection claim, and what was made of that.

In: nothing; shapes only.  `wire/exchange.py` fills `Claims` once a request's head and body are known, `steps/trials.py`
answers with `Assigned`; the two rooms never import each other.

`Claims` live in the observer's memory for one look-up and are never stored: a token is a secret.  Of an API key only a
keyed digest is here (`wire/session.KeyDigest`), of a client's ids digests.

**Source:** reference page model-api.md section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fairtrial.middleware.core.observations import ReplyFacts, RequestFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What one request says about whose it is; None is absent."""

    attempt: str
    at_ns: int
    """CLOCK_MONOTONIC of the relay when the request began."""
    request: RequestFacts
    door: str = ""
    peer: str | None = None
    """The client's address without its port, or "unix"."""
    token: str | None = None
    """What stood in the path as `/t/<token>`, known or not."""
    named: str | None = None
    """`x-fairtrial-trial`: a name that the client chose."""
    baggage: str | None = None
    """The same out of W3C baggage, `fairtrial.trial=<name>`."""
    key: str | None = None
    """Keyed digest of the API key."""
    ids: tuple[tuple[str, str], ...] = ()
    """(kind, digest) of the ids that known clients send, best first; kinds are names of headers or body fields."""
    parents: tuple[tuple[str, str], ...] = ()
    """The same of whoever started this client (a subagent's parent)."""
    trace: str | None = None
    """Trace id of `traceparent`: a hint, it decides nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The trial that a request was given to, and why; or why to none."""

    trial: str | None = None
    how: str | None = None
    """token | header | baggage | key_alias | id:<kind> | peer | history; None when unassigned."""
    why: str | None = None
    """Why it was given to no trial: no_identity | twins | fork | contested | full."""
    hint: str | None = None
    """Of an unassigned request: the trial whose trace it shares."""
    named: str | None = None
    """Under `run`: what the client called its trial; which trial that is, is told when the run is over."""


class Assigns(Protocol):
    """Decides about requests one after another, in the order in which they were read."""

    def resolve(self, claims: Claims) -> Assigned:
        """The trial of one request."""
        ...

    def ended(self, attempt: str, reply: ReplyFacts, *, whole: bool) -> None:
        """The attempt is over; `whole`: its reply came to its end."""
        ...


Opened = Callable[[str, str | None], None]
"""Told of a trial that a client's own words opened: (trial id, the name it gave or None)."""
