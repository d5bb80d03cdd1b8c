"""A real Prometheus scrapes our page, keeps exemplars, evaluates the shipped rules; a real Alertmanager hears of it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fairtrial.exporters.prometheus import Metrics
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import (
    AttemptEnded,
    Host,
    Observation,
    ReplyFacts,
    RequestFacts,
    Subject,
    TrialStarted,
)
from fairtrial.middleware.core.sink import Source
from tests.deploy.tools import programs
from tests.fakes.prometheus import ALERTMANAGER, alertmanager, prometheus, until

TRACE = "cd" * 16
PROMETHEUS = programs("prometheus")

pytestmark = pytest.mark.skipif(
    not PROMETHEUS or not shutil.which(ALERTMANAGER),
    reason="not installed: prometheus, prometheus-alertmanager (Debian packages of these names)",
)


class Page(ThreadingHTTPServer):
    """Serves what a `Metrics` renders, until it is stopped."""

    daemon_threads = True

    def __init__(self, metrics: Metrics) -> None:
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content_type, body = metrics.render(self.headers.get("Accept", ""))
                self.send_response(200)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                del format, args

        super().__init__(("127.0.0.1", 0), Answer)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        """Nobody listens any more; safe to call twice."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
            self.server_close()


@pytest.fixture
def page() -> Iterator[Page]:
    """Metrics of three calls in one trace."""
    metrics = Metrics(version="9")
    kept: list[Observation] = []
    source = Source("x", kept.append, host=Host())
    source.emit(TrialStarted(command=["x"], trace_id=TRACE), subject=Subject(trial="t"))
    for number in range(3):
        source.emit(
            AttemptEnded(
                attempt=f"a{number}",
                provider="anthropic",
                dialect="anthropic_messages",
                request=RequestFacts(operation="chat", model="m", stream=True),
                reply=ReplyFacts(status=200, output_tokens=50),
                first_token=0.7,
                duration=2.0,
            ),
            subject=Subject(trial="t"),
        )
    for observation in kept:
        metrics.take(observation)
    made = Page(metrics)
    yield made
    made.stop()


@pytest.fixture(params=list(PROMETHEUS))
def running(page: Page, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Addresses of a Prometheus with the shipped configuration and of its Alertmanager."""
    with (
        alertmanager(tmp_path) as manager,
        prometheus(PROMETHEUS[request.param], tmp_path, page.address, alertmanager=manager) as base,
    ):
        yield base, f"http://{manager}"


def test_a_point_of_a_graph_leads_to_its_trace(running: tuple[str, str]) -> None:
    base, _ = running
    until(f"{base}/api/v1/targets", '"health": "up"', '"job": "fairtrial"')
    now_s = clock.now().wall_ns // 10**9
    window = f"start={now_s - 600}&end={now_s + 600}"
    exemplars = f"{base}/api/v1/query_exemplars?query=fairtrial_api_ttft_seconds_bucket&{window}"
    until(exemplars, TRACE, '"model": "m"')
    until(f"{base}/api/v1/query?query=fairtrial_api_attempts_total", '"status": "200"', '"3"')


def test_the_rules_load_and_our_own_death_reaches_whoever_is_on_call(running: tuple[str, str], page: Page) -> None:
    base, manager = running
    until(f"{base}/api/v1/targets", '"health": "up"')
    assert '"health": "err"' not in until(f"{base}/api/v1/rules", "FairtrialTtftDrift", "FairtrialOomRate")
    page.stop()
    until(f"{manager}/api/v2/alerts", "FairtrialDown", '"name": "oncall"')
