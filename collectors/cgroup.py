"""Watches one cgroup: counters at edges, every OOM kill at once, the peak of each step.

In: open files (`cgroup_files.py`), rings of its doorbell, ticks of the sampler, edges of the trial.  Out: observations
`cgroup.reading` (at edges, and when a counter of harm moved), `cgroup.oom_kill` (each delta, within milliseconds) and
`coverage`.  Samples stay in memory: they only feed the sampled peak and the highest egress rate.

A ring comes *before* the kill, and the cgroup of a dead PID 1 is gone about 35 ms later, so a ring starts a burst of
readings every 2 ms.  What was read last is kept and written as edge `last` when the cgroup goes.  Whether a kill
happened that no reading caught is decided by `docker_events.py`, which also has the runtime's and the kernel's word.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from fairtrial.collectors.cgroup_coverage import COVERAGE_SOURCE, coverage, network_coverage
from fairtrial.collectors.cgroup_files import CgroupFiles, CgroupVanished, Counters
from fairtrial.collectors.cgroup_reading import reading
from fairtrial.collectors.disk import DiskProbe
from fairtrial.collectors.doorbell import STALL_US, Bell, EventfdBell, PollBells
from fairtrial.collectors.network import NetworkCounters
from fairtrial.collectors.parse.cgroup_v1 import MemoryParts
from fairtrial.collectors.parse.proc import Traffic
from fairtrial.collectors.readings import Bucket, Edge
from fairtrial.middleware.core.clock import Instant
from fairtrial.middleware.core.observations import CoverageChanged, OomKill, PidsHit, Subject
from fairtrial.middleware.core.records import PeakKind
from fairtrial.middleware.core.sink import Source

TICK_S: Final = 0.1
_BURST_STEP_S: Final = 0.002
_BURST_SLOW_STEP_S: Final = 0.01
_BURST_FAST_NS: Final = 50_000_000
_BURST_NS: Final = 250_000_000
_PIDS_EVERY: Final = 2
_TRAFFIC_EVERY: Final = 5
_DISK_EVERY: Final = 10
_REFRESH_EVERY: Final = 20


class Tasks(NamedTuple):
    """Tasks (threads too) of a cgroup: all, and of processes that started after a model's first and newest reply."""

    all: int
    since_first_reply: int | None
    since_last_reply: int | None


class Surroundings(Protocol):
    """What a watcher asks of those who know execs and processes."""

    def live_execs(self, container_id: str) -> list[str]:
        """Ids of execs that run now."""
        ...

    def exec_candidates(self, container_id: str) -> list[str]:
        """Ids of execs that run now or ended a moment ago."""
        ...

    def on_ring(self, container_id: str) -> None:
        """Memory ran out; the victim still lives for about a millisecond."""
        ...

    def on_kill(self, container_id: str, delta: int) -> None:
        """The kill counter rose."""
        ...

    def on_vanished(self, container_id: str) -> None:
        """The cgroup is gone."""
        ...

    def tasks_in(self, container_id: str) -> Tasks | None:
        """How many tasks it holds now, and since when."""
        ...


