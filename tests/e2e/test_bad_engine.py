"""A Docker socket that is absent, silent or babbling is said, and costs neither the run nor its verdict."""

import os
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pytest

from fairtrial.middleware.demo.script import say, shell
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e.demo_agent import OVERLOAD, STORM, agent_command, agent_environment
from tests.e2e.under import missed, run_under


@contextmanager
def silent_socket(path: Path) -> Generator[None, None, None]:
    """Takes connections and never answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        yield


@contextmanager
def babbling_socket(path: Path) -> Generator[None, None, None]:
    """Answers each connection with what is no HTTP."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return  # the listener was closed: the test is over
            with peer, suppress(OSError):
                peer.sendall(b"\x00\xffnonsense\r\n\r\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@contextmanager
def no_socket(path: Path) -> Generator[None, None, None]:
    yield


@pytest.mark.parametrize("kind", [no_socket, silent_socket, babbling_socket], ids=["absent", "silent", "babbling"])
def test_a_broken_docker_socket_is_said_and_costs_neither_the_run_nor_its_verdict(
    kind: Callable[[Path], AbstractContextManager[None]], home: Path, project: Path, tmp_path: Path
) -> None:
    path = Path(f"/tmp/ft-e2e-{os.getpid()}.sock")
    address = f"unix://{path}"
    code = "import os; print(os.environ['DOCKER_HOST'])"
    try:
        with kind(path), running_standin((shell("echo hello"), say("Done.")), OVERLOAD) as server:
            environment = agent_environment(home, server.url, DOCKER_HOST=address)
            del environment["FAIRTRIAL_RUN__DOCKER"]
            command = ["sh", "-c", '"$1" -c "$2"; shift 2; exec "$@"', "sh", sys.executable, code, *agent_command()]
            under = run_under(command, environment, project, kept=tmp_path / "kept")
    finally:
        path.unlink(missing_ok=True)
    assert under.outcome.returncode == 1, under.told()
    seen = under.outcome.stdout.partition("\n")[0]
    # An engine that was reached and is slow keeps its door: the command waits there as it would at the engine itself.
    assert seen.endswith("/docker.sock") if kind is silent_socket else seen == address, seen
    assert not (told := missed(under, STORM)), told
    told_of = under.trial.coverage.collectors.get("docker_events", "")
    assert not told_of.startswith("on"), under.told()
    assert under.outcome.duration_s < 20
