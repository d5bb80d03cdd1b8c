"""The only program of the guest: the real collectors beside cgroup v2 trees laid out as engines lay them out.

In: a kernel with nothing but cgroup v2.  Out: one line of JSON per scene on the console, marked `FT `; what it means is
claimed by tests/collectors/test_cgroup_v2.py on the host.  No engine runs here: a container is a cgroup with a process
that has its id in its path, which is all that the collectors ever see of one.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import mmap
import os
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from fairtrial.collectors.cgroup_paths import locate
from fairtrial.collectors.docker_state import container_seen
from fairtrial.collectors.facade import Collectors
from fairtrial.collectors.parse.docker import ContainerFacts
from fairtrial.middleware.core.sink import this_host
from tests.collectors.keep import Kept, eventually

TOP = Path("/sys/fs/cgroup")
MIB = 1 << 20
LIMIT = 48 * MIB
SPIKES = 20
PATIENCE_S = 60.0
"""Emulated, on a machine that does other work, a second is short."""
SPIKE_BYTES = 16 * MIB
CLONE_NEWNS, CLONE_NEWCGROUP = 0x20000, 0x2000000
LAYOUTS = {
    "docker": "docker/{id}",
    "systemd": "system.slice/docker-{id}.scope",
    "kubepods": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f2e.slice/cri-containerd-{id}.scope",
    "rootless": "user.slice/user-1000.slice/user@1000.service/user.slice/docker-{id}.scope",
}


def container_id(number: int) -> str:
    """64 hex digits, as an engine's."""
    return f"{number:x}".rjust(2, "0") * 32


def make(layout: str, number: int, **files: str) -> Path:
    """A container's cgroup with all controllers on the way to it; `files` are `memory_max="…"` and so on."""
    directory = TOP / LAYOUTS[layout].format(id=container_id(number))
    at = TOP
    for part in directory.relative_to(TOP).parts:
        enable(at)
        at = at / part
        at.mkdir(exist_ok=True)
    for name, value in files.items():
        (directory / name.replace("_", ".", 1).replace("_", ".")).write_text(value)
    return directory


def enable(directory: Path) -> None:
    """Hand every controller down; one that the kernel has not is left out."""
    for name in (directory / "cgroup.controllers").read_text().split():
        (directory / "cgroup.subtree_control").write_text(f"+{name}")


def enter(directory: Path, work: Callable[[], None]) -> int:
    """A process in the cgroup that does some work and ends; gives its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            (directory / "cgroup.procs").write_text(str(os.getpid()))
            work()
        finally:
            os._exit(0)
    return pid


def run(*words: str) -> Callable[[], None]:
    """Work: become another program."""
    return lambda: os.execv(words[0], list(words))


SLEEP = run("/bin/busybox", "sleep", "1000")
HOG = run("/bin/busybox", "tail", "/dev/zero")


def hold(size: int, seconds: float) -> Callable[[], None]:
    """Work: touch some memory again and again, so that what is reclaimed comes back."""

    def work() -> None:
        block = bytearray(size)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            block[::4096] = b"x" * len(block[::4096])

    return work


class Guest:
    """The collectors of one trial, and what they wrote."""

    def __init__(self) -> None:
        self.kept = Kept()
        self.collectors = Collectors(
            sink=self.kept.all.append,
            host=this_host(),
            trial_id="t",
            docker=None,
            started_wall_ns=time.time_ns(),
            on_mutation=lambda _: None,
            on_container_count=lambda _: None,
        )

    def watch(self, number: int, pid: int) -> str:
        """As the Docker side does it at a container's start."""
        cid = container_id(number)
        facts = ContainerFacts(id=cid, init_pid=pid, started_ns=time.time_ns())
        self.kept.source("test").emit(self.collectors.watch(facts, container_seen(facts, join="label")))
        return cid

    def told(self, cid: str, kind: str) -> list[dict[str, object]]:
        """Values of one kind about one container."""
        return [o.value for o in self.kept.all if o.kind == kind and o.value.get("container_id") == cid]

    def count(self, cid: str) -> int:
        """Kills that were counted."""
        return sum(int(str(v["delta"])) for v in self.told(cid, "cgroup.oom_kill"))

    def say(self, scene: str, cid: str | None = None, **more: object) -> None:
        """One line for the host."""
        wanted = [o for o in self.kept.all if cid is not None and o.value.get("container_id") == cid]
        rows = [{"kind": o.kind, "mono_ns": o.mono_ns, **o.value} for o in wanted]
        print("FT " + json.dumps({"scene": scene, "told": rows, **more}), flush=True)


