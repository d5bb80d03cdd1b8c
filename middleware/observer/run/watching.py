"""What is watched beside the traffic: containers and the node by collectors, and files that a harness deletes.

In: the engine and the command of the HELLO, edges of calls, the child.  Out: observations, and how many containers
are watched.  No collector that fails keeps the others, or the run, from going on: it is told as lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from fairtrial.collectors.docker_adapter import DockerUpstream
from fairtrial.collectors.facade import Collectors
from fairtrial.middleware.core import config
from fairtrial.middleware.core.hello import DockerInfo, Hello
from fairtrial.middleware.core.observations import CoverageChanged, Host, MutationSeen, Note
from fairtrial.middleware.core.selfevents import CollectorFailed, Journal
from fairtrial.middleware.observer.book import TrialBook

if TYPE_CHECKING:
    from fairtrial.middleware.harnesses.keep import Keeper

FINISH_PLAIN_S: Final = 0.05
FINISH_STRUCK_S: Final = 0.6
"""The same where the node counted a kill that has no place yet: its container may have to be asked for first."""
FINISH_WATCHED_S: Final = 1.0
"""How long late evidence of watched containers is waited for: an oom event may come after the exec's end."""


class Watching:
    """The collectors and the keeper of one run; before `start`, and under a HELLO `close_only`, there are none.

    `tell`: facts for the run process.
    """

    def __init__(
        self, hello: Hello, book: TrialBook, journal: Journal, *, host: Host, tell: Callable[[dict[str, object]], None]
    ) -> None:
        self._hello = hello
        self._book = book
        self._source = book.source
        self._journal = journal
        self._host = host
        self._tell = tell
        self._watched = 0
        self._collectors: Collectors | None = None
        self.keeper: Keeper | None = None

    async def start(self, resumed_wall_ns: int | None) -> None:
        """Start to watch; `resumed_wall_ns`: since when nobody looked."""
        self.keeper = keeper_of(self._hello, self._journal)
        await self._start_collectors(resumed_wall_ns)

    async def _start_collectors(self, resumed_wall_ns: int | None) -> None:
        hello = self._hello
        try:
            self._collectors = Collectors(
                sink=self._book.take,
                host=self._host,
                trial_id=hello.trial,
                docker=docker_upstream(hello.docker),
                started_wall_ns=hello.wall_ns,
                on_mutation=self._on_mutation,
                on_container_count=self._on_container_count,
                resumed_wall_ns=resumed_wall_ns,
                others_at_start=hello.others_at_start,
                oom_kill_at_start=None if hello.resumed else hello.oom_kill_at_start,
            )
            await self._collectors.start()
        except Exception as error:  # noqa: BLE001 - no collector may keep the others, or the run, from going on
            self._lose_collectors(error)

    def _lose_collectors(self, error: Exception) -> None:
        self._journal.note(CollectorFailed(label="start", detail=repr(error)))
        self._source.emit(
            CoverageChanged(
                source="collectors",
                families=["memory", "cpu", "disk", "network", "node"],
                state="lost",
                why=repr(error),
            )
        )

    def _on_mutation(self, mutation: MutationSeen) -> None:
        self._source.emit(mutation)

    def _on_container_count(self, count: int) -> None:
        self._watched = max(self._watched, count)
        self._tell({"containers": count})

    def created(self, container_id: str) -> None:
        """A container was made through the Docker door."""
        if self._collectors is not None:
            self._collectors.created_here(container_id)

    def edge(self, edge: Literal["call_started", "call_ended"]) -> None:
        """A model call began or ended: the moment to read counters."""
        if self._collectors is not None:
            self._collectors.edge(edge)

    def child(self, facts: dict[str, object]) -> None:
        """What a CHILD tells of the command's process."""
        if facts.get("event") == "started" and self._collectors is not None:
            self._collectors.child_started(int(str(facts.get("pid", 0))))
        if isinstance(facts.get("cgroup"), str) and self._collectors is not None:
            self._collectors.child_seen_in(str(facts["cgroup"]))

    async def finish(self) -> None:
        """Late evidence, and what was kept of deleted files."""
        if self._collectors is not None:
            try:
                late_s = FINISH_STRUCK_S if self._collectors.struck else FINISH_PLAIN_S
                await self._collectors.finish(FINISH_WATCHED_S if self._watched else late_s)
            except Exception as error:  # noqa: BLE001 - the verdict is due whatever a collector does
                self._journal.note(CollectorFailed(label="finish", detail=repr(error)))
        if self.keeper is not None:
            await asyncio.to_thread(self.keeper.close)
            for kept in self.keeper.kept:
                self._source.emit(
                    Note(
                        event="attempt_kept",
                        text=f"the files of attempt {kept.attempt} of {kept.name}, which the harness deleted",
                        fields={"name": kept.name, "attempt": kept.attempt, "files": kept.files, "missed": kept.missed},
                    )
                )

    async def close(self) -> None:
        """Let go of engine, files and sockets."""
        if self._collectors is not None:
            await self._collectors.close()


def keeper_of(hello: Hello, journal: Journal) -> Keeper | None:
    """Saves what the harness deletes when it tries again, beside the store; None where there is nothing to save."""
    limit = config.load(hello.config, {}, {}).store.keep_limit_bytes
    if limit <= 0 or not any("harbor" in word or word == "hb" for word in hello.command):
        return None
    # Late: most commands start no harness that deletes anything, and a start counts in milliseconds.
    from fairtrial.middleware.harnesses.keep import Keeper, jobs_folder

    try:
        jobs = jobs_folder(hello.command, Path(os.readlink(f"/proc/{hello.pid}/cwd")))
        if jobs is None:
            return None
        return Keeper(jobs, Path(hello.store).parent / "keep" / hello.trial, limit_bytes=limit)
    except OSError as error:
        journal.note(CollectorFailed(label="keep", detail=str(error)))
        return None


def docker_upstream(info: DockerInfo) -> DockerUpstream | None:
    """The engine to watch, or None with the reason in `info.skipped`."""
    if info.url is None:
        return None
    if info.tls_dir is None:
        return DockerUpstream(url=info.url)
    pem = {name: str(Path(info.tls_dir) / f"{name}.pem") for name in ("ca", "cert", "key")}
    return DockerUpstream(
        url=info.url, tls_ca=pem["ca"], tls_cert=pem["cert"], tls_key=pem["key"], tls_verify=info.tls_verify
    )
