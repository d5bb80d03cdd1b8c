"""What this machine lets fairtrial see of processes: its own cgroup, the node's counters, the kernel log, the clock.

In: /proc, /sys and the environment.  Out: findings.  Nothing is written but a probe file in the state folder, removed
at once, and no port stays bound.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fairtrial import __version__
from fairtrial.collectors.cgroup_files import CgroupFiles
from fairtrial.collectors.cgroup_paths import CgroupPlaces, locate
from fairtrial.middleware.doctor.findings import Finding
from fairtrial.middleware.report.words import size

SERVE_PORTS: Final = {8789: "health", 8790: "the first door", 9464: "metrics"}
"""Those that `fairtrial serve` binds by default."""

_TIME_ERROR: Final = 5
_BAD_CLOCK_US: Final = 1_000_000
_PSI: Final = "pressure/memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCgroup:
    """What our own cgroup shows; a flag is None where it cannot be told."""

    version: str | None
    places: CgroupPlaces | None
    limit_bytes: int | None
    peak_known: bool
    peak_resettable: bool
    kills: int | None
    doorbell: bool
    why_not: str | None = None


def program() -> Finding:
    """Who speaks here."""
    from importlib.util import find_spec

    loop = "uvloop" if find_spec("uvloop") else "asyncio"
    python = f"Python {platform.python_version()}"
    return Finding("fairtrial", "ok", f"{__version__}, {python}, event loop {loop}, kernel {platform.release()}")


def ports() -> Iterator[Finding]:
    """The model door needs any loopback port; `serve` its own."""
    if (error := _cannot_bind(0)) is not None:
        yield Finding("model door", "no", f"no loopback port can be bound: {error}", "allow binding 127.0.0.1")
        return
    yield Finding("model door", "ok", "a loopback port can be bound")
    taken = [f"{port} ({what})" for port, what in SERVE_PORTS.items() if _cannot_bind(port) is not None]
    if taken:
        text = f"{', '.join(taken)} in use: by a `fairtrial serve`, or it needs others"
        yield Finding("serve's ports", "partial", text, "[serve] of the settings names others (docs/serve.md)")
    else:
        yield Finding("serve's ports", "ok", f"{', '.join(str(port) for port in SERVE_PORTS)} are free")


def _cannot_bind(port: int) -> str | None:
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            probe.listen()
    except OSError as error:
        return error.strerror or str(error)
    return None


def store(path: Path) -> Finding:
    """Whether the store can be made, and whether it has room."""
    folder = next(parent for parent in path.parents if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".fairtrial-probe-"):
            pass
    except OSError as error:
        return Finding("store", "no", f"{path}: {error.strerror}", "name another one: --store PATH or $FAIRTRIAL_STORE")
    room = os.statvfs(folder)
    free = room.f_bavail * room.f_frsize
    if free < 100 << 20:
        return Finding("store", "partial", f"{path}: only {size(free)} free", "free some space or name another disk")
    return Finding("store", "ok", f"{path} ({size(free)} free)")


def own_cgroup(proc: Path, root: Path = Path("/")) -> OwnCgroup:
    """Look at the cgroup that we, and so the command, live in."""
    try:
        places = locate("self", proc=proc, root=root)
    except OSError as error:
        return _no_cgroup(None, f"{proc} cannot be read: {error.strerror}")
    memory = places.places.get("memory")
    if memory is None:
        return _no_cgroup(places, places.missing.get("memory", "no memory controller"))
    files = CgroupFiles(places, may_reset=False)
    try:
        peak = memory.path / ("memory.peak" if memory.v2 else "memory.max_usage_in_bytes")
        kills = files.quick().oom_kill
        # v2 tells of a change by poll; v1 only whom it lets write a descriptor there.
        doorbell = memory.v2 or os.access(memory.path / "cgroup.event_control", os.W_OK)
        return OwnCgroup(
            version=places.version,
            places=places,
            limit_bytes=files.effective_limit(),
            peak_known=peak.exists(),
            peak_resettable=os.access(peak, os.W_OK),
            kills=kills,
            doorbell=doorbell,
        )
    finally:
        files.close()


def _no_cgroup(places: CgroupPlaces | None, why: str) -> OwnCgroup:
    version = None if places is None else places.version
    return OwnCgroup(
        version=version,
        places=places,
        limit_bytes=None,
        peak_known=False,
        peak_resettable=False,
        kills=None,
        doorbell=False,
        why_not=why,
    )


def cgroup_finding(own: OwnCgroup) -> Finding:
    """Version, ceiling and rights in one line."""
    if own.why_not is not None:
        return Finding("own cgroup", "no", f"cgroup {own.version}: {own.why_not}" if own.version else own.why_not)
    parts = [f"cgroup {own.version}"]
    parts.append("no memory ceiling" if own.limit_bytes is None else f"memory ceiling {size(own.limit_bytes)}")
    if not own.peak_known:
        parts.append("no peak")
    elif own.peak_resettable:
        parts.append("peak resettable")
    else:
        parts.append("peak not resettable (peaks per step are bounds)")
    if own.kills is None:
        parts.append("no counter of kills for memory")
    else:
        parts.append(f"{own.kills} kills for memory so far" if own.kills else "no kill so far")
    parts.append("kills told at once" if own.doorbell else "kills seen 10 times a second")
    return Finding("own cgroup", "ok" if own.peak_known and own.kills is not None else "partial", ", ".join(parts))


def host_kills(path: Path) -> Finding:
    """The node's own counter, which can clear the memory."""
    try:
        known = any(line.startswith("oom_kill ") for line in path.read_text().splitlines())
    except OSError:
        known = False
    if known:
        return Finding("host oom counter", "ok", f"{path} counts every OOM kill of this node")
    return Finding("host oom counter", "no", f"{path} has no oom_kill line; a zero cannot clear the memory")


def kernel_log() -> Finding:
    """Who is killed is told there alone."""
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        why = f"/dev/kmsg: {error.strerror}"
        return Finding("kernel log", "no", f"{why}; that a kill happened is still seen, who died is not")
    return Finding("kernel log", "ok", "victims of OOM kills can be named")


class _Timex(ctypes.Structure):
    """The first fields of `struct timex`; the rest is room.  **Source:** adjtimex(2)."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 256),
    )


def clock() -> Finding:
    """Whether a time server keeps this clock, as the kernel says: it lays spans of several hosts side by side."""
    buffer = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(buffer))
    except (OSError, AttributeError):
        return Finding("clock", "partial", "the kernel does not tell whether it is kept by a time server")
    if state < 0:
        why = os.strerror(ctypes.get_errno() or errno.EPERM)
        return Finding("clock", "partial", f"the kernel does not tell whether it is kept by a time server ({why})")
    if state == _TIME_ERROR:
        text = "no time server keeps it: times differ from other hosts' (durations are exact)"
        return Finding("clock", "partial", text, "run chrony or systemd-timesyncd", mend=False)
    far = f"at most {buffer.maxerror / 1000:.0f} ms off"
    return Finding("clock", "ok" if buffer.maxerror < _BAD_CLOCK_US else "partial", f"kept by a time server, {far}")
