"""What is told of one pair: its records, when each side was last heard, and who ended it first, and how.

In: facts, as the engine meets them.  Out: records for the observer, each with the pair's connection number.
It decides nothing about the traffic; whether an account is kept makes no difference to a byte.

The CLOSE record: {first: client|upstream|fairtrial, how: fin|rst|tls_ragged|dial|abort, errno, text, first_ns,
client_last_ns, upstream_last_ns, bytes_up, bytes_down, lag_max_s, lag_now_s, suspend_gap_s, in_flight, far_listens,
messages}.  `far_listens`: of an upstream of this machine that ended requests, whether its server listens still.
A RESPONSE_END of a failed attempt carries the same `first`, `close_how`, `errno`, `text`, `*_last_ns`, `far_listens`,
`lag_max_s`, `lag_now_s`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import monotonic_ns
from typing import Literal

from fairtrial.middleware.relay.feed import FeedSender, suspended_ns
from fairtrial.middleware.relay.framing import InFlight
from fairtrial.middleware.relay.listening import listens
from fairtrial.middleware.relay.sock_diag import Address
from fairtrial.middleware.wire.feed import Kind

First = Literal["client", "upstream", "fairtrial"]


class Account:
    """The account of one connection.  `first` None: nothing has ended yet."""

    __slots__ = (
        "_blocked_since_ns", "_conn", "_errno", "_feed", "_first_ns", "_how", "_in_flight", "_suspended_ns", "_text",
        "bytes_down", "bytes_up", "client_last_ns", "far", "first", "lag_max_s", "lag_now_s", "upstream_last_ns",
    )  # fmt: skip

    def __init__(self, feed: FeedSender, conn: int) -> None:
        self._feed = feed
        self._conn = conn
        self.first: First | None = None
        self.far: Address | None = None
        """Where the upstream listens, if it is a server of this machine."""
        self._how = ""
        self._errno: int | None = None
        self._text: str | None = None
        self._first_ns = 0
        self.client_last_ns: int | None = None
        self.upstream_last_ns: int | None = None
        self.bytes_up = 0
        self.bytes_down = 0
        self.lag_max_s = 0.0
        self.lag_now_s = 0.0
        """Of the turn in which it ended."""
        self._in_flight = 0
        self._suspended_ns = suspended_ns()
        self._blocked_since_ns: dict[str, int] = {}

    def record(self, kind: int, payload: bytes, msg: int = 0, flags: int = 0, t_ns: int = 0) -> None:
        """One record of this connection; `t_ns` 0 is now."""
        self._feed.record(kind, payload, self._conn, msg, flags, t_ns)

    def json(self, kind: int, value: dict[str, object], msg: int = 0, t_ns: int = 0) -> None:
        """One record with a JSON object."""
        self._feed.record_json(kind, value, self._conn, msg, 0, t_ns)

    # ------------------------------------------------------------------ what is remembered until the end

    def note_first(self, first: First, how: str, code: int | None, text: str | None) -> None:
        """Who ended it; only the first call counts."""
        if self.first is None:
            self.first, self._how, self._errno, self._text = first, how, code, text
            self._first_ns = monotonic_ns()

    def note_lag(self, lag_s: float) -> None:
        """The loop was late while this pair was open."""
        self.lag_max_s = max(self.lag_max_s, lag_s)

    def note_overdue(self, lag_s: float) -> None:
        """The loop is late in this very turn, in which something ends."""
        self.lag_now_s = lag_s
        self.note_lag(lag_s)

    def blocked(self, side: str) -> None:
        """Writing to `side` is held up from now on."""
        self._blocked_since_ns[side] = monotonic_ns()

    def unblocked(self, side: str, msg: int) -> None:
        """Writing to `side` goes on, if it was held up."""
        since_ns = self._blocked_since_ns.pop(side, None)
        if since_ns is not None:
            self.json(Kind.BLOCKED, {"side": side, "since_ns": since_ns, "until_ns": monotonic_ns()}, msg)

    # ------------------------------------------------------------------ ends

    def far_listens(self) -> bool | None:
        """Whether the upstream still listens; None where it is none of this machine's."""
        return None if self.far is None else listens(self.far)

    def responses_cut(self, waiting: Sequence[InFlight], wire_bytes: int) -> None:
        """These requests get no (whole) response any more; `wire_bytes` of the one that had begun were read."""
        self._in_flight += len(waiting)
        how = {"client": "client_gone", "upstream": "cut", "fairtrial": "aborted"}[self.first or "fairtrial"]
        far_listens = self.far_listens() if waiting and self.first == "upstream" else None
        for request in waiting:
            self.json(
                Kind.RESPONSE_END,
                {
                    "wire_bytes": wire_bytes if request.responded else 0,
                    "complete": False,
                    "how": how,
                    "first": self.first,
                    "close_how": self._how,
                    "errno": self._errno,
                    "text": self._text,
                    "first_ns": self._first_ns,
                    "client_last_ns": self.client_last_ns,
                    "upstream_last_ns": self.upstream_last_ns,
                    "lag_max_s": self.lag_max_s,
                    "lag_now_s": self.lag_now_s,
                    "far_listens": far_listens,
                },
                request.msg,
            )

    def close(self, messages: int, tunnel: int = 0) -> None:  # noqa: ARG002 - `tally.py` tells of it
        """Both sides are closed: what was held up is told, then CLOSE.  `tunnel`: the message that became one, or 0."""
        for side in tuple(self._blocked_since_ns):
            self.unblocked(side, messages)
        self.json(
            Kind.CLOSE,
            {
                "first": self.first,
                "how": self._how,
                "errno": self._errno,
                "text": self._text,
                "first_ns": self._first_ns,
                "client_last_ns": self.client_last_ns,
                "upstream_last_ns": self.upstream_last_ns,
                "bytes_up": self.bytes_up,
                "bytes_down": self.bytes_down,
                "lag_max_s": self.lag_max_s,
                "lag_now_s": self.lag_now_s,
                "suspend_gap_s": _gap_s(suspended_ns() - self._suspended_ns),
                "in_flight": self._in_flight,
                "far_listens": self.far_listens() if self._in_flight and self.first == "upstream" else None,
                "messages": messages,
            },
        )


def trial_note(trial: str | None) -> bytes:
    """The payload of the NOTE that says whose trial a request belongs to; None: it bore no known token."""
    return json.dumps({"event": "trial", "trial": trial, "token": None if trial is None else "known"}).encode()


def _gap_s(gap_ns: int) -> float:
    """Seconds asleep; the two clocks are read a moment apart, so less than a millisecond is none."""
    return gap_ns / 1e9 if gap_ns > 1_000_000 else 0.0
