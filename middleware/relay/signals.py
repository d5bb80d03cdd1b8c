"""Signals, taken with the knowledge of who sent them.

In: the kernel's queue of blocked signals.  Out: `Arrival`s on the event loop, in order.  What this module does not do:
decide what a signal means; that is `session.py`.

Handlers cannot tell a key pressed at the terminal, which the kernel sends to the whole process group, from a `kill`
that meant us alone.  `sigwaitinfo` can: all watched signals are blocked from the first moment, and one thread waits for
them.  So no signal can end this process before the command has ended, and none can interrupt the relay.

**Source:** sigaction(2) on `si_code`; signal(7).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

SI_KERNEL: Final = 0x80
"""Sent by the kernel: the terminal's keys, its hang-up, its change of size."""

WATCHED: Final = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
        signal.SIGWINCH,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
        signal.SIGCONT,
        signal.SIGCHLD,
    }
)
STOPPING: Final = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
ENDING: Final = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})


class Arrival(NamedTuple):
    """One signal.  `sender` is a pid, 0 or None where the kernel names none; `early`: it came before the command."""

    number: int
    code: int
    sender: int | None
    early: bool = False

    @property
    def from_terminal(self) -> bool:
        """The kernel sent it to the whole process group, so the command has it already."""
        return self.code == SI_KERNEL and not self.early


def block() -> set[int]:
    """Block the watched signals in this thread and all later ones; gives the mask from before, for the command."""
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # else the kernel reaps the command and its status is lost
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)}


def waiting() -> frozenset[int]:
    """Signals that wait already.  Asked just before the command starts: these came too early to reach it."""
    return frozenset(int(number) for number in signal.sigpending() & (WATCHED - {signal.SIGCHLD}))


def take(numbers: Collection[int]) -> list[Arrival]:
    """Take these waiting signals out of the queue, as early arrivals."""
    arrivals: list[Arrival] = []
    for number in sorted(numbers):
        found = signal.sigtimedwait({number}, 0)
        if found is not None:
            arrivals.append(Arrival(found.si_signo, found.si_code, found.si_pid, early=True))
    return arrivals


def watch(deliver: Callable[[Arrival], None]) -> None:
    """Wait for signals in a thread of their own and hand each to `deliver` (called in that thread) for good."""

    def wait() -> None:
        while True:
            found = signal.sigwaitinfo(WATCHED)
            try:
                deliver(Arrival(found.si_signo, found.si_code, found.si_pid))
            except RuntimeError:
                return  # the loop is closed: the process is leaving

    threading.Thread(target=wait, name="signals", daemon=True).start()


def is_descendant(pid: int | None, ancestor: int, *, limit: int = 64) -> bool:
    """Whether `pid` is `ancestor` or below it, by /proc; False for one that is gone already."""
    for _ in range(limit):
        if pid is None or pid <= 1:
            return False
        if pid == ancestor:
            return True
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal now (state T of proc(5))."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def stop_ourselves(number: int) -> None:
    """Stop this process as a shell with job control expects, and return when it is continued.

    SIGSTOP is given as SIGTSTP, which the kernel ignores in an orphaned process group: where nobody could continue us
    we do not stop.
    """
    chosen = signal.Signals(number) if number in STOPPING else signal.SIGTSTP
    # Raised while still blocked: the terminal's own may be waiting beside it, and SIGCONT drops whichever is left.
    # The other way round the first would stop us in between, and the second once more after `fg`.
    signal.raise_signal(chosen)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {chosen})
    signal.pthread_sigmask(signal.SIG_BLOCK, {chosen})
