"""Doorbells."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from fairtrial.collectors.doorbell import EventfdBell, PollBells
from tests.collectors.keep import eventually


async def test_a_file_that_cannot_be_polled_is_an_error_and_not_a_silent_bell(tmp_path: Path) -> None:
    file = tmp_path / "memory.events"
    file.write_text("oom_kill 0\n")
    bells = PollBells(asyncio.get_running_loop())
    with pytest.raises(PermissionError):
        bells.arm(file, lambda: None)
    bells.close()
    bells.close()


async def test_nothing_is_written_into_what_is_no_pressure_file(tmp_path: Path) -> None:
    file = tmp_path / "memory.pressure"
    file.write_text("some avg10=0.00 total=0\n")
    bells = PollBells(asyncio.get_running_loop())
    with pytest.raises(PermissionError):
        bells.arm_pressure(file, lambda: None)
    bells.close()
    assert file.read_text() == "some avg10=0.00 total=0\n"


async def test_a_cgroup_without_event_control_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "memory.oom_control").write_text("under_oom 0\n")
    with pytest.raises(FileNotFoundError):
        EventfdBell(tmp_path, lambda: None, asyncio.get_running_loop())


async def test_the_eventfd_that_is_registered_rings_until_it_is_closed(tmp_path: Path) -> None:
    (tmp_path / "memory.oom_control").write_text("under_oom 0\n")
    (tmp_path / "cgroup.event_control").write_text("")
    rings: list[int] = []
    bell = EventfdBell(tmp_path, lambda: rings.append(1), asyncio.get_running_loop())
    registered = (tmp_path / "cgroup.event_control").read_text().split()
    os.eventfd_write(int(registered[0]), 1)
    await eventually(lambda: rings)
    bell.close()
    bell.close()
    assert rings == [1]


@pytest.mark.root
@pytest.mark.skipif(
    not any(Path(p).exists() for p in ("/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.procs")),
    reason="no cgroup2 mount",
)
async def test_a_kernel_file_of_v2_rings_on_change_again_and_again() -> None:
    """`cgroup.events` notifies as `memory.events` does, and needs no controller: also hybrid hosts have it."""
    top = next(Path(p) for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if (Path(p) / "cgroup.procs").exists())
    directory = top / f"fairtrial-test-{os.getpid()}"
    directory.mkdir()
    bells = PollBells(asyncio.get_running_loop())
    rings: list[int] = []
    seen = [0]
    try:
        bell = bells.arm(directory / "cgroup.events", lambda: rings.append(1))
        for _ in range(2):
            seen[0] = len(rings)
            process = await asyncio.create_subprocess_exec("sleep", "30")
            (directory / "cgroup.procs").write_text(str(process.pid))
            await eventually(lambda: len(rings) > seen[0])
            seen[0] = len(rings)
            process.kill()
            await process.wait()
            await eventually(lambda: len(rings) > seen[0])
        bell.close()
        bell.close()
    finally:
        bells.close()
        await eventually(lambda: not _busy(directory))


def _busy(directory: Path) -> bool:
    try:
        directory.rmdir()
    except OSError:
        return directory.exists()
    return False


@pytest.mark.root
@pytest.mark.skipif(
    not any(Path(p).exists() for p in ("/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.procs")),
    reason="no cgroup2 mount",
)
async def test_a_pressure_trigger_is_taken_by_this_kernel_with_or_without_the_capability() -> None:
    """On a hybrid host as well; that it rings is shown in the guest of test_cgroup_v2.py."""
    top = next(Path(p) for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if (Path(p) / "cgroup.procs").exists())
    directory = top / f"fairtrial-test-psi-{os.getpid()}"
    directory.mkdir()
    bells = PollBells(asyncio.get_running_loop())
    try:
        if not (directory / "memory.pressure").exists():
            pytest.skip("this kernel has no PSI")
        bell = bells.arm_pressure(directory / "memory.pressure", lambda: None)
        bell.close()
        bell.close()
    finally:
        bells.close()
        await eventually(lambda: not _busy(directory))
