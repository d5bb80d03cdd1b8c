"""Starts the observer process.  Loads next to nothing, because it is the first thing that a run does.

In: the command that starts an observer, the environment, a log file.  Out: a process in a session of its own, and our
end of the socket that feeds it.  `observer_link.py` does the rest.

**Source:** posix_spawn(3); setsid(2).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fairtrial.middleware.core.errors import HostError

OBSERVER: Final = (sys.executable, "-P", "-m", "fairtrial.middleware.app")
"""`-P`: the folder that the agent works in is no place to import from."""
_FEED_FD: Final = 3
_CONTROL_FD: Final = 4
_ABOVE_ALL: Final = 10
"""Duplicates that must survive the making of those two get this number or a higher one."""
_LOG_LIMIT_BYTES: Final = 4 << 20
_MISLEADING: Final = (
    "PYTHONWARNINGS",
    "PYTHONINSPECT",
    "PYTHONSTARTUP",
    "PYTHONDEVMODE",
    "PYTHONASYNCIODEBUG",
    "PYTHONTRACEMALLOC",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONBREAKPOINT",
)
"""Meant for the user's programs; in ours they would print, stop or break."""


class Launched(NamedTuple):
    """A running observer process and our end of its socket."""

    pid: int
    sock: socket.socket


class Launcher(NamedTuple):
    """How to start an observer process.  `log`: the file that gets what it prints."""

    command: Sequence[str]
    environ: Mapping[str, str]
    log: str
    control: socket.socket | None = None
    """Listens for the control API; every observer of the run inherits it."""

    def launch(self) -> Launched:
        """Start `command --feed-fd 3` in a session of its own: no key and no hang-up of the terminal reaches it.

        It holds none of our descriptors and none that we inherited: a reader of our stdout must not wait for it.
        Raises `HostError`.
        """
        return _launch(self.command, self.environ, self.log, self.control)

    def close_control(self) -> None:
        """No observer will answer there any more: who asks is refused instead of kept waiting."""
        if self.control is not None:
            self.control.close()


def control_listener() -> socket.socket | None:
    """A socket on loopback that already takes connections, before anybody answers them; None where that is refused."""
    try:
        return socket.create_server(("127.0.0.1", 0), backlog=64)
    except OSError:
        return None


def log_file(state: str) -> str:
    """Where the observer's own complaints go: `observer.log` in the state folder, one old generation kept."""
    path = os.path.join(state, "observer.log")
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return os.devnull
    try:
        if os.fstat(descriptor).st_size > _LOG_LIMIT_BYTES:
            os.replace(path, path + ".1")
    except OSError:
        return path
    finally:
        os.close(descriptor)
    return path


def _launch(
    command: Sequence[str], environ: Mapping[str, str], log: str, control: socket.socket | None = None
) -> Launched:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    passed: tuple[int, ...] = ()
    if control is not None and control.fileno() >= 0:
        with contextlib.suppress(OSError):
            passed = (fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, _ABOVE_ALL),)
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, theirs.fileno(), _FEED_FD),
        *((os.POSIX_SPAWN_DUP2, descriptor, _CONTROL_FD) for descriptor in passed),
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, log_flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        # One above the limit (lowered since it was opened) would make the whole start fail, so it is left open.
        *(
            (os.POSIX_SPAWN_CLOSE, inherited)
            for inherited in _inheritable()
            if _FEED_FD + len(passed) < inherited < _limit()
        ),
    ]
    try:
        pid = os.posix_spawn(
            command[0],
            [*command, "--feed-fd", str(_FEED_FD), *(("--control-fd", str(_CONTROL_FD)) if passed else ())],
            _observer_environment(environ),
            file_actions=actions,
            setsid=True,
            setsigmask=[],
            setsigdef=[number for number in signal.valid_signals() if number not in {signal.SIGKILL, signal.SIGSTOP}],
        )
    except OSError as error:
        ours.close()
        raise HostError(
            f"The observer process ({command[0]}) cannot be started: {error.strerror or error}.",
            remedy="Check the limits on processes and open files (ulimit -u, ulimit -n), and fairtrial's installation.",
            errno=error.errno,
        ) from error
    finally:
        theirs.close()
        for descriptor in passed:
            os.close(descriptor)
    return Launched(pid, ours)


def _limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize


def _inheritable() -> list[int]:
    """Descriptors above stderr that a new process would inherit from us."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        try:
            if number > 2 and os.get_inheritable(number):
                found.append(number)
        except OSError:
            continue  # the listing's own descriptor
    return found


def _observer_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what is meant for the user's Python programs, and such that it finds this very package."""
    import fairtrial

    result = {name: value for name, value in environ.items() if name not in _MISLEADING}
    root = os.path.dirname(os.path.dirname(os.path.abspath(fairtrial.__file__)))
    if not root.endswith(("site-packages", "dist-packages")):  # a checkout: those are on the path of every interpreter
        result["PYTHONPATH"] = os.pathsep.join(filter(None, (root, result.get("PYTHONPATH"))))
    return result
