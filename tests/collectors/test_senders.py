"""Who opened a connection, told by the kernel while it was open: real processes, real sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairtrial.collectors.senders import PER_SECOND, Senders

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")

DIAL = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.recv(1)"


@pytest.fixture
def door() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_a_child_that_connects_is_told_with_its_parents(door: socket.socket) -> None:
    with subprocess.Popen([sys.executable, "-c", DIAL, str(door.getsockname()[1])]) as child:
        conn, address = door.accept()
        with conn:
            sender = Senders().of(f"{address[0]}:{address[1]}")
        child.wait()
    assert sender is not None
    assert sender.pid == child.pid
    assert sender.parents[0] == os.getpid()
    assert sender.start_ticks > 0


def test_a_child_of_a_shell_has_the_shell_between_us(door: socket.socket) -> None:
    words = f'{sys.executable} -c "$0" {door.getsockname()[1]}; true'
    with subprocess.Popen(["/bin/sh", "-c", words, DIAL]) as shell:
        conn, address = door.accept()
        with conn:
            sender = Senders().of(f"{address[0]}:{address[1]}")
        shell.wait()
    assert sender is not None
    assert sender.parents[:2] == [shell.pid, os.getpid()]


def test_our_own_end_of_a_connection_and_one_that_is_gone_are_nobody(door: socket.socket) -> None:
    client = socket.create_connection(door.getsockname())
    conn, address = door.accept()
    with conn:
        peer = f"{address[0]}:{address[1]}"
        assert Senders().of(peer) is None  # held by this process itself, which is the observer
        client.close()
        assert Senders().of(peer) is None


@pytest.mark.parametrize("peer", ["unix", "", "[::1]:80", "127.0.0.1:nothing", "127.0.0.1:1"])
def test_what_is_no_address_of_a_client_is_nobody(peer: str) -> None:
    assert Senders().of(peer) is None


def test_no_more_is_looked_at_than_it_may(tmp_path: Path) -> None:
    now = 0.0
    senders = Senders(tmp_path, clock=lambda: now)
    (tmp_path / "net").mkdir()
    table = tmp_path / "net" / "tcp"
    looked = 0

    class Counted(type(tmp_path)):  # type: ignore[misc]  # the platform's own class of paths
        def read_bytes(self) -> bytes:
            nonlocal looked
            looked += self == table
            return b"head\n"

    senders._proc = Counted(tmp_path)
    for _ in range(round(PER_SECOND) * 3):
        senders.of("127.0.0.1:1")
    assert looked == round(PER_SECOND)
    now = 0.5
    for _ in range(100):
        senders.of("127.0.0.1:1")
    assert looked == round(PER_SECOND * 1.5)
