"""Sends a finished trial's spans over OTLP/HTTP; whether anybody asked for them is `app.py`'s to know.

In: a `Trial` record.  Out: one export per service name to `OTEL_EXPORTER_OTLP_(TRACES_)ENDPOINT`; the exporter
library reads the other `OTEL_EXPORTER_OTLP_*` settings itself.  Runs after the verdict was handed over, in the
observer, with a bound in time, so a dead collector delays nobody; what it could not send stays in the store.
Batching, spilling and revised verdicts as linked spans are not here yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event as SdkEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from fairtrial.exporters.trace_layout import Span, spans_of
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.records import Trial

BATCH_SPANS: Final = 256
"""Spans of at most about 1.5 KB each, so a request stays well under the collectors' 4 MiB."""

_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}


class TraceExport:
    """One exporter connection; `send` returns how many spans were accepted and how many were not."""

    def __init__(self, *, version: str, host: str | None, timeout_s: float = 5.0) -> None:
        self._version = version
        self._host = host
        self._exporter = OTLPSpanExporter(timeout=timeout_s)

    def send(
        self, trial: Trial, *, root_span_id: str | None = None, parent_span_id: str | None = None
    ) -> tuple[int, int]:
        """Send every span of the trial once.  Raises nothing of ours; the library logs and returns failure."""
        spans = spans_of(trial, root_span_id=root_span_id, parent_span_id=parent_span_id)
        sent = failed = 0
        for batch in _batches(self._readable(spans)):
            if self._exporter.export(batch) is SpanExportResult.SUCCESS:
                sent += len(batch)
            else:
                failed += len(batch)
        return sent, failed

    def close(self) -> None:
        """Give the connection back."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library leaves it unannotated

    def _readable(self, spans: list[Span]) -> Iterable[ReadableSpan]:
        scope = InstrumentationScope(semconv.SCOPE, self._version, semconv.SCHEMA_URL)
        by_service = sorted(spans, key=lambda span: span.service)
        for service, members in groupby(by_service, key=lambda span: span.service):
            attributes = {semconv.SERVICE_NAME: service, semconv.SERVICE_VERSION: self._version}
            if self._host is not None:
                attributes[semconv.HOST_NAME] = self._host
            # Resource.create is left out: it would let OTEL_SERVICE_NAME rename all three services to one.
            resource = Resource(attributes)
            for span in members:
                yield _readable(span, resource, scope)


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _readable(span: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    status = Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error)
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
        resource=resource,
        attributes=span.attributes,
        events=[SdkEvent(event.name, event.attributes, event.at_ns) for event in span.events],
        links=[Link(_context(span.trace_id, link)) for link in span.links],
        kind=_KINDS[span.kind],
        status=status,
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scope,
    )


def _batches(spans: Iterable[ReadableSpan]) -> Iterable[list[ReadableSpan]]:
    batch: list[ReadableSpan] = []
    for span in spans:
        batch.append(span)
        if len(batch) == BATCH_SPANS:
            yield batch
            batch = []
    if batch:
        yield batch
