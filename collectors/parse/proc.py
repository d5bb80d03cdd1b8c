"""Files of /proc: who is in which cgroup, where hierarchies are mounted, who is whose parent, what went over the wire.

In: the bytes of one file.  Out: records.  **Source:** kernel filesystems/proc.rst, man proc(5), cgroups(7).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_OCTAL = re.compile(rb"\\([0-7]{3})")


_PF_EXITING: Final = 0x4


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupLine:
    """One line of /proc/PID/cgroup.  `controllers` is empty for v2 (hierarchy 0), `("name=…",)` for named v1 ones."""

    hierarchy: int
    controllers: tuple[str, ...]
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of mountinfo.  `root`: which directory of the file system is seen at `mount_point`; `writable`: neither
    the mount nor its file system is read-only."""

    root: str
    mount_point: str
    fs_type: str
    super_options: tuple[str, ...]
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLine:
    """Part of /proc/PID/stat.  `start_ticks` (clock ticks since boot) tells a reused pid from the first one.

    `exiting`: it runs no more and lets go of what it held (PF_EXITING of include/linux/sched.h, a zombie included).
    """

    pid: int
    comm: str
    state: str
    ppid: int
    threads: int
    start_ticks: int
    exiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes through all interfaces of a network namespace but loopback, headers included."""

    received_bytes: int
    sent_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpCounters:
    """Of a network namespace: segments sent again, and connection attempts that failed."""

    retransmitted_segments: int | None
    failed_attempts: int | None


def parse_cgroup(raw: bytes) -> tuple[CgroupLine, ...]:
    """/proc/PID/cgroup; a ` (deleted)` suffix (cgroup removed under a zombie) is taken off."""
    lines: list[CgroupLine] = []
    for line in raw.decode("utf-8", "surrogateescape").splitlines():
        number, first, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if not first or not second or not number.isdigit():
            raise ValueError(f"not a line of /proc/PID/cgroup: {line[:80]!r}")
        names = tuple(name for name in controllers.split(",") if name)
        lines.append(CgroupLine(hierarchy=int(number), controllers=names, path=path.removesuffix(" (deleted)")))
    return tuple(lines)


def _unescape(field: bytes) -> str:
    plain = _OCTAL.sub(lambda m: bytes([int(m[1], 8)]), field)
    return plain.decode("utf-8", "surrogateescape")


def parse_mountinfo(raw: bytes) -> tuple[Mount, ...]:
    """/proc/PID/mountinfo; lines of another shape are skipped."""
    mounts: list[Mount] = []
    for line in raw.splitlines():
        left, dash, right = line.partition(b" - ")
        before, after = left.split(b" "), right.split(b" ")
        if not dash or len(before) < 6 or len(after) < 3:
            continue
        options = tuple(after[2].decode("utf-8", "replace").split(","))
        mounts.append(
            Mount(
                root=_unescape(before[3]),
                mount_point=_unescape(before[4]),
                fs_type=after[0].decode("ascii", "replace"),
                super_options=options,
                writable="ro" not in options and b"ro" not in before[5].split(b","),
            )
        )
    return tuple(mounts)


def parse_stat(raw: bytes) -> ProcessLine:
    """/proc/PID/stat; the name is between the first `(` and the *last* `)`, whatever it contains."""
    head, opening, rest = raw.partition(b"(")
    comm, closing, tail = rest.rpartition(b")")
    fields = tail.split()
    if not opening or not closing or len(fields) < 20:
        raise ValueError("not a /proc/PID/stat line")
    return ProcessLine(
        pid=int(head),
        comm=comm.decode("utf-8", "replace"),
        state=fields[0].decode("ascii", "replace"),
        ppid=int(fields[1]),
        threads=int(fields[17]),
        start_ticks=int(fields[19]),
        exiting=bool(int(fields[6]) & _PF_EXITING) or fields[0] in {b"Z", b"X"},
    )


def parse_open_files_limit(raw: bytes) -> int | None:
    """The soft limit of open files of /proc/PID/limits; None: unlimited, or not told."""
    for line in raw.splitlines():
        if line.startswith(b"Max open files"):
            soft = line.split()[3]
            return int(soft) if soft.isdigit() else None
    return None


def parse_net_dev(raw: bytes) -> Traffic:
    """/proc/PID/net/dev; a namespace with only loopback has carried 0 bytes, which is an observation."""
    received = sent = 0
    for line in raw.splitlines()[2:]:
        name, colon, rest = line.partition(b":")
        if not colon or name.strip() == b"lo":
            continue
        fields = rest.split()
        received += int(fields[0])
        sent += int(fields[8])
    return Traffic(received_bytes=received, sent_bytes=sent)


def parse_tables(raw: bytes) -> dict[str, dict[str, int]]:
    """/proc/PID/net/snmp and /proc/PID/net/netstat: a line of names, then a line of values, per table."""
    tables: dict[str, dict[str, int]] = {}
    lines = raw.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        table, _, keys = names.partition(b":")
        again, _, numbers = values.partition(b":")
        if table != again:
            raise ValueError("names and values of different tables")
        tables[table.decode("ascii", "replace")] = {
            key.decode("ascii", "replace"): int(number)
            for key, number in zip(keys.split(), numbers.split(), strict=False)
        }
    return tables


def parse_tcp(raw: bytes) -> TcpCounters:
    """The `Tcp` table of /proc/PID/net/snmp."""
    lines = [line for line in raw.splitlines() if line.startswith(b"Tcp:")]
    tcp = parse_tables(b"\n".join(lines)).get("Tcp", {})
    return TcpCounters(retransmitted_segments=tcp.get("RetransSegs"), failed_attempts=tcp.get("AttemptFails"))


def parse_mem_available(raw: bytes) -> int | None:
    """MemAvailable of /proc/meminfo, bytes."""
    for line in raw.splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def parse_steal_ticks(raw: bytes) -> int | None:
    """Stolen time of all cores since boot, clock ticks, of /proc/stat."""
    fields = raw.partition(b"\n")[0].split()
    return int(fields[8]) if len(fields) > 8 and fields[0] == b"cpu" else None


def parse_busy_ticks(raw: bytes) -> int | None:
    """Work of all cores since boot (user, nice, system, irq, softirq), clock ticks, of /proc/stat."""
    fields = raw.partition(b"\n")[0].split()
    if len(fields) < 8 or fields[0] != b"cpu":
        return None
    return sum(int(fields[i]) for i in (1, 2, 3, 6, 7))


def parse_load1(raw: bytes) -> float:
    """The one-minute load of /proc/loadavg."""
    return float(raw.split(b" ", 1)[0])
