"""Whether traces are wanted, whether anybody takes them, and how a finished trial's trace is handed over.

In: the environment's `OTEL_…` variables and a `Trial`.  Out: spans at the collector, by `exporters/otlp.py`.  The
OpenTelemetry packages are loaded with the first trace: they cost more start-up than all of the observer.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final
from urllib.parse import urlsplit

from fairtrial import __version__
from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import ExportFailed, Journal

EXPORT_S: Final = 10.0
PROBE_S: Final = 2.0


def traces_asked_for() -> bool:
    """Whether an endpoint is named; decided without loading the OpenTelemetry packages, which are slow to start."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return bool(os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"))


async def unreachable() -> str | None:
    """Why no trace will arrive, asked while there is time; None when somebody listens at the endpoint."""
    url = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol == "grpc":
        return f"{mask_url(url)} is asked for over grpc, but only http/protobuf is built"
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(parts.hostname, port)
        writer.close()
    except (OSError, TimeoutError, ValueError) as error:
        return f"{mask_url(url)} does not answer ({error or 'no answer in time'})"
    return None


async def export(
    trial: Trial, journal: Journal, *, host: str | None, root_span_id: str | None, parent_span_id: str | None = None
) -> bool:
    """Send one trial's trace in a thread, at most `EXPORT_S`; False, and noted, when it did not go whole."""

    def send() -> tuple[int, int]:
        from fairtrial.exporters.otlp import TraceExport

        exporter = TraceExport(version=__version__, host=host)
        try:
            return exporter.send(trial, root_span_id=root_span_id, parent_span_id=parent_span_id)
        finally:
            exporter.close()

    try:
        sent, failed = await asyncio.wait_for(asyncio.to_thread(send), EXPORT_S)
    except Exception as error:  # noqa: BLE001 - whatever a collector or its library does, the record is stored
        journal.note(ExportFailed(label="otlp", detail=repr(error)))
        return False
    if failed:
        journal.note(ExportFailed(label="otlp", detail=f"{failed} of {sent + failed} spans refused"))
    return not failed
