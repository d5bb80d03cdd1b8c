"""Where the files of a process's cgroup are: per controller, in v1, v2 and hybrid hierarchies.

In: /proc/PID/cgroup of the process and /proc/self/mountinfo of ours.  Out: a directory per controller, or the reason
why there is none.  No mount point, no driver and no depth is assumed: cgroupfs (`/docker/ID`), systemd
(`/system.slice/docker-ID.scope`), nested engines and bind mounts of a part of a hierarchy differ only in what these two
files say.  A path out of what we have mounted (`/../…`, a foreign cgroup namespace) is unreadable, not guessed.  Where
the host's hierarchy is mounted into our own namespace (its root reads `/../..` then) the kernel does not tell the names
between, so the directory at that depth is looked for, and believed only if the process is in it.

With `must_contain` (a container id) a path without that id is refused: files are written there (`cgroup_files.py`), and
a wrong path would reset or read somebody else's counters.  What it cannot do: find a cgroup of another machine; a pid
from a remote engine fails the id test and is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from fairtrial.collectors.parse.proc import CgroupLine, Mount, parse_cgroup, parse_mountinfo

CONTROLLERS: Final = ("memory", "cpu", "cpuacct", "pids", "blkio")
"""v1 names; in v2 all of them are the one directory."""
MIN_ID_LENGTH: Final = 12
_DEEPEST: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The directory of one controller.  `mount` is where its hierarchy begins: no limit is looked for above it."""

    path: Path
    mount: Path
    v2: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupPlaces:
    """All that was found for one process.

    `hierarchy_path`: the memory cgroup as the kernel log prints it.  `unified`: the v2 directory, on hybrid hosts the
    place of pressure files.  `missing`: controller -> why.
    """

    version: Literal["v1", "v2", "hybrid"] | None
    hierarchy_path: str | None
    places: Mapping[str, Place]
    unified: Path | None
    missing: Mapping[str, str] = field(default_factory=dict)


def locate(pid: int | str, *, proc: Path, root: Path = Path("/"), must_contain: str | None = None) -> CgroupPlaces:
    """Find the cgroup of a process.  `root` goes before every mount point (tests use trees on disk).

    Raises OSError when /proc/PID is gone and ValueError when `must_contain` is too short to be an id.
    """
    if must_contain is not None and len(must_contain) < MIN_ID_LENGTH:
        raise ValueError(f"{must_contain!r} is too short for a container id")
    raw = (proc / str(pid) / "cgroup").read_bytes()
    return places_of(raw, proc=proc, root=root, must_contain=must_contain, pid=pid)


def places_of(
    raw: bytes, *, proc: Path, root: Path = Path("/"), must_contain: str | None = None, pid: int | str | None = None
) -> CgroupPlaces:
    """The same from the text of a /proc/PID/cgroup, whose process may be gone.  Raises OSError without /proc."""
    lines = parse_cgroup(raw)
    mounts = parse_mountinfo((proc / "self" / "mountinfo").read_bytes())
    places: dict[str, Place] = {}
    missing: dict[str, str] = {}
    hierarchy_path: str | None = None
    unified: Place | str = "no cgroup v2 line"
    for line in lines:
        if line.hierarchy == 0:
            unified = _place(line, _v2_mounts(mounts), root, must_contain, v2=True, pid=pid)
    v1_memory = False
    for controller in CONTROLLERS:
        line_v1 = next((line for line in lines if controller in line.controllers), None)
        if line_v1 is not None:
            found = _place(line_v1, _v1_mounts(mounts, controller), root, must_contain, v2=False, pid=pid)
        else:
            found = unified
        if isinstance(found, str):
            missing[controller] = found
        elif found.v2 and not _enabled(found.path, controller):
            missing[controller] = f"the {controller} controller is not enabled in {found.path}"
        else:
            places[controller] = found
            if controller == "memory":
                v1_memory = not found.v2
    memory_line = next((line for line in lines if "memory" in line.controllers), None)
    memory_line = memory_line or next((line for line in lines if line.hierarchy == 0), None)
    if memory_line is not None:
        hierarchy_path = _cut(memory_line.path, must_contain) or memory_line.path
    version: Literal["v1", "v2", "hybrid"] | None = None
    has_v2 = isinstance(unified, Place)
    if "memory" in places:
        version = ("hybrid" if has_v2 else "v1") if v1_memory else "v2"
        if not v1_memory and any(not place.v2 for place in places.values()):
            version = "hybrid"
    elif places:
        version = "hybrid" if has_v2 else "v1"
    elif has_v2:
        version = "v2"
    return CgroupPlaces(
        version=version,
        hierarchy_path=hierarchy_path,
        places=places,
        unified=unified.path if isinstance(unified, Place) else None,
        missing=missing,
    )


