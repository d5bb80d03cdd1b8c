"""Records of /dev/kmsg and the lines with which the kernel reports an OOM kill.

In: what one read(2) of /dev/kmsg returned, or the text of one record.  Out: records.  Only facility 0 is the kernel
speaking: what a process writes to /dev/kmsg always carries another facility, so such text is never evidence.
The text of process names is whatever the process chose; it is shown, never matched by a rule.
**Source:** kernel Documentation/ABI/testing/dev-kmsg, mm/oom_kill.c (`__oom_kill_process`) 4.19 to 6.18.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_HEAD = re.compile(rb"(\d+),(\d+),(\d+),[^;]*;")
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")
_VERDICT = re.compile(
    r"oom-kill:constraint=(?P<constraint>\w+),.*?"
    r"(?:oom_memcg=(?P<oom_memcg>.*?),|(?P<global>global_oom),)"
    r"task_memcg=(?P<task_memcg>.*?),task=(?P<comm>.*),pid=(?P<pid>\d+),uid=(?P<uid>\d+)\Z",
    re.DOTALL,  # a process may have a line feed in its name
)
_GROUP = re.compile(r"Tasks in (?P<memcg>.*) are going to be killed due to memory\.oom\.group set\Z", re.DOTALL)
_KILLED = re.compile(
    r"Killed process (?P<pid>\d+) \((?P<comm>.*)\),?(?: UID \d+,)? total-vm:(?P<vm>\d+)kB, anon-rss:(?P<anon>\d+)kB, "
    r"file-rss:(?P<file>\d+)kB(?:, shmem-rss:(?P<shmem>\d+)kB)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """One record.  `since_boot_us` is the kernel's printk clock: near CLOCK_MONOTONIC, not disciplined by NTP."""

    facility: int
    level: int
    seq: int
    since_boot_us: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OomVerdict:
    """The line `oom-kill:…`: which limit was hit and whom the killer chose.

    The kernel leaves this line out after ten kills within five seconds; `Killed process …` always comes.
    """

    constraint: str
    oom_memcg: str | None
    task_memcg: str
    comm: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledProcess:
    """The line `Killed process …`: one victim, what it held in bytes; `memcg_oom`: a cgroup's limit, not the node's."""

    pid: int
    comm: str
    anon_bytes: int
    file_bytes: int
    shmem_bytes: int | None
    memcg_oom: bool

    @property
    def rss_bytes(self) -> int:
        """All resident memory."""
        return self.anon_bytes + self.file_bytes + (self.shmem_bytes or 0)


def parse_record(raw: bytes) -> KernelRecord:
    """One read of /dev/kmsg is one record; its ` KEY=value` continuation lines are dropped.  Raises ValueError."""
    head = _HEAD.match(raw)
    if head is None:
        raise ValueError("not a record of /dev/kmsg")
    prefix = int(head[1])
    line = raw[head.end() :].partition(b"\n")[0].decode("utf-8", "replace")
    return KernelRecord(
        facility=prefix >> 3,
        level=prefix & 7,
        seq=int(head[2]),
        since_boot_us=int(head[3]),
        text=_ESCAPE.sub(lambda m: chr(int(m[1], 16)), line),
    )


def parse_oom_verdict(text: str) -> OomVerdict | None:
    """The chosen victim, or None for any other line."""
    if not text.startswith("oom-kill:"):
        return None
    found = _VERDICT.match(text)
    if found is None:
        return None
    return OomVerdict(
        constraint=found["constraint"],
        oom_memcg=found["oom_memcg"],
        task_memcg=found["task_memcg"],
        comm=found["comm"],
        pid=int(found["pid"]),
    )


def parse_group(text: str) -> str | None:
    """The cgroup that is killed as a whole; its other processes' `Killed` lines follow.  None for any other line."""
    found = _GROUP.match(text)
    return None if found is None else found["memcg"]


def parse_killed(text: str) -> KilledProcess | None:
    """One killed process, or None for any other line."""
    found = _KILLED.search(text)
    if found is None:
        return None
    return KilledProcess(
        pid=int(found["pid"]),
        comm=found["comm"],
        anon_bytes=int(found["anon"]) * 1024,
        file_bytes=int(found["file"]) * 1024,
        shmem_bytes=None if found["shmem"] is None else int(found["shmem"]) * 1024,
        memcg_oom=text.startswith("Memory cgroup out of memory"),
    )
