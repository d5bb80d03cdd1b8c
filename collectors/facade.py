"""All collectors of one trial behind one object: what the composition root starts, edges, finishes and closes.

In: a sink, the trial, where the engine is; edges of the trial.  Out: observations to the sink; nothing is returned and
nothing is raised for a source that cannot be watched, that is said as coverage.  Baseline readings of the node and of
our own cgroup are taken before `start` returns; everything that can wait (the docker SDK) starts in a thread.
Runs in the observer process, on its event loop; costs are in `collectors/__init__.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from fairtrial.collectors.cgroup import TICK_S, Tasks
from fairtrial.collectors.descriptors import Descriptors
from fairtrial.collectors.docker_adapter import DockerUpstream
from fairtrial.collectors.docker_events import DockerEvents
from fairtrial.collectors.edges import CallEdge, Edges
from fairtrial.collectors.host import HostProbe
from fairtrial.collectors.kernel_log import KernelLog
from fairtrial.collectors.parse.docker import ContainerFacts
from fairtrial.collectors.process_tree import ProcessTree
from fairtrial.collectors.victims import OWN, KnownExec, VictimJoiner
from fairtrial.collectors.watched_cgroups import WatchedCgroups
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import ContainerSeen, CoverageChanged, Host, MutationSeen
from fairtrial.middleware.core.sink import Sink, Source

__all__ = ["Collectors", "DockerUpstream"]

_BIG_CGROUP: Final = 500
_OTHERS_EVERY: Final = 5
"""Ticks between two looks for other trials on the engine."""
_BIG_CGROUP_EVERY: Final = 10
_RECONCILE_TICKS: Final = 150
_GRACE_S: Final = 1.0
_QUIET_NS: Final = 250_000_000
_REPLY_SLACK_S: Final = 0.25
"""We hear of a reply's end after the agent does, and a process's start is told in hundredths of a second."""
_IN_FLIGHT_S: Final = 0.03
_NOT_UP_S: Final = 0.1


class Collectors:
    """See the module.

    `on_mutation` is called with what we changed on the host; `on_container_count` with how many containers this trial
    has had so far (a watched container makes the end slower, so the relay is told early).  `resumed_wall_ns`: for an
    observer that takes over from one that died, the moment up to which that one had written; what is older is not
    written twice, and kills counted before are not counted again.
    """

    def __init__(
        self,
        *,
        sink: Sink,
        host: Host,
        trial_id: str,
        docker: DockerUpstream | None,
        started_wall_ns: int,
        on_mutation: Callable[[MutationSeen], None],
        on_container_count: Callable[[int], None],
        resumed_wall_ns: int | None = None,
        others_at_start: int = 0,
        oom_kill_at_start: int | None = None,
        proc: Path = Path("/proc"),
        root: Path = Path("/"),
        kernel_log: Path = Path("/dev/kmsg"),
    ) -> None:
        self._started_wall_ns = started_wall_ns
        self._oom_kill_at_start = oom_kill_at_start

        def source(name: str) -> Source:
            return Source(f"collector.{name}", sink, host=host, trial=trial_id)

        self._cgroup_source = source("cgroup")
        self._docker_source = source("docker_events")
        self._host = HostProbe(source("vmstat"), proc)
        self._tree = ProcessTree(proc)
        self._joiner = VictimJoiner(source("kernel_log"), trial_id=trial_id, tree=self._tree, context=self)
        self._from_ns = started_wall_ns if resumed_wall_ns is None else resumed_wall_ns
        now_wall_ns, now_ns = time.time_ns(), time.monotonic_ns()
        self._kernel_log = KernelLog(
            source("kernel_log"),
            path=kernel_log,
            started_mono_ns=now_ns - (now_wall_ns - self._from_ns),
            on_victim=self._joiner.take,
        )
        self._descriptors = Descriptors(self._cgroup_source, proc, trial_id=trial_id)
        self._docker: DockerEvents | None = None
        if docker is not None:
            self._docker = DockerEvents(
                self._docker_source,
                upstream=docker,
                trial_id=trial_id,
                started_ns=started_wall_ns,
                from_ns=self._from_ns,
                watch=self,
                others_at_start=others_at_start,
                on_count=on_container_count,
            )
        self._cgroups = WatchedCgroups(
            self._cgroup_source,
            source("network"),
            trial_id=trial_id,
            from_ns=self._from_ns,
            tree=self._tree,
            surroundings=self,
            on_mutation=on_mutation,
            proc=proc,
            root=root,
        )
        self._edges = Edges(self._edge_now)
        self._own_size = 0
        self._child: int | None = None
        self._kills_at_start: int | None = None
        self._sampler: asyncio.Task[None] | None = None
        # One that takes over has not seen the first reply: every process may then be the model's doing.
        self._first_reply_s: float | None = None if resumed_wall_ns is None else 0.0
        self._replied_s: float | None = None
        """When a model's reply ended, s since boot: a process that started later may be its doing."""
        self._broken = False
        self._ticks = 0

    # --- what the composition root calls ------------------------------------------------------------------------

    async def start(self) -> None:
        """Baselines first, then everything else; takes a few milliseconds."""
        at_start = self._oom_kill_at_start
        self._kills_at_start = self._host.oom_kill() if at_start is None else at_start
        now = clock.now()
        ago_ns = max(0, now.wall_ns - self._started_wall_ns)
        self._host.begin(at_start, clock.Instant(self._started_wall_ns, now.mono_ns - ago_ns))
        self._cgroups.start()
        self._kernel_log.start()
        if self._docker is not None:
            self._docker.start()
        else:
            self._docker_source.emit(
                CoverageChanged(
                    source="collector.docker_events",
                    families=["memory", "node"],
                    state="off",
                    why="no Docker engine is in use",
                )
            )
        self._sampler = asyncio.get_running_loop().create_task(self._sample(), name="collectors-sampler")

    def created_here(self, container_id: str) -> None:
        """This container was made through the trial's own Docker door: it is this trial's, whoever else is there."""
        if self._docker is not None:
            self._docker.created_here(container_id)

    def child_started(self, pid: int) -> None:
        """The command under test runs; it is watched in its own cgroup if that is not ours."""
        self._child = pid
        self._tree.look(pid)
        self._cgroups.follow(pid)

    def child_seen_in(self, cgroup: str) -> None:
        """The run process saw the command in this cgroup (text of its /proc/PID/cgroup) while we could not look yet."""
        self._cgroups.seen_in(cgroup)

    def edge(self, name: Literal["call_started", "call_ended", "end"]) -> None:
        """Write readings now; a storm of edges is thinned to 20 a second, the last one of it is kept."""
        if name == "call_ended":
            self._replied_s = time.clock_gettime(time.CLOCK_BOOTTIME) - _REPLY_SLACK_S
            if self._first_reply_s is None:
                self._first_reply_s = self._replied_s
                self._remember_descriptors()
        if name == "end":
            self._edge_now("end")
        else:
            self._edges.take(name)

    def _remember_descriptors(self) -> None:
        for container_id, watcher in self._cgroups.all.items():
            directory = watcher.files.memory_dir
            if container_id != OWN and directory is not None:
                self._tree.scan(directory)
                self._descriptors.remember(self._tree.alive(directory))

    async def finish(self, deadline_s: float) -> None:
        """Wait for late events where a container was watched, then take the last readings."""
        deadline_ns = time.monotonic_ns() + int(deadline_s * 1e9)
        if self._docker is not None:
            docker = self._docker
            # A kill that nobody has a place for may have been in a container that the engine still has to tell of.
            patience_s = deadline_s if self.struck else _NOT_UP_S
            if not docker.tried:
                await self._until(lambda: docker.tried, patience_s, deadline_ns)
                if not docker.tried:
                    self._docker_source.emit(
                        CoverageChanged(
                            source="collector.docker_events",
                            families=["memory", "node"],
                            state="off",
                            why="the engine's events were not reached before the command ended",
                            containers_missed=True,
                        )
                    )
            if docker.up:
                await self._until(lambda: False, _IN_FLIGHT_S, deadline_ns)
            await self._until(lambda: not docker.busy, patience_s, deadline_ns)
            if docker.judging:
                docker.say_unjudged()
            if docker.joined:
                await self._until(self._quiet, _GRACE_S, deadline_ns)
            docker.end_watch()
        if self._unread_kills():
            await self._until(lambda: not self._unread_kills(), _IN_FLIGHT_S, deadline_ns)
        self._kernel_log.drain()
        self._joiner.close()
        self._cgroups.read_last()
        self._host.edge("last")

    async def close(self) -> None:
        """Let go of everything; safe to call twice."""
        self._edges.close()
        if self._sampler is not None:
            self._sampler.cancel()
            try:
                await self._sampler
            except asyncio.CancelledError:
                pass
            self._sampler = None
        if self._docker is not None:
            self._docker.close()
        self._kernel_log.close()
        self._cgroups.close()
        self._host.close()

    # --- edges and ticks ----------------------------------------------------------------------------------------

    def _edge_now(self, name: CallEdge | Literal["end"]) -> None:
        self._cgroups.follow()
        self._host.edge(name)
        self._cgroups.read_all(name)

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            due_s = max(due_s + TICK_S, loop.time() + TICK_S / 2)
            await asyncio.sleep(due_s - loop.time())
            self._ticks += 1
            try:
                self._tick()
            except Exception as error:  # noqa: BLE001 - the task's outermost frame: said once, the next tick comes
                self._say_broken(error)

    def _tick(self) -> None:
        self._cgroups.follow()
        self._cgroups.tick()
        self._scan()
        if self._docker is not None and self._ticks % _RECONCILE_TICKS == 0:
            self._docker.reconcile()

    def _say_broken(self, error: Exception) -> None:
        if self._broken:
            return
        self._broken = True
        self._cgroup_source.emit(
            CoverageChanged(
                source="collector.cgroup",
                families=["memory", "cpu", "disk"],
                state="lost",
                why=f"sampling failed: {type(error).__name__}: {error}"[:200],
            )
        )

    def _scan(self) -> None:
        """Who is whose parent matters for victims, which the kernel log names; what is open, while commands run."""
        for container_id, watcher in self._cgroups.all.items():
            directory = watcher.files.memory_dir
            if directory is None:
                continue
            if container_id == OWN:
                if not self._kernel_log.on:
                    continue
                if self._docker is not None and self._ticks % _OTHERS_EVERY == 0:
                    self._docker.look_for_others()
                if self._own_size < _BIG_CGROUP or self._ticks % _BIG_CGROUP_EVERY == 0:
                    self._own_size = self._tree.scan(directory)
            elif self._docker is not None and self._docker.live_execs(container_id):
                self._tree.scan(directory)
                self._descriptors.look(container_id, self._tree.alive(directory), self._first_reply_s)

    async def _until(self, done: Callable[[], bool], at_most_s: float, deadline_ns: int) -> None:
        until_ns = min(deadline_ns, time.monotonic_ns() + int(at_most_s * 1e9))
        # Most of what is waited for is a counter of the kernel or the clock, which set no Event.
        while not done() and (left_ns := until_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(min(0.01, left_ns / 1e9))

    def _quiet(self) -> bool:
        docker = self._docker
        if docker is None:
            return True
        calm = time.monotonic_ns() - docker.active_ns >= _QUIET_NS
        return calm and docker.settled() and self._joiner.pending == 0

    def _unread_kills(self) -> bool:
        """The node counted a kill that the kernel log has not named yet."""
        now = self._host.oom_kill()
        if now is None or self._kills_at_start is None or not self._kernel_log.on:
            return False
        return now - self._kills_at_start > self._joiner.seen

    # --- Watch: what docker_events.py asks ----------------------------------------------------------------------

    def watch(self, facts: ContainerFacts, seen: ContainerSeen) -> ContainerSeen:
        """Find and watch the cgroup of a container; what cannot be found is said."""
        return self._cgroups.watch(facts, seen)

    def release(self, container_id: str) -> None:
        """A container ended; a later life of it gets a new watcher."""
        self._cgroups.release(container_id)

    def ring(self, container_id: str) -> None:
        """The runtime's `oom` event: read."""
        watcher = self._cgroups.all.get(container_id)
        if watcher is not None:
            watcher.ring()

    def settle(self, container_id: str) -> bool:
        """Read what is left of a container that died."""
        self._kernel_log.drain()
        watcher = self._cgroups.all.get(container_id)
        if watcher is not None and not watcher.gone:
            watcher.tick()
        return (watcher is None or watcher.gone) and self._joiner.unplaced == 0

    def kills_counted(self, container_id: str) -> int:
        """By its cgroup's counter, over all its lives."""
        return self._cgroups.kills(container_id)

    def victims_named(self, container_id: str) -> list[int]:
        """By the kernel log."""
        self._kernel_log.drain()
        return self._joiner.joined.get(container_id, [])

    @property
    def struck(self) -> bool:
        """Whether a kill that the node counted may yet turn out to be of a container that the engine has to tell of."""
        if self._docker is None or (self._docker.tried and not self._docker.busy):
            return False
        now = self._host.oom_kill()
        return (
            now is not None
            and self._kills_at_start is not None
            and now - self._kills_at_start > self._cgroups.all_kills
        )

    def unexplained_kills(self) -> int | None:
        """Of the node, since our start."""
        now = self._host.oom_kill()
        if now is None or self._kills_at_start is None:
            return None
        return now - self._kills_at_start - self._cgroups.all_kills - self._joiner.elsewhere

    # --- Surroundings: what a watcher asks ----------------------------------------------------------------------

    def live_execs(self, container_id: str) -> list[str]:
        """Execs that run now."""
        return [] if self._docker is None else self._docker.live_execs(container_id)

    def exec_candidates(self, container_id: str) -> list[str]:
        """Execs that run now or ended within a second."""
        return [known.exec_id for known in self.execs_of(container_id)]

    def on_ring(self, container_id: str) -> None:
        """The victim may still be there: note who is whose parent."""
        watcher = self._cgroups.all.get(container_id)
        if watcher is not None and watcher.files.memory_dir is not None and self._kernel_log.on:
            self._tree.scan(watcher.files.memory_dir)

    def on_kill(self, container_id: str, delta: int) -> None:
        """A kill was counted."""
        if self._docker is not None and delta > 0:
            self._docker.note_kill(container_id)

    def tasks_in(self, container_id: str) -> Tasks | None:
        """Counted now; it reads one file per process, and one per thread up to a few dozen."""
        watcher = self._cgroups.all.get(container_id)
        places = None if watcher is None else watcher.files.places.places.get("pids")
        found = None if places is None else self._tree.census(places.path)
        if found is None:
            return None

        def since(at_s: float | None) -> int | None:
            return None if at_s is None else sum(threads for started_s, threads in found if started_s >= at_s)

        return Tasks(
            all=sum(threads for _, threads in found),
            since_first_reply=since(self._first_reply_s),
            since_last_reply=since(self._replied_s),
        )

    def on_vanished(self, container_id: str) -> None:
        """Its cgroup is gone; the watcher stays for its count of kills."""
        watcher = self._cgroups.all.get(container_id)
        if watcher is not None and watcher.files.memory_dir is not None:
            self._tree.forget(watcher.files.memory_dir)

    # --- Context: what the join of victims asks -----------------------------------------------------------------

    def container_of(self, memcg: str | None) -> str | None:
        """By the id in the path; the root cgroup is nobody's."""
        if memcg is None or memcg == "/":
            return None
        found = None if self._docker is None else self._docker.find(memcg)
        if found is None:
            found = next((cid for cid in self._cgroups.all if cid != OWN and cid in memcg), None)
        own = self._cgroups.own_path
        if found is None and own is not None and own != "/" and (memcg == own or memcg.startswith(own + "/")):
            return OWN
        return found

    def container_in(self, directory: Path) -> str | None:
        """By the directory of its memory controller, also after it is gone; the root cgroup is nobody's."""
        found = self._cgroups.directories.get(directory)
        return None if found == OWN and self._cgroups.own_path == "/" else found

    def container_of_pids(self, pids: list[int]) -> str | None:
        """By a known first process."""
        return None if self._docker is None else self._docker.find_by_pids(pids)

    def undecided(self) -> bool:
        """Whether a container is being judged."""
        return self._docker is not None and self._docker.undecided()

    def init_pid_of(self, container_id: str) -> int | None:
        """Its first process."""
        return None if self._docker is None else self._docker.init_pid_of(container_id)

    def execs_of(self, container_id: str) -> list[KnownExec]:
        """Execs that run now or ended a moment ago."""
        return [] if self._docker is None else self._docker.recent_execs(container_id)

    def child_pid(self) -> int | None:
        """The command under test."""
        return self._child
