"""Starts the command as if we were not there, and ends as it ended.

In: the command, its environment, and the signal mask that we were started with.  Out: a process id; later an
`ExitStatus`; at the very end `leave`, which gives our own parent the very wait status that it would have seen.

The command keeps stdin, stdout, stderr, the controlling terminal, the process group, the working folder, inherited
descriptors, umask and limits: `posix_spawn` changes none of them, and every descriptor of ours is close-on-exec.
What cannot be kept: the interpreter has set SIGPIPE and SIGXFSZ to *ignore* before our first line runs and nobody can
tell what they were, so they are set to *default*, as `subprocess` does; an ignored SIGCHLD becomes *default*, else the
kernel would reap the command; and glibc's posix_spawn ignores its own signals 32 and 33 in every new process.

**Source:** posix_spawn(3), waitid(2), signal(7); POSIX.1-2017 Shell Command Language 2.8.2 (126, 127).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from fairtrial.middleware.core.errors import EX_CANNOT_EXECUTE, EX_NOT_FOUND, CommandError

_SET_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
_PR_SET_DUMPABLE: Final = 4


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a process ended: exactly one of the two is not None."""

    exit_code: int | None = None
    signal: int | None = None

    def record(self) -> dict[str, object]:
        """As CHILD and BYE carry it."""
        return {"exit_code": self.exit_code, "signal": self.signal}


@dataclass(frozen=True, slots=True)
class Stopped:
    """The process was stopped by this signal and may go on."""

    signal: int


def spawn(command: Sequence[str], environ: Mapping[str, str], *, mask: Collection[int]) -> int:
    """Start the command; gives its pid.  `mask`: the signals that were blocked when we were started.

    Raises `CommandError` with the status that a shell would give.
    """
    try:
        return _spawn(command[0], command, environ, mask)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOEXEC and (script := _found(command[0], environ)):
            # A script without #!: shells and execvp(3) give it to sh, so a user expects it to run.
            return _spawn("/bin/sh", ["/bin/sh", script, *command[1:]], environ, mask)
        raise command_error(command[0], error) from error


def replace_ourselves(command: Sequence[str], environ: Mapping[str, str], *, mask: Collection[int]) -> NoReturn:
    """Become the command (the unobserved run): nothing of us is left between it and our parent.

    Raises `CommandError` when it cannot be started.
    """
    for number in _SET_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        os.execvpe(command[0], list(command), dict(environ))  # noqa: S606 - the user's own command line
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOEXEC and (script := _found(command[0], environ)):
            os.execve("/bin/sh", ["/bin/sh", script, *command[1:]], dict(environ))  # noqa: S606 - same
        raise command_error(command[0], error) from error


def poll(pid: int) -> ExitStatus | Stopped | None:
    """What happened to our child `pid` since the last look; None for nothing new.  An exit reaps it."""
    try:
        seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOHANG)
    except ChildProcessError:
        # Somebody else reaped it (SIGCHLD was ignored when we started): how it ended is lost, that it ended is not.
        return ExitStatus(exit_code=0)
    if seen is None:
        return None
    if seen.si_code == os.CLD_EXITED:
        return ExitStatus(exit_code=seen.si_status)
    if seen.si_code in {os.CLD_KILLED, os.CLD_DUMPED}:
        return ExitStatus(signal=seen.si_status)
    return Stopped(seen.si_status)


def leave(status: ExitStatus) -> NoReturn:
    """End this process as the command ended: the same code, or a death by the same signal (without a core of ours)."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    if status.signal is None:
        os._exit(status.exit_code or 0)
    _no_core()
    if status.signal not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(status.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {status.signal})
    os.kill(os.getpid(), status.signal)
    # Process 1 of a container does not die by a signal from inside: then the shell's form is all that is left.
    os._exit(128 + status.signal)


def command_error(program: str, error: OSError | ValueError) -> CommandError:
    """The sentence and the status for a command that could not be started."""
    number = error.errno if isinstance(error, OSError) else None
    if number in {errno.ENOENT, errno.ENOTDIR}:
        if os.path.lexists(program) and "/" in program:
            return CommandError(
                f"{program} is there, but the interpreter that its first line names is not.",
                remedy="Correct its first line (#!…) or install the interpreter.",
                exit_code=EX_NOT_FOUND,
                errno=number,
            )
        where = "" if "/" in program else " on PATH"
        return CommandError(
            f"The command {program!r} was not found{where}.",
            remedy="Check its spelling, or write its full path after `--`.",
            exit_code=EX_NOT_FOUND,
            errno=number,
        )
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CommandError(
        f"The command {program!r} cannot be executed: {why}.",
        remedy="Check that it is a program and that you may execute it (chmod +x)."
        if number in {errno.EACCES, errno.ENOEXEC, errno.EPERM}
        else "",
        exit_code=EX_CANNOT_EXECUTE,
        errno=number,
    )


def _spawn(program: str, command: Sequence[str], environ: Mapping[str, str], mask: Collection[int]) -> int:
    return os.posix_spawnp(program, list(command), environ, setsigmask=list(mask), setsigdef=list(_SET_BY_PYTHON))


def _found(program: str, environ: Mapping[str, str]) -> str | None:
    if "/" in program:
        return program
    import shutil

    return shutil.which(program, path=environ.get("PATH"))


def _no_core() -> None:
    """A second core file of a process that only repeats the first one's death would mislead."""
    import ctypes
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        # The limit does not bind a core handler that is a pipe; an undumpable process has no core at all.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, AttributeError):
        return
