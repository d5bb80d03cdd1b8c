"""An engine whose clock differs from ours lays its events to wrong steps: that is said before a run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer

import pytest

from fairtrial.middleware.doctor.engine import docker


@pytest.fixture(params=[90, -90])
def ahead_s(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def engine(tmp_path: Path, ahead_s: int) -> Iterator[str]:
    """Answers /version and /info, with a clock of its own."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            now = datetime.now(UTC) + timedelta(seconds=ahead_s)
            # Nine digits of a second, as an engine writes them.
            told = {"Version": "99.1", "SystemTime": now.strftime("%Y-%m-%dT%H:%M:%S.%f") + "123Z"}
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "unix"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            return

    with UnixStreamServer(str(tmp_path / "s"), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"unix://{tmp_path}/s"
        server.shutdown()
        thread.join()


def test_a_clock_that_is_off_is_said_with_its_direction(engine: str, ahead_s: int) -> None:
    finding = docker({"DOCKER_HOST": engine})
    assert finding.state == "partial"
    assert "its clock is 9" in finding.text.replace("89.", "90.")
    assert ("before" if ahead_s > 0 else "behind") in finding.text
