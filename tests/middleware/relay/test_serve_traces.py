"""`fairtrial serve` and a trace collector: what a drain hands over, and a collector that is away."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import threading

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.middleware.relay.serving import AnsweringUpstream, Serve, free_port, until

pytestmark = pytest.mark.slow


class Collector:
    """Takes spans over HTTP; `names` is what came, in any order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        names = self.names

        class Take(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                said = ExportTraceServiceRequest.FromString(body)
                names.extend(s.name for r in said.resource_spans for scope in r.scope_spans for s in scope.spans)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Take)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_drain_hands_over_the_traces_of_all_trials(serve: Serve, upstream: AnsweringUpstream) -> None:
    with contextlib.closing(Collector()) as collector:
        running = serve.start({"anthropic": upstream.url}, environ={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
        for name in ("one", "two", "three"):
            running.call("anthropic", f"/t/{name}/v1/messages")
        assert running.report("trials/one/over", method="POST")[0] == 202
        until(lambda: collector.names.count("trial") == 1, "a trial that is over is sent while serve goes on")
        assert running.end() == 0
        assert collector.names.count("trial") == 3
        assert collector.names.count("attempt") == 3


def test_a_collector_that_is_away_delays_the_end_by_no_more_than_the_flush(
    serve: Serve, upstream: AnsweringUpstream
) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "FAIRTRIAL_SERVE__FLUSH_S": "2",
    }
    running = serve.start({"anthropic": upstream.url}, environ=environ)
    running.call("anthropic", "/t/one/v1/messages")
    assert running.end() == 0
    assert serve.closed("one") == "incomplete", "it is stored all the same"
    with contextlib.closing(Collector()) as collector:
        again = serve.start({"anthropic": upstream.url}, environ={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
        until(lambda: collector.names.count("trial") == 1, "the next start sends what was left")
        assert again.end() == 0
