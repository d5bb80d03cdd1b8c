"""A process's own wait status tells an exit with 137 from a SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from fairtrial.collectors.wait_status import InitWatch, ending_signal


@pytest.fixture(scope="module")
def _kernel_tells() -> None:
    """Skips where the kernel is older than 6.15."""
    with subprocess.Popen(["true"]) as process:
        fd = os.pidfd_open(process.pid)
    try:
        if ending_signal(fd) is None:
            pytest.skip("the kernel does not tell how a process ended (PIDFD_INFO_EXIT, 6.15)")
    finally:
        os.close(fd)


@pytest.mark.parametrize("script, told", [("exit 137", 0), ("exit 0", 0), ("kill -9 $$", 9), ("kill -15 $$", 15)])
@pytest.mark.usefixtures("_kernel_tells")
def test_an_exit_is_told_from_a_signal(script: str, told: int) -> None:
    watch = InitWatch()
    process = subprocess.Popen(["sh", "-c", f"read x; {script}"], stdin=subprocess.PIPE)
    watch.begin("a", process.pid)
    process.communicate(b"\n")
    assert watch.take("a") == told
    assert watch.take("a") is None


def test_a_process_that_lives_has_no_end_and_one_that_is_not_there_no_descriptor() -> None:
    watch = InitWatch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with subprocess.Popen(["sleep", "60"]) as process:
        watch.begin("a", process.pid)
        watch.begin("a", process.pid)
        assert watch.take("a") is None
        watch.begin("b", process.pid)
        process.send_signal(signal.SIGKILL)
    watch.begin("c", process.pid)  # reaped: there is no such process any more
    assert watch.take("c") is None
    watch.close()
    watch.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_descriptor_of_another_kind_tells_nothing() -> None:
    with Path("/dev/null").open("rb") as null:
        assert ending_signal(null.fileno()) is None
