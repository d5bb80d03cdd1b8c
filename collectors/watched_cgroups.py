"""Which cgroups are watched: the command's own, and one for each container of the trial.

In: the command's pid, containers as the engine tells of them, ticks, edges.  Out: a `CgroupWatcher` each, its coverage
or the reason why there is none, and how many kills each counted over all its lives.  The command's own cgroup is
watched as found: no counter of it is ever set back.
What this module does not do: decide which containers are ours (`docker_joins.py`) or who was killed (`victims.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec

from fairtrial.collectors.cgroup import CgroupWatcher, Surroundings
from fairtrial.collectors.cgroup_files import CgroupFiles
from fairtrial.collectors.cgroup_paths import CgroupPlaces, locate, places_of
from fairtrial.collectors.disk import DiskProbe
from fairtrial.collectors.doorbell import PollBells
from fairtrial.collectors.network import NetworkCounters
from fairtrial.collectors.parse.docker import ContainerFacts
from fairtrial.collectors.parse.proc import parse_stat
from fairtrial.collectors.process_tree import ProcessTree
from fairtrial.collectors.readings import Bucket, Edge
from fairtrial.collectors.victims import OWN
from fairtrial.middleware.core.observations import ContainerSeen, CoverageChanged, MutationSeen, Subject
from fairtrial.middleware.core.sink import Source

_SYNC_WATCHERS: Final = 1
_FEW: Final = 4
"""With more containers than one trial has, not all are read at each edge."""
_READINGS_PER_S: Final = 100
FAMILIES: Final = ("memory", "cpu", "disk")


class WatchedCgroups:
    """`from_ns`: the trial's start by our wall clock, since when counters of new containers count from zero."""

    def __init__(
        self,
        source: Source,
        network_source: Source,
        *,
        trial_id: str,
        from_ns: int,
        tree: ProcessTree,
        surroundings: Surroundings,
        on_mutation: Callable[[MutationSeen], None],
        proc: Path,
        root: Path,
    ) -> None:
        self._source = source
        self._network_source = network_source
        self._trial_id = trial_id
        self._from_ns = from_ns
        self._tree = tree
        self._surroundings = surroundings
        self._on_mutation = on_mutation
        self._proc = proc
        self._root = root
        self.all: dict[str, CgroupWatcher] = {}
        """By container, `OWN` the command's, in the order of their beginning."""
        self.directories: dict[Path, str] = {}
        """Directory of a memory controller -> container, also of those that are over."""
        self._counted: dict[str, int] = {}
        self._readings = Bucket(per_s=_READINGS_PER_S, burst=_READINGS_PER_S)
        self._read_at_edge: dict[str, int] = {}
        self._turn = 0
        self._namespaces: dict[int, str] = {}
        self._bells: PollBells | None = None
        self._own: CgroupPlaces | None = None
        self._child: int | None = None
        self._child_cgroup = b""
        self._reset_said = False

    # --- the command's own --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Watch our own cgroup, in which the command will begin."""
        self._bells = PollBells(asyncio.get_running_loop())
        self._watch_own("self")

    def follow(self, child: int | None = None) -> None:
        """Watch the cgroup that the command is in now: a wrapper (systemd-run, cgexec, a shell) may move it after its
        start, and on a busy machine that comes after our first look."""
        self._child = self._child if child is None else child
        raw = self._child_lives_in()
        if raw is None or raw == self._child_cgroup:
            return  # where it was last seen is where it was
        self._child_cgroup = raw
        self._move_to(places_of(raw, proc=self._proc, root=self._root))

    def seen_in(self, cgroup: str) -> None:
        """The command was seen in this cgroup (text of its /proc/PID/cgroup).

        Of no weight while the command lives: then it is asked where it is now.
        """
        if self._child is None or self._child_lives_in() is not None:
            return
        try:
            self._move_to(places_of(cgroup.encode("utf-8", "surrogateescape"), proc=self._proc, root=self._root))
        except (OSError, ValueError):
            return

    def _move_to(self, places: CgroupPlaces) -> None:
        if self._own is not None and places.hierarchy_path != self._own.hierarchy_path:
            self._watch_own(str(self._child), places)

    def _child_lives_in(self) -> bytes | None:
        """Its /proc/PID/cgroup; None once it is over: one that exits is shown in the root of each v1 hierarchy."""
        if self._child is None:
            return None
        folder = self._proc / str(self._child)
        try:
            raw = (folder / "cgroup").read_bytes()
            return None if parse_stat((folder / "stat").read_bytes()).exiting else raw
        except (OSError, ValueError):
            return None

    @property
    def own_path(self) -> str | None:
        """Of the command's cgroup in its hierarchy; None while it is unknown."""
        return None if self._own is None else self._own.hierarchy_path

    def _watch_own(self, pid: str, places: CgroupPlaces | None = None) -> None:
        old = self.all.pop(OWN, None)
        if old is not None:
            old.close()
        try:
            places = places or locate(pid, proc=self._proc, root=self._root)
        except (OSError, ValueError) as error:
            why = f"our own cgroup cannot be found: {error}"
            self._source.emit(
                CoverageChanged(
                    source="collector.cgroup", families=list(FAMILIES), state="off", why=why, container_id=OWN
                )
            )
            return
        self._own = places
        files = CgroupFiles(places, may_reset=False)
        memory = places.places.get("memory")
        strangers = None if memory is None else self._tree.outsiders(memory.path, os.getppid())
        subject = Subject(trial=self._trial_id, container_id=OWN, cgroup=places.hierarchy_path)
        watcher = self._make(OWN, subject, files, pid=pid, born_with_us=False, shared=_sharing(places, strangers or 0))
        self._source.emit(
            ContainerSeen(
                container_id=OWN,
                role="own",
                init_pid=None if pid == "self" else int(pid),
                cgroup=places.hierarchy_path,
                cgroup_version=places.version,
                memory_limit=files.effective_limit(),
                oom_group=files.oom_group(),
                strangers=strangers,
                join="own",
            ),
            subject=subject,
        )
        assert self._bells is not None
        watcher.start(self._bells)

    # --- containers ---------------------------------------------------------------------------------------------

    def watch(self, facts: ContainerFacts, seen: ContainerSeen) -> ContainerSeen:
        """Find and watch the cgroup of a container; what cannot be found is said.  Gives `seen` with what was found."""
        subject = Subject(trial=self._trial_id, container_id=facts.id)
        why: str | None = None
        places: CgroupPlaces | None = None
        try:
            places = locate(facts.init_pid or 0, proc=self._proc, root=self._root, must_contain=facts.id)
        except OSError as error:
            why = f"process {facts.init_pid} of the container is not here: {error.strerror} (ended already, or remote)"
        except ValueError as error:
            why = str(error)
        else:
            if not places.places and places.unified is None:
                why = next(iter(places.missing.values()), "no cgroup was found")
        self.release(facts.id)
        if places is None or why is not None:
            self._cannot(facts.id, why, subject)
            return seen
        files = CgroupFiles(places, may_reset=True)
        watcher = self._make(
            facts.id,
            subject,
            files,
            pid=str(facts.init_pid),
            born_with_us=(facts.started_ns or facts.created_ns or self._from_ns) >= self._from_ns,
            shared=None,
            host_network=facts.network_mode == "host",
        )
        assert self._bells is not None
        watcher.start(self._bells)
        if facts.init_pid is not None:
            self._tree.look(facts.init_pid)
        if files.memory_dir is not None:
            self._tree.scan(files.memory_dir)
        return msgspec.structs.replace(
            seen, cgroup=places.hierarchy_path, cgroup_version=places.version, oom_group=files.oom_group()
        )

    def _cannot(self, container_id: str, why: str | None, subject: Subject) -> None:
        for source, name, families in (
            (self._source, "collector.cgroup", FAMILIES),
            (self._network_source, "collector.network", ("network",)),
        ):
            source.emit(
                CoverageChanged(source=name, families=list(families), state="off", why=why, container_id=container_id),
                subject=subject,
            )

    def release(self, container_id: str) -> None:
        """A container ended; a later life of it gets a new watcher."""
        watcher = self.all.pop(container_id, None)
        if watcher is not None:
            self._counted[container_id] = self._counted.get(container_id, 0) + watcher.kills_seen
            watcher.close()

    def _make(
        self,
        container_id: str,
        subject: Subject,
        files: CgroupFiles,
        *,
        pid: str,
        born_with_us: bool,
        shared: str | None,
        host_network: bool = False,
    ) -> CgroupWatcher:
        watcher = CgroupWatcher(
            container_id=container_id,
            subject=subject,
            source=self._source,
            network_source=self._network_source,
            files=files,
            network=self._network_of(container_id, pid, host_network=host_network),
            disk=self._disk_of(container_id, pid, subject, files),
            surroundings=self._surroundings,
            on_reset=self._say_reset,
            born_with_us=born_with_us,
            shared=shared,
            phase=len(self.all),
        )
        self.all[container_id] = watcher
        if files.memory_dir is not None:
            self.directories[files.memory_dir] = container_id
        return watcher

    def _disk_of(self, container_id: str, pid: str, subject: Subject, files: CgroupFiles) -> DiskProbe | None:
        """What cannot be looked at is said as a part of the disk's coverage."""
        if container_id == OWN:
            return None
        try:
            return DiskProbe(
                self._source,
                subject,
                container_id,
                proc=self._proc,
                pid=int(pid),
                pids=lambda: self._processes_of(files, int(pid)),
            )
        except (OSError, ValueError):
            return None

    def _processes_of(self, files: CgroupFiles, pid: int) -> frozenset[int]:
        directory = files.memory_dir
        if directory is None:
            return frozenset({pid})
        self._tree.scan(directory)
        return self._tree.alive(directory) | {pid}

    def _network_of(self, container_id: str, pid: str, *, host_network: bool) -> NetworkCounters | None:
        """One namespace, one count: containers that share it would each be charged with all of it."""
        try:
            network = NetworkCounters(self._proc, int(pid) if pid != "self" else os.getpid())
        except OSError:
            return None
        if host_network:
            network.shared = True
        if network.namespace is not None and not network.shared:
            owner = self._namespaces.setdefault(network.namespace, container_id)
            if owner != container_id and owner in self.all and not self.all[owner].gone:
                network.shared = True
            else:
                self._namespaces[network.namespace] = container_id
        return network

    def _say_reset(self, container_id: str) -> None:
        if self._reset_said:
            return
        self._reset_said = True
        self._on_mutation(
            MutationSeen(
                what="memory.max_usage_in_bytes reset",
                old=None,
                new="0",
                why="the true memory peak of each step of a container on cgroup v1",
                side_effects="other readers of this file see the peak since the last model call, not since the "
                f"container's start (first done for {container_id[:12]})",
            )
        )

    # --- counts, edges, ticks -----------------------------------------------------------------------------------

    def kills(self, container_id: str) -> int:
        """By its cgroup's counter, over all its lives."""
        watcher = self.all.get(container_id)
        return self._counted.get(container_id, 0) + (0 if watcher is None else watcher.kills_seen)

    @property
    def all_kills(self) -> int:
        """By all watched counters together."""
        return sum(self._counted.values()) + sum(watcher.kills_seen for watcher in self.all.values())

    def read_all(self, name: Literal["call_started", "call_ended", "end"]) -> None:
        """An edge of the trial: one reading each."""
        # The newest container first: it is the likeliest to have worked in the step, and `own` is its least telling.
        watchers = list(reversed(self.all.values()))
        if name != "end" and len(watchers) > _FEW:
            watchers = self._at_work(watchers)
        # The end is not waited for by anybody's call, and nothing may be read after its `last` reading.
        at_once = len(watchers) if name == "end" else _SYNC_WATCHERS
        for watcher in watchers[:at_once]:
            watcher.reading(name)
        self._read_rest(watchers[at_once:], name)

    def _at_work(self, watchers: list[CgroupWatcher]) -> list[CgroupWatcher]:
        """Of the containers of many trials those in which a command runs or ran a moment ago: a call is an edge of one
        trial, and whose is not known yet.  So many readings a second at most, each container in its turn."""
        at_work = [w for w in watchers if self._surroundings.exec_candidates(w.container_id)]
        at_work.sort(key=lambda watcher: self._read_at_edge.get(watcher.container_id, 0))
        read: list[CgroupWatcher] = []
        for watcher in at_work:
            if not self._readings.take():
                break
            self._turn += 1
            self._read_at_edge[watcher.container_id] = self._turn
            read.append(watcher)
        return read

    def _read_rest(self, watchers: list[CgroupWatcher], name: Edge) -> None:
        """One per turn of the loop, so that many containers do not hold up the feed."""
        if watchers:
            asyncio.get_running_loop().call_soon(self._read_one, watchers, name)

    def _read_one(self, watchers: list[CgroupWatcher], name: Edge) -> None:
        watchers[0].reading(name)
        self._read_rest(watchers[1:], name)

    def read_last(self) -> None:
        """Nothing is read after this."""
        for watcher in list(self.all.values()):
            watcher.reading("last")

    def tick(self) -> None:
        """One sample each."""
        for watcher in list(self.all.values()):
            watcher.tick()

    def close(self) -> None:
        """Let go of all; safe to call twice."""
        for watcher in self.all.values():
            watcher.close()
        self.all.clear()
        if self._bells is not None:
            self._bells.close()


def _sharing(places: CgroupPlaces, others: int) -> str:
    """Fairtrial itself is always in there; say who else is."""
    if places.hierarchy_path == "/":
        return "the command runs in the root cgroup, which has no limit and holds the whole node"
    if others:
        return f"the command's cgroup is shared with fairtrial and {others} other processes"
    return "the command's cgroup is shared with fairtrial itself"
