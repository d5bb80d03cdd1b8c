"""Spans as OTLP protobuf requests, small enough for every collector.

In: `Span` shapes and what the three services share (`Resources`).  Out: `Batch`es of serialized
`ExportTraceServiceRequest`s, each bounded by count and by bytes, with its spans grouped under their service.  Sizes are
what protobuf itself says.  The counterpart in JSON is `otlp_json.py`.

**Source:** OTLP 1.10, opentelemetry/proto/trace/v1/trace.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.sdk.resources import Resource as SdkResource

from fairtrial.exporters.bounds import Bounds, bounded, shrunk
from fairtrial.exporters.spans import Attributes, AttributeValue, Span
from fairtrial.middleware.core import semconv
from fairtrial.middleware.store.exports import ID_BYTES, Batch

REQUEST_BYTES: Final = 3 << 20
"""gRPC receivers refuse more than 4 MiB, HTTP ones more than 20 MiB."""
_FRAME_BYTES: Final = 6
"""Tag and length of a span within its request, at most."""
_KINDS: Final = {"internal": WireSpan.SPAN_KIND_INTERNAL, "client": WireSpan.SPAN_KIND_CLIENT}
_SAMPLED: Final = 0x101
"""Trace flags of a span: sampled; and: whether the parent is remote is known (it is not)."""


class Resources:
    """What every span of a service shares; `extra` are the user's own resource attributes, which cannot rename it.

    The SDK finds the rest: its name and version, and what the detectors of OTEL_EXPERIMENTAL_RESOURCE_DETECTORS say.
    """

    def __init__(self, *, version: str, host: str | None, schema_url: str, extra: Mapping[str, str]) -> None:
        self._scope = ScopeSpans(scope=InstrumentationScope(name=semconv.SCOPE, version=version), schema_url=schema_url)
        self._schema_url = schema_url
        shared: Attributes = {semconv.SERVICE_VERSION: version}
        if host is not None:
            shared[semconv.HOST_NAME] = host
        found = SdkResource.create({**shared, **extra}).attributes
        self._shared: Attributes = {key: value for key, value in found.items() if isinstance(value, str | int | float)}

    def of(self, service: str) -> ResourceSpans:
        """An empty group for spans of this service."""
        resource = Resource(attributes=list(_key_values({**self._shared, semconv.SERVICE_NAME: service})))
        return ResourceSpans(resource=resource, scope_spans=[self._scope], schema_url=self._schema_url)


def batches(
    spans: Iterable[Span], resources: Resources, bounds: Bounds, *, most: int, most_bytes: int = REQUEST_BYTES
) -> Iterator[Batch]:
    """Requests of at most `most` spans and `most_bytes`, in order; a single larger span makes a request of its own."""
    groups: dict[str, ResourceSpans] = {}
    ids: list[bytes] = []
    size = 0
    for span in spans:
        wire = small(span, bounds)
        group = groups.get(span.service) or resources.of(span.service)
        wire_bytes = wire.ByteSize() + _FRAME_BYTES
        new_bytes = 0 if span.service in groups else group.ByteSize() + 2 * _FRAME_BYTES
        if ids and (len(ids) >= most or size + wire_bytes + new_bytes > most_bytes):
            yield _request(groups, ids)
            groups, ids, size = {}, [], 0
            group = resources.of(span.service)
            new_bytes = group.ByteSize() + 2 * _FRAME_BYTES
        groups[span.service] = group
        group.scope_spans[0].spans.append(wire)
        ids.append(wire.span_id)
        size += wire_bytes + new_bytes
    if ids:
        yield _request(groups, ids)


def _request(groups: dict[str, ResourceSpans], ids: list[bytes]) -> Batch:
    request = ExportTraceServiceRequest(resource_spans=groups.values())
    return Batch(ids=b"".join(ids), body=request.SerializeToString())


def halves(batch: Batch) -> list[Batch]:
    """The same spans in two requests; an empty list when there is only one span."""
    if batch.spans < 2:
        return []
    request = ExportTraceServiceRequest.FromString(batch.body)
    order = {batch.ids[at : at + ID_BYTES]: at // ID_BYTES for at in range(0, len(batch.ids), ID_BYTES)}
    middle = batch.spans // 2
    parts = (ExportTraceServiceRequest(), ExportTraceServiceRequest())
    ids: tuple[list[bytes], list[bytes]] = ([], [])
    for group in request.resource_spans:
        for half, part in enumerate(parts):
            chosen = [
                span for span in group.scope_spans[0].spans if (order.get(span.span_id, 0) >= middle) == bool(half)
            ]
            if chosen:
                scope = ScopeSpans(
                    scope=group.scope_spans[0].scope, schema_url=group.scope_spans[0].schema_url, spans=chosen
                )
                part.resource_spans.append(
                    ResourceSpans(resource=group.resource, schema_url=group.schema_url, scope_spans=[scope])
                )
                ids[half].extend(span.span_id for span in chosen)
    return [Batch(ids=b"".join(ids[half]), body=part.SerializeToString()) for half, part in enumerate(parts)]


def small(span: Span, bounds: Bounds) -> WireSpan:
    """One span as OTLP, within its bounds."""
    span = bounded(span, bounds)
    wire = encoded(span)
    if bounds.span_bytes is None or wire.ByteSize() <= bounds.span_bytes:
        return wire
    return encoded(shrunk(span, bounds.span_bytes, weigh))


def weigh(span: Span) -> int:
    """Bytes of the span as protobuf."""
    return int(encoded(span).ByteSize())


def encoded(span: Span) -> WireSpan:
    """One span as OTLP."""
    status = Status() if span.error is None else Status(code=Status.STATUS_CODE_ERROR, message=span.error)
    return WireSpan(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id or ""),
        name=span.name,
        kind=_KINDS[span.kind],
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=_key_values(span.attributes),
        events=[
            WireSpan.Event(name=event.name, time_unix_nano=event.at_ns, attributes=_key_values(event.attributes))
            for event in span.events
        ],
        links=[
            WireSpan.Link(trace_id=bytes.fromhex(link.trace_id), span_id=bytes.fromhex(link.span_id), flags=_SAMPLED)
            for link in span.links
        ],
        status=status,
        dropped_attributes_count=span.dropped[0],
        dropped_events_count=span.dropped[1],
        dropped_links_count=span.dropped[2],
        flags=_SAMPLED,
    )


def _key_values(attributes: Mapping[str, AttributeValue]) -> Iterator[KeyValue]:
    for key, value in attributes.items():
        yield KeyValue(key=key, value=_any(value))


def _any(value: AttributeValue) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=item) for item in value]))
    return AnyValue(string_value=value)
