"""What all tests share: what this machine can do, and who may be skipped.

A test marked `docker` or `root` is skipped, with the reason, where there is no engine or no uid 0. In CI
(FAIRTRIAL_CI=1, set by .ci/run) a skip is a failure unless tests/allowed_skips.txt allows its reason: a test that
silently stops running protects nobody. Fixtures here: `docker_host`, `repo_root`.
"""

import functools
import http.client
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO_ROOT = Path(__file__).resolve().parent.parent
IN_CI = os.environ.get("FAIRTRIAL_CI") == "1"
ALL = os.environ.get("FAIRTRIAL_ALL") == "1"
"""Set by `make test-all`."""
E2E_TIMEOUT_S = 600
SLOW_TIMEOUT_S = 300

FORBIDDEN_SKIPS: list[str] = []

# A shell without job control starts what it puts behind `&` with these ignored, and every command a test starts would
# inherit that: Ctrl-C and a closed terminal are what some tests are about.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket, for one `/_ping`."""

    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@functools.cache
def engine() -> tuple[str | None, str]:
    """The address of a Docker engine that answers, or None and the reason why there is none."""
    named = os.environ.get("FAIRTRIAL_TEST_DOCKER") or os.environ.get("DOCKER_HOST")
    address = named or "unix:///var/run/docker.sock"
    if not address.startswith("unix://"):
        return None, f"tests use a Docker engine on a unix socket only, not {address}"
    connection = _UnixConnection(address.removeprefix("unix://"))
    try:
        connection.request("GET", "/_ping")
        status = connection.getresponse().status
    except OSError as error:
        return None, f"no Docker engine answers at {address} ({error.strerror or error}); set FAIRTRIAL_TEST_DOCKER"
    finally:
        connection.close()
    return (address, "") if status == 200 else (None, f"the Docker engine at {address} answers /_ping with {status}")


@pytest.fixture(scope="session")
def docker_host() -> str:
    """`unix://…` of an engine that answers; skips the test where there is none."""
    address, why_not = engine()
    if address is None:
        pytest.skip(why_not)
    return address


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """The top of the checkout."""
    return REPO_ROOT


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks tests/e2e as such and gives the long kinds their time; leaves the dear ones to `make test-all`."""
    if not ALL and (dear := [item for item in items if item.get_closest_marker("dear")]):
        items[:] = [item for item in items if item not in dear]
        config.hook.pytest_deselected(items=dear)
    for item in items:
        if item.path.is_relative_to(REPO_ROOT / "tests" / "e2e"):
            item.add_marker("e2e")
        if item.get_closest_marker("timeout") is None:
            if item.get_closest_marker("e2e"):
                item.add_marker(pytest.mark.timeout(E2E_TIMEOUT_S))
            elif item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips, with its reason, what this machine cannot do."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs uid 0")
    if item.get_closest_marker("docker"):
        address, why_not = engine()
        if address is None:
            pytest.skip(why_not)


def allowed_skips(text: str) -> list[re.Pattern[str]]:
    """The patterns of tests/allowed_skips.txt; blank lines and comments are none."""
    return [re.compile(line) for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


def _note_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not (IN_CI and report.skipped) or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    line = f"{report.nodeid}: {reason.removeprefix('Skipped: ')}"
    patterns = allowed_skips((REPO_ROOT / "tests" / "allowed_skips.txt").read_text())
    if not any(pattern.search(line) for pattern in patterns):
        FORBIDDEN_SKIPS.append(line)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes skips of tests."""
    _note_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Notes skips of whole files (importorskip, allow_module_level)."""
    _note_skip(report)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """A forbidden skip fails the session."""
    if FORBIDDEN_SKIPS and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Says which skips failed the session; in CI what failed, before the details, which may push it out of sight."""
    broken = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    if IN_CI and broken:
        terminalreporter.section(f"what failed ({len(broken)}); details follow", red=True)
        for report in broken:
            terminalreporter.line(report.nodeid)
    if FORBIDDEN_SKIPS:
        terminalreporter.section("skipped, but must run in CI (tests/allowed_skips.txt)", red=True)
        for line in FORBIDDEN_SKIPS:
            terminalreporter.line(line)
    yield
