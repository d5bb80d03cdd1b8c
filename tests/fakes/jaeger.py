"""The real Jaeger, started for a test: `JAEGER_BIN`, else what `tests/jaeger.sh` built under .cache/jaeger.

In: which storage.  Out: its endpoints and its query API as the UI uses it.  Version 1.76 (= v2.13).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BUILT = Path(__file__).parents[2] / ".cache" / "jaeger" / "jaeger"
_CONFIG = """
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}
  telemetry:
    logs: {{level: error}}
    metrics: {{level: none}}
extensions:
  jaeger_storage:
    backends:
      kept: {backend}
  jaeger_query:
    storage: {{traces: kept}}
    http: {{endpoint: "127.0.0.1:{query}"}}
    grpc: {{endpoint: "127.0.0.1:{query_grpc}"}}
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: "127.0.0.1:{grpc}"}}
      http: {{endpoint: "127.0.0.1:{http}"}}
exporters:
  jaeger_storage_exporter: {{trace_storage: kept}}
"""
_BACKENDS = {
    "memory": "{memory: {max_traces: 1000}}",
    "badger": '{{badger: {{directories: {{keys: "{folder}/keys", values: "{folder}/values"}}, ephemeral: false}}}}',
}


def binary() -> Path | None:
    """Jaeger's program, or None where there is none."""
    path = Path(os.environ.get("JAEGER_BIN") or BUILT)
    return path if path.is_file() else None


@dataclass(frozen=True)
class Jaeger:
    """One that runs."""

    http: str
    grpc: str
    query: str

    def get(self, path: str, **query: object) -> list[dict[str, object]]:
        """`data` of an answer of the query API."""
        url = f"{self.query}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            data = json.load(answer)["data"]
        return data or []

    def search(
        self, *, within_s: float = 20.0, service: str = "agent-harness", **more: object
    ) -> list[dict[str, object]]:
        """Traces by the UI's own search, over the last two days; waits until there is one, or the time is over."""
        end_us = time.time_ns() // 1000
        query = {"service": service, "start": end_us - 2 * 86_400_000_000, "end": end_us, "limit": 50} | more
        deadline = time.monotonic() + within_s
        while not (found := self.get("/api/traces", **query)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.contextmanager
def jaeger(storage: str, folder: Path) -> Iterator[Jaeger]:
    """Jaeger with `memory` or `badger` storage on free ports."""
    program = binary()
    assert program is not None
    http, grpc, query, query_grpc = _free_ports(4)
    backend = _BACKENDS[storage].format(folder=folder) if storage == "badger" else _BACKENDS[storage]
    config = folder / "jaeger.yaml"
    config.write_text(_CONFIG.format(backend=backend, http=http, grpc=grpc, query=query, query_grpc=query_grpc))
    # Else it sends traces of its own to port 4317, and at its end tries that for twenty seconds.
    environ = os.environ | {"OTEL_TRACES_SAMPLER": "always_off"}
    with (folder / "jaeger.log").open("wb") as log:
        process = subprocess.Popen([str(program), "--config", str(config)], stdout=log, stderr=log, env=environ)
    running = Jaeger(f"http://127.0.0.1:{http}", f"http://127.0.0.1:{grpc}", f"http://127.0.0.1:{query}")
    try:
        deadline = time.monotonic() + 60
        while True:
            assert process.poll() is None, (folder / "jaeger.log").read_text()
            assert time.monotonic() < deadline, (folder / "jaeger.log").read_text()
            try:
                running.get("/api/services")
                socket.create_connection(("127.0.0.1", http), timeout=1).close()
                break
            except (OSError, urllib.error.URLError, KeyError):
                time.sleep(0.1)
        yield running
    finally:
        process.terminate()
        process.wait(30)
