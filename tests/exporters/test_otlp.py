"""Spans on the wire: a real OTLP/HTTP receiver on loopback decodes what was sent."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fairtrial.exporters.otlp import TraceExport
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.records import Step, Trial


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps each request's body; answers with the server's `status`."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.bodies.append((self.path, self.headers["content-encoding"], body))  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.ThreadingHTTPServer]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.bodies, server.status = [], 200  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "must-not-win")
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def a_trial(steps: int = 1) -> Trial:
    begun = "2026-11-29T10:00:00.000000Z"
    many = [Step(index=n, started=begun, ended=begun) for n in range(1, steps + 1)]
    return Trial(trial="t", trace_id="ab" * 16, started=begun, ended=begun, steps=many)


def test_every_span_arrives_once_in_bounded_batches(receiver: http.server.ThreadingHTTPServer) -> None:
    export = TraceExport(version="0", host="node")
    assert export.send(a_trial(600), root_span_id="cd" * 8) == (601, 0)
    export.close()
    seen: list[bytes] = []
    services: set[str] = set()
    for path, _, body in receiver.bodies:  # type: ignore[attr-defined]
        assert path == "/v1/traces"
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for group in request.resource_spans:
            services |= {a.value.string_value for a in group.resource.attributes if a.key == semconv.SERVICE_NAME}
            seen += [span.span_id for scope in group.scope_spans for span in scope.spans]
    assert len(seen) == len(set(seen)) == 601
    assert bytes.fromhex("cd" * 8) in seen
    assert len(receiver.bodies) >= 3  # type: ignore[attr-defined]
    assert services == {semconv.SERVICE_HARNESS}


def test_a_refusal_is_counted_and_raises_nothing(receiver: http.server.ThreadingHTTPServer) -> None:
    receiver.status = 400  # type: ignore[attr-defined]
    export = TraceExport(version="0", host=None)
    assert export.send(a_trial()) == (0, 2)
    export.close()
