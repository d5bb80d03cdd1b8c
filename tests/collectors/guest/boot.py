"""Boots a Debian kernel under qemu TCG with an initramfs of one busybox, this Python and fairtrial's collectors.

In: a `vmlinuz` (tests/guest_kernels.sh fetches some; FAIRTRIAL_TEST_KERNEL names one).  Out: what `program.py` said,
one record per scene.  The modules are those that the program imports on this very machine, compiled; without OpenSSL,
which asyncio can do without.  KVM is not used: on nested machines it kills the guest.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import marshal
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
BOOT_S: Final = 270
_NO_MODULES: Final = ("_ssl", "_hashlib", "_uuid")
_KERNEL_LINE: Final = (
    "console=ttyS0", "quiet", "loglevel=1", "panic=-1", "cgroup_no_v1=all", "psi=1", "mitigations=off",
    "random.trust_cpu=on",
)  # fmt: skip
_INIT: Final = """#!/bin/busybox sh
/bin/busybox mount -t proc p /proc
/bin/busybox mount -t sysfs s /sys
/bin/busybox mount -t devtmpfs d /dev
/bin/busybox mount -t cgroup2 c /sys/fs/cgroup
PYTHONHOME=/py PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1 /py/bin/python -S -P -m tests.collectors.guest.program
/bin/busybox poweroff -f
"""
_LIST: Final = """
import json, sys
for name in %r: sys.modules[name] = None
import tests.collectors.guest.program, runpy, signal, encodings.ascii, encodings.latin_1
found = {}
for name, module in list(sys.modules.items()):
    file = getattr(module, "__file__", None)
    if file: found[name] = [file, hasattr(module, "__path__")]
