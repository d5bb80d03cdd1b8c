"""The doors of a run: which connection came through which, and the tracker that reads it.

In: records of the feed that belong to a connection.  Out: observations, by the trackers of `wire/`; what became of a
tracker that failed, noted at the end.  What this module does not do: read CHILD, MUTATION or NOTE (`app.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from fairtrial.middleware.core import config
from fairtrial.middleware.core.hello import Hello
from fairtrial.middleware.core.observations import Host
from fairtrial.middleware.core.selfevents import Journal, RecordIgnored
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.observer.book import TrialBook
from fairtrial.middleware.store.secret import secret_of
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.docker import DOOR as DOCKER_DOOR
from fairtrial.middleware.wire.docker import DockerTracker
from fairtrial.middleware.wire.exchange import ExchangeTracker
from fairtrial.middleware.wire.opaque import DOOR as CONNECT_DOOR
from fairtrial.middleware.wire.opaque import OpaqueTracker
from fairtrial.middleware.wire.session import KeyDigest


class RunDoors:
    """The trackers of one run's doors, all into one book."""

    def __init__(
        self,
        hello: Hello,
        book: TrialBook,
        journal: Journal,
        *,
        host: Host,
        on_call_edge: Callable[[Literal["call_started", "call_ended"]], None],
        on_created: Callable[[str], None],
    ) -> None:
        self._journal = journal
        secret = secret_of(Path(hello.store))
        self._tracker = ExchangeTracker(
            Source("door.model", book.take, host=host, trial=hello.trial),
            trial_of_token=hello.tokens,
            on_call_edge=on_call_edge,
            keys=None if secret is None else KeyDigest(secret),
            at=book.begun,
        )
        self._engine_tracker = DockerTracker(
            Source("door.docker", book.take, host=host, trial=hello.trial),
            trial=hello.trial,
            at=book.begun,
            on_created=on_created,
            keep_text=config.load(hello.config, {}, {}).privacy.content,
        )
        self._opaque_tracker = OpaqueTracker(
            Source("door.egress", book.take, host=host, trial=hello.trial), trial=hello.trial, at=book.begun
        )
        self._engine_conns: set[int] = set()
        """Connections through the Docker door."""
        self._opaque_conns: set[int] = set()
        """Connections through the connect door."""

    def take(self, record: feed.Record) -> bool:
        """Handle a record of a connection through the Docker or the connect door; False for any other."""
        if record.kind == feed.Kind.OPEN:
            door = str(record.json().get("door"))
            if door.startswith(DOCKER_DOOR):
                self._engine_conns.add(record.conn)
            elif door == CONNECT_DOOR:
                self._opaque_conns.add(record.conn)
        if record.conn in self._opaque_conns:
            self._opaque_tracker.take(record)
            if record.kind == feed.Kind.CLOSE:
                self._opaque_conns.discard(record.conn)
            return True
        if record.conn in self._engine_conns:
            self._engine_tracker.take(record)
            if record.kind == feed.Kind.CLOSE:
                self._engine_conns.discard(record.conn)
            return True
        return False

    def take_model(self, record: feed.Record) -> None:
        """Handle a record of any other connection."""
        self._tracker.take(record)

    def close(self) -> None:
        """What is still open ends now."""
        trackers = (
            ("door.model", self._tracker),
            ("door.docker", self._engine_tracker),
            ("door.egress", self._opaque_tracker),
        )
        for door, tracker in trackers:
            try:
                tracker.close()
            except Exception as error:  # noqa: BLE001 - the verdict is due whatever a tracker does
                self._journal.note(RecordIgnored(label=door, detail=repr(error)))
            if tracker.faults:
                detail = f"{tracker.faults} of them, the last: {tracker.last_fault}"
                self._journal.note(RecordIgnored(label=door, detail=detail))