def reap(*pids: int) -> None:
    """Kill and wait."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            pass


async def gone(*pids: int) -> None:
    """Wait until they ended by themselves."""
    left = set(pids)

    def over() -> bool:
        for pid in list(left):
            if os.waitpid(pid, os.WNOHANG)[0]:
                left.discard(pid)
        return not left

    await eventually(over, within_s=PATIENCE_S)


async def child_oom(guest: Guest) -> None:
    """A process beside PID 1 is killed at the container's own limit."""
    directory = make("docker", 1, memory_max=str(LIMIT))
    init = enter(directory, SLEEP)
    await asyncio.sleep(0)
    await eventually(lambda: (directory / "cgroup.procs").read_text(), within_s=PATIENCE_S)
    cid = guest.watch(1, init)
    await gone(enter(directory, HOG))
    await eventually(lambda: guest.count(cid) and guest.told(cid, "kernel.oom_kill"), within_s=PATIENCE_S)
    guest.collectors.edge("end")
    guest.say("child_oom", cid, files=files_of(directory))
    reap(init)


async def group_oom(guest: Guest) -> None:
    """`memory.oom.group`: one kill takes all."""
    directory = make("systemd", 2, memory_max=str(LIMIT), memory_oom_group="1")
    processes = [enter(directory, SLEEP) for _ in range(2)]
    await eventually(lambda: len((directory / "cgroup.procs").read_text().split()) == 2, within_s=PATIENCE_S)
    cid = guest.watch(2, processes[0])
    await gone(enter(directory, HOG), *processes)
    await eventually(lambda: guest.count(cid) and len(guest.told(cid, "kernel.oom_kill")) >= 3, within_s=PATIENCE_S)
    guest.collectors.edge("end")
    guest.say("group_oom", cid, files=files_of(directory))


async def parent_limit(guest: Guest) -> None:
    """The pod's limit is hit, not the container's."""
    directory = make("kubepods", 3)
    (directory.parent / "memory.max").write_text(str(LIMIT))
    init = enter(directory, SLEEP)
    await eventually(lambda: (directory / "cgroup.procs").read_text(), within_s=PATIENCE_S)
    cid = guest.watch(3, init)
    await gone(enter(directory, HOG))
    await eventually(lambda: guest.count(cid) and guest.told(cid, "kernel.oom_kill"), within_s=PATIENCE_S)
    guest.collectors.edge("end")
    guest.say("parent_limit", cid, files=files_of(directory))
    reap(init)


async def stalled(guest: Guest) -> None:
    """Over `memory.high` nobody is killed: processes stand still, and the PSI trigger tells it."""
    directory = make("rootless", 4, memory_high=str(16 * MIB))
    init = enter(directory, SLEEP)
    await eventually(lambda: (directory / "cgroup.procs").read_text(), within_s=PATIENCE_S)
    cid = guest.watch(4, init)
    began_ns = time.monotonic_ns()
    hog = enter(directory, hold(40 * MIB, 30.0))
    await eventually(
        lambda: [v for v in guest.told(cid, "cgroup.reading") if v["edge"] == "change"], within_s=PATIENCE_S
    )
    reap(hog)
    guest.collectors.edge("end")
    guest.say("stalled", cid, began_ns=began_ns)
    reap(init)


async def pids_limit(guest: Guest) -> None:
    """A fork is refused."""
    directory = make("docker", 5, pids_max="4")
    init = enter(directory, SLEEP)
    await eventually(lambda: (directory / "cgroup.procs").read_text(), within_s=PATIENCE_S)
    cid = guest.watch(5, init)
    shell = "for i in 1 2 3 4 5 6; do sleep 0.3 & done; wait"
    await gone(enter(directory, run("/bin/busybox", "sh", "-c", shell)))
    await eventually(
        lambda: [v for v in guest.told(cid, "cgroup.reading") if v.get("pids_max_hits")], within_s=PATIENCE_S
    )
    guest.say("pids_limit", cid)
    reap(init)


async def throttled(guest: Guest) -> None:
    """A fifth of a core."""
    directory = make("docker", 6, cpu_max="20000 100000")
    init = enter(directory, SLEEP)
    await eventually(lambda: (directory / "cgroup.procs").read_text(), within_s=PATIENCE_S)
    cid = guest.watch(6, init)

    def busy() -> None:
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            pass

    await gone(enter(directory, busy))
    guest.collectors.edge("end")
    guest.say("throttled", cid)
    reap(init)