found.pop("__main__", None)
print(json.dumps([sys.base_prefix, sys._base_executable, found]))
"""


class GuestUnavailable(Exception):
    """Nothing can be booted here, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of the initramfs."""

    mode: int
    content: bytes = b""


def kernels() -> list[Path]:
    """Kernels to boot, oldest first.  Raises GuestUnavailable."""
    if shutil.which("qemu-system-x86_64") is None:
        raise GuestUnavailable("qemu-system-x86_64 is not installed (Debian: apt-get install qemu-system-x86)")
    if busybox() is None:
        raise GuestUnavailable("no static busybox (Debian: apt-get install busybox-static)")
    named = os.environ.get("FAIRTRIAL_TEST_KERNEL")
    found = [Path(named)] if named else sorted((ROOT / ".cache" / "kernels").glob("vmlinuz-*"), key=version)
    if not found or not all(path.is_file() for path in found):
        raise GuestUnavailable(
            "no guest kernel: FAIRTRIAL_TEST_KERNEL is not set and tests/guest_kernels.sh has fetched none"
        )
    return found


def version(kernel: Path) -> tuple[int, int]:
    """(6, 12) of vmlinuz-6.12.117+deb12-cloud-amd64; (0, 0) where the name does not tell."""
    major, _, rest = kernel.name.removeprefix("vmlinuz-").partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def busybox() -> str | None:
    """A busybox that needs no libraries."""
    path = shutil.which("busybox")
    if path is None:
        return None
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
    return path if "not a dynamic" in said.stdout + said.stderr else None


def initramfs() -> bytes:
    """The archive, compressed."""
    listed = subprocess.run(
        [sys.executable, "-c", _LIST % (_NO_MODULES,)], capture_output=True, cwd=ROOT, text=True, check=True
    )
    prefix, python, modules = json.loads(listed.stdout.strip().splitlines()[-1])
    stdlib = f"py/lib/python{sys.version_info[0]}.{sys.version_info[1]}"
    box = busybox()
    assert box is not None
    entries: dict[str, Entry] = {
        "init": Entry(mode=0o100755, content=_INIT.encode()),
        "bin/busybox": Entry(mode=0o100755, content=Path(box).read_bytes()),
        "py/bin/python": Entry(mode=0o100755, content=Path(python).resolve().read_bytes()),
        # Python looks for these two to know that its library is there.
        f"{stdlib}/os.pyc": Entry(mode=0o100644, content=compiled(os.__file__)),
        f"{stdlib}/lib-dynload/here": Entry(mode=0o100644),
        **{f"{name}/here": Entry(mode=0o100644) for name in ("proc", "sys", "dev", "tmp")},
    }
    binaries = [Path(python).resolve()]
    for name, (file, package) in modules.items():
        within = Path(file).is_relative_to(prefix) and "-packages" not in file
        if file.endswith(".so"):
            binaries.append(Path(file))
            where = f"{stdlib}/lib-dynload/" if within else f"app/{name.rpartition('.')[0].replace('.', '/')}/"
            entries[where + Path(file).name] = Entry(mode=0o100755, content=Path(file).read_bytes())
        elif file.endswith(".py"):
            where = f"{stdlib}/" if within else "app/"
            path = name.replace(".", "/") + ("/__init__.pyc" if package else ".pyc")
            entries[where + path] = Entry(mode=0o100644, content=compiled(file))
    for library in libraries(binaries):
        entries[library.lstrip("/")] = Entry(mode=0o100755, content=Path(library).read_bytes())
    return gzip.compress(cpio(entries), compresslevel=1)


def compiled(file: str) -> bytes:
    """The module as a .pyc that is believed without its source."""
    code = compile(Path(file).read_bytes(), file, "exec", dont_inherit=True, optimize=0)
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code)


def libraries(binaries: list[Path]) -> set[str]:
    """What the loader loads for them, under the paths at which it looks."""
    found: set[str] = set()
    said = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    for line in said.splitlines():
        _, _, right = line.rpartition("=>")
        path = right.strip().partition(" ")[0]
        if path.startswith("/") and not path.endswith(":"):
            found.add(path)
    return found


def cpio(entries: dict[str, Entry]) -> bytes:
    """A "newc" archive.  **Source:** kernel Documentation/driver-api/early-userspace/buffer-format.rst."""
    folders = {str(parent) for name in entries for parent in Path(name).parents if str(parent) != "."}
    rows = [(name, Entry(mode=0o040755)) for name in sorted(folders)]
    rows += sorted(entries.items())
    rows.append(("TRAILER!!!", Entry(mode=0)))
    out = bytearray()
    for number, (name, entry) in enumerate(rows, start=1):
        raw = name.encode() + b"\0"
        fields = (number, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, 0, 0, len(raw), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + raw
        out += bytes(-len(out) % 4)
        out += entry.content
        out += bytes(-len(out) % 4)
    return bytes(out)


def boot(kernel: Path, *, scenes: str = "", timeout_s: float = BOOT_S) -> dict[str, dict[str, object]]:
    """Scene -> what was said of it; the whole console is in the error when it did not come to its end."""
    with tempfile.TemporaryDirectory(prefix="ft-guest") as folder:
        archive = Path(folder) / "initramfs"
        archive.write_bytes(initramfs())
        command = [
            "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "512", "-smp", "1", "-nographic", "-no-reboot",
            "-nodefaults", "-serial", "stdio", "-kernel", str(kernel), "-initrd", str(archive),
            "-append", " ".join([*_KERNEL_LINE, f"FT_SCENES={scenes}"]),
        ]  # fmt: skip
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False, text=True,
            errors="replace",
        )  # fmt: skip
    told: dict[str, dict[str, object]] = {}
    for line in done.stdout.splitlines():
        _, mark, rest = line.partition("FT {")
        if mark:
            said = json.loads("{" + rest)
            told[said["scene"]] = said
    if "end" not in told:
        raise AssertionError(f"the guest did not come to its end:\n{done.stdout[-4000:]}\n{done.stderr[-1000:]}")
    return told


if __name__ == "__main__":
    for each in kernels():
        print(json.dumps(boot(each), indent=1))
