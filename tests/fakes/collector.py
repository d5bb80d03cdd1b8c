"""Stand-in trace collectors on loopback, over HTTP and over gRPC, that answer as they are told.

Each keeps what it was sent whole, and what it said yes to.  A request without spans is a question whether somebody is
there; it is answered by `probe`, one with spans by the next word of `script` (then by `otherwise`)::

    ok  ok:TEXT (a warning)  partial:N  STATUS (as 400)  STATUS:RETRY-AFTER  hang  die  reset  half (reads half, then
    resets)  drip (a byte of the answer every 50 ms)  flood (an answer without end)
"""

from __future__ import annotations

import contextlib
import gzip
import http.server
import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from fairtrial.exporters.otlp_json import from_json


@dataclass
class Got:
    """One request with spans."""

    ids: list[str]
    said: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Collector:
    """What a stand-in was told and what it saw."""

    script: list[str] = field(default_factory=list[str])
    otherwise: str = "ok"
    probe: str = "ok"
    got: list[Got] = field(default_factory=list[Got])
    probes: int = 0
    port: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def seen(self) -> list[str]:
        """Span ids of every request that came whole, in order."""
        return [span for got in self.got for span in got.ids]

    @property
    def taken(self) -> list[str]:
        """Span ids of requests that were answered with yes."""
        return [span for got in self.got if got.said.startswith(("ok", "partial", "drip")) for span in got.ids]

    def word(self, ids: list[str]) -> str:
        """What to answer now."""
        with self.lock:
            if not ids:
                self.probes += 1
                return self.probe
            return self.script.pop(0) if self.script else self.otherwise

    def note(self, got: Got) -> None:
        """Keep a request that came whole."""
        with self.lock:
            self.got.append(got)


def ids_in(body: bytes) -> list[str]:
    """Span ids of a serialized request."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        span.span_id.hex() for group in request.resource_spans for scope in group.scope_spans for span in scope.spans
    ]


def response(word: str) -> bytes:
    """The body of a yes."""
    kind, _, more = word.partition(":")
    partial = ExportTracePartialSuccess()
    if kind == "partial":
        partial = ExportTracePartialSuccess(rejected_spans=int(more), error_message="too old")
    elif more:
        partial = ExportTracePartialSuccess(error_message=more)
    body: bytes = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    return body


def unpacked(raw: bytes, encoding: str) -> bytes:
    """A body without its content encoding."""
    if encoding == "gzip":
        return gzip.decompress(raw)
    return zlib.decompress(raw) if encoding == "deflate" else raw


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def collector(self) -> Collector:
        """Who answers."""
        assert isinstance(self.server, _Server)
        return self.server.collector

    def do_POST(self) -> None:
        collector = self.collector
        length = int(self.headers["content-length"] or 0)
        if length and collector.script[:1] == ["half"]:
            self.rfile.read(length // 2)
            collector.script.pop(0)
            self._reset()
            return
        raw = self.rfile.read(length)
        if len(raw) < length:
            self.close_connection = True
            return
        body = unpacked(raw, self.headers.get("content-encoding", ""))
        if self.headers["content-type"] == "application/json":
            body = from_json(body)
        ids = ids_in(body)
        word = collector.word(ids)
        if ids:
            headers = {name.lower(): value for name, value in self.headers.items()}
            collector.note(Got(ids, word, self.path, headers, body))
        self._say(word)

    def _say(self, word: str) -> None:
        kind, _, more = word.partition(":")
        if kind == "hang":
            self.collector.stop.wait(60)
            self.close_connection = True
        elif kind == "die":
            self.close_connection = True
        elif kind == "reset":
            self._reset()
        elif kind == "drip":
            for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n":
                if self.collector.stop.wait(0.05):
                    return
                self.wfile.write(bytes([byte]))
        elif kind == "flood":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with contextlib.suppress(OSError):
                while not self.collector.stop.is_set():
                    self.wfile.write(b"\0" * 65536)
            self.close_connection = True
        elif kind in ("ok", "partial"):
            self._answer(200, response(word))
        else:
            headers = {"location": "/elsewhere"} if kind.startswith("3") else {}
            self._answer(int(kind), b"no", headers | ({"retry-after": more} if more else {}))

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.connection.close()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    collector: Collector

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some tests are about."""


@contextlib.contextmanager
def http_collector(
    *script: str, otherwise: str = "ok", probe: str = "ok", port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Collector]:
    """A collector that listens, with TLS where a context is given."""
    collector = Collector(list(script), otherwise, probe)
    server = _Server(("127.0.0.1", port), _Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.collector, collector.port = collector, server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.stop.set()
        server.shutdown()
        server.server_close()
        thread.join()
