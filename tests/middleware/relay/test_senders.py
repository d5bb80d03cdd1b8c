"""Who opened a connection, told by the kernel while it was open: real processes, real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.middleware.relay.senders import NOBODY_OF_OURS, PER_SECOND, Senders

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")

DIAL = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_a_child_that_connects_is_told_with_its_parents(door: socket.socket) -> None:
    with subprocess.Popen([sys.executable, "-c", DIAL, str(door.getsockname()[1])]) as child:
        conn, address = door.accept()
        with conn:
            senders = Senders()
            sender = senders.of(address, conn.getsockname())
            again = senders.of(address, conn.getsockname())
        child.wait()
    assert sender is not None
    assert again == sender  # by the shorter way, since it is known now
    assert sender["pid"] == child.pid
    assert isinstance(sender["parents"], list)
    assert sender["parents"][0] == os.getpid()
    assert isinstance(sender["start_ticks"], int)


def test_a_child_of_a_shell_has_the_shell_between_us(door: socket.socket) -> None:
    words = f'{sys.executable} -c "$0" {door.getsockname()[1]}; true'
    with subprocess.Popen(["/bin/sh", "-c", words, DIAL]) as shell:
        conn, address = door.accept()
        with conn:
            sender = Senders().of(address, conn.getsockname())
        shell.wait()
    assert sender is not None
    assert isinstance(sender["parents"], list)
    assert sender["parents"][:2] == [shell.pid, os.getpid()]


def test_our_own_end_of_a_connection_and_one_that_is_gone_are_nobody(door: socket.socket) -> None:
    client = socket.create_connection(door.getsockname())
    conn, address = door.accept()
    with conn:
        ends = (address, conn.getsockname())
        assert Senders().of(*ends) is None  # nobody descends from this process
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            assert Senders().of(*ends) == NOBODY_OF_OURS  # held by this process itself, not by a child of it
            assert child.stdin is not None
            child.stdin.close()
            child.wait()
        client.close()
        assert Senders().of(*ends) is None


@pytest.mark.parametrize("client", ["", b"", None, ("::1", 80, 0, 0), ("127.0.0.1", 1), ("10.0.0.1", 80)])
def test_what_is_no_address_of_a_client_of_this_machine_is_nobody(client: object) -> None:
    assert Senders().of(client, ("127.0.0.1", 9)) is None


def test_no_more_is_looked_at_than_it_may(door: socket.socket, tmp_path: Path) -> None:
    """The folder of processes is one of ours, in which each look finds the holder: until there is no room for it."""
    with socket.create_connection(door.getsockname()) as client:
        conn, address = door.accept()
        with conn:
            fd, tasks = tmp_path / "7" / "fd", tmp_path / str(os.getpid()) / "task" / "1"
            fd.mkdir(parents=True)
            tasks.mkdir(parents=True)
            (tasks / "children").write_text("7 ")
            (fd / "3").symlink_to(f"socket:[{os.fstat(client.fileno()).st_ino}]")
            (tmp_path / "7" / "stat").write_text("7 (a b) S " + "0 " * 18 + "42 0")
            now = 0.0
            senders = Senders(proc=str(tmp_path), clock=lambda: now)

            def looks(times: int) -> int:
                return sum(senders.of(address, conn.getsockname()) is not None for _ in range(times))

            assert senders.of(address, conn.getsockname()) == {
                "pid": 7,
                "start_ticks": 42,
                "parents": [os.getpid()],
            }
            assert looks(100) == round(PER_SECOND) - 1
            now = 0.5
            assert looks(100) == round(PER_SECOND * 0.5)
