"""A whole evening: calls through a real `serve`, a real Prometheus, a real Jaeger; all of them say the same.

Five calls of three trials: two overloads (529) before an answer, a stream, a stream that stands still.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from fairtrial.middleware.core import clock, semconv
from fairtrial.middleware.core.records import Attempt, Trial
from tests.deploy.tools import RULES, programs
from tests.fakes.jaeger import Jaeger, binary, jaeger
from tests.fakes.prometheus import ask, free_port, prometheus, until
from tests.middleware.relay.serving import ASK, REPLY, Running, Serve, ending, opening, served

SECRET = "evening-0123456789abcdef"
STALL_S = 1.0
PROMETHEUS = programs("prometheus")
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PROMETHEUS, reason="not installed: prometheus, prometheus-alertmanager (Debian packages of these names)"
    ),
]


class _Api(BaseHTTPRequestHandler):
    """Does what `x-script` says: ok, 529, stream, stall."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        script = self.headers["x-script"]
        if script in ("stream", "stall"):
            self.wfile.write(opening())
            time.sleep(1.7 * STALL_S if script == "stall" else 0.0)
            self.wfile.write(ending())
            return
        body = json.dumps(OVERLOADED if script == "529" else REPLY).encode()
        self.send_response(529 if script == "529" else 200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        del format, args


@dataclass(frozen=True)
class Evening:
    """What is there when all trials are over."""

    prometheus: str
    jaeger: Jaeger | None
    trials: list[Trial]
    """By `fairtrial trials` and `fairtrial show`."""

    def attempts(self) -> list[Attempt]:
        calls = [call for trial in self.trials for step in trial.steps for call in step.calls]
        return [attempt for call in calls for attempt in call.attempts]

    def counts(self, query: str, label: str) -> dict[str, float]:
        """A query's values by one of their labels."""
        return {json.loads(metric)[label]: value for metric, value in ask(self.prometheus, query).items()}


def told(serve: Serve, *words: str) -> bytes:
    """What one of our commands prints."""
    command = [sys.executable, "-m", "fairtrial", *words, "--json", "--store", str(serve.store)]
    return subprocess.run(command, env=serve.environ, stdout=subprocess.PIPE, check=True, timeout=60).stdout


def evening_calls(running: Running) -> None:
    """Trials with a name in the path, behind the secret, as deploy/compose.yaml says."""

    def call(trial: str, script: str) -> int:
        headers = {"x-script": script}
        body = ASK | {"stream": True} if script.startswith("st") else ASK
        return running.call("anthropic", f"/t/{SECRET}.{trial}/v1/messages", headers, body)[0]

    assert running.call("anthropic", "/t/overloaded/v1/messages", {"x-script": "ok"})[0] == 403
    assert [call("overloaded", script) for script in ("529", "529", "ok")] == [529, 529, 200]
    assert call("streamed", "stream") == 200
    assert call("stalled", "stall") == 200


@pytest.fixture(scope="module")
def evening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evening]:
    folder = tmp_path_factory.mktemp("evening")
    with ExitStack() as stack:
        api = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
        threading.Thread(target=api.serve_forever, args=(0.02,), daemon=True).start()
        stack.callback(api.server_close)
        stack.callback(api.shutdown)
        traces = stack.enter_context(jaeger("memory", folder)) if binary() is not None else None
        serve = stack.enter_context(served(folder))
        scraped = f"127.0.0.1:{free_port()}"
        environ = {
            "FAIRTRIAL_SERVE__METRICS": scraped,
            "FAIRTRIAL_SERVE__ACCESS_TOKEN": SECRET,
            "FAIRTRIAL_VERDICT__STALL_S": str(STALL_S),
        }
        if traces is not None:
            environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = traces.http
        upstream = f"http://127.0.0.1:{api.server_address[1]}"
        running = serve.start({"anthropic": upstream}, "--listen", "0.0.0.0:0", environ=environ)
        running.wait_for_observer()
        base = stack.enter_context(prometheus(next(iter(PROMETHEUS.values())), folder, scraped))
        until(f"{base}/api/v1/targets", '"health": "up"')
        evening_calls(running)
        names = ("overloaded", "streamed", "stalled")
        for name in names:
            answer = running.report(f"trials/{name}/over", {"Authorization": f"Bearer {SECRET}"}, "POST")
            assert answer[0] == 202
        settled(lambda: sum(ask(base, "fairtrial_trials_total").values()) == len(names))
        rows = json.loads(told(serve, "trials"))
        assert len(rows) == len(names)
        shown = [msgspec.json.decode(told(serve, "show", name), type=Trial) for name in names]
        yield Evening(base, traces, shown)


