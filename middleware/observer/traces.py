"""Whether traces are wanted, whether anybody takes them, and how a finished trial's trace is handed over.

In: the environment's `OTEL_…` variables and `Trial`s.  Out: what `exporters/pipeline.py` sends, in a thread of its own.
What it needs is loaded with the first trace, or when an earlier process left some: OpenTelemetry's packages and the
HTTP client cost more start-up than all of the observer.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fairtrial import __version__
from fairtrial.exporters.settings import NO_GRPC, asked_for, settings_of
from fairtrial.middleware.core.config import ExportConfig
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import ExportFailed, Journal
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.database import open_database
from fairtrial.middleware.store.exports import Counts
from fairtrial.middleware.store.writer import StoreWriter

if TYPE_CHECKING:
    from fairtrial.exporters.pipeline import TracePipeline

PROBE_S: Final = 2.0


def traces_asked_for() -> bool:
    """Whether the environment asks for traces."""
    return asked_for(os.environ)


class Traces:
    """The traces of one observer process; make one only where they are asked for."""

    def __init__(self, store: Path, journal: Journal, *, host: str | None, config: ExportConfig) -> None:
        self._store = store
        self._journal = journal
        self._host = host
        self._wait_s = config.wait_s
        self._settings = settings_of(os.environ, config)
        self._pipeline: TracePipeline | None = None
        self._lock = threading.Lock()
        self.complaints = self._settings.complaints
        """Sentences about variables that could not be used."""

    def want(self, writer: StoreWriter, trial: str, root_span_id: str | None, parent_span_id: str | None) -> None:
        """A trial begins: its trace is sent by the next start, should this process be killed."""
        writer.want_trace(trial, root_span_id, parent_span_id)

    async def unreachable(self) -> str | None:
        """Why no trace will arrive, asked while there is time; None when somebody listens at the endpoint."""
        settings = self._settings
        if settings.protocol == "grpc" and importlib.util.find_spec("grpc") is None:
            return NO_GRPC
        try:
            host, port = settings.address
            if _by_proxy(settings.endpoint, host):
                return None
            async with asyncio.timeout(PROBE_S):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
        except (OSError, TimeoutError, ValueError) as error:
            return f"{settings.shown} does not answer ({error or 'no answer in time'})"
        return None

    def send_what_was_left(self) -> None:
        """Begin to send what earlier processes left in the store, if they did.  Reads the store: in a thread."""
        try:
            database = open_database(self._store, read_only=True)
        except (OSError, sqlite3.Error):
            return
        try:
            left = exports.anything_left(database)
        except sqlite3.Error:
            return
        finally:
            database.close()
        if left:
            self._started()

    def put(self, trial: Trial, *, root_span_id: str | None = None, parent_span_id: str | None = None) -> None:
        """Hand a closed trial over; returns at once but for the loading of packages at the first."""
        self._started().put(trial, root_span_id=root_span_id, parent_span_id=parent_span_id)

    def counts(self) -> Counts:
        """Spans produced, exported, pending and dropped, of this store."""
        return Counts() if self._pipeline is None else self._pipeline.counts()

    def close(self) -> None:
        """Send for `export.wait_s` at most; the rest stays in the store and is noted.  Blocks: in a thread."""
        if self._pipeline is None:
            return
        pipeline = self._pipeline
        pipeline.look()
        counts = pipeline.close(self._wait_s)
        if counts.pending:
            why = f": {pipeline.trouble}" if pipeline.trouble else ""
            self._journal.note(ExportFailed(label="otlp", detail=f"{counts.pending} spans wait in the store{why}"))
        if counts.lost:
            self._journal.note(ExportFailed(label="lost", detail=f"{counts.dropped} spans so far in this store"))

    def _started(self) -> TracePipeline:
        with self._lock:
            if self._pipeline is None:
                from fairtrial.exporters.pipeline import TracePipeline

                self._pipeline = TracePipeline(
                    self._store, self._settings, self._journal, version=__version__, host=self._host
                )
                self._pipeline.start()
            return self._pipeline


def _by_proxy(url: str, host: str) -> bool:
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return False
    import urllib.request  # late: 20 ms of start-up

    return urlsplit(url).scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)
