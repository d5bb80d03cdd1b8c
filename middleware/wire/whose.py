"""Whose a passing request is: asked of whoever assigns trials, or, under `run`, told by the token alone.

In: an exchange whose head and body are known.  Out: its `Assigned`.  What this module does not do: weigh claims
(`steps/trials.py`, behind `core.claims.Assigns`) or read them off a head (`session.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from fairtrial.middleware.core.claims import Assigned, Assigns
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.outcome import reply_facts
from fairtrial.middleware.wire.passing import Conn, Exchange
from fairtrial.middleware.wire.session import KeyDigest, claims, said_name, split_token


class Whose:
    """`trial_of_token` decides where nobody else does (`assigns` None)."""

    def __init__(
        self, trial_of_token: Mapping[str, str], assigns: Assigns | None = None, keys: KeyDigest | None = None
    ) -> None:
        self._trials = trial_of_token
        self._assigns = assigns
        self._keys = keys

    def at_once(self, conn: Conn, token: str | None) -> str | None:
        """The trial as far as the head alone tells; None where the body is waited for."""
        return self._named(conn, token) if self._assigns is None else None

    def ask(self, conn: Conn, exchange: Exchange) -> Assigned:
        """Decide, once for each request."""
        if self._assigns is None:
            token = split_token(exchange.head.target)[0]
            trial = self._named(conn, token)
            if trial is None:
                return Assigned()
            return Assigned(trial=trial, how="token", named=said_name(exchange.head, token))
        return self._assigns.resolve(
            claims(
                exchange.head,
                exchange.request,
                attempt=exchange.id,
                at_ns=exchange.started_ns,
                door=conn.door,
                peer=conn.peer,
                keys=self._keys,
            )
        )

    def ended(self, exchange: Exchange, tally: Tally, *, whole: bool) -> None:
        """The request's attempt is over."""
        if self._assigns is not None:
            self._assigns.ended(exchange.id, reply_facts(exchange.status, tally), whole=whole)

    def _named(self, conn: Conn, token: str | None) -> str | None:
        """The trial of a token; under `run` a door that is a socket needs none, since only its trial can open it."""
        if token is None and conn.door.startswith("socket:") and len(self._trials) == 1:
            return next(iter(self._trials.values()))
        if token is None:
            return None
        # Under `run` a token may carry the name of one of its trials behind a dot.
        return self._trials.get(token) or self._trials.get(token.partition(".")[0])