def _v1_mounts(mounts: tuple[Mount, ...], controller: str) -> tuple[Mount, ...]:
    return tuple(m for m in mounts if m.fs_type == "cgroup" and controller in m.super_options)


def _v2_mounts(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    return tuple(m for m in mounts if m.fs_type == "cgroup2")


def _enabled(directory: Path, controller: str) -> bool:
    """In v2 a controller is there when its files are; cpu.stat and pressure exist without it."""
    first = {
        "memory": "memory.stat",
        "cpu": "cpu.stat",
        "cpuacct": "cpu.stat",
        "pids": "pids.current",
        "blkio": "io.stat",
    }
    return (directory / first[controller]).exists()


def _cut(path: str, must_contain: str | None) -> str | None:
    """The part of the path up to the component that names the container, or None when none does.

    A container whose PID 1 is systemd has its own cgroups below; the container's limits and counters are above them.
    """
    if must_contain is None:
        return path
    parts = path.split("/")
    for index, part in enumerate(parts):
        if must_contain in part:
            return "/".join(parts[: index + 1])
    return None


def _place(
    line: CgroupLine,
    mounts: tuple[Mount, ...],
    root: Path,
    must_contain: str | None,
    *,
    v2: bool,
    pid: int | str | None,
) -> Place | str:
    path = _cut(line.path, must_contain)
    if path is None:
        return f"the cgroup path {line.path} does not name the container"
    if not mounts:
        return "its hierarchy is not mounted here"
    why = "its directory is not visible here"
    for mount in mounts:
        below = _below(path, mount.root)
        if below is None:
            there = _searched(line.path, path, mount, root, pid)
            if there is not None:
                return Place(path=there, mount=root / mount.mount_point.lstrip("/"), v2=v2)
            why = f"{path} lies outside of what is mounted at {mount.mount_point} (another cgroup namespace)"
            continue
        top = root / mount.mount_point.lstrip("/")
        directory = top / below if below else top
        if directory.is_dir():
            return Place(path=directory, mount=top, v2=v2)
        why = f"{directory} does not exist"
    return why


def _below(path: str, mount_root: str) -> str | None:
    """`path` relative to the mounted root of its hierarchy, "" for the root itself, None when it is not below."""
    if mount_root == "/":
        below = path.lstrip("/")
    elif path == mount_root or path.startswith(mount_root + "/"):
        below = path[len(mount_root) :].lstrip("/")
    else:
        return None
    return None if ".." in below.split("/") else below


def _searched(whole: str, path: str, mount: Mount, root: Path, pid: int | str | None) -> Path | None:
    """The directory of `path` below a mount that begins above our cgroup namespace; None when there is none.

    Both are told from the namespace's root on: `/../x` in a mount of `/../..` lies one unknown name below its top.
    `whole` is where the process itself is, maybe below `path`.
    """
    ups, tail = _climb(path)
    mounted_ups, mounted_tail = _climb(mount.root)
    unknown = mounted_ups - ups
    if pid is None or mounted_tail or unknown <= 0 or unknown > _DEEPEST:
        return None
    number = os.getpid() if pid == "self" else int(pid)
    rest = whole[len(path) :].strip("/")
    for directory in _at_depth(root / mount.mount_point.lstrip("/"), unknown):
        found = directory / tail if tail else directory
        try:
            inside = (found / rest / "cgroup.procs").read_text().split()
        except OSError:
            continue
        if str(number) in inside:
            return found
    return None


def _climb(path: str) -> tuple[int, str]:
    """How many levels a path climbs, and what follows."""
    parts = [part for part in path.split("/") if part]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    return ups, "/".join(parts[ups:])


def _at_depth(top: Path, depth: int) -> Iterator[Path]:
    """All directories so many levels below."""
    if depth == 0:
        yield top
        return
    try:
        with os.scandir(top) as entries:
            folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for folder in folders:
        yield from _at_depth(folder, depth - 1)
