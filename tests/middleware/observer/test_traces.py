"""Traces of an observer: handed over at once, left to the next start, and taken over from the killed."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairtrial.middleware.closing import recover_orphans
from fairtrial.middleware.core import semconv
from fairtrial.middleware.core.config import ExportConfig
from fairtrial.middleware.core.observations import Subject, TrialStarted
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.core.sink import Source, this_host
from fairtrial.middleware.observer.traces import Traces
from fairtrial.middleware.store.exports import Counts
from fairtrial.middleware.store.writer import Owner, StoreWriter
from tests.fakes.collector import http_collector
from tests.fakes.traced import BEGUN_NS, a_trial, span_count


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def traces(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, **more: str) -> Traces:
    for name, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": url, **more}.items():
        monkeypatch.setenv(name, value)
    return Traces(tmp_path / "s.db", Journal(io.StringIO()), host="node", config=ExportConfig(wait_s=20.0))


def a_killed_run(tmp_path: Path) -> str:
    """A trial that was begun, saw something, and whose process is no more; its id."""
    journal = Journal(io.StringIO())
    writer = StoreWriter(tmp_path / "s.db", journal)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    trial = Trial(trial="01930000-0000-7000-8000-00000000000a", trace_id="ab" * 16, started=a_trial().started)
    writer.open_trial(trial, Owner(gone.pid, this_host().boot_id, None))
    writer.want_trace(trial.trial, "cd" * 8, "ef" * 8)
    source = Source("observer", writer.put, host=this_host(), trial=trial.trial)
    source.emit(
        TrialStarted(trace_id=trial.trace_id, root_span_id="cd" * 8),
        subject=Subject(trial=trial.trial),
        wall_ns=BEGUN_NS,
        mono_ns=1,
    )
    writer.close()
    return trial.trial


def test_a_killed_runs_trace_is_closed_and_sent_once_by_the_next_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_killed_run(tmp_path)
    with http_collector() as collector:
        for expected in (1, 0, 0):
            journal = Journal(io.StringIO())
            writer = StoreWriter(tmp_path / "s.db", journal)
            assert recover_orphans(tmp_path / "s.db", writer, journal) == expected
            writer.close()
            mine = traces(tmp_path, collector.url, monkeypatch)
            mine.send_what_was_left()
            mine.close()
        (got,) = collector.got
    assert got.ids[0] == "cd" * 8
    assert bytes.fromhex("ef" * 8) in got.body, "the parent that the run was given"
    assert semconv.INCOMPLETE.encode() in got.body


def test_a_trial_is_handed_over_at_once_and_is_out_after_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_collector() as collector:
        mine = traces(tmp_path, collector.url, monkeypatch)
        mine.put(a_trial(), root_span_id="cd" * 8)
        mine.close()
        assert mine.counts() == Counts(produced=span_count(1), exported=span_count(1))
    assert collector.seen[0] == "cd" * 8


def test_a_dead_collector_is_noted_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = traces(tmp_path, "http://127.0.0.1:1", monkeypatch)
    mine.put(a_trial())
    begun = time.monotonic()
    mine.close()
    assert time.monotonic() - begun < 10
    assert mine.counts().pending == span_count(1)
    assert mine._journal.counts[("ExportFailed", "otlp")] == 1


def test_nothing_left_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = traces(tmp_path, "http://127.0.0.1:1", monkeypatch)
    mine.send_what_was_left()
    StoreWriter(tmp_path / "s.db", Journal(io.StringIO())).close()
    mine.send_what_was_left()
    assert mine._pipeline is None
    mine.close()
    assert mine.counts() == Counts()


@pytest.mark.parametrize(
    "environ, said",
    [
        ({}, "http://127.0.0.1:1/v1/traces does not answer"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://"}, "names no host"),
        ({"HTTP_PROXY": "http://proxy.example:3128"}, None),
        ({"HTTP_PROXY": "http://proxy.example:3128", "NO_PROXY": "127.0.0.1"}, "does not answer"),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, "does not answer"),
    ],
)
async def test_whether_anybody_listens_is_asked_where_it_can_be(
    environ: dict[str, str], said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await traces(tmp_path, "http://127.0.0.1:1", monkeypatch, **environ).unreachable()
    assert (answer is None) if said is None else (answer is not None and said in answer)


async def test_a_collector_that_listens_is_no_matter_to_talk_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_collector() as collector:
        assert await traces(tmp_path, collector.url, monkeypatch).unreachable() is None


async def test_grpc_without_grpcio_is_said_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    mine = traces(tmp_path, "http://127.0.0.1:1", monkeypatch, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    answer = await mine.unreachable()
    assert answer is not None
    assert "[grpc]" in answer
