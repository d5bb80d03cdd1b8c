"""Servers of this machine that listen, and ones that are gone: asked of this kernel."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fairtrial.middleware.relay.listening import listens, of_this_machine

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")

SERVE = """
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
connection.sendall(b"begun")
sys.stdin.read()
"""


@pytest.mark.parametrize("bound", ["127.0.0.1", "0.0.0.0"])
def test_a_server_listens_until_somebody_ends_it(bound: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE, bound], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        with socket.create_connection(("127.0.0.1", int(server.stdout.readline()))) as ours:
            assert ours.recv(5) == b"begun"
            far = of_this_machine(ours.getpeername(), ours.getsockname())
            assert far is not None
            assert listens(far) is True
            server.kill()
            server.wait()
            assert listens(far) is False


def test_an_end_that_is_another_machines_or_no_ipv4_address_is_not_asked_for() -> None:
    assert of_this_machine(("192.0.2.1", 443), ("10.0.0.7", 5)) is None
    assert of_this_machine(("10.0.0.7", 443), ("10.0.0.7", 5)) == ("10.0.0.7", 443)
    assert of_this_machine("", "") is None
    assert of_this_machine(("::1", 443, 0, 0), ("::1", 5, 0, 0)) is None


def test_an_address_that_cannot_be_asked_for_is_not_known() -> None:
    assert listens(("no address", 1)) is None
