"""Trees on disk that look like /proc and /sys/fs/cgroup, for v1, v2 and hybrid hosts.

In: a folder and what shall be in it.  Out: files.  Nothing of the real /proc is read; `proc` and `root` of the
collectors point here.
"""

from __future__ import annotations

import shutil
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "cgroup"
CONTAINER = "cbe1a32c898d3ffe974a01c1dd6b0955e7d847ada32bde382513cf04c711858a"
V1_CONTROLLERS = ("memory", "cpu", "cpuacct", "pids", "blkio")


class Tree:
    """`proc` and `root` to hand to a collector."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.root = folder
        self.mounts: list[str] = []
        (self.proc / "self").mkdir(parents=True)

    def mount(self, point: str, fs_type: str, options: str, *, root: str = "/") -> Path:
        """Declare a mount; gives its directory."""
        number = 30 + len(self.mounts)
        self.mounts.append(f"{number} 23 0:{number} {root} {point} rw - {fs_type} {fs_type} {options}")
        (self.proc / "self" / "mountinfo").write_text("\n".join(self.mounts) + "\n")
        directory = self.root / point.lstrip("/")
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def process(self, pid: int | str, cgroup: str, *, exiting: bool = False) -> None:
        """A process with its cgroup lines."""
        (self.proc / str(pid)).mkdir(exist_ok=True)
        (self.proc / str(pid) / "cgroup").write_text(cgroup)
        if isinstance(pid, int) and (exiting or not (self.proc / str(pid) / "stat").exists()):
            self.stat(pid, "sh", 1, exiting=exiting)

    def gone(self, pid: int) -> None:
        """It was waited for."""
        shutil.rmtree(self.proc / str(pid))

    def stat(self, pid: int, comm: str, ppid: int, *, start: int = 100, exiting: bool = False) -> None:
        """/proc/PID/stat of a process."""
        (self.proc / str(pid)).mkdir(exist_ok=True)
        flags = 0x40010C if exiting else 0x400100
        rest = f"1 1 0 -1 {flags} " + " ".join("0" for _ in range(12))
        (self.proc / str(pid) / "stat").write_text(f"{pid} ({comm}) S {ppid} {rest} {start} 0 0\n")


def v1_host(folder: Path, path: str, *, unified: bool = True) -> Tree:
    """Five v1 hierarchies with the recorded container at `path`, and the unified one beside them."""
    tree = Tree(folder)
    for controller in V1_CONTROLLERS:
        top = tree.mount(f"/sys/fs/cgroup/{controller}", "cgroup", f"rw,{controller}")
        _fill(top / path.lstrip("/"), "v1", lambda name, c=controller: name.split(".")[0] == c)
    if unified:
        top = tree.mount("/sys/fs/cgroup/unified", "cgroup2", "rw,nsdelegate")
        _fill(top / path.lstrip("/"), "v1", lambda name: name.endswith(".pressure") or name == "cgroup.events")
    return tree


def v1_lines(path: str, *, unified: bool = True) -> str:
    """/proc/PID/cgroup of a process of such a host."""
    lines = [f"{9 - i}:{controller}:{path}" for i, controller in enumerate(V1_CONTROLLERS)]
    return "\n".join([*lines, f"0::{path}"] if unified else lines) + "\n"


def v2_host(folder: Path, path: str) -> Tree:
    """One unified hierarchy with a container at `path`."""
    tree = Tree(folder)
    top = tree.mount("/sys/fs/cgroup", "cgroup2", "rw,nsdelegate,memory_recursiveprot")
    _fill(top / path.lstrip("/"), "v2", lambda _: True)
    return tree


def _fill(directory: Path, version: str, wanted: object) -> None:
    assert callable(wanted)
    directory.mkdir(parents=True, exist_ok=True)
    for file in (DATA / version).iterdir():
        if file.name != "unlimited" and wanted(file.name):
            shutil.copy(file, directory / file.name)
