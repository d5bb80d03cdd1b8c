"""Whole runs beside an engine that cannot be watched, and beside a service that somebody outside ends."""

from __future__ import annotations

import json
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.demo.script import say, shell
from tests.e2e.engine import Engine
from tests.e2e.outside import Outside, run_on_host, wait_for

DONE = say("Done.")


@contextmanager
def engine_that_says(version: dict[str, str]) -> Iterator[str]:
    """A server on loopback that answers `/_ping` and `/version` as an engine of another time; its DOCKER_HOST."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = {"/_ping": b"OK", "/version": json.dumps(version).encode()}.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of http.server
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "version, said",
    [
        ({"ApiVersion": "1.39", "Version": "18.09.1"}, "the engine 18.09.1 speaks API 1.39, and fairtrial needs 1.40"),
        ({"ApiVersion": "3.1", "MinAPIVersion": "3.0"}, "speaks no API older than 3.0"),
    ],
    ids=["too old", "too new"],
)
def test_a_run_beside_an_engine_of_another_time_says_so_once_and_is_judged_by_all_else(
    tmp_path: Path, version: dict[str, str], said: str
) -> None:
    with engine_that_says(version) as docker_host:
        # Long enough for the engine to be met.
        under = run_on_host((shell("sleep 2; echo ok > answer"), DONE), docker_host, tmp_path)
    assert under.outcome.returncode == 0, under.told()
    assert under.outcome.stderr.count("containers were not watched") == 1, under.told()
    assert said in under.outcome.stderr
    coverage = under.trial.coverage
    assert coverage.collectors["docker_events"].startswith("off"), coverage
    assert coverage.families["model_api"].level == "full"
    assert coverage.families["memory"].level != "none"
    assert under.verdict.blame is Blame.NONE


def test_a_service_that_somebody_outside_kills_is_evidence_and_not_the_models(
    docker_engine: Engine, busybox_image: str, tmp_path: Path
) -> None:
    """Both containers carry compose's labels, as compose itself gives them."""
    project = f"ft{uuid.uuid4().hex[:8]}"
    outside = Outside(docker_engine, set(docker_engine.containers()))

    def up(service: str) -> str:
        labels = f"--label com.docker.compose.project={project} --label com.docker.compose.service={service}"
        return f"docker run -d --name {project}-{service} --network none {labels} {busybox_image} sleep 600"

    def kill() -> None:
        wait_for(lambda: docker_engine.docker("inspect", f"{project}-main", check=False).returncode == 0)
        outside.box = docker_engine.docker("inspect", "--format", "{{.Id}}", f"{project}-main").stdout.strip()
        wait_for(lambda: outside.has("/ready"))
        docker_engine.docker("kill", f"{project}-db")

    thread = threading.Thread(target=kill)
    thread.start()
    script = (
        shell(f"docker exec {project}-main touch /ready"),
        shell(f"docker exec {project}-main sh -c 'sleep 3; exit 1'"),
        DONE,
    )
    harness = f"{up('db')} && {up('main')} && exec {sys.executable} -m fairtrial.middleware.demo.agent"
    try:
        under = run_on_host(script, docker_engine.docker_host, tmp_path, ["sh", "-c", harness])
        thread.join(60)
    finally:
        docker_engine.docker("rm", "-f", f"{project}-main", f"{project}-db", check=False)
    verdict = under.verdict
    assert verdict.grade is not None, under.told()
    told = (verdict.blame.value, verdict.grade.value, verdict.cause)
    assert told == ("infra", "suspected", "container.service_died"), under.told()
    assert f"{project}-db" in verdict.sentence
    roles = {use.name: use.role for step in under.trial.steps for use in step.containers}
    assert roles[f"{project}-db"] == "service"
    assert roles[f"{project}-main"] == "main"
