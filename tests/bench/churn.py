"""Containers that come, are killed for memory, and go: which of their kills were counted, and by whom.

`python -m tests.bench churn`.  First cgroups made by hand at 20 a second, each watched, killed once and removed at once
(the engine cannot go that fast on two cores); then containers of the engine that FAIRTRIAL_TEST_DOCKER or DOCKER_HOST
names, as fast as it makes them, each killed by its own main process.  Beside ours: a reader that lists the engine's
cgroups once a second and sums their counters, as exporters do.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import uvloop

from fairtrial.collectors.docker_state import container_seen
from fairtrial.collectors.facade import Collectors, DockerUpstream
from fairtrial.collectors.parse.docker import ContainerFacts
from fairtrial.middleware.core.observations import ContainerGone, Observation, OomKill, Value, decode
from fairtrial.middleware.core.sink import this_host
from tests.bench.rows import Row
from tests.collectors.hand_cgroups import TOP, v1_memory
from tests.e2e.clients import e2e_folder
from tests.e2e.image import ImageUnavailable, ensure_image

PER_S: Final = 20
BY_HAND: Final = 100
BY_ENGINE: Final = 60
AT_ONCE: Final = 4
GONE_S: Final = 0.035
"""How long after the death of its first process a container's cgroup is there; as measured on Docker 20.10."""
LIMIT: Final = 16 << 20
_HAND: Final = "cgroups made, killed in and removed by hand, whose kill was counted"
_ENGINE: Final = "containers of the engine killed at once and gone, whose kill was told"


class Trial:
    """Collectors and what they wrote."""

    def __init__(self, engine: str | None) -> None:
        self.written: list[Observation] = []
        self.id = f"churn-{os.getpid()}-{time.monotonic_ns()}"
        self.collectors = Collectors(
            sink=self.written.append,
            host=this_host(),
            trial_id=self.id,
            docker=None if engine is None else DockerUpstream(url=engine),
            started_wall_ns=time.time_ns(),
            on_mutation=lambda _: None,
            on_container_count=lambda _: None,
        )

    def of(self, kind: type[Value]) -> list[Value]:
        """Typed values of one kind."""
        return [v for v in (decode(o) for o in self.written if o.kind == kind.kind) if v is not None]

    def killed(self) -> set[str]:
        """Containers with a counted kill."""
        return {v.container_id for v in self.of(OomKill) if isinstance(v, OomKill)}


