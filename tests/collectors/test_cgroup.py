"""One real cgroup v1, watched: kills, spikes, its end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fairtrial.collectors.cgroup import CgroupWatcher, Tasks
from fairtrial.collectors.cgroup_files import CgroupFiles
from fairtrial.collectors.cgroup_paths import CgroupPlaces, Place
from fairtrial.collectors.doorbell import PollBells
from fairtrial.middleware.core.observations import CgroupReading, CoverageChanged, OomKill, Subject
from tests.collectors.hand_cgroups import memory_cgroup, v1_memory
from tests.collectors.keep import Kept, eventually

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not v1_memory(), reason="no cgroup v1 memory hierarchy to add a cgroup to"),
]

SPIKES = 60
SPIKE_BYTES = 16 << 20
LIMIT = 64 << 20

# Touches memory for 5 ms per line on stdin, in a map that is given back, and answers when it is gone.
SPIKER = f"""
import mmap, sys, time
print("ready", flush=True)
for line in sys.stdin:
    block = mmap.mmap(-1, {SPIKE_BYTES}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, {SPIKE_BYTES}, 4096):
        block[page] = 1
    time.sleep(0.005)
    block.close()
    print("done", flush=True)
"""


class Nobody:
    """Surroundings without execs."""

    def __init__(self) -> None:
        self.kills = 0
        self.rings = 0
        self.vanished = 0

    def live_execs(self, container_id: str) -> list[str]:
        return []

    def exec_candidates(self, container_id: str) -> list[str]:
        return []

    def on_ring(self, container_id: str) -> None:
        self.rings += 1

    def on_kill(self, container_id: str, delta: int) -> None:
        self.kills += delta

    def on_vanished(self, container_id: str) -> None:
        self.vanished += 1

    def tasks_in(self, container_id: str) -> Tasks | None:
        return Tasks(all=3, since_first_reply=2, since_last_reply=1)


class Watched:
    """A watcher with what it wrote."""

    def __init__(self, places: CgroupPlaces, *, may_reset: bool = True) -> None:
        self.kept = Kept()
        self.around = Nobody()
        self.resets: list[str] = []
        self.bells = PollBells(asyncio.get_running_loop())
        self.watcher = CgroupWatcher(
            container_id="c",
            subject=Subject(container_id="c"),
            source=self.kept.source("collector.cgroup"),
            network_source=self.kept.source("collector.network"),
            files=CgroupFiles(places, may_reset=may_reset),
            network=None,
            surroundings=self.around,
            on_reset=self.resets.append,
            born_with_us=True,
            shared=None,
        )
        self.watcher.start(self.bells)

    def close(self) -> None:
        self.watcher.close()
        self.bells.close()


@asynccontextmanager
async def inside(places: CgroupPlaces, code: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process that lives in the cgroup from its first line on."""
    directory = places.places["memory"].path
    enter = f"import os; open({str(directory / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", enter + code, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
        await process.communicate()


async def test_a_spike_of_five_milliseconds_is_seen_sixty_times_out_of_sixty() -> None:
    with memory_cgroup(LIMIT) as places:
        async with inside(places, SPIKER) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            await process.stdout.readline()
            watched = Watched(places)
            # The first spike warms up the interpreter's own buffers; what it leaves behind belongs to no spike.
            process.stdin.write(b"\n")
            await process.stdout.readline()
            watched.watcher.reading("call_started")
            quiet = watched.kept.of(CgroupReading)[-1].memory_current
            assert quiet is not None
            assert quiet < SPIKE_BYTES // 2
            before = len(watched.kept.of(CgroupReading))
            for _ in range(SPIKES):
                process.stdin.write(b"\n")
                await process.stdout.readline()
                watched.watcher.reading("call_started")
            readings = watched.kept.of(CgroupReading)[before:]
            assert len(readings) == SPIKES
            assert {r.memory_peak_kind for r in readings} == {"exact"}
            seen = [r for r in readings if (r.memory_peak or 0) >= SPIKE_BYTES]
            assert len(seen) == SPIKES
            # And a step without a spike shows none: the peak was really set back.
            watched.watcher.reading("call_ended")
            calm = watched.kept.of(CgroupReading)[-1].memory_peak
            assert calm is not None
            assert calm < SPIKE_BYTES // 2
            assert watched.resets == ["c"]
            watched.close()


