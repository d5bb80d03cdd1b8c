"""The kernel's word on who was killed: OOM records of /dev/kmsg.

In: /dev/kmsg, non-blocking, from the records since the trial's start on.  Out: one `VictimRecord` per killed process
to a callback, `coverage.gap` when the ring buffer overran us, `coverage` when it cannot be read (CAP_SYSLOG is needed
where dmesg_restrict is 1; inside containers the device is usually absent).  Joining a victim to a container and an
exec is done by `victims.py`.  Records that processes wrote to /dev/kmsg have another facility and are ignored.

The kernel stamps with its printk clock, which NTP does not steer; how far it is from CLOCK_MONOTONIC is learned from
records that arrive live (they come 0.2 to 3 ms after their stamp), and is given as uncertainty before that.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial.collectors.parse.kmsg import (
    KilledProcess,
    OomVerdict,
    parse_group,
    parse_killed,
    parse_oom_verdict,
    parse_record,
)
from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import CoverageChanged, GapSeen
from fairtrial.middleware.core.sink import Source

COVERAGE_SOURCE: Final = "collector.kernel_log"
FAMILIES: Final = ("memory", "node")
_RECORD_BYTES: Final = 8192
_RECORDS_PER_TURN: Final = 256
_GROUP_US: Final = 1_000_000
_UNKNOWN_SKEW_S: Final = 0.05
_SLACK_NS: Final = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimRecord:
    """One killed process.

    `verdict` is None where the kernel wrote no `oom-kill:` line for it (before 4.19, or after ten kills in five
    seconds).  `named`: the verdict names this very process; a member of a group kill carries the group's.
    """

    killed: KilledProcess
    verdict: OomVerdict | None
    named: bool
    wall_ns: int
    mono_ns: int
    uncertainty_s: float


class KernelClock:
    """Printk clock -> CLOCK_MONOTONIC, by the smallest delay of live records."""

    def __init__(self) -> None:
        self._offset_ns: int | None = None

    def note_live(self, stamp_ns: int, arrived_ns: int) -> None:
        """A record that was read as soon as it was written."""
        offset = arrived_ns - stamp_ns
        if self._offset_ns is None or offset < self._offset_ns:
            self._offset_ns = offset

    def to_monotonic(self, stamp_ns: int) -> tuple[int, float]:
        """(CLOCK_MONOTONIC ns, ± s).  A small delay of reading is no skew; a larger or negative one is taken out."""
        if self._offset_ns is None:
            return stamp_ns, _UNKNOWN_SKEW_S
        if 0 <= self._offset_ns <= _SLACK_NS:
            return stamp_ns, max(0.001, self._offset_ns / 1e9)
        return stamp_ns + self._offset_ns, 0.005


class KernelLog:
    """One reader of /dev/kmsg on the event loop."""

    def __init__(
        self, source: Source, *, path: Path, started_mono_ns: int, on_victim: Callable[[VictimRecord], None]
    ) -> None:
        self._source = source
        self._path = path
        self._started_ns = started_mono_ns
        self._on_victim = on_victim
        self._clock = KernelClock()
        self._fd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._verdict: OomVerdict | None = None
        self._group: tuple[int, OomVerdict] | None = None
        self._seq: int | None = None
        self._live = False
        self._lost_since: int | None = None

    @property
    def on(self) -> bool:
        """Whether it reads."""
        return self._fd >= 0

    def start(self) -> None:
        """Open and say whether it can be read; never raises."""
        why: str | None = None
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_SET)
        except OSError as error:
            why = f"{self._path}: {error.strerror}"
            self._shut()
        if self._fd >= 0:
            self._loop = asyncio.get_running_loop()
            try:
                self._loop.add_reader(self._fd, self._on_readable)
            except (OSError, ValueError):
                why = f"{self._path} is not the kernel's log device"
                self._shut()
        now = clock.now()
        # The ring buffer is read from the trial's start on: what happened before this process was up is seen as well.
        since = self._started_ns if why is None else now.mono_ns
        self._source.emit(
            CoverageChanged(
                source=COVERAGE_SOURCE, families=list(FAMILIES), state="on" if why is None else "off", why=why
            ),
            wall_ns=now.wall_at(since),
            mono_ns=since,
        )

    def _on_readable(self) -> None:
        for _ in range(_RECORDS_PER_TURN):
            if self._fd < 0:
                return
            try:
                raw = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                self._live = True
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    self._lost_since = self._seq
                    continue
                if error.errno == errno.EINTR:
                    continue
                self._lost(error)
                return
            if raw:
                self._take(raw, time.monotonic_ns())

    def _lost(self, error: OSError) -> None:
        self._shut()
        self._source.emit(
            CoverageChanged(
                source=COVERAGE_SOURCE,
                families=list(FAMILIES),
                state="lost",
                why=f"{self._path}: {error.strerror}",
            )
        )

    def _take(self, raw: bytes, arrived_ns: int) -> None:
        try:
            record = parse_record(raw)
        except ValueError:
            return
        if self._lost_since is not None:
            lost = record.seq - self._lost_since - 1
            self._lost_since = None
            self._source.emit(
                GapSeen(
                    source=COVERAGE_SOURCE,
                    families=list(FAMILIES),
                    why="the kernel's log overran its reader",
                    lost_records=max(1, lost),
                )
            )
        self._seq = record.seq
        stamp_ns = record.since_boot_us * 1000
        if record.facility != 0:
            return
        if self._live:
            self._clock.note_live(stamp_ns, arrived_ns)
        mono_ns, uncertainty_s = self._clock.to_monotonic(stamp_ns)
        if mono_ns + int(uncertainty_s * 1e9) < self._started_ns:
            return
        verdict = parse_oom_verdict(record.text)
        if verdict is not None:
            self._verdict, self._group = verdict, None
            return
        memcg = parse_group(record.text)
        if memcg is not None:
            self._group = (record.since_boot_us, self._group_verdict(memcg))
            return
        killed = parse_killed(record.text)
        if killed is None:
            return
        verdict = self._verdict_for(killed, record.since_boot_us)
        wall_ns = time.time_ns() - (time.monotonic_ns() - mono_ns)
        self._on_victim(
            VictimRecord(
                killed=killed,
                verdict=verdict,
                named=verdict is not None and verdict.pid == killed.pid,
                wall_ns=wall_ns,
                mono_ns=mono_ns,
                uncertainty_s=uncertainty_s,
            )
        )

    def _group_verdict(self, memcg: str) -> OomVerdict:
        """For the members of a group kill: the limit is that of the first victim's verdict, where there was one."""
        first = self._verdict
        return OomVerdict(
            constraint="CONSTRAINT_MEMCG" if first is None else first.constraint,
            oom_memcg=None if first is None else first.oom_memcg,
            task_memcg=memcg,
            comm="",
            pid=0,
        )

    def _verdict_for(self, killed: KilledProcess, at_us: int) -> OomVerdict | None:
        """The verdict that names it, or, just after a group kill was announced, the group's.

        Another kill whose own verdict the kernel left out can so be given the group's; `victims.py` believes the
        victim's cgroup, where it was seen, before it believes this.
        """
        if self._verdict is not None and self._verdict.pid == killed.pid:
            return self._verdict
        if self._group is not None and 0 <= at_us - self._group[0] <= _GROUP_US:
            return self._group[1]
        return None

    def drain(self) -> None:
        """Read what is there now."""
        self._on_readable()

    def _shut(self) -> None:
        if self._fd >= 0:
            if self._loop is not None:
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Safe to call twice."""
        self._shut()
