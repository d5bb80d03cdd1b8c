"""The files of one cgroup, held open: what they say now, whichever version of cgroups they belong to.

In: `CgroupPlaces`.  Out: `Counters` (everything, for an edge) and `Quick` (two numbers, for the 10 Hz sampler).
Descriptors are opened once and read with pread, so a reading costs microseconds and survives a rename of the path.
A file that is not there is a reason in `missing`, never a zero.  Raises `CgroupVanished` once the kernel removed it.

The peak: v1 `memory.max_usage_in_bytes` can be set back, for all readers at once, so that is done only where the
caller allows it and the path was proved to be the container's.  v2 `memory.peak` can be set back for our own
descriptor only (kernel 6.12), which disturbs nobody.  Else the peak since birth and whether it rose is all there is.
Between reading and setting back a spike can be lost.  **Source:** kernel cgroup-v2.rst, cgroup-v1/memory.rst.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from fairtrial.collectors.cgroup_paths import CgroupPlaces, Place
from fairtrial.collectors.parse import cgroup_v1, cgroup_v2
from fairtrial.collectors.parse.cgroup_v1 import MemoryParts, Throttling
from fairtrial.collectors.parse.flat import find_flat, parse_count, parse_count_or_max
from fairtrial.collectors.parse.psi import parse_pressure

_READ_BYTES: Final = 16384
_GONE: Final = (errno.ENODEV, errno.ENOENT)

_NO_PARTS: Final = MemoryParts()

ReadKind = Literal["exact", "rose_in_step", "at_most"]


class CgroupVanished(Exception):
    """The kernel removed the cgroup; its counters can no longer be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    """What the sampler reads ten times a second."""

    usage_bytes: int | None
    oom_kill: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Everything, at one moment; times in seconds, the rest as `CgroupReading` names it."""

    usage_bytes: int | None = None
    peak_bytes: int | None = None
    peak_kind: ReadKind | None = None
    limit_bytes: int | None = None
    parts: MemoryParts = _NO_PARTS
    swap_bytes: int | None = None
    limit_hits: int | None = None
    high_hits: int | None = None
    under_oom: bool | None = None
    oom: int | None = None
    oom_kill: int | None = None
    oom_group_kill: int | None = None
    cpu_used_s: float | None = None
    cpu_throttled_s: float | None = None
    cpu_throttled_periods: int | None = None
    psi_cpu_s: float | None = None
    psi_memory_s: float | None = None
    psi_memory_full_s: float | None = None
    psi_io_s: float | None = None
    pids_current: int | None = None
    pids_limit: int | None = None
    pids_max_hits: int | None = None
    disk_written_bytes: int | None = None
    populated: bool | None = None


class CgroupFiles:
    """Opens what is there.  `may_reset`: the caller owns this cgroup's v1 peak and may set it back."""

    def __init__(self, places: CgroupPlaces, *, may_reset: bool) -> None:
        self.places = places
        self.missing: dict[str, str] = dict(places.missing)
        self.resets_shared_peak = False
        self._fds: dict[str, int] = {}
        self._v2_memory = False
        self._peak_resets: Literal["v1", "v2", "no"] = "no"
        self._peak_before: int | None = None
        self._ancestor_limit: int | None = None
        memory = places.places.get("memory")
        if memory is not None:
            self._v2_memory = memory.v2
            self._open_memory(memory, may_reset=may_reset)
        cpu = places.places.get("cpu")
        if cpu is not None:
            self._open("cpu.stat", cpu.path / "cpu.stat")
        self._v2_cpu = cpu is not None and cpu.v2
        cpuacct = places.places.get("cpuacct")
        if cpuacct is not None and not cpuacct.v2:
            self._open("cpuacct.usage", cpuacct.path / "cpuacct.usage")
        pids = places.places.get("pids")
        if pids is not None:
            for name in ("pids.current", "pids.max", "pids.events"):
                self._open(name, pids.path / name)
        blkio = places.places.get("blkio")
        self._v2_io = blkio is not None and blkio.v2
        if blkio is not None:
            if blkio.v2:
                self._open("disk", blkio.path / "io.stat")
            elif not self._open("disk", blkio.path / "blkio.throttle.io_service_bytes_recursive"):
                self._open("disk", blkio.path / "blkio.throttle.io_service_bytes")
        self.pids_events: Path | None = (
            None if pids is None or "pids.events" not in self._fds else pids.path / "pids.events"
        )
        self.memory_pressure: Path | None = None
        if places.unified is not None:
            for name in ("cpu.pressure", "memory.pressure", "io.pressure", "cgroup.events"):
                self._open(name, places.unified / name)
            if "memory.pressure" in self._fds:
                self.memory_pressure = places.unified / "memory.pressure"

    @property
    def v2_memory(self) -> bool:
        """Whether memory is accounted by the unified hierarchy."""
        return self._v2_memory

    @property
    def memory_dir(self) -> Path | None:
        """The directory of the memory controller."""
        place = self.places.places.get("memory")
        return None if place is None else place.path

    @property
    def kill_counter(self) -> Path | None:
        """The file that counts kills, or None when it is not there."""
        name = "memory.events" if self._v2_memory else "memory.oom_control"
        return self.memory_dir / name if self.memory_dir is not None and "kills" in self._fds else None

    def _open(self, name: str, path: Path, flags: int = os.O_RDONLY) -> bool:
        try:
            self._fds[name] = os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            self.missing.setdefault(name, f"{path}: {os.strerror(error.errno or 0)}")
            return False
        self.missing.pop(name, None)
        return True

    def _open_memory(self, memory: Place, *, may_reset: bool) -> None:
        path = memory.path
        self._open("memory.stat", path / "memory.stat")
        if memory.v2:
            self._open("usage", path / "memory.current")
            self._open("limit", path / "memory.max")
            self._open("kills", path / "memory.events")
            self._open("local", path / "memory.events.local")
            self._open("swap", path / "memory.swap.current")
            if self._open("peak", path / "memory.peak", os.O_RDWR) and self._try_reset(b"reset\n"):
                self._peak_resets = "v2"
            elif "peak" in self._fds or self._open("peak", path / "memory.peak"):
                self._peak_before = self._number("peak")
            self._ancestor_limit = _limit_above(memory)
        else:
            self._open("usage", path / "memory.usage_in_bytes")
            self._open("limit", path / "memory.limit_in_bytes")
            self._open("kills", path / "memory.oom_control")
            self._open("failcnt", path / "memory.failcnt")
            self._open("kernel", path / "memory.kmem.usage_in_bytes")
            peak = path / "memory.max_usage_in_bytes"
            if may_reset and self._open("peak", peak, os.O_RDWR):
                # The first reading is the peak since birth; setting back begins after it.
                self._peak_resets = "v1"
                self.resets_shared_peak = True
            elif self._open("peak", peak):
                self._peak_before = self._number("peak")

    def _try_reset(self, word: bytes) -> bool:
        try:
            os.pwrite(self._fds["peak"], word, 0)
        except OSError:
            return False
        return True

    def _raw(self, name: str) -> bytes | None:
        fd = self._fds.get(name)
        if fd is None:
            return None
        try:
            return os.pread(fd, _READ_BYTES, 0)
        except OSError as error:
            if error.errno in _GONE:
                raise CgroupVanished from None
            self.missing[name] = os.strerror(error.errno or 0)
            return None

    def _number(self, name: str) -> int | None:
        raw = self._raw(name)
        try:
            return None if raw is None else parse_count(raw)
        except ValueError:
            self.missing[name] = "unreadable content"
            return None

    def quick(self) -> Quick:
        """Two preads."""
        raw = self._raw("kills")
        return Quick(usage_bytes=self._number("usage"), oom_kill=None if raw is None else find_flat(raw, b"oom_kill"))

    def pids_hits(self) -> int | None:
        """How often a fork was refused by the limit."""
        raw = self._raw("pids.events")
        return None if raw is None else find_flat(raw, b"max")

    def pids_limit(self) -> int | None:
        """The limit of tasks; None: none set, or not readable."""
        raw = self._raw("pids.max")
        return None if raw is None else parse_count_or_max(raw)

    def memory_stalled_s(self) -> float | None:
        """How long at least one process stood still for memory; one pread."""
        return self._pressure("memory.pressure")[0]

    def memory_parts(self) -> MemoryParts:
        """What the memory consists of now; one pread, some ten microseconds."""
        raw = self._raw("memory.stat")
        if raw is None:
            return MemoryParts()
        if self._v2_memory:
            return cgroup_v2.parse_memory_stat(raw)
        return replace(cgroup_v1.parse_memory_stat(raw), slab_bytes=self._number("kernel"))

    def own_limit(self) -> int | None:
        """The limit set on this very cgroup; None: none set, or not readable."""
        raw = self._raw("limit")
        if raw is None:
            return None
        return parse_count_or_max(raw) if self._v2_memory else cgroup_v1.parse_limit(raw)

    def effective_limit(self) -> int | None:
        """The lowest limit from here up to the top of what is mounted; None: nowhere one, or not readable."""
        limits = (self.own_limit(), self.memory_parts().hierarchical_limit_bytes, self._ancestor_limit)
        return min((limit for limit in limits if limit is not None), default=None)

    def oom_group(self) -> bool | None:
        """Whether one kill takes the whole cgroup; v1 never does that."""
        if self.memory_dir is None:
            return None
        if not self._v2_memory:
            return False
        try:
            return (self.memory_dir / "memory.oom.group").read_bytes().strip() == b"1"
        except OSError:
            return None

    def local_oom(self) -> int | None:
        """v2: how often *this* cgroup's own limit called the killer; None elsewhere."""
        raw = self._raw("local") if self._v2_memory else None
        return None if raw is None else find_flat(raw, b"oom")

    def counters(self, *, take_peak: bool) -> Counters:
        """Read everything; with `take_peak` the peak is set back where that is allowed (a window ends here)."""
        usage = self._number("usage")
        peak, kind = self._peak(take=take_peak)
        parts = self.memory_parts()
        limits = [x for x in (self.own_limit(), parts.hierarchical_limit_bytes, self._ancestor_limit) if x is not None]
        oom = oom_kill = group = hits = high = None
        under_oom: bool | None = None
        raw = self._raw("kills")
        if raw is not None and self._v2_memory:
            events = cgroup_v2.parse_memory_events(raw)
            oom, oom_kill, group = events.oom, events.oom_kill, events.oom_group_kill
            hits, high = events.max, events.high
        elif raw is not None:
            control = cgroup_v1.parse_oom_control(raw)
            oom_kill, under_oom = control.oom_kill, control.under_oom
            hits = self._number("failcnt")
        swap = self._number("swap") if self._v2_memory else parts.swap_bytes
        used_ns, throttling = self._cpu()
        stalled_s, all_stalled_s = self._pressure("memory.pressure")
        raw_disk = self._raw("disk")
        written: int | None = None
        if raw_disk is not None:
            written = cgroup_v2.parse_io_written(raw_disk) if self._v2_io else cgroup_v1.parse_blkio_written(raw_disk)
        raw_events = self._raw("cgroup.events")
        populated = None if raw_events is None else find_flat(raw_events, b"populated")
        return Counters(
            usage_bytes=usage,
            peak_bytes=peak,
            peak_kind=kind,
            limit_bytes=min(limits) if limits else None,
            parts=parts,
            swap_bytes=swap,
            limit_hits=hits,
            high_hits=high,
            under_oom=under_oom,
            oom=oom,
            oom_kill=oom_kill,
            oom_group_kill=group,
            cpu_used_s=None if used_ns is None else used_ns / 1e9,
            cpu_throttled_s=None if throttling.throttled_ns is None else throttling.throttled_ns / 1e9,
            cpu_throttled_periods=throttling.throttled_periods,
            psi_cpu_s=self._pressure("cpu.pressure")[0],
            psi_memory_s=stalled_s,
            psi_memory_full_s=all_stalled_s,
            psi_io_s=self._pressure("io.pressure")[0],
            pids_current=self._number("pids.current"),
            pids_limit=self.pids_limit(),
            pids_max_hits=self.pids_hits(),
            disk_written_bytes=written,
            populated=None if populated is None else populated == 1,
        )

    def _peak(self, *, take: bool) -> tuple[int | None, ReadKind | None]:
        peak = self._number("peak")
        if peak is None:
            return None, None
        if self._peak_resets != "no":
            if not take:
                return peak, "exact"
            if self._try_reset(b"reset\n" if self._peak_resets == "v2" else b"0\n"):
                return peak, "exact"
            self._peak_resets = "no"
        rose = self._peak_before is None or peak > self._peak_before
        if take:
            self._peak_before = peak
        return peak, "rose_in_step" if rose else "at_most"

    def _cpu(self) -> tuple[int | None, Throttling]:
        raw = self._raw("cpu.stat")
        used = self._number("cpuacct.usage") if "cpuacct.usage" in self._fds else None
        if raw is None:
            return used, Throttling()
        if self._v2_cpu:
            stat = cgroup_v2.parse_cpu_stat(raw)
            return (stat.used_ns if used is None else used), stat.throttling
        return used, cgroup_v1.parse_cpu_stat(raw)

    def _pressure(self, name: str) -> tuple[float | None, float | None]:
        """How long at least one process stood still, and how long all did, s."""
        raw = self._raw(name)
        try:
            told = None if raw is None else parse_pressure(raw)
        except ValueError:
            return None, None
        if told is None:
            return None, None
        return told.some_us / 1e6, None if told.full_us is None else told.full_us / 1e6

    def close(self) -> None:
        """Close every descriptor; safe to call twice."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()


def _limit_above(memory: Place) -> int | None:
    """v2: the lowest `memory.max` of the cgroups above, up to the mount; v1 says this itself in memory.stat."""
    lowest: int | None = None
    directory = memory.path
    while directory not in (memory.mount, directory.parent):
        directory = directory.parent
        try:
            limit = parse_count_or_max((directory / "memory.max").read_bytes())
        except (OSError, ValueError):
            continue
        if limit is not None and (lowest is None or limit < lowest):
            lowest = limit
    return lowest
