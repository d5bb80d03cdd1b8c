"""What watching costs: 50 real cgroups at 10 Hz, as percent of one core.

Run: python -m tests.collectors.bench_cgroups [SECONDS OF A ROUND]

In: root and a hybrid or v1 host.  Out: one JSON line.  Each cgroup holds a process in a network namespace of its own.
Not a test: numbers of a busy machine prove nothing, so it is run by hand or from tests/bench.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from pathlib import Path

from fairtrial.collectors.cgroup_files import CgroupFiles
from fairtrial.collectors.cgroup_paths import CONTROLLERS, CgroupPlaces, Place
from fairtrial.collectors.facade import Collectors
from fairtrial.middleware.core.observations import Observation, Subject
from fairtrial.middleware.core.sink import this_host
from tests.collectors.hand_cgroups import TOP

CGROUPS = 50
ROUND_S = 5.0
ROUNDS = 3


def make(stack: ExitStack, name: str) -> tuple[CgroupPlaces, int]:
    """A cgroup in every hierarchy, with a sleeping process; removed in the reverse order."""
    places: dict[str, Place] = {}
    for controller in (*CONTROLLERS, "unified"):
        directory = TOP / controller / name
        directory.mkdir()
        stack.callback(_remove, directory)
        places[controller] = Place(path=directory, mount=directory.parent, v2=False)
    process = stack.enter_context(subprocess.Popen(["unshare", "-n", "sleep", "300"]))
    stack.callback(process.kill)
    (places["memory"].path / "cgroup.procs").write_text(str(process.pid))
    unified = places.pop("unified").path
    return CgroupPlaces(version="hybrid", hierarchy_path=f"/{name}", places=places, unified=unified), process.pid


def _remove(directory: Path) -> None:
    deadline_s = time.monotonic() + 2
    while time.monotonic() < deadline_s:
        try:
            directory.rmdir()
        except OSError:
            time.sleep(0.01)
        else:
            return


async def measure(round_s: float = ROUND_S) -> dict[str, object]:
    """CPU of this process while nothing but sampling goes on."""
    written: list[Observation] = []
    collectors = Collectors(
        sink=written.append,
        host=this_host(),
        trial_id="bench",
        docker=None,
        started_wall_ns=time.time_ns(),
        on_mutation=lambda _: None,
        on_container_count=lambda _: None,
    )
    await collectors.start()
    shares: list[float] = []
    with ExitStack() as stack:
        for index in range(CGROUPS):
            places, pid = make(stack, f"fairtrial-bench-{uuid.uuid4().hex}")
            name = f"bench{index}"
            watcher = collectors._cgroups._make(
                name,
                Subject(container_id=name),
                CgroupFiles(places, may_reset=True),
                pid=str(pid),
                born_with_us=True,
                shared=None,
            )
            assert collectors._cgroups._bells is not None
            watcher.start(collectors._cgroups._bells)
        await asyncio.sleep(1)
        before = len(written)
        for _ in range(ROUNDS):
            cpu_s, wall_s = time.process_time(), time.monotonic()
            await asyncio.sleep(round_s)
            shares.append(100 * (time.process_time() - cpu_s) / (time.monotonic() - wall_s))
        sampled = len(written) - before
        began_s = time.perf_counter()
        collectors.edge("call_started")
        edge_ms = (time.perf_counter() - began_s) * 1000
        await collectors.close()
    return {
        "cgroups": CGROUPS,
        "hz": 10,
        "cpu_percent_of_one_core": [round(share, 2) for share in shares],
        "edge_blocks_ms": round(edge_ms, 3),
        "observations_written_by_sampling": sampled,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(*map(float, sys.argv[1:2])))))
