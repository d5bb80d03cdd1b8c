"""systemd's words: which sockets are ours, and how often it wants to hear from us."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fairtrial.middleware.relay.systemd import Notifier, inherited, watchdog_s, without_sockets

PID = str(os.getpid())

TAKE = """
import os, socket
from fairtrial.middleware.core.errors import FairtrialError
from fairtrial.middleware.relay.systemd import inherited
os.environ["LISTEN_PID"] = str(os.getpid())
try:
    found = inherited(os.environ)
except FairtrialError as error:
    print(error)
else:
    print([(name, sock.getsockname()[1], os.get_inheritable(sock.fileno())) for name, sock in found])
"""


def taken(repo_root: Path, sockets: list[socket.socket], names: str) -> str:
    """What a process finds that holds these sockets from descriptor 3 on."""
    numbers = [sock.fileno() for sock in sockets]

    def place() -> None:
        held = [os.dup2(number, 50 + at) for at, number in enumerate(numbers)]
        for at, number in enumerate(held):
            os.dup2(number, 3 + at, inheritable=True)

    done = subprocess.run(
        [sys.executable, "-c", TAKE],
        env={"PYTHONPATH": str(repo_root), "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names},
        preexec_fn=place,
        close_fds=False,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_sockets_come_with_their_names_and_are_inherited_no_further(repo_root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        found = taken(repo_root, [one, two], "anthropic:health")
        ports = one.getsockname()[1], two.getsockname()[1]
    assert found == f"[('anthropic', {ports[0]}, False), ('health', {ports[1]}, False)]"


def test_a_socket_that_does_not_listen_is_refused_with_a_remedy(repo_root: Path) -> None:
    with socket.socket() as sock:
        assert "Accept=no" in taken(repo_root, [sock], "x")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        assert "ListenStream=" in taken(repo_root, [sock], "x")


@pytest.mark.parametrize(
    "environ", [{}, {"LISTEN_FDS": "1"}, {"LISTEN_FDS": "1", "LISTEN_PID": "1"}, {"LISTEN_FDS": "x", "LISTEN_PID": PID}]
)
def test_what_was_meant_for_another_process_is_not_ours(environ: dict[str, str]) -> None:
    assert inherited(environ) == []


def test_the_words_are_not_passed_on() -> None:
    words = {"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "a", "NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1"}
    assert without_sockets({**words, "HOME": "/"}) == {"HOME": "/"}


@pytest.mark.parametrize(
    "environ, every_s",
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": PID}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_petted_in_half_of_its_time(environ: dict[str, str], every_s: float | None) -> None:
    assert watchdog_s(environ) == every_s


def test_words_go_to_a_path_and_to_an_abstract_name(tmp_path: Path) -> None:
    for name in (str(tmp_path / "n"), f"@fairtrial-test-{PID}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind("\0" + name[1:] if name.startswith("@") else name)
            with closing(Notifier({"NOTIFY_SOCKET": name})) as notifier:
                notifier.say("READY=1", "STATUS=serving")
            assert sock.recv(100) == b"READY=1\nSTATUS=serving"


def test_nobody_listening_is_no_fault() -> None:
    for environ in ({}, {"NOTIFY_SOCKET": "/nowhere/at/all"}, {"NOTIFY_SOCKET": "vsock:2:1234"}):
        with closing(Notifier(environ)) as notifier:
            notifier.say("READY=1")
