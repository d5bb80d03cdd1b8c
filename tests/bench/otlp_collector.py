"""A stand-in for an OpenTelemetry collector, as a process: takes everything that is posted, and counts it when asked.

`python -m tests.bench.otlp_collector` prints its port.  A line on standard input is answered with a JSON object:
`posts`, `bytes`, `spans`, `client_spans` (attempts of model calls), `without_end`, `twice` (span ids that came again).
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"


class Taking(asyncio.Protocol):
    """One connection of an exporter."""

    def __init__(self, taken: list[tuple[str, bytes]]) -> None:
        self.taken = taken
        self.buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) != -1:
            lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            size = int(fields.get("content-length", "0"))
            if len(self.buffer) < end + 4 + size:
                return
            body = bytes(self.buffer[end + 4 : end + 4 + size])
            del self.buffer[: end + 4 + size]
            self.taken.append((lines[0], gzip.decompress(body) if fields.get("content-encoding") == "gzip" else body))
            self.transport.write(ANSWER)  # type: ignore[attr-defined]  # uvloop's is none by name


def counted(taken: list[tuple[str, bytes]]) -> dict[str, int]:
    """What has come until now."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    spans = clients = open_spans = 0
    seen: set[bytes] = set()
    for line, body in taken:
        if "/v1/traces" not in line:
            continue
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for of_scope in of_resource.scope_spans:
                spans += len(of_scope.spans)
                clients += sum(span.kind == Span.SPAN_KIND_CLIENT for span in of_scope.spans)
                open_spans += sum(not span.end_time_unix_nano for span in of_scope.spans)
                seen.update(span.trace_id + span.span_id for span in of_scope.spans)
    return {
        "posts": len(taken),
        "bytes": sum(len(body) for _, body in taken),
        "spans": spans,
        "client_spans": clients,
        "without_end": open_spans,
        "twice": spans - len(seen),
    }


async def serve() -> None:
    taken: list[tuple[str, bytes]] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Taking(taken), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(counted(taken)), flush=True)


if __name__ == "__main__":
    uvloop.run(serve())
