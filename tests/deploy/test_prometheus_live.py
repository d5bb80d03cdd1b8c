"""A real Prometheus scrapes our page, keeps exemplars, evaluates the shipped rules; a real Alertmanager hears of it."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
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

TRACE = "cd" * 16
DEADLINE_S = 60.0
PROMETHEUS = programs("prometheus")
ALERTMANAGER = "prometheus-alertmanager"

pytestmark = pytest.mark.skipif(
    not PROMETHEUS or not shutil.which(ALERTMANAGER),
    reason="not installed: prometheus, prometheus-alertmanager (Debian packages of these names)",
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def ask(url: str) -> object:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def until(url: str, *wanted: str) -> str:
    """Asks until all of this is in the answer."""
    end = time.monotonic() + DEADLINE_S
    text = ""
    while time.monotonic() < end:
        with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
            text = json.dumps(ask(url))
            if all(part in text for part in wanted):
                return text
        time.sleep(0.25)
    raise AssertionError(f"{url}: {wanted} not within {DEADLINE_S} s: {text[-2000:]}")


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
def prometheus(
    page: Page, repo_root: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[str, str]]:
    """Addresses of a Prometheus with the shipped configuration and of its Alertmanager; names and paces differ."""
    ports = free_port(), free_port()
    deploy = repo_root / "deploy"
    shutil.copy(deploy / "prometheus" / "rules.yml", tmp_path)
    shipped = (deploy / "prometheus" / "prometheus.yml").read_text()
    text = shipped.replace("fairtrial:9464", page.address).replace("alertmanager:9093", f"127.0.0.1:{ports[1]}")
    assert text.count("127.0.0.1") == 2
    text = text.replace("scrape_interval: 15s", "scrape_interval: 1s").replace("interval: 1m", "interval: 1s")
    (tmp_path / "prometheus.yml").write_text(text)
    rules = (tmp_path / "rules.yml").read_text().replace("interval: 1m", "interval: 1s").replace("for: 5m", "for: 1s")
    (tmp_path / "rules.yml").write_text(rules)
    commands = (
        [
            PROMETHEUS[request.param],
            f"--config.file={tmp_path}/prometheus.yml",
            f"--web.listen-address=127.0.0.1:{ports[0]}",
            f"--storage.tsdb.path={tmp_path}/tsdb",
            "--enable-feature=exemplar-storage",
        ],
        [
            ALERTMANAGER,
            f"--config.file={deploy}/alertmanager/alertmanager.yml",
            f"--web.listen-address=127.0.0.1:{ports[1]}",
            f"--storage.path={tmp_path}/alerts",
            "--cluster.listen-address=",
        ],
    )
    with (tmp_path / "log").open("wb") as log:
        running = [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]
        try:
            yield f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(30)


def test_a_point_of_a_graph_leads_to_its_trace(prometheus: tuple[str, str]) -> None:
    base, _ = prometheus
    until(f"{base}/api/v1/targets", '"health": "up"', '"job": "fairtrial"')
    now_s = clock.now().wall_ns // 10**9
    window = f"start={now_s - 600}&end={now_s + 600}"
    exemplars = f"{base}/api/v1/query_exemplars?query=fairtrial_api_ttft_seconds_bucket&{window}"
    until(exemplars, TRACE, '"model": "m"')
    until(f"{base}/api/v1/query?query=fairtrial_api_attempts_total", '"status": "200"', '"3"')


def test_the_rules_load_and_our_own_death_reaches_whoever_is_on_call(prometheus: tuple[str, str], page: Page) -> None:
    base, manager = prometheus
    until(f"{base}/api/v1/targets", '"health": "up"')
    assert '"health": "err"' not in until(f"{base}/api/v1/rules", "FairtrialTtftDrift", "FairtrialOomRate")
    page.stop()
    until(f"{manager}/api/v2/alerts", "FairtrialDown", '"name": "oncall"')
