"""OTLP as JSON: one request a line, which Jaeger's upload, collectors and our own reader take.

In: a serialized `ExportTraceServiceRequest`.  Out: its JSON in the OTLP mapping, and back, without loss.  The mapping
is protobuf's own but for two rules of OTLP: ids are hexadecimal, enumerations are numbers.

**Source:** OTLP 1.10, "JSON Protobuf Encoding"; the collector's file exporter for one request a line.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from google.protobuf.json_format import MessageToDict, ParseDict  # type: ignore[import-untyped]  # ships no types
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_IDS = ("traceId", "spanId", "parentSpanId")


def to_json(body: bytes) -> bytes:
    """One line without its end; raises protobuf's `DecodeError` for bytes that are no request."""
    tree = MessageToDict(ExportTraceServiceRequest.FromString(body), use_integers_for_enums=True)
    _each_id(tree, lambda text: base64.b64decode(text).hex())
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(line: bytes) -> bytes:
    """The serialized request of a line; raises `ValueError` (protobuf's `ParseError` too) for one that is none."""
    tree = json.loads(line)
    if not isinstance(tree, dict):
        raise TypeError("an OTLP line is a JSON object")
    _each_id(tree, lambda text: base64.b64encode(bytes.fromhex(text)).decode())
    request = ExportTraceServiceRequest()
    ParseDict(tree, request)
    return bytes(request.SerializeToString())


def _each_id(node: object, change: Callable[[str], str]) -> None:
    """Ids stand in spans and links only; an attribute of that name is a key's value, not a key."""
    if isinstance(node, list):
        for item in node:
            _each_id(item, change)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in _IDS and isinstance(value, str):
                node[key] = change(value)
            else:
                _each_id(value, change)
