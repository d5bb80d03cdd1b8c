"""The real Prometheus, and Alertmanager, started for a test with the shipped configuration at a pace of a second.

In: which program, and the address of the page to scrape.  Out: the address of its API.  Only names, ports and paces
differ from what is shipped.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ALERTMANAGER = "prometheus-alertmanager"
DEPLOY = Path(__file__).parents[2] / "deploy"
DEADLINE_S = 60.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def until(url: str, *wanted: str) -> str:
    """Asks until all of this is in the answer."""
    end = time.monotonic() + DEADLINE_S
    text = ""
    while time.monotonic() < end:
        with contextlib.suppress(OSError, urllib.error.URLError, ValueError):
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = json.dumps(json.loads(answer.read()))
            if all(part in text for part in wanted):
                return text
        time.sleep(0.25)
    raise AssertionError(f"{url}: {wanted} not within {DEADLINE_S} s: {text[-2000:]}")


def ask(base: str, query: str) -> dict[str, float]:
    """What an instant query gives: labels as JSON, in order of their names -> value."""
    url = f"{base}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return {json.dumps(one["metric"], sort_keys=True): float(one["value"][1]) for one in found}


@contextlib.contextmanager
def prometheus(program: str, folder: Path, scraped: str, *, alertmanager: str = "127.0.0.1:1") -> Iterator[str]:
    """One that scrapes `scraped` (HOST:PORT) each second and evaluates the shipped rules each second."""
    shipped = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    text = shipped.replace("fairtrial:9464", scraped).replace("alertmanager:9093", alertmanager)
    assert text.count("127.0.0.1") == 2
    text = text.replace("scrape_interval: 15s", "scrape_interval: 1s").replace("interval: 1m", "interval: 1s")
    (folder / "prometheus.yml").write_text(text)
    rules = (DEPLOY / "prometheus" / "rules.yml").read_text()
    (folder / "rules.yml").write_text(rules.replace("interval: 1m", "interval: 1s").replace("for: 5m", "for: 1s"))
    port = free_port()
    command = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--storage.tsdb.path={folder}/tsdb",
        "--enable-feature=exemplar-storage",
    ]
    with _running(command, folder / "prometheus.log"):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """HOST:PORT of one with the shipped configuration."""
    port = free_port()
    command = [
        shutil.which(ALERTMANAGER) or ALERTMANAGER,
        f"--config.file={DEPLOY}/alertmanager/alertmanager.yml",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--storage.path={folder}/alerts",
        "--cluster.listen-address=",
    ]
    with _running(command, folder / "alertmanager.log"):
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)
