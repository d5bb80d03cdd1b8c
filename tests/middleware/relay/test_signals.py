"""Who sent a signal, and when it came, is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from fairtrial.middleware.relay import signals
from tests.middleware.relay.running import until

_EARLY = """
import os, signal
from fairtrial.middleware.relay import signals
before = signals.block()
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGUSR1)
early = signals.waiting()
arrivals = signals.take(early)
seen = [(a.number, a.early, a.from_terminal, a.sender == os.getpid()) for a in arrivals]
print(sorted(early), seen, signals.waiting(), before)
"""


def test_signals_that_came_before_the_command_are_taken_as_early() -> None:
    done = subprocess.run([sys.executable, "-c", _EARLY], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == (
        "[10, 15] [(10, True, False, True), (15, True, False, True)] frozenset() set()"
    )


def test_a_key_at_the_terminal_is_the_kernels_and_an_early_one_has_not_reached_the_command() -> None:
    assert signals.Arrival(signal.SIGINT, signals.SI_KERNEL, 0).from_terminal
    assert not signals.Arrival(signal.SIGINT, signals.SI_KERNEL, 0, early=True).from_terminal
    assert not signals.Arrival(signal.SIGINT, 0, 123).from_terminal


def test_descendants_are_known_by_their_parents() -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    grandchild = int(process.stdout.readline())
    try:
        assert signals.is_descendant(grandchild, process.pid)
        assert signals.is_descendant(grandchild, os.getpid())
        assert not signals.is_descendant(process.pid, grandchild)
        assert not signals.is_descendant(os.getpid(), process.pid)
        assert not signals.is_descendant(None, process.pid)
        assert not signals.is_descendant(0, process.pid)
    finally:
        os.kill(grandchild, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert not signals.is_descendant(grandchild, process.pid)


def test_a_stopped_process_is_seen_as_stopped() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert not signals.is_stopped(process.pid)
        process.send_signal(signal.SIGSTOP)
        until(lambda: signals.is_stopped(process.pid))
    finally:
        process.kill()
        process.wait()
    assert not signals.is_stopped(process.pid)


def test_no_watched_signal_is_one_that_a_fault_of_the_program_raises() -> None:
    assert signals.WATCHED.isdisjoint({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT})