async def test_a_kill_is_written_within_milliseconds_of_its_doorbell_without_any_sampling() -> None:
    with memory_cgroup(32 << 20) as places:
        watched = Watched(places)
        async with inside(places, "b = []\nwhile True: b.append(b'x' * (1 << 20))") as process:
            await process.wait()
            died_ns = time.monotonic_ns()
            await eventually(lambda: watched.kept.of(OomKill), within_s=2)
        (kill,) = watched.kept.of(OomKill)
        assert (kill.delta, kill.total, kill.memory_limit) == (1, 1, 32 << 20)
        assert kill.memory_anon is not None
        assert kill.memory_anon > 20 << 20
        assert watched.around.kills == 1
        assert watched.around.rings >= 1
        assert watched.kept.when(OomKill)[0].mono_ns - died_ns < 1_000_000_000
        watched.close()


async def test_the_last_counters_are_written_when_the_cgroup_vanishes() -> None:
    with memory_cgroup(LIMIT) as places:
        watched = Watched(places)
        assert [v.state for v in watched.kept.of(CoverageChanged) if v.families == ["memory"]] == ["on"]
        places.places["memory"].path.rmdir()
        # v1 rings once more on removal; nobody samples here.
        await eventually(lambda: watched.watcher.gone)
        assert [r.edge for r in watched.kept.of(CgroupReading)] == ["baseline", "last"]
        assert watched.around.vanished == 1
        assert watched.kept.of(OomKill) == []
        watched.watcher.reading("end")
        assert len(watched.kept.of(CgroupReading)) == 2
        watched.close()


async def test_a_peak_that_is_not_ours_is_never_set_back() -> None:
    with memory_cgroup(LIMIT) as places:
        async with inside(places, SPIKER) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            await process.stdout.readline()
            watched = Watched(places, may_reset=False)
            process.stdin.write(b"\n")
            await process.stdout.readline()
            watched.watcher.reading("call_started")
            watched.watcher.reading("call_ended")
            kinds = [r.memory_peak_kind for r in watched.kept.of(CgroupReading)]
            assert kinds == ["at_most", "rose_in_step", "at_most"]
            assert watched.resets == []
            watched.close()


async def test_where_cgroups_are_mounted_read_only_kills_are_counted_by_sampling_and_the_peak_is_said_to_have_risen(
    tmp_path: Path,
) -> None:
    with memory_cgroup(LIMIT) as places:
        directory = places.places["memory"].path
        view = tmp_path / "view"
        view.mkdir()
        mount = ["mount", "--bind", "-o", "ro", str(directory), str(view)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("no read-only bind mount can be made here")
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", view], check=True, capture_output=True)
            place = Place(path=view, mount=view.parent, v2=False)
            watched = Watched(replace(places, places={"memory": place}))
            memory = next(v for v in watched.kept.of(CoverageChanged) if v.families == ["memory"])
            assert memory.state == "on"
            assert "no doorbell (Read-only file system)" in (memory.why or "")
            assert watched.resets == []
            async with inside(places, "b = []\nwhile True: b.append(b'x' * (1 << 20))") as process:
                await process.wait()
            watched.watcher.tick()
            (kill,) = watched.kept.of(OomKill)
            assert (kill.delta, kill.memory_limit) == (1, LIMIT)
            watched.watcher.reading("call_started")
            assert watched.kept.of(CgroupReading)[-1].memory_peak_kind == "at_most"
            assert watched.kept.of(CgroupReading)[-2].memory_peak_kind == "rose_in_step"
            watched.close()
        finally:
            subprocess.run(["umount", "-l", view], check=False, capture_output=True)