class Lister(threading.Thread):
    """Once a second: all cgroups of the engine and their counters, as an exporter sums them."""

    def __init__(self, top: Path) -> None:
        super().__init__(daemon=True)
        self._top = top
        self.killed: set[str] = set()
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.wait(1.0):
            for file in self._top.glob("*/memory.oom_control"):
                try:
                    if "oom_kill 0" not in file.read_text().splitlines():
                        self.killed.add(file.parent.name)
                except OSError:
                    continue


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budget of DESIGN section 7: 20 containers a second, no counter missed."""
    if v1_memory():
        yield from uvloop.run(_by_hand(BY_HAND // 5 if quick else BY_HAND))
    else:
        yield Row(what=_HAND, value=None, unit="", budget=BY_HAND, sense="at least", how="no cgroup v1 to add to")
    engine = os.environ.get("FAIRTRIAL_TEST_DOCKER") or os.environ.get("DOCKER_HOST")
    why = "no engine on a unix socket is named (FAIRTRIAL_TEST_DOCKER)"
    if engine is not None and engine.startswith("unix://"):
        try:
            image = ensure_image("ft-busybox", engine, e2e_folder() / "images")
        except ImageUnavailable as error:
            why = str(error)
        else:
            yield from uvloop.run(_by_engine(engine, image, AT_ONCE if quick else BY_ENGINE))
            return
    yield Row(what=_ENGINE, value=None, unit="", budget=BY_ENGINE, sense="at least", how=why)


async def _by_hand(count: int) -> list[Row]:
    trial = Trial(None)
    await trial.collectors.start()
    parent = TOP / "memory" / "docker" / f"churn-{os.getpid()}"
    lister = Lister(parent)
    with ExitStack() as stack:
        parent.mkdir(parents=True)
        stack.callback(parent.rmdir)
        lister.start()
        began_s = time.monotonic()
        loop = asyncio.get_running_loop()
        made = {f"{n:064x}" for n in range(count)}

        def watch(facts: ContainerFacts) -> None:
            trial.collectors.watch(facts, container_seen(facts, join="label"))

        def one(n: int) -> float:
            due_s = began_s + n / PER_S
            time.sleep(max(0.0, due_s - time.monotonic()))
            late_s = time.monotonic() - due_s
            _one(
                parent / f"{n:064x}",
                lambda facts: asyncio.run_coroutine_threadsafe(_later(watch, facts), loop).result(),
            )
            return late_s

        with ThreadPoolExecutor(AT_ONCE) as pool:
            late = await asyncio.gather(*(loop.run_in_executor(pool, one, n) for n in range(count)))
        rate = count / (time.monotonic() - began_s)
        await asyncio.sleep(0.5)
        lister.stop.set()
        await asyncio.to_thread(lister.join)
    await trial.collectors.close()
    return [
        Row(
            what=_HAND, value=len(trial.killed() & made), unit="", budget=count, sense="at least",
            how=f"{rate:.1f}/s, at most {max(late):.2f} s late; removed {1000 * GONE_S:.0f} ms after the kill",
        ),
        Row(what="the same, by a reader each 1 s", value=len(lister.killed & made), unit="", how=f"of {count}"),
    ]  # fmt: skip


async def _later(watch: Callable[[ContainerFacts], None], facts: ContainerFacts) -> None:
    """On the collectors' own loop."""
    watch(facts)


def _one(directory: Path, watch: Callable[[ContainerFacts], object]) -> None:
    """A cgroup with a process that is killed at its limit, and that is removed as soon as an engine would."""
    directory.mkdir()
    (directory / "memory.limit_in_bytes").write_text(str(LIMIT))
    command = f"echo $$ > {directory}/cgroup.procs; read x; exec busybox tail /dev/zero"
    process = subprocess.Popen(["busybox", "sh", "-c", command], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    while not (directory / "cgroup.procs").read_bytes():
        time.sleep(0.001)
    watch(ContainerFacts(id=directory.name, init_pid=process.pid, started_ns=time.time_ns()))
    process.stdin.write(b"go\n")
    process.stdin.close()
    process.wait()
    time.sleep(GONE_S)
    while directory.exists():
        try:
            directory.rmdir()
        except OSError:
            time.sleep(0.001)


async def _by_engine(engine: str, image: str, count: int) -> list[Row]:
    trial = Trial(engine)
    await trial.collectors.start()
    lister = Lister(TOP / "memory" / "docker")
    lister.start()

    def one(_: int) -> int:
        words = ["docker", "-H", engine, "run", "--rm", "--network", "none", "-m", str(LIMIT)]
        words += ["-e", f"FAIRTRIAL_TRIAL={trial.id}", image, "tail", "/dev/zero"]
        return subprocess.run(words, capture_output=True, check=False).returncode

    began_s = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        codes = await asyncio.gather(*(asyncio.get_running_loop().run_in_executor(pool, one, n) for n in range(count)))
    rate = count / (time.monotonic() - began_s)
    await trial.collectors.finish(3.0)
    lister.stop.set()
    await asyncio.to_thread(lister.join)
    gone = {v.container_id for v in trial.of(ContainerGone) if isinstance(v, ContainerGone) and v.ended_by == "oom"}
    killed = trial.killed()
    await trial.collectors.close()
    return [
        Row(
            what=_ENGINE, value=len(gone), unit="", budget=count, sense="at least",
            how=f"{rate:.1f}/s; {codes.count(137)} ended with 137; by the own counter {len(killed)}, the rest by the "
            "kernel's log: those lived for less than their start event took",
        ),
        Row(what="the same, by a reader each 1 s", value=len(lister.killed & gone), unit="", how=f"of {count}"),
    ]  # fmt: skip
