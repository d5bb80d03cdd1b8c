"""A trial that watches real containers: what tests of the collectors on a real engine share.

Each container carries the trial's id in its environment, because the engine may be shared with other work.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid

from fairtrial.collectors.facade import Collectors, DockerUpstream
from fairtrial.middleware.core.observations import (
    CgroupReading,
    ContainerGone,
    ExecEnded,
    KernelOomKill,
    MutationSeen,
    OomKill,
)
from fairtrial.middleware.core.sink import this_host
from tests.collectors.keep import Kept, eventually

LIMIT = 64 << 20


class Bench:
    """A trial that watches, and a docker command line to do things with."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.trial = f"t-{uuid.uuid4().hex}"
        self.kept = Kept()
        self.mutations: list[MutationSeen] = []
        self.counts: list[int] = []
        self.names: list[str] = []
        self.collectors = Collectors(
            sink=self.kept.all.append,
            host=this_host(),
            trial_id=self.trial,
            docker=DockerUpstream(url=address),
            started_wall_ns=time.time_ns(),
            on_mutation=self.mutations.append,
            on_container_count=self.counts.append,
        )

    async def docker(self, *words: str) -> tuple[int, str]:
        """One docker command: exit status and what it printed."""
        process = await asyncio.create_subprocess_exec(
            "docker",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "DOCKER_HOST": self.address},
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode(errors="replace").strip()

    async def up(self, *command: str, options: tuple[str, ...] = (), image: str = "ft-busybox") -> str:
        """A started container of this trial; gives its id once its cgroup is watched."""
        cid = await self.create(*command, options=options, image=image)
        status, text = await self.docker("start", cid)
        assert status == 0, text
        await eventually(lambda: self.readings(cid))
        return cid

    async def create(self, *command: str, options: tuple[str, ...] = (), image: str = "ft-busybox") -> str:
        """A container that is not started yet."""
        name = f"collectors-{uuid.uuid4().hex[:10]}"
        self.names.append(name)
        mark = ("-e", f"FAIRTRIAL_TRIAL={self.trial}")
        status, text = await self.docker("create", "--name", name, "-m", str(LIMIT), *mark, *options, image, *command)
        assert status == 0, text
        return text.splitlines()[-1]

    def readings(self, cid: str) -> list[CgroupReading]:
        """Of one container."""
        return [v for v in self.kept.of(CgroupReading) if v.container_id == cid]

    def kills(self, cid: str) -> int:
        """All counted kills of one container."""
        return sum(v.delta for v in self.kept.of(OomKill) if v.container_id == cid)

    def victims(self, cid: str) -> list[KernelOomKill]:
        """Those whom the kernel named."""
        return [v for v in self.kept.of(KernelOomKill) if v.container_id == cid]

    def gone(self, cid: str) -> ContainerGone:
        """How it ended."""
        (value,) = [v for v in self.kept.of(ContainerGone) if v.container_id == cid]
        return value

    def is_gone(self, cid: str) -> bool:
        """Whether its end was written."""
        return any(v.container_id == cid for v in self.kept.of(ContainerGone))

    def exec_codes(self, cid: str) -> list[int | None]:
        """Of the execs that ended."""
        return [v.exit_code for v in self.kept.of(ExecEnded) if v.container_id == cid]
