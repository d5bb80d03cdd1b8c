"""Who listens behind a socket: told from a connection, by pid and start time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from fairtrial.collectors.engine_process import EngineProcess, listening_process

_LISTEN = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.bind(sys.argv[1]); s.listen(); print(os.getpid(), flush=True)
    s.accept(); sys.stdin.read()
"""


def met(path: Path) -> EngineProcess | None:
    """Who listens there, in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", _LISTEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        with socket.socket(socket.AF_UNIX) as here:
            here.connect(str(path))
            found = listening_process(here)
        assert found is None or found.pid == pid
        server.communicate("")
    return found


def test_the_listener_is_told_by_its_pid_and_start(tmp_path: Path) -> None:
    first, second = met(tmp_path / "a"), met(tmp_path / "b")
    assert first is not None
    assert second is not None
    assert first != second


def test_what_init_listens_for_and_what_has_no_process_here_is_nobody(tmp_path: Path) -> None:
    for pid, stat in (("1", None), (str(os.getpid()), None), (str(os.getpid()), "garbage")):
        if stat is not None:
            (tmp_path / pid).mkdir(exist_ok=True)
            (tmp_path / pid / "stat").write_text(stat)
        near, far = socket.socketpair()
        with near, far:
            assert listening_process(near, proc=tmp_path) is None


def test_a_socket_over_the_network_has_no_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        assert listening_process(here) is None
