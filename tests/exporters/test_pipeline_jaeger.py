"""Traces in the real Jaeger, on both of its storages: found by one search, whole, nothing for the UI to warn of."""

from __future__ import annotations

import io
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fairtrial.exporters.bounds import LOSSLESS
from fairtrial.exporters.encoding import Resources, batches
from fairtrial.exporters.otlp_json import to_json
from fairtrial.exporters.pipeline import TracePipeline
from fairtrial.exporters.rotation import MAX_SPANS
from fairtrial.exporters.settings import settings_of
from fairtrial.exporters.trace_layout import spans_of
from fairtrial.middleware.core import clock, semconv
from fairtrial.middleware.core.records import Trial
from fairtrial.middleware.core.selfevents import Journal
from fairtrial.middleware.store.database import insert_trial, open_database
from tests.fakes.jaeger import Jaeger, binary, jaeger
from tests.fakes.traced import BEGUN_NS, a_step, a_trial, a_verdict, span_count

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(binary() is None, reason="no Jaeger: JAEGER_BIN is not set and tests/jaeger.sh has built none"),
]


@pytest.fixture(scope="module", params=["memory", "badger"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    with jaeger(str(request.param), tmp_path_factory.mktemp("jaeger")) as one:
        yield one


def sent(tmp_path: Path, endpoint: str, *trials: Trial, protocol: str = "http/protobuf") -> None:
    """Send them as the observer does; all must arrive."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    open_database(tmp_path / "s.db").close()
    pipeline = TracePipeline(tmp_path / "s.db", settings_of(environ), Journal(io.StringIO()), version="0", host="n")
    pipeline.start()
    for trial in trials:
        database = open_database(tmp_path / "s.db")
        with database:
            insert_trial(database, trial)
        database.close()
        pipeline.put(trial)
        assert pipeline.settled(60)
    counts = pipeline.close(10)
    assert counts.produced == counts.exported


def a_recent_trial(**changes: object) -> Trial:
    """As `a_trial`, an hour ago."""
    now_ns = time.time_ns() - 3_600_000_000_000
    text = msgspec.json.encode(a_trial(**changes)).decode()  # type: ignore[arg-type]  # the same changes
    for n in range(5):
        text = text.replace(clock.rfc3339(BEGUN_NS + n * 1_000_000_000), clock.rfc3339(now_ns + n * 1_000_000_000))
    return msgspec.json.decode(text, type=Trial)


def tags(span: object) -> dict[str, object]:
    assert isinstance(span, dict)
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def spans_in(trace: dict[str, object]) -> list[dict[str, object]]:
    spans = trace["spans"]
    assert isinstance(spans, list)
    return spans


def test_a_failed_trial_is_found_by_its_cause_in_one_search_and_is_whole(running: Jaeger, tmp_path: Path) -> None:
    task = f"task-{time.time_ns()}"
    oom, stalled = a_recent_trial(task=task), a_recent_trial(task=task, cause="model_api.stalled")
    passed = a_recent_trial(task=task, cause=None)
    killed = a_recent_trial(task=task, cause="unknown.outside", closed="recovered")
    sent(tmp_path, running.http, oom, stalled, passed, killed)
    by_task = {semconv.TASK: task}
    for more, trial in (
        ({semconv.CAUSE: "container.oom_kill"}, oom),
        ({semconv.TERMINATED_BY: "container.oom_kill"}, oom),
        ({semconv.BLAME: "infra", semconv.GRADE: "suspected", semconv.CAUSE: "model_api.stalled"}, stalled),
        ({semconv.INCOMPLETE: "yes"}, killed),
        ({semconv.BLAME: "none"}, passed),
    ):
        (trace,) = running.search(tags=json.dumps(by_task | more))
        assert trace["traceID"] == trial.trace_id
        assert len(spans_in(trace)) == span_count(1)
    assert len(running.search(tags=json.dumps(by_task))) == 4
    assert len(running.search(tags=json.dumps(by_task | {semconv.RUN: "r"}))) == 4
    assert len(running.search(tags=json.dumps(by_task), minDuration="2s")) == 4
    assert running.search(tags=json.dumps(by_task), minDuration="9s", within_s=1.0) == []
    guilty = running.search(service="task-container", tags=json.dumps({semconv.GUILTY: "yes"}))
    assert oom.trace_id in [trace["traceID"] for trace in guilty]


def test_the_ui_has_all_that_it_reads_and_nothing_to_warn_of(running: Jaeger, tmp_path: Path) -> None:
    trial = a_recent_trial()
    sent(tmp_path, running.http, trial)
    (trace,) = running.search(tags=json.dumps({semconv.TRIAL: trial.trial}))
    spans = spans_in(trace)
    assert [span["warnings"] for span in spans] == [None] * len(spans)
    processes = trace["processes"]
    assert isinstance(processes, dict)
    assert sorted(process["serviceName"] for process in processes.values()) == [
        semconv.SERVICE_HARNESS,
        semconv.SERVICE_MODEL_API,
        semconv.SERVICE_CONTAINER,
    ]
    (root,) = [span for span in spans if span["operationName"] == "trial"]
    assert trial.verdict is not None
    shown = tags(root)
    assert (shown["error"], shown["otel.status_code"]) == (True, "ERROR")
    assert str(shown["otel.status_description"]).startswith(trial.verdict.sentence[:200])
    (kill,) = [span for span in spans if span["operationName"] == semconv.SPAN_OOM_KILL]
    references = root["references"]
    assert isinstance(references, list)
    assert {(r["refType"], r["spanID"]) for r in references} == {("FOLLOWS_FROM", kill["spanID"])}
    parents = {span["spanID"] for span in spans}
    for span in spans:
        held = span["references"]
        assert isinstance(held, list)
        assert span is root or any(r["refType"] == "CHILD_OF" and r["spanID"] in parents for r in held)
    (step,) = [span for span in spans if span["operationName"] == "step"]
    assert tags(step)[semconv.STEP_OOM_KILLS] == 1


def test_a_long_trial_opens_in_parts_of_which_one_is_found(running: Jaeger, tmp_path: Path) -> None:
    trial = a_recent_trial(steps=700)
    sent(tmp_path, running.http, trial)
    (first,) = running.search(tags=json.dumps({semconv.TRIAL: trial.trial, semconv.BLAME: "infra"}))
    both = running.search(tags=json.dumps({semconv.TRIAL: trial.trial}))
    assert len(both) == 2
    assert sum(len(spans_in(trace)) for trace in both) == span_count(700) + 1
    assert max(len(spans_in(trace)) for trace in both) <= MAX_SPANS
    (root,) = [span for span in spans_in(first) if span["operationName"] == "trial"]
    references = root["references"]
    assert isinstance(references, list)
    assert {r["traceID"] for r in references} == {trace["traceID"] for trace in both}


def test_a_revised_verdict_is_found_in_the_same_trace(running: Jaeger, tmp_path: Path) -> None:
    late = a_recent_trial()
    calm = msgspec.structs.replace(late.steps[0], containers=a_step(oom_kills=None).containers)
    first = msgspec.structs.replace(late, steps=[calm], verdict=a_verdict(None))
    second = msgspec.structs.replace(late, verdict=a_verdict(revision=2))
    sent(tmp_path, running.http, first, second)
    (trace,) = running.search(tags=json.dumps({semconv.CAUSE: "container.oom_kill", semconv.TRIAL: first.trial}))
    assert trace["traceID"] == first.trace_id
    names = [span["operationName"] for span in spans_in(trace)]
    assert sorted(name for name in names if name in ("verdict", "late_evidence", "oom_kill")) == [
        "late_evidence",
        "oom_kill",
        "verdict",
    ]
    assert [span["warnings"] for span in spans_in(trace)] == [None] * len(names)


@pytest.mark.parametrize("protocol", ["http/json", "grpc"])
def test_the_other_protocols_arrive_as_well(running: Jaeger, tmp_path: Path, protocol: str) -> None:
    if protocol == "grpc":
        pytest.importorskip("grpc", reason="grpcio (the extra `grpc`) is not installed")
    trial = a_recent_trial()
    sent(tmp_path, running.grpc if protocol == "grpc" else running.http, trial, protocol=protocol)
    (trace,) = running.search(tags=json.dumps({semconv.TRIAL: trial.trial}))
    assert len(spans_in(trace)) == span_count(1)


def test_a_line_of_otlp_json_is_what_the_upload_takes(running: Jaeger) -> None:
    trial = a_recent_trial()
    resources = Resources(version="0", host=None, schema_url="", extra={})
    (batch,) = batches(spans_of(trial), resources, LOSSLESS, most=512)
    request = urllib.request.Request(f"{running.query}/api/transform", data=to_json(batch.body), method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        (trace,) = json.load(answer)["data"]
    assert trace["traceID"] == trial.trace_id
    assert len(trace["spans"]) == span_count(1)
