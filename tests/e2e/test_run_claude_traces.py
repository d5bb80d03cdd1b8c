"""Claude Code with its own telemetry on, under `fairtrial run`: its spans and ours stand in one trace, in Jaeger."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from fairtrial.middleware.core import semconv
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.test_standin_clients import SCRIPT
from tests.e2e.under import NO_DOCKER, run_under
from tests.fakes.jaeger import binary, jaeger

THEIRS = "claude-code"


@pytest.mark.slow
@pytest.mark.usefixtures("claude_line")
@pytest.mark.skipif(binary() is None, reason="no Jaeger: JAEGER_BIN is not set and tests/jaeger.sh has built none")
def test_the_agents_own_spans_hang_below_our_trial_in_one_trace(home: Path, project: Path, tmp_path: Path) -> None:
    with jaeger("memory", tmp_path) as running, running_standin(SCRIPT) as server:
        environment = clients.claude_environment(
            home,
            server.url,
            **NO_DOCKER,
            CLAUDE_CODE_ENABLE_TELEMETRY="1",
            CLAUDE_CODE_ENHANCED_TELEMETRY_BETA="1",
            OTEL_TRACES_EXPORTER="otlp",
            OTEL_EXPORTER_OTLP_PROTOCOL="http/json",
            OTEL_EXPORTER_OTLP_ENDPOINT=running.http,
            OTEL_BSP_SCHEDULE_DELAY="200",
        )
        under = run_under(clients.claude_command("say hello using bash"), environment, project, kept=tmp_path / "kept")
        trial = under.trial
        (trace,) = running.search(tags=json.dumps({semconv.TRIAL: trial.trial}))
        deadline = time.monotonic() + 20
        while THEIRS not in services(trace) and time.monotonic() < deadline:
            time.sleep(0.2)
            (trace,) = running.search(tags=json.dumps({semconv.TRIAL: trial.trial}))
    assert trace["traceID"] == trial.trace_id
    assert {THEIRS, semconv.SERVICE_HARNESS, semconv.SERVICE_MODEL_API} <= services(trace), under.told()
    spans = trace["spans"]
    assert isinstance(spans, list)
    by_id = {span["spanID"]: span for span in spans}
    (root,) = [span for span in spans if span["operationName"] == semconv.SPAN_TRIAL]
    theirs = [span for span in spans if span["operationName"].startswith("claude_code.")]
    assert {"claude_code.interaction", "claude_code.llm_request"} <= {span["operationName"] for span in theirs}
    for span in theirs:
        while span is not root:
            span = by_id[span["references"][0]["spanID"]]
    ours = [span for span in spans if span["operationName"].startswith("chat ")]
    requests = [span for span in theirs if span["operationName"] == "claude_code.llm_request"]
    assert len(ours) >= len(requests) == 2


def services(trace: dict[str, object]) -> set[str]:
    """Names of the services in a trace."""
    processes = trace["processes"]
    assert isinstance(processes, dict)
    return {process["serviceName"] for process in processes.values()}
