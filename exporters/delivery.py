"""One batch after the other to the collector, each once, at the pace that the collector allows.

In: outboxes (`store/exports.py`) and a sender.  Out: settled batches: exported, dropped, put back, halved; and until
when to wait.  Lives in the thread of `pipeline.py`, which decides when there is a turn.

Before the first batch, after each failure and after a second without traffic an empty request goes first: a collector
that hangs is not given spans whose fate nobody would then know.  Waiting times double up to `SLOWEST_S`; a time that
the collector named is kept, also by the next start.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from fairtrial.exporters.answers import Accepted, Answer, Later, Misdirected, Refused, TooLarge, Unknown
from fairtrial.exporters.encoding import halves
from fairtrial.exporters.settings import NO_GRPC, ExportSettings
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.selfevents import ExportFailed, Journal
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.exports import Claimed

SLOWEST_S: Final = 60.0
MISDIRECTED_WAIT_S: Final = 300.0
LEASE_FACTOR: Final = 2.0
PROVED_S: Final = 1.0
"""How long an answer proves that somebody is there."""


class Sender(Protocol):
    """A way to a collector: `over_http.HttpSender`, `over_grpc.GrpcSender`."""

    def send(self, body: bytes, timeout_s: float) -> Answer:
        """Deliver one request, once."""
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


class Delivery:
    """The way to one collector.  `not_before`: monotonic time of the next try."""

    def __init__(
        self,
        settings: ExportSettings,
        journal: Journal,
        outboxes: Callable[[], Iterable[sqlite3.Connection]],
        *,
        version: str,
        first_wait_s: float,
    ) -> None:
        self.not_before = 0.0
        self.trouble: str | None = None
        """Why nothing arrives, in a sentence, while that is so."""
        self._settings = settings
        self._journal = journal
        self._outboxes = outboxes
        self._version = version
        self._first_wait_s = first_wait_s
        self._sender: Sender | None = None
        self._proved_until = 0.0
        self._asked_to_wait = False
        self._failures = 0

    def hurry(self) -> None:
        """Try once more now, unless the collector itself named a time."""
        if not self._asked_to_wait:
            self.not_before = 0.0

    def pause(self, seconds: float) -> None:
        """Nothing for so long, after a fault of ours."""
        self.not_before = max(self.not_before, time.monotonic() + seconds)

    def worth_waiting_for(self, until: float) -> bool:
        """Whether something may still go out before this monotonic time."""
        if self.not_before > time.monotonic():
            return self._asked_to_wait and self.not_before < until
        return self._anything_due()

    def close(self) -> None:
        """Give the connection back."""
        if self._sender is not None:
            self._sender.close()

    def send_one(self, within_s: float | None) -> bool:
        """Send one batch if one is due, within this time; whether it is worth to try the next one at once."""
        if time.monotonic() < self.not_before or not self._anything_due():
            return False
        end = None if within_s is None else time.monotonic() + within_s
        if not self._ready(self._time_s(end)):
            return False
        timeout_s = self._time_s(end)
        lease_ns = int((timeout_s * LEASE_FACTOR + 1.0) * 1e9)
        for outbox in self._outboxes():
            claimed = exports.claim(outbox, now_ns=clock.now().wall_ns, lease_ns=lease_ns)
            if claimed is not None:
                return self._send(outbox, claimed, timeout_s)
        return False

    def _anything_due(self) -> bool:
        now_ns = clock.now().wall_ns
        try:
            return any(exports.is_due(outbox, now_ns) for outbox in self._outboxes())
        except sqlite3.Error:
            return False

    def _time_s(self, end: float | None) -> float:
        left = self._settings.timeout_s if end is None else min(self._settings.timeout_s, end - time.monotonic())
        return max(0.05, left)

    def _ready(self, timeout_s: float) -> bool:
        """Whether the collector answers: asked with a request without spans, where it has not answered just now."""
        if self._sender is None:
            try:
                self._sender = make_sender(self._settings, version=self._version)
            except (OSError, ValueError, ImportError) as error:
                self._failed(f"{error}", MISDIRECTED_WAIT_S)
                return False
        if time.monotonic() < self._proved_until:
            return True
        answer = self._sender.send(b"", timeout_s)
        match answer:
            case Accepted() | Refused() | TooLarge():
                # Some refuse a request without spans; they answer, which is all that was asked.
                self._proved_until = time.monotonic() + PROVED_S
                return True
            case Later(why, after_s):
                self._failed(why, after_s)
                if after_s is not None:
                    self._hold(after_s)
            case Misdirected(why):
                self._failed(why, MISDIRECTED_WAIT_S)
            case Unknown(why):
                self._failed(why, None)
        return False

    def _send(self, outbox: sqlite3.Connection, claimed: Claimed, timeout_s: float) -> bool:
        assert self._sender is not None
        try:
            answer = self._sender.send(claimed.batch.body, timeout_s)
        except Exception as error:  # noqa: BLE001 - a library's fault; the bytes may have gone out
            answer = Unknown(repr(error))
        match answer:
            case Accepted(rejected, message):
                exports.settle(outbox, claimed.row, rejected)
                self._failures, self.not_before, self._asked_to_wait, self.trouble = 0, 0.0, False, None
                self._proved_until = time.monotonic() + PROVED_S
                if rejected or message:
                    self._journal.note(ExportFailed(label="partial", detail=f"{rejected} spans rejected: {message}"))
                return True
            case TooLarge(why):
                parts = halves(claimed.batch)
                if parts:
                    exports.split(outbox, claimed, parts)
                else:
                    exports.drop(outbox, claimed.row, "too_large")
                    self._journal.note(ExportFailed(label="too_large", detail=why))
                return True
            case Refused(why, label):
                exports.drop(outbox, claimed.row, label)
                self._journal.note(ExportFailed(label=label, detail=why))
                return True
            case Later(why, after_s):
                exports.put_back(outbox, claimed.row)
                self._failed(why, after_s)
                if after_s is not None:
                    self._hold(after_s)
            case Misdirected(why):
                exports.put_back(outbox, claimed.row)
                self._failed(why, MISDIRECTED_WAIT_S)
            case Unknown(why):
                exports.drop(outbox, claimed.row, exports.UNCONFIRMED)
                self._failed(why, None)
        return False

    def _hold(self, after_s: float) -> None:
        """A time that the collector named is kept in the store: the next start honours it too."""
        until_ns = clock.now().wall_ns + int(after_s * 1e9)
        for outbox in self._outboxes():
            exports.hold(outbox, until_ns)

    def _failed(self, why: str, after_s: float | None) -> None:
        self._proved_until = 0.0
        self._failures += 1
        if after_s is None:
            slowest = min(SLOWEST_S, self._first_wait_s * 2 ** min(self._failures - 1, 10))
            after_s = slowest * random.uniform(0.8, 1.2)  # noqa: S311 - spreads senders over time, no secret
            self._asked_to_wait = False
        else:
            self._asked_to_wait = after_s < MISDIRECTED_WAIT_S
        self.not_before = time.monotonic() + after_s
        self.trouble = f"{self._settings.shown}: {why}"
        self._journal.note(ExportFailed(label="collector", detail=self.trouble))


def make_sender(settings: ExportSettings, *, version: str) -> Sender:
    """The way that the settings name.  Raises `ImportError` with a sentence where gRPC is not installed."""
    if settings.protocol == "grpc":
        try:
            from fairtrial.exporters.over_grpc import GrpcSender
        except ImportError as error:
            raise ImportError(NO_GRPC) from error
        return GrpcSender(settings, version=version)
    from fairtrial.exporters.over_http import HttpSender

    return HttpSender(settings, version=version)
