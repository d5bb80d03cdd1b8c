"""What deploy/ says, tried: the units by systemd's own checker, the image's user, environment and probe in a container.

The container has this host's Python and this checkout instead of what the Dockerfile's build stage installs, so that no
registry is needed; everything that the Dockerfile says about *running* is read from it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.engine import Engine
from tests.middleware.relay.serving import AnsweringUpstream, free_port, until

SECRET = "0123456789abcdef0123456789abcdef"
MOST_EXPOSED = 15
"""Of systemd-analyze security, in tenths: 0 is locked in, 100 is bare."""


# --- systemd --------------------------------------------------------------------------------------------------------


@pytest.fixture
def units(repo_root: Path, tmp_path: Path) -> Path:
    """The units with a program that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in (repo_root / "deploy" / "systemd").glob("fairtrial.s*"):
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/fairtrial/bin/fairtrial", "/bin/true"))
    return tmp_path


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60, check=False)


def test_systemd_has_nothing_to_say_against_the_units(units: Path) -> None:
    done = analyze("verify", *(str(path) for path in sorted(units.iterdir())))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_service_is_locked_in(units: Path) -> None:
    done = analyze("security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(units / "fairtrial.service"))
    assert done.returncode == 0, done.stdout


def test_the_socket_unit_listens_where_the_settings_say(repo_root: Path) -> None:
    from fairtrial.middleware.relay import serve_opts
    from fairtrial.middleware.relay.serve_plan import plan, read_settings

    folder = repo_root / "deploy" / "systemd"
    settings = read_settings(serve_opts.parse(["--config", str(folder / "serve.toml")]), {"HOME": "/nowhere"})
    places = [str(door.place) for door in plan(settings, {"HOME": "/nowhere"}, "/").doors]
    assert re.findall(r"(?m)^ListenStream=(.+)$", (folder / "fairtrial.socket").read_text()) == places


# --- Docker ---------------------------------------------------------------------------------------------------------


class Said:
    """What the Dockerfile says about the running container."""

    def __init__(self, text: str) -> None:
        final = text.replace("\\\n", " ").rpartition("\nFROM ")[2]
        lines: dict[str, str] = {}
        for line in final.splitlines():
            word, _, rest = line.partition(" ")
            lines[word] = rest
        self.user = lines["USER"]
        self.volume = lines["VOLUME"]
        self.entrypoint: list[str] = json.loads(lines["ENTRYPOINT"])
        self.command: list[str] = json.loads(lines["CMD"])
        self.probe: list[str] = json.loads(lines["HEALTHCHECK"].partition(" CMD ")[2])
        self.environ = {found[1]: found[2] for found in re.finditer(r"(\w+)=(\S+)", lines["ENV"])}


@pytest.fixture(scope="module")
def said(repo_root: Path) -> Said:
    return Said((repo_root / "deploy" / "Dockerfile").read_text())


def test_the_image_copies_only_what_is_there_and_ends_as_nobody(repo_root: Path, said: Said) -> None:
    text = (repo_root / "deploy" / "Dockerfile").read_text()
    sources = [word for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", text) for word in line.split()[:-1]]
    assert [source for source in sources if not (repo_root / source).exists()] == []
    assert set(sources) >= {"fairtrial/__init__.py", "middleware", "collectors", "exporters", "pyproject.toml"}
    uid = said.user.partition(":")[0]
    assert uid.isdecimal() and int(uid) > 0, "a number, so that Kubernetes' runAsNonRoot can tell"


class Box:
    """The container of one test."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._host = engine.docker_host
        self.name = name

    def docker(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["docker", "-H", self._host, *words], capture_output=True, text=True, timeout=120, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip() if check else f"{done.returncode}"


@pytest.fixture
def box(docker_engine: Engine) -> Iterator[Box]:
    made = Box(docker_engine, f"ft-serve-{time.time_ns()}")
    yield made
    made.docker("rm", "-f", "-v", made.name, check=False)


def test_it_serves_read_only_without_root_and_without_capabilities(
    box: Box, python_image: str, repo_root: Path, said: Said
) -> None:
    upstream = AnsweringUpstream()
    port, health = free_port(), free_port()
    environ = said.environ | {
        "PYTHONPATH": "/src:/deps",
        "PYTHONDONTWRITEBYTECODE": "1",
        "FAIRTRIAL_SERVE__PORT": str(port),
        "FAIRTRIAL_SERVE__HEALTH": f"127.0.0.1:{health}",
        "FAIRTRIAL_SERVE__METRICS": f"127.0.0.1:{free_port()}",
        "FAIRTRIAL_SERVE__UPSTREAMS": f"anthropic={upstream.url}",
        "FAIRTRIAL_SERVE__ACCESS_TOKEN": SECRET,
    }
    variables = [word for name, value in environ.items() for word in ("-e", f"{name}={value}")]
    box.docker(
        "run", "-d", "--name", box.name, "--network", "host", "--read-only", "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges", "--memory", "512m", "--user", said.user,
        "--tmpfs", f"{said.volume}:mode=0700,uid={said.user.partition(':')[0]}",
        "-v", f"{repo_root}:/src:ro", "-v", f"{sysconfig.get_path('purelib')}:/deps:ro",
        *variables, python_image, "python3", "-m", "fairtrial", *said.command,
    )  # fmt: skip
    probe = [word.replace("8789", str(health)) for word in ["python3", *said.probe[1:]]]

    def well() -> bool:
        return box.docker("exec", box.name, *probe, check=False) == "0"

    until(well, "the probe of the image finds it ready", deadline_s=60)
    running = Door(port)
    assert running.post("/v1/messages") == 403
    assert running.post(f"/t/{SECRET}.django-1/v1/messages") == 200
    status = box.docker("exec", box.name, "cat", "/proc/1/status")
    assert re.search(r"(?m)^Uid:\t65532\t", status) and re.search(r"(?m)^CapEff:\t0+$", status)
    assert re.search(r"(?m)^NoNewPrivs:\t1$", status)

    def stored() -> bool:
        return "django-1" in box.docker("exec", box.name, "python3", "-m", "fairtrial", "trials", "--json")

    until(stored, "the trial is in the store of the container", deadline_s=60)
    box.docker("stop", "-t", "60", box.name)
    assert box.docker("inspect", "-f", "{{.State.ExitCode}}", box.name) == "0"
    upstream.close()


class Door:
    """A door on this host's loopback."""

    def __init__(self, port: int) -> None:
        self._port = port

    def post(self, path: str) -> int:
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("POST", path, "{}", {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()


def test_it_does_not_start_open_to_the_network_without_a_word(
    box: Box, python_image: str, repo_root: Path, said: Said
) -> None:
    variables = [word for name, value in said.environ.items() for word in ("-e", f"{name}={value}")]
    box.docker(
        "run", "-d", "--name", box.name, "--network", "none", "--read-only", "--user", said.user,
        "-v", f"{repo_root}:/src:ro", "-v", f"{sysconfig.get_path('purelib')}:/deps:ro",
        *variables, "-e", "PYTHONPATH=/src:/deps", "-e", "FAIRTRIAL_SERVE__UPSTREAMS=anthropic=https://a",
        python_image, "python3", "-m", "fairtrial", *said.command,
    )  # fmt: skip
    assert box.docker("wait", box.name) == "78"
