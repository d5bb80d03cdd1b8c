"""A sender that is killed at any moment: the next one sends what was left, nothing twice, and the books balance."""

from __future__ import annotations

import io
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from fairtrial.exporters.pipeline import TracePipeline
from fairtrial.exporters.settings import settings_of
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store import exports
from fairtrial.middleware.store.database import open_database
from tests.fakes.collector import http_collector
from tests.fakes.traced import a_trial, span_count

TRIALS = 40
PROGRAM = """
import json, pathlib, sys
import msgspec
from fairtrial.exporters.pipeline import TracePipeline
from fairtrial.exporters.settings import settings_of
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal
store, url, trials = sys.argv[1:]
environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "400", "OTEL_BSP_SCHEDULE_DELAY": "50"}
pipeline = TracePipeline(pathlib.Path(store), settings_of(environ), Journal(), version="0", host=None, first_wait_s=0.1)
pipeline.start()
print("started", flush=True)
for line in pathlib.Path(trials).read_bytes().splitlines():
    pipeline.put(msgspec.json.decode(line, type=Trial))
pipeline.settled(60)
print(json.dumps(pipeline.close(10).produced), flush=True)
"""


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_at_most_what_was_under_way_and_sends_nothing_twice(tmp_path: Path) -> None:
    store, trials = tmp_path / "s.db", tmp_path / "trials.jsonl"
    trials.write_bytes(b"".join(msgspec.json.encode(a_trial()) + b"\n" for _ in range(TRIALS)))
    moment = random.Random(1)
    with http_collector(*["ok", "ok", "503", "ok", "die", "hang"] * 20) as collector:
        for _ in range(8):
            command = [sys.executable, "-c", PROGRAM, str(store), collector.url, str(trials)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            time.sleep(moment.uniform(0.0, 0.5))
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
        collector.otherwise = "ok"
        collector.script.clear()
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_TIMEOUT": "400"}
        last = TracePipeline(store, settings_of(environ), Journal(io.StringIO()), version="0", host=None)
        last.start()
        for line in trials.read_bytes().splitlines():
            last.put(msgspec.json.decode(line, type=Trial))
        last.close(20)
        final = [got for got in collector.got if got.said != "503"]
    ids = [span for got in final for span in got.ids]
    assert len(ids) == len(set(ids))
    time.sleep(0.1)
    database = open_database(store)
    exports.expire(database, time.time_ns() + 3_600_000_000_000)
    counts = exports.counts(database)
    database.close()
    assert counts.produced == TRIALS * span_count(1) == counts.exported + counts.lost
    assert set(counts.dropped) <= {exports.UNCONFIRMED}
    assert counts.lost <= len(set(ids)), "only what had begun to go out"
    assert counts.exported > 0
