"""How short a spike of memory is seen: ours beside what people watch with, on one load.

`python -m tests.bench spikes`.  A real container on the engine that FAIRTRIAL_TEST_DOCKER or DOCKER_HOST names: a
process in it takes 16 MB for 5, 20 or 100 ms and gives them back, a spike each 0.2 to 0.3 s (seeded, so that no beat
fits).  Beside it: a reader of `memory.usage_in_bytes` once a second, one ten times a second, and the engine's own stats
stream.  Ours reads at the edges of model calls, so each spike is one step.  A spike is seen by a reader when one of its
samples between this spike's beginning and the next one's shows at least half of it above the calm; the stream tells its
samples late, so each of them that shows a spike counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from fairtrial.collectors.facade import Collectors, DockerUpstream
from fairtrial.middleware.core.observations import CgroupReading, ContainerSeen, Observation, decode
from fairtrial.middleware.core.sink import this_host
from tests.bench.rows import Row
from tests.e2e.clients import e2e_folder
from tests.e2e.image import ImageUnavailable, ensure_image

SPIKE_BYTES: Final = 16 << 20
EVERY_S: Final = (0.2, 0.3)
SPIKES: Final = 60
HOLDS_MS: Final = (5, 20, 100)
_SPIKER: Final = f"""
import mmap, sys, time
print("ready", flush=True)
for line in sys.stdin:
    block = mmap.mmap(-1, {SPIKE_BYTES}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, {SPIKE_BYTES}, 4096):
        block[page] = 1
    time.sleep(float(line) / 1000)
    block.close()
    print("done", flush=True)
