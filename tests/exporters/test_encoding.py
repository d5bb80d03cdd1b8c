"""Spans as OTLP requests: bounded, grouped by service, whole."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from fairtrial.exporters.bounds import LOSSLESS, Bounds
from fairtrial.exporters.encoding import REQUEST_BYTES, Resources, batches, encoded, halves
from fairtrial.exporters.spans import AttributeValue, Event, Link, Span
from fairtrial.exporters.trace_layout import spans_of
from fairtrial.middleware.core import semconv
from fairtrial.middleware.store.exports import Batch
from tests.fakes.traced import a_trial, span_count

RESOURCES = Resources(
    version="1", host="node", schema_url="https://s", extra={"deployment.environment.name": "ci", "service.name": "no"}
)


def plain(number: int, **attributes: AttributeValue) -> Span:
    """A span of its own id with these attributes."""
    return Span(
        service="s",
        name="n",
        kind="internal",
        trace_id="ab" * 16,
        span_id=f"{number:016x}",
        parent_id="ef" * 8,
        start_ns=1,
        end_ns=2,
        attributes=attributes,
    )


def decoded(batch: Batch) -> ExportTraceServiceRequest:
    request: ExportTraceServiceRequest = ExportTraceServiceRequest.FromString(batch.body)
    return request


def wire_spans(batch: Batch) -> list[WireSpan]:
    return [s for group in decoded(batch).resource_spans for scope in group.scope_spans for s in scope.spans]


def ids_of(batch: Batch) -> list[bytes]:
    return [batch.ids[at : at + 8] for at in range(0, len(batch.ids), 8)]


def test_the_sdks_detectors_and_the_users_names_are_heard_and_no_service_is_renamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "process")
    made = Resources(version="1", host=None, schema_url="", extra={"team": "a"}).of("agent-harness")
    found = {attribute.key: attribute.value for attribute in made.resource.attributes}
    assert found[semconv.SERVICE_NAME].string_value == "agent-harness"
    assert found["team"].string_value == "a"
    assert "process.pid" in found


def test_one_pipeline_speaks_for_three_services() -> None:
    (batch,) = batches(spans_of(a_trial()), RESOURCES, Bounds(), most=512)
    groups = decoded(batch).resource_spans
    resources = [{a.key: a.value.string_value for a in group.resource.attributes} for group in groups]
    assert [resource[semconv.SERVICE_NAME] for resource in resources] == [
        semconv.SERVICE_HARNESS,
        semconv.SERVICE_MODEL_API,
        semconv.SERVICE_CONTAINER,
    ]
    for resource, group in zip(resources, groups, strict=True):
        assert resource["deployment.environment.name"] == "ci"
        assert (resource[semconv.SERVICE_VERSION], resource[semconv.HOST_NAME]) == ("1", "node")
        assert resource["telemetry.sdk.name"] == "opentelemetry"
        assert group.schema_url == group.scope_spans[0].schema_url == "https://s"
        assert group.scope_spans[0].scope.name == semconv.SCOPE
    assert batch.spans == span_count(1)


@pytest.mark.parametrize("most", [1, 2, 50, 10_000])
def test_requests_are_bounded_by_count_and_lose_nothing(most: int) -> None:
    spans = spans_of(a_trial(steps=20))
    made = list(batches(spans, RESOURCES, Bounds(), most=most))
    assert max(batch.spans for batch in made) <= most
    assert [i for batch in made for i in ids_of(batch)] == [bytes.fromhex(span.span_id) for span in spans]
    assert all({s.span_id for s in wire_spans(batch)} == set(ids_of(batch)) for batch in made)


@pytest.mark.parametrize("limit", [2_000, 10_000, 100_000])
def test_requests_are_bounded_by_bytes(limit: int) -> None:
    spans = spans_of(a_trial(steps=20))
    made = list(batches(spans, RESOURCES, Bounds(), most=10_000, most_bytes=limit))
    assert max(len(batch.body) for batch in made) <= limit
    assert sum(batch.spans for batch in made) == span_count(20)


def test_the_default_stays_below_what_grpc_receivers_take() -> None:
    fat = [plain(n, **{f"k{a}": "v" * 250 for a in range(5)}) for n in range(1, 4001)]
    made = list(batches(fat, RESOURCES, Bounds(), most=10**9))
    assert len(made) > 1
    assert max(len(batch.body) for batch in made) <= REQUEST_BYTES < 4 << 20


def test_a_single_span_beyond_every_bound_goes_alone() -> None:
    fat = [plain(n, k="v" * 5000) for n in range(1, 4)]
    made = list(batches(fat, RESOURCES, LOSSLESS, most=512, most_bytes=1000))
    assert [batch.spans for batch in made] == [1, 1, 1]


def test_a_span_arrives_as_it_was_made() -> None:
    span = Span(
        service="s",
        name="n",
        kind="client",
        trace_id="ab" * 16,
        span_id="cd" * 8,
        parent_id="ef" * 8,
        start_ns=3,
        end_ns=4,
        attributes={"s": "t", "i": 5, "f": 0.5, "b": True, "l": ["x", "y"]},
        events=(Event(name="e", at_ns=6, attributes={"k": 1}),),
        links=(Link("12" * 16, "34" * 8),),
        error="because",
        dropped=(1, 2, 3),
    )
    wire = encoded(span)
    assert (wire.trace_id.hex(), wire.span_id.hex(), wire.parent_span_id.hex()) == ("ab" * 16, "cd" * 8, "ef" * 8)
    assert (wire.kind, wire.start_time_unix_nano, wire.end_time_unix_nano) == (WireSpan.SPAN_KIND_CLIENT, 3, 4)
    values = {pair.key: pair.value for pair in wire.attributes}
    assert (values["s"].string_value, values["i"].int_value, values["f"].double_value) == ("t", 5, 0.5)
    assert values["b"].WhichOneof("value") == "bool_value"
    assert [item.string_value for item in values["l"].array_value.values] == ["x", "y"]
    assert (wire.events[0].time_unix_nano, wire.events[0].attributes[0].value.int_value) == (6, 1)
    assert (wire.links[0].trace_id.hex(), wire.links[0].span_id.hex()) == ("12" * 16, "34" * 8)
    assert (wire.status.code, wire.status.message) == (Status.STATUS_CODE_ERROR, "because")
    assert (wire.dropped_attributes_count, wire.dropped_events_count, wire.dropped_links_count) == (1, 2, 3)


def test_halves_hold_the_same_spans_and_one_span_has_none() -> None:
    (batch,) = batches(spans_of(a_trial(steps=3)), RESOURCES, Bounds(), most=512)
    first, second = halves(batch)
    assert {*ids_of(first), *ids_of(second)} == set(ids_of(batch))
    assert first.spans + second.spans == batch.spans
    assert abs(first.spans - second.spans) <= 1
    for half in (first, second):
        assert {s.span_id for s in wire_spans(half)} == set(ids_of(half))
    (single,) = batches(spans_of(a_trial())[:1], RESOURCES, Bounds(), most=1)
    assert halves(single) == []