def settled(claim: Callable[[], bool], deadline_s: float = 30.0) -> None:
    end = time.monotonic() + deadline_s
    while not claim():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_prometheus_and_our_own_commands_count_the_same(evening: Evening) -> None:
    by_status = Counter(str(attempt.status) for attempt in evening.attempts())
    assert by_status == {"529": 2, "200": 3}
    assert evening.counts("sum by (status) (fairtrial_api_attempts_total)", "status") == by_status
    by_outcome = Counter(str(attempt.outcome) for attempt in evening.attempts())
    counted = "sum by (outcome) (fairtrial_api_attempt_duration_seconds_count)"
    assert evening.counts(counted, "outcome") == by_outcome
    streamed = sum(attempt.first_token is not None for attempt in evening.attempts())
    assert sum(ask(evening.prometheus, "fairtrial_api_ttft_seconds_count").values()) == streamed == 2
    assert evening.counts("fairtrial_api_stalls_total", "owner") == {"upstream": 1}
    (longest,) = [call.max_gap for trial in evening.trials if trial.name == "stalled" for call in trial.steps[0].calls]
    assert longest is not None
    assert longest >= STALL_S
    spent = sum(ask(evening.prometheus, "fairtrial_api_attempt_duration_seconds_sum").values())
    assert spent == pytest.approx(sum(attempt.duration or 0.0 for attempt in evening.attempts()), rel=1e-3)
    blamed = Counter(trial.verdict.blame.value for trial in evening.trials if trial.verdict)
    assert evening.counts("sum by (blame) (fairtrial_trials_total)", "blame") == blamed


def test_the_rules_count_what_came_before_the_first_scrape(evening: Evening) -> None:
    """The counters appeared with their first values: `increase` alone sees nothing of this evening."""
    settled(lambda: ask(evening.prometheus, "fairtrial:attempts_failed_10m") != {})
    settled(lambda: 1.9 < sum(ask(evening.prometheus, "fairtrial:attempts_failed_10m").values()) < 2.5)
    settled(lambda: 4.9 < sum(ask(evening.prometheus, "fairtrial:attempts_10m").values()) < 6.0)


def test_a_point_of_a_graph_and_an_alert_lead_to_traces_in_jaeger(evening: Evening) -> None:
    if evening.jaeger is None:
        pytest.skip("no Jaeger: JAEGER_BIN is not set and tests/jaeger.sh has built none")
    trace_of = {trial.name: trial.trace_id for trial in evening.trials}
    now_s = clock.now().wall_ns // 10**9
    window = urllib.parse.urlencode({"query": "fairtrial_api_attempts_total", "start": now_s - 600, "end": now_s + 60})
    found = until(f"{evening.prometheus}/api/v1/query_exemplars?{window}", str(trace_of["overloaded"]))
    for series in json.loads(found)["data"]:
        for exemplar in series["exemplars"]:
            (trace,) = evening.jaeger.get(f"/api/traces/{exemplar['labels']['trace_id']}")
            assert trace["traceID"] in trace_of.values()
    assert linked(evening.jaeger, "FairtrialProviderOutage") == {trace_of["overloaded"]}
    model = {"model": str(ASK["model"]), "least": "1.0"}
    assert linked(evening.jaeger, "FairtrialDurationDrift", **model) == {trace_of["stalled"]}
    assert linked(evening.jaeger, "FairtrialTokenRateDrift", **model) == set(trace_of.values())


def linked(jaeger: Jaeger, alert: str, *, model: str = "", least: str = "") -> set[object]:
    """Traces that the link of an alert finds; its page asks the API with these very parameters."""
    (written,) = re.findall(rf'- alert: {alert}\n.*?traces: (".+?")\n', RULES.read_text(), re.DOTALL)
    link = json.loads(written).replace("{{ $labels.model | urlquery }}", model)
    link = link.replace("{{ $value | printf `%.1f` }}", least)
    assert "{{" not in link
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(link).query))
    assert query.pop("lookback") == "6h"
    assert query["service"] in (semconv.SERVICE_HARNESS, semconv.SERVICE_MODEL_API)
    return {trace["traceID"] for trace in jaeger.search(**query)}