"""


@dataclass(slots=True)
class Samples:
    """What one reader saw: (monotonic s, bytes), and the CPU time that it took in this process, s."""

    name: str
    seen: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    cpu_s: float = 0.0
    late: bool = False

    def of(self, spikes: list[float], calm: int) -> int:
        """How many of the spikes, which began at these moments, it saw."""
        if self.late:
            return sum(1 for _, value in self.seen if value >= calm + SPIKE_BYTES // 2)
        found = 0
        for n, began in enumerate(spikes):
            until = spikes[n + 1] if n + 1 < len(spikes) else began + EVERY_S[0]
            found += any(began <= at < until and value >= calm + SPIKE_BYTES // 2 for at, value in self.seen)
        return found


class Poller(threading.Thread):
    """Reads one file in a steady beat, as exporters do."""

    def __init__(self, file: Path, every_s: float, into: Samples) -> None:
        super().__init__(daemon=True)
        self._file, self._every_s, self._into = file, every_s, into
        self.stop = threading.Event()

    def run(self) -> None:
        with self._file.open("rb", buffering=0) as source:
            while not self.stop.wait(self._every_s):
                value = int(os.pread(source.fileno(), 64, 0))
                self._into.seen.append((time.monotonic(), value))
        self._into.cpu_s = time.thread_time()


class Stats(threading.Thread):
    """The engine's stats stream of one container."""

    def __init__(self, engine: str, container: str, into: Samples) -> None:
        super().__init__(daemon=True)
        self._into = into
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(engine.removeprefix("unix://"))
        self._socket.sendall(f"GET /v1.41/containers/{container}/stats?stream=1 HTTP/1.0\r\nHost: d\r\n\r\n".encode())

    def run(self) -> None:
        with self._socket.makefile("rb") as stream:
            for line in stream:
                if line.startswith(b"{"):
                    usage = json.loads(line).get("memory_stats", {}).get("usage")
                    if isinstance(usage, int):
                        self._into.seen.append((time.monotonic(), usage))
        self._into.cpu_s = time.thread_time()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The table of what is seen, and the budget: 60 of 60."""
    engine = os.environ.get("FAIRTRIAL_TEST_DOCKER") or os.environ.get("DOCKER_HOST")
    what = "spikes of 16 MB for 5 ms, seen by ours"
    why = "no engine on a unix socket is named (FAIRTRIAL_TEST_DOCKER)"
    if engine is not None and engine.startswith("unix://"):
        try:
            image = ensure_image("ft-python", engine, e2e_folder() / "images")
        except ImageUnavailable as error:
            why = str(error)
        else:
            yield from uvloop.run(_measured(engine, image, quick=quick))
            return
    yield Row(what=what, value=None, unit="", budget=SPIKES, sense="at least", how=why)


async def _measured(engine: str, image: str, *, quick: bool) -> list[Row]:
    written: list[Observation] = []
    trial = f"bench-{os.getpid()}"
    collectors = Collectors(
        sink=written.append,
        host=this_host(),
        trial_id=trial,
        docker=DockerUpstream(url=engine),
        started_wall_ns=time.time_ns(),
        on_mutation=lambda _: None,
        on_container_count=lambda _: None,
    )
    await collectors.start()
    name = f"bench-spikes-{os.getpid()}"
    process = await asyncio.create_subprocess_exec(
        "docker", "-H", engine, "run", "--rm", "-i", "--name", name, "--network", "none", "-m", "256m",
        "-e", f"FAIRTRIAL_TRIAL={trial}", image, "python3", "-c", _SPIKER,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    found: list[Row] = []
    try:
        await process.stdout.readline()
        container = await _seen(written)
        usage = Path(f"/sys/fs/cgroup/memory/docker/{container}/memory.usage_in_bytes")
        if not usage.exists():
            usage = Path(f"/sys/fs/cgroup/docker/{container}/memory.current")
        for hold_ms in HOLDS_MS[:1] if quick else HOLDS_MS:
            count = 5 if quick else SPIKES
            found += await _round(collectors, written, engine, container, usage, process, hold_ms=hold_ms, count=count)
    finally:
        process.stdin.close()
        await (
            await asyncio.create_subprocess_exec("docker", "-H", engine, "rm", "-f", name, stderr=-3, stdout=-3)
        ).wait()
        await process.wait()
        await collectors.close()
    return found


async def _seen(written: list[Observation]) -> str:
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        for observation in written:
            value = decode(observation)
            if isinstance(value, ContainerSeen) and value.join == "env":
                return value.container_id
        await asyncio.sleep(0.05)
    raise RuntimeError("the container was not joined")


async def _round(
    collectors: Collectors,
    written: list[Observation],
    engine: str,
    container: str,
    usage: Path,
    process: asyncio.subprocess.Process,
    *,
    hold_ms: int,
    count: int,
) -> list[Row]:
    readers = [Samples("usage each 1 s"), Samples("usage each 0.1 s"), Samples("Docker stats stream", late=True)]
    pollers = [Poller(usage, 1.0, readers[0]), Poller(usage, 0.1, readers[1])]
    stats = Stats(engine, container, readers[2])
    for thread in (*pollers, stats):
        thread.start()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"0\n")  # what the first spike leaves behind in the interpreter belongs to none
    await process.stdout.readline()
    collectors.edge("call_started")
    await asyncio.sleep(1.2)
    calm = int(usage.read_bytes())
    began: list[float] = []
    chance = random.Random(hold_ms)
    first = len(written)
    cpu_s, wall_s = time.process_time(), time.monotonic()
    for _ in range(count):
        due_s = time.monotonic() + chance.uniform(*EVERY_S)
        began.append(time.monotonic())
        process.stdin.write(f"{hold_ms}\n".encode())
        await process.stdout.readline()
        collectors.edge("call_started")
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
    cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
    for poller in pollers:
        poller.stop.set()
    await asyncio.sleep(1.1)
    stats.close()
    for thread in (*pollers, stats):
        await asyncio.to_thread(thread.join)
    readings = [v for v in (decode(o) for o in written[first:]) if isinstance(v, CgroupReading)]
    ours = [v for v in readings if v.container_id == container and v.edge == "call_started"]
    seen = sum(1 for v in ours if (v.memory_peak or 0) >= calm + SPIKE_BYTES // 2)
    kinds = sorted({v.memory_peak_kind or "none" for v in ours})
    own = cpu_s - sum(reader.cpu_s for reader in readers)
    out = [
        Row(
            what=f"spikes of 16 MB for {hold_ms} ms, seen by ours",
            value=seen,
            unit="",
            budget=count if hold_ms == HOLDS_MS[0] else None,
            sense="at least",
            how=f"of {count}; peaks {', '.join(kinds)}; with edges and sampling {100 * own / wall_s:.2f} % of a core",
        )
    ]
    out.extend(
        Row(
            what=f"the same, seen by {reader.name}",
            value=reader.of(began, calm),
            unit="",
            how=f"of {count}; {len(reader.seen)} samples, {100 * reader.cpu_s / wall_s:.2f} % of a core on our side",
        )
        for reader in readers
    )
    return out