async def spikes(guest: Guest) -> None:
    """Short spikes, one between two readings each; a second reader of the same peak looks on."""
    directory = make("docker", 7, memory_max=str(4 * LIMIT))
    orders, answers = os.pipe(), os.pipe()

    def work() -> None:
        while os.read(orders[0], 1) == b"g":
            # A map of its own, given back at once; an allocator would keep it.
            block = mmap.mmap(-1, SPIKE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for page in range(0, SPIKE_BYTES, 4096):
                block[page] = 1
            block.close()
            os.write(answers[1], b"d")

    worker = enter(directory, work)
    await eventually(lambda: (directory / "cgroup.procs").read_text(), within_s=PATIENCE_S)
    os.write(orders[1], b"g")
    os.read(answers[0], 1)
    other = os.open(directory / "memory.peak", os.O_RDONLY)
    before = int(os.pread(other, 64, 0))
    cid = guest.watch(7, worker)
    guest.collectors.edge("end")
    for _ in range(SPIKES):
        os.write(orders[1], b"g")
        os.read(answers[0], 1)
        guest.collectors.edge("end")
    guest.collectors.edge("end")
    after = int(os.pread(other, 64, 0))
    guest.say("spikes", cid, other_before=before, other_after=after, spikes=SPIKES, spike_bytes=SPIKE_BYTES)
    os.close(other)
    reap(worker)


async def vanished(guest: Guest) -> None:
    """PID 1 is killed for memory and its cgroup is removed at once, as runc does."""
    directory = make("systemd", 8, memory_max=str(LIMIT))
    go = os.pipe()

    def work() -> None:
        os.read(go[0], 1)
        HOG()

    init = enter(directory, work)
    await eventually(lambda: (directory / "cgroup.procs").read_text(), within_s=PATIENCE_S)
    cid = guest.watch(8, init)
    os.write(go[1], b"g")
    await gone(init)
    directory.rmdir()
    await eventually(lambda: [v for v in guest.told(cid, "cgroup.reading") if v["edge"] == "last"], within_s=PATIENCE_S)
    guest.say("vanished", cid)


def from_inside(bind: bool) -> dict[str, object]:
    """What a fairtrial in a cgroup namespace of its own finds of a container outside of it, with and without the host's
    hierarchy mounted."""
    own = make("docker", 9)
    other = enter(make("docker", 10), SLEEP)
    deadline_s = time.monotonic() + 10
    target = TOP / LAYOUTS["docker"].format(id=container_id(10))
    while not (target / "cgroup.procs").read_text() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    libc = ctypes.CDLL(None, use_errno=True)
    read, write = os.pipe()

    def work() -> None:
        answer: dict[str, object]
        try:
            if libc.unshare(CLONE_NEWNS | CLONE_NEWCGROUP):
                raise OSError(ctypes.get_errno(), "unshare")
            if not bind and (
                libc.umount2(b"/sys/fs/cgroup", 2) or libc.mount(b"c", b"/sys/fs/cgroup", b"cgroup2", 0, None)
            ):
                raise OSError(ctypes.get_errno(), "mount")
            found = locate(other, proc=Path("/proc"), must_contain=container_id(10))
            mine = locate("self", proc=Path("/proc"))
            answer = {
                "path": Path(f"/proc/{other}/cgroup").read_text(),
                "found": {name: str(place.path) for name, place in found.places.items()},
                "missing": dict(found.missing),
                "mine": {name: str(place.path) for name, place in mine.places.items()},
                "mine_missing": dict(mine.missing),
                "procs": [(place.path / "cgroup.procs").read_text() for place in found.places.values()][:1],
                "pid": other,
            }
        except BaseException:
            answer = {"failed": traceback.format_exc()}
        os.write(write, json.dumps(answer).encode())

    child = enter(own, work)
    os.waitpid(child, 0)
    answer = json.loads(os.read(read, 65536))
    reap(other)
    return {str(key): value for key, value in answer.items()}


def files_of(directory: Path) -> dict[str, str]:
    """What the kernel itself says at the end."""
    names = ("memory.events", "memory.events.local", "memory.peak", "memory.max")
    return {
        f"{where}/{name}": (at / name).read_text().strip()
        for where, at in (("own", directory), ("parent", directory.parent))
        for name in names
        if (at / name).exists()
    }


SCENES: tuple[Callable[[Guest], Awaitable[None]], ...] = (
    child_oom,
    group_oom,
    parent_limit,
    stalled,
    pids_limit,
    throttled,
    spikes,
    vanished,
)


async def main() -> None:
    """All scenes, each alone with its failure."""
    guest = Guest()
    began_s = time.monotonic()
    await guest.collectors.start()
    wanted = os.environ.get("FT_SCENES", "")
    for scene in SCENES:
        if wanted and scene.__name__ not in wanted.split(","):
            continue
        try:
            await scene(guest)
        except BaseException:
            told = [{"kind": o.kind, **o.value} for o in guest.kept.all[-40:]]
            guest.say(scene.__name__, failed=traceback.format_exc(), last_told=told)
    guest.say("own", "own")
    for scene_name, bind in (("namespace", False), ("namespace_with_host_mount", True)):
        guest.say(scene_name, answer=from_inside(bind))
    await guest.collectors.close()
    guest.say("end", seconds=time.monotonic() - began_s, kernel=os.uname().release)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except BaseException:
        print("FT " + json.dumps({"scene": "crashed", "failed": traceback.format_exc()}), flush=True)
    sys.stdout.flush()
