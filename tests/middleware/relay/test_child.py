"""A child is started, seen to stop and end; and what cannot be started has a shell's status and a sentence."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from fairtrial.middleware.core.errors import CommandError
from fairtrial.middleware.relay import child
from tests.middleware.relay.running import until


def _last(pid: int) -> child.ExitStatus | child.Stopped:
    seen: list[child.ExitStatus | child.Stopped] = []

    def change() -> bool:
        found = child.poll(pid)
        if found is not None:
            seen.append(found)
        return found is not None

    until(change)
    return seen[-1]


def test_an_exit_code_a_signal_and_a_stop_are_told_apart() -> None:
    environ = dict(os.environ)
    assert _last(child.spawn(["sh", "-c", "exit 3"], environ, mask=[])) == child.ExitStatus(exit_code=3)
    pid = child.spawn(["sleep", "60"], environ, mask=[])
    assert child.poll(pid) is None
    os.kill(pid, signal.SIGSTOP)
    assert _last(pid) == child.Stopped(signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    assert _last(pid) == child.ExitStatus(signal=signal.SIGKILL)


def test_a_process_that_is_not_ours_counts_as_gone() -> None:
    assert isinstance(child.poll(1), child.ExitStatus)


@pytest.mark.parametrize("mask", [[], [signal.SIGUSR1]])
def test_the_mask_is_the_given_one(mask: list[int], tmp_path: Path) -> None:
    out = tmp_path / "status"
    pid = child.spawn(["cp", "/proc/self/status", str(out)], dict(os.environ), mask=mask)
    _last(pid)
    line = next(line for line in out.read_text().splitlines() if line.startswith("SigBlk"))
    assert int(line.split()[1], 16) == sum(1 << (number - 1) for number in mask)


@pytest.mark.parametrize(
    "program, error, code, said",
    [
        ("nope", FileNotFoundError(errno.ENOENT, "No such file"), 127, "on PATH"),
        ("./nope", FileNotFoundError(errno.ENOENT, "No such file"), 127, "was not found"),
        ("/etc/passwd/x", NotADirectoryError(errno.ENOTDIR, "Not a directory"), 127, "was not found"),
        ("/etc/passwd", PermissionError(errno.EACCES, "Permission denied"), 126, "chmod +x"),
        ("big", OSError(errno.E2BIG, "Argument list too long"), 126, "Argument list too long"),
        ("nul", ValueError("embedded null byte"), 126, "embedded null byte"),
    ],
)
def test_a_command_that_cannot_start_has_the_status_of_a_shell(
    program: str, error: OSError | ValueError, code: int, said: str
) -> None:
    failure = child.command_error(program, error)
    assert failure.exit_code == code
    assert said in str(failure)


def test_a_command_with_a_null_byte_is_an_error_not_a_crash() -> None:
    with pytest.raises(CommandError, match="null"):
        child.spawn(["a\0b"], dict(os.environ), mask=[])
