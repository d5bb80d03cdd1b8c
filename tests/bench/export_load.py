"""A process that exports: puts copies of one recorded trial into a `TracePipeline`, and tells what that took.

`python -m tests.bench.export_load RECORD STORE ENDPOINT`.  A line on standard input is how many copies to put (0: only
look for what waits in the store); the answer is a line of JSON, once all is sent or the collector is waited for: spans
`produced`, `exported`, `pending`, `dropped` (of the store), CPU seconds since the start, resident megabytes.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path

import msgspec

from fairtrial.exporters.pipeline import TracePipeline
from fairtrial.exporters.settings import settings_of
from fairtrial.middleware.core import ids
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal
from tests.bench.processes import Process

PATIENCE_S = 60.0


def main(record: str, store: str, endpoint: str) -> None:
    """Until standard input ends."""
    trial = msgspec.json.decode(Path(record).read_bytes(), type=Trial)
    settings = settings_of({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint})
    pipeline = TracePipeline(Path(store), settings, Journal(io.StringIO()), version="0", host="h")
    pipeline.start()
    pipeline.settled(PATIENCE_S)
    print(0, flush=True)
    began_s = time.process_time()
    for line in sys.stdin:
        copies = int(line)
        pipeline.look()
        for _ in range(copies):
            pipeline.put(msgspec.structs.replace(trial, trial=ids.new_id(), trace_id=ids.new_trace_id()))
            pipeline.settled(PATIENCE_S)
        pipeline.settled(PATIENCE_S)
        counts = pipeline.counts()
        print(
            json.dumps(
                {
                    "produced": counts.produced,
                    "exported": counts.exported,
                    "pending": counts.pending,
                    "dropped": sum(counts.dropped.values()),
                    "cpu_s": time.process_time() - began_s,
                    "rss_mb": Process(os.getpid()).rss_mb(),
                }
            ),
            flush=True,
        )
    pipeline.close(0.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
