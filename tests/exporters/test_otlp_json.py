"""OTLP as JSON loses nothing, and is what the specification calls JSON."""

from __future__ import annotations

import json

import pytest
from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]  # ships no types
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # same

from fairtrial.exporters.bounds import LOSSLESS
from fairtrial.exporters.encoding import Resources, batches
from fairtrial.exporters.otlp_json import from_json, to_json
from fairtrial.exporters.trace_layout import spans_of
from tests.fakes.traced import a_trial

RESOURCES = Resources(version="1", host=None, schema_url="https://s", extra={"spanId": "not an id"})


def test_there_and_back_is_the_same_request() -> None:
    for batch in batches(spans_of(a_trial(steps=5)), RESOURCES, LOSSLESS, most=7):
        line = to_json(batch.body)
        assert b"\n" not in line
        assert from_json(line) == batch.body


def test_ids_are_hexadecimal_enumerations_numbers_and_nanoseconds_texts() -> None:
    trial = a_trial()
    (batch,) = batches(spans_of(trial, root_span_id="cd" * 8), RESOURCES, LOSSLESS, most=99)
    tree = json.loads(to_json(batch.body))
    spans = [s for group in tree["resourceSpans"] for scope in group["scopeSpans"] for s in scope["spans"]]
    root, phase = spans[:2]
    assert (root["traceId"], root["spanId"]) == (trial.trace_id, "cd" * 8)
    assert phase["parentSpanId"] == "cd" * 8
    assert (root["kind"], root["status"]["code"]) == (1, 2)
    assert isinstance(root["startTimeUnixNano"], str)
    assert root["links"][0]["traceId"] == trial.trace_id


def test_an_attribute_called_like_an_id_is_left_alone() -> None:
    (batch,) = batches(spans_of(a_trial()), RESOURCES, LOSSLESS, most=99)
    assert {"key": "spanId", "value": {"stringValue": "not an id"}} in json.loads(to_json(batch.body))["resourceSpans"][
        0
    ]["resource"]["attributes"]


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz"}]}]}]}']
)
def test_a_line_that_is_none_is_told(line: bytes) -> None:
    with pytest.raises((ValueError, TypeError, ParseError)):
        from_json(line)


def test_bytes_that_are_no_request_are_told() -> None:
    with pytest.raises(DecodeError):
        to_json(b"\xff\xff")
