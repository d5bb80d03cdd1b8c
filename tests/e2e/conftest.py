"""Fixtures of the test bench: an engine, images in it, the harnesses, a network without a way out.

What cannot be had is skipped with its reason. The engine and the images live as long as the session.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e import clients
from tests.e2e.engine import Engine, EngineUnavailable, named_engine, private_engine
from tests.e2e.image import ImageUnavailable, ensure_image


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Engine]:
    """The engine named by FAIRTRIAL_TEST_DOCKER, else a private one for this session."""
    named = os.environ.get("FAIRTRIAL_TEST_DOCKER")
    try:
        if named:
            yield named_engine(named)
        else:
            with private_engine() as engine:
                yield engine
    except EngineUnavailable as reason:
        pytest.skip(str(reason))


def _is_newer(version: str) -> bool:
    """Whether an engine of this version is one that Inspect's Docker sandbox takes: 24.0.6."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", version)
    return found is not None and tuple(map(int, found.groups())) >= (24, 0, 6)


@pytest.fixture(scope="session")
def newer_engine() -> Iterator[Engine]:
    """An engine of 24.0.6 or newer: the one named by FAIRTRIAL_TEST_DOCKER, the installed one, or that of tools.sh."""
    named = os.environ.get("FAIRTRIAL_TEST_DOCKER")
    installed = shutil.which("dockerd")
    try:
        if named and _is_newer(named_engine(named).docker("version", "--format", "{{.Server.Version}}").stdout):
            yield named_engine(named)
            return
        said = [installed, "--version"] if installed else ["true"]
        told = subprocess.run(said, capture_output=True, text=True, check=False).stdout
        daemon = installed if installed and _is_newer(told) else str(clients.newer_dockerd())
        with private_engine(daemon=daemon) as engine:
            yield engine
    except (EngineUnavailable, clients.ToolMissing) as reason:
        pytest.skip(f"no Docker engine of 24.0.6 or newer: {reason}")


@pytest.fixture(scope="session")
def hooks_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for PYTHONPATH in which fairtrial-hooks is installed, entry points and all."""
    folder = str(tmp_path_factory.mktemp("hooks"))
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--target", folder]
    command = [sys.executable, "-m", "pip", "install", *options, str(clients.REPO_ROOT / "deploy" / "hooks")]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def _image(name: str, engine: Engine) -> str:
    try:
        return ensure_image(name, engine.docker_host, clients.e2e_folder() / "images")
    except ImageUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def busybox_image(docker_engine: Engine) -> str:
    """A 2 MB image with a shell and small tools, in `docker_engine`."""
    return _image("ft-busybox", docker_engine)


@pytest.fixture(scope="session")
def python_image(docker_engine: Engine) -> str:
    """An image with python3, bash and coreutils, in `docker_engine`: what mini-swe-agent needs."""
    return _image("ft-python", docker_engine)


@pytest.fixture(scope="session")
def claude() -> Path:
    """The installed Claude Code; skips where there is none."""
    try:
        return clients.claude_program()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["claude", pytest.param("claude-newer", marks=pytest.mark.dear)])
def claude_line(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each line of Claude Code that npm offers, as `clients.claude_program`; skips where it is not installed."""
    line: str = request.param
    monkeypatch.setenv("FAIRTRIAL_E2E_CLAUDE", line)
    try:
        clients.claude_program()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))
    return line


@pytest.fixture(scope="session")
def codex() -> Path:
    """The installed Codex; skips where there is none."""
    try:
        return clients.codex_program()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def opencode() -> Path:
    """The installed opencode; skips where there is none."""
    try:
        return clients.opencode_program()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def gemini() -> Path:
    """The installed Gemini CLI; skips where there is none."""
    try:
        return clients.gemini_program()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def sdks_python() -> Path:
    """A Python with the SDKs of Gemini, Ollama, Vertex and Bedrock; skips where there is none."""
    try:
        return clients.sdks_python()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def mini() -> Path:
    """The installed mini-swe-agent; skips where there is none."""
    try:
        return clients.mini_program()
    except clients.ToolMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A HOME of the test's own."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty working folder for an agent."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def loopback_only() -> Iterator[Sequence[str]]:
    """A command prefix that runs a program in a network namespace with nothing but loopback.

    Stand-in and harness must both get it. Unix sockets (so also a Docker engine) still work inside. Mounts are not
    touched, so cgroup files stay visible, which `ip netns exec` would hide. Empty where namespaces cannot be made:
    the harnesses' own switches then have to do.
    """
    name = f"ft-{os.getpid():x}"
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
        yield ()
        return
    if subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode != 0:
        yield ()
        return
    prefix = ("nsenter", f"--net=/run/netns/{name}")
    try:
        subprocess.run([*prefix, "ip", "link", "set", "lo", "up"], check=True, capture_output=True)
        yield prefix
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