class CgroupWatcher:
    """One cgroup.  `container_id` is "own" for the command's own; `shared` says who else lives in it."""

    def __init__(
        self,
        *,
        container_id: str,
        subject: Subject,
        source: Source,
        network_source: Source,
        files: CgroupFiles,
        network: NetworkCounters | None,
        disk: DiskProbe | None = None,
        surroundings: Surroundings,
        on_reset: Callable[[str], None],
        born_with_us: bool,
        shared: str | None,
        phase: int = 0,
    ) -> None:
        self.container_id = container_id
        self.files = files
        self.gone = False
        self.rang_ns: int | None = None
        self.kills_seen = 0
        self._subject = subject
        self._source = source
        self._network_source = network_source
        self._network = network
        self._disk = disk
        self._surroundings = surroundings
        self._on_reset = on_reset
        self._shared = shared
        self._ticks = phase
        self._bell: Bell | None = None
        self._more_bells: list[Bell] = []
        self._bell_why: str | None = None
        self._burst: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kills: int | None = 0 if born_with_us else None
        self._groups: int | None = 0 if born_with_us else None
        self._local_oom: int | None = 0 if born_with_us else None
        self._pids_hits: int | None = 0 if born_with_us else None
        self._stalled_s = 0.0
        self._sampled_peak: int | None = None
        self._ring_parts: MemoryParts | None = None
        self._traffic: tuple[int, Traffic] | None = None
        self._rate: float | None = None
        self._last: Counters | None = None
        self._last_at = Instant(0, 0)
        self._last_traffic: Traffic | None = None
        self._last_tcp: tuple[int | None, int | None] = (None, None)
        self._changes = Bucket(per_s=4, burst=8)
        self._change_due = False
        self._censuses = Bucket(per_s=1, burst=2)
        self._said_garbled = False

    # --- start and end ------------------------------------------------------------------------------------------

    def start(self, bells: PollBells) -> None:
        """Arm the doorbell and write the baseline."""
        self._loop = asyncio.get_running_loop()
        directory = self.files.memory_dir
        if directory is not None and self.files.kill_counter is not None:
            try:
                if self.files.v2_memory:
                    self._bell = bells.arm(directory / "memory.events", self.ring)
                else:
                    self._bell = EventfdBell(directory, self.ring, self._loop)
            except OSError as error:
                self._bell_why = f"no doorbell ({error.strerror}): kills are seen by sampling every {TICK_S} s"
        for file, arm, ring in (
            (self.files.pids_events, bells.arm, self._on_pids_hit),
            (self.files.memory_pressure, bells.arm_pressure, self._on_pressure),
        ):
            if self._shared is not None and ring == self._on_pressure:
                continue  # everybody's pressure says little of this trial
            try:
                if file is not None:
                    self._more_bells.append(arm(file, ring))
            except OSError:
                pass  # these two only bring a reading forward that the sampler or the next edge takes anyway
        self.reading("baseline")
        self._cover()
        if self.files.resets_shared_peak:
            self._on_reset(self.container_id)

    def _cover(self) -> None:
        told = coverage(
            self.files,
            container_id=self.container_id,
            no_bell=self._bell_why,
            shared=self._shared,
            limit_bytes=None if self._last is None else self._last.limit_bytes,
            looks_at_disks=self._disk is not None,
        )
        for change in told:
            self._source.emit(change, subject=self._subject)
        self._network_source.emit(network_coverage(self._network, self.container_id), subject=self._subject)

    def close(self) -> None:
        """Let go of files, doorbell and timers; safe to call twice."""
        self.gone = True
        if self._burst is not None:
            self._burst.cancel()
            self._burst = None
        for bell in (self._bell, *self._more_bells):
            if bell is not None:
                bell.close()
        self._bell = None
        self._more_bells.clear()
        if self._network is not None:
            self._network.close()
        if self._disk is not None:
            self._disk.close()
        self.files.close()

    def _vanish(self) -> None:
        if self.gone:
            return
        if self._last is not None:
            # Nobody read the peak at the very end, so what is known of this window is a lower bound.
            known = [x for x in (self._sampled_peak, self._last.peak_bytes) if x is not None]
            self._sampled_peak = max(known) if known else None
            self._write("last", dataclasses.replace(self._last, peak_bytes=None, peak_kind=None), at=self._last_at)
        self.close()
        self._surroundings.on_vanished(self.container_id)

    def _garbled(self, error: ValueError) -> None:
        """A kernel file with content that we do not understand: said once, and what it would have told is unknown."""
        if not self._said_garbled:
            self._said_garbled = True
            self._source.emit(
                CoverageChanged(
                    source=COVERAGE_SOURCE,
                    families=["memory", "cpu", "disk"],
                    state="lost",
                    why=f"a file of the cgroup has unreadable content: {error}"[:200],
                    container_id=self.container_id,
                ),
                subject=self._subject,
            )

    # --- the doorbell -------------------------------------------------------------------------------------------

    def ring(self) -> None:
        """Memory ran out, or the cgroup goes: look now, and every 2 ms for a while."""
        if self.gone or self._loop is None:
            return
        fresh = self._burst is None
        self.rang_ns = time.monotonic_ns()
        try:
            if fresh:
                self._ring_parts = self.files.memory_parts()
                self._surroundings.on_ring(self.container_id)
            self._look()
        except CgroupVanished:
            self._vanish()
            return
        except ValueError as error:
            self._garbled(error)
            return
        if fresh:
            self._burst = self._loop.call_later(_BURST_STEP_S, self._burst_step)

    def _burst_step(self) -> None:
        self._burst = None
        if self.gone or self._loop is None or self.rang_ns is None:
            return
        try:
            self._look()
        except CgroupVanished:
            self._vanish()
            return
        except ValueError as error:
            self._garbled(error)
            return
        age_ns = time.monotonic_ns() - self.rang_ns
        if age_ns < _BURST_NS:
            step_s = _BURST_STEP_S if age_ns < _BURST_FAST_NS else _BURST_SLOW_STEP_S
            self._burst = self._loop.call_later(step_s, self._burst_step)
        else:
            self._ring_parts = None

    def _look(self) -> None:
        quick = self.files.quick()
        if quick.usage_bytes is not None and quick.usage_bytes > (self._sampled_peak or 0):
            self._sampled_peak = quick.usage_bytes
        if quick.oom_kill is None:
            return
        if self._kills is None:
            self._kills = quick.oom_kill
        elif quick.oom_kill > self._kills:
            delta = quick.oom_kill - self._kills
            self._kills = quick.oom_kill
            self._killed(delta, quick.oom_kill)

    def _killed(self, delta: int, total: int) -> None:
        self.kills_seen += delta
        at = Instant(time.time_ns(), time.monotonic_ns())
        counters = self.files.counters(take_peak=False)
        self._remember(counters)
        parts = self._ring_parts or counters.parts
        local = self.files.local_oom()
        own_limit = self.files.own_limit()
        parent: bool | None = None
        if local is not None and self._local_oom is not None:
            parent = local == self._local_oom
        elif not self.files.v2_memory and own_limit is None and counters.limit_bytes is not None:
            parent = True
        self._local_oom = local
        group_delta: int | None = None
        if counters.oom_group_kill is not None and self._groups is not None:
            group_delta = counters.oom_group_kill - self._groups
        self._groups = counters.oom_group_kill
        source_file = self.files.kill_counter
        self._source.emit(
            OomKill(
                container_id=self.container_id,
                delta=delta,
                total=total,
                group_delta=group_delta,
                memory_limit=counters.limit_bytes,
                memory_peak=counters.peak_bytes,
                memory_shmem=parts.shmem_bytes,
                memory_anon=parts.anon_bytes,
                swap_current=counters.swap_bytes,
                parent_limit_hit=parent,
                source_file=None if source_file is None else str(source_file),
                exec_candidates=self._surroundings.exec_candidates(self.container_id),
                live_execs=self._surroundings.live_execs(self.container_id),
            ),
            subject=self._subject,
            wall_ns=at.wall_ns,
            mono_ns=at.mono_ns,
        )
        self._surroundings.on_kill(self.container_id, delta)
        self._change()

    # --- the sampler --------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Ten times a second: two preads, now and then some more."""
        if self.gone:
            return
        self._ticks += 1
        try:
            self._look()
            if self._ticks % _PIDS_EVERY == 0:
                self._look_at_pids()
            if self._change_due:
                self._change()
            if self._ticks % _TRAFFIC_EVERY == 0:
                self._look_at_traffic()
            if self._disk is not None and self._ticks % _DISK_EVERY == 0:
                self._disk.look()
            if self._ticks % _REFRESH_EVERY == 0:
                self._remember(self.files.counters(take_peak=False))
        except CgroupVanished:
            self._vanish()
        except ValueError as error:
            self._garbled(error)

    def _look_at_pids(self) -> None:
        hits = self.files.pids_hits()
        if hits is None:
            return
        moved = self._pids_hits is not None and hits > self._pids_hits
        self._pids_hits = hits
        if moved:
            self._tell_tasks(hits)
            self._change()

    def _tell_tasks(self, hits: int) -> None:
        """Who was there when a fork was refused; thinned like the readings."""
        if not self._censuses.take():
            return
        tasks = self._surroundings.tasks_in(self.container_id)
        self._source.emit(
            PidsHit(
                container_id=self.container_id,
                hits=hits,
                limit=self.files.pids_limit(),
                tasks=None if tasks is None else tasks.all,
                since_first_reply=None if tasks is None else tasks.since_first_reply,
                since_last_reply=None if tasks is None else tasks.since_last_reply,
            ),
            subject=self._subject,
        )

    def _look_at_traffic(self) -> None:
        if self._network is None:
            return
        traffic = self._network.traffic()
        if traffic is None:
            return
        at_ns = time.monotonic_ns()
        if self._traffic is not None:
            before_ns, before = self._traffic
            rate = (traffic.sent_bytes - before.sent_bytes) / ((at_ns - before_ns) / 1e9)
            if rate >= 0 and rate > (self._rate or 0.0):
                self._rate = rate
        self._traffic = (at_ns, traffic)
        self._last_traffic = traffic

    def _on_pids_hit(self) -> None:
        """`pids.events` moved: a fork was refused."""
        if self.gone:
            return
        try:
            self._look_at_pids()
        except CgroupVanished:
            self._vanish()

    def _on_pressure(self) -> None:
        """Processes stand still for memory, here or in another cgroup: write it while it lasts."""
        if self.gone:
            return
        try:
            stalled_s = self.files.memory_stalled_s()
        except CgroupVanished:
            self._vanish()
            return
        if stalled_s is not None and stalled_s - self._stalled_s >= STALL_US / 1e6:
            self._stalled_s = stalled_s
            self._change()

    def _change(self) -> None:
        """A counter of harm moved: write it, but no storm of readings (the counters are cumulative)."""
        self._change_due = not self._changes.take()
        if not self._change_due:
            self.reading("change")

    # --- readings -----------------------------------------------------------------------------------------------

    def reading(self, edge: Edge) -> None:
        """Read everything and write it; about 0.3 ms."""
        if self.gone:
            return
        try:
            self._look()
            counters = self.files.counters(take_peak=True)
        except CgroupVanished:
            self._vanish()
            return
        except ValueError as error:
            self._garbled(error)
            return
        if edge != "baseline":
            self._look_at_traffic()
        elif self._network is not None:
            self._last_traffic = self._network.traffic()
            if self._last_traffic is not None:
                self._traffic = (time.monotonic_ns(), self._last_traffic)
        tcp = None if self._network is None else self._network.tcp()
        if tcp is not None:
            self._last_tcp = (tcp.retransmitted_segments, tcp.failed_attempts)
        self._remember(counters)
        self._write(edge, counters, at=self._last_at)
        if self._disk is not None:
            self._disk.look(edge)
        self._sampled_peak = counters.usage_bytes
        self._rate = None
        # Set back for this descriptor or cgroup: a `last` reading must not repeat the peak of the step before.
        self._last = dataclasses.replace(counters, peak_bytes=counters.usage_bytes)

    def _remember(self, counters: Counters) -> None:
        self._last = counters
        self._last_at = Instant(time.time_ns(), time.monotonic_ns())
        self._stalled_s = max(self._stalled_s, counters.psi_memory_s or 0.0)
        if counters.pids_max_hits is not None:
            self._pids_hits = max(self._pids_hits or 0, counters.pids_max_hits)

    def _write(self, edge: Edge, counters: Counters, *, at: Instant) -> None:
        peak, kind = counters.peak_bytes, counters.peak_kind
        sampled = self._sampled_peak
        published: PeakKind | None = kind
        if peak is None:
            peak, published = sampled, None if sampled is None else "sampled"
        if self._shared is not None and published is not None:
            if kind == "at_most":
                peak = sampled if sampled is not None else peak
            published = "shared"
        traffic = self._last_traffic
        retrans, fails = self._last_tcp
        kills = counters.oom_kill
        if kills is not None and self._kills is not None:
            kills = max(kills, self._kills)
        value = reading(
            counters,
            container_id=self.container_id,
            edge=edge,
            peak=(peak, published),
            sampled_peak=sampled,
            kills=kills,
            traffic=traffic,
            rate=self._rate,
            tcp=(retrans, fails),
        )
        self._source.emit(value, subject=self._subject, wall_ns=at.wall_ns, mono_ns=at.mono_ns)
