"""Container images made from this host's own files, so that no registry is needed.

In: an image name from `IMAGES`, a folder for cached tars, the address of an engine. Out: the image in that engine.
`ft-busybox` (about 2 MB) holds one static busybox; `ft-python` (about 80 MB) holds this Python, bash, coreutils and the
libraries that `ldd` names: enough for mini-swe-agent and for tool scripts; `ft-harness` also holds tmux, for Harbor.
Not a Debian: no apt, no packages, no CA store.

Also a command: `python tests/e2e/image.py unix:///path/docker.sock ft-busybox ft-python`.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

RECIPE = "4"  # part of each cached tar's name: raise it when what an image holds changes

TERMINFO = ("/lib/terminfo", "/usr/share/terminfo")
TERMINALS = ("t/tmux", "t/tmux-256color", "s/screen", "x/xterm", "x/xterm-256color")
UTF8 = "/usr/lib/locale/C.utf8"

DEFAULT_LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64")

PROGRAMS = """
bash env basename cat chmod chown comm cp cut date dd df diff dirname du echo expr false find fold free grep
egrep gzip gunzip head hostname id kill ln ls mkdir mkfifo mktemp mv nice nl nohup nproc od paste pgrep pkill
printenv printf ps pwd readlink realpath rm rmdir sed seq setsid sha256sum sleep sort split stat stty sync
tail tar tee test timeout top touch tr true truncate tty uname uniq uptime wc which whoami xargs yes mawk
prlimit
""".split()  # noqa: SIM905  eighty quoted words on eighty lines read worse

# Programs that harnesses bring with them (the native Claude Code binary) link only these.
COMMON_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1")

# Parts of the standard library that no tool script in a test needs; together about half of its size.
UNNEEDED_STDLIB = {
    "test",
    "tests",
    "idlelib",
    "idle_test",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "ensurepip",
    "site-packages",
    "dist-packages",
}


class ImageUnavailable(Exception):
    """An image cannot be made on this host; the message says what is missing and how to get it."""


class RootTree:
    """A tar of a root file system, written file by file; each path at most once, all owned by root."""

    def __init__(self, path: Path) -> None:
        self._tar = tarfile.open(path, "w", format=tarfile.GNU_FORMAT)  # noqa: SIM115  closed by close()
        self._names: set[str] = set()

    def close(self) -> None:
        self._tar.close()

    def __contains__(self, path: str) -> bool:
        return path.lstrip("/") in self._names

    def _add(self, member: tarfile.TarInfo, content: io.BufferedReader | io.BytesIO | None = None) -> None:
        if member.name not in self._names:
            self._names.add(member.name)
            self._tar.addfile(member, content)

    def folder(self, path: str, mode: int = 0o755) -> None:
        member = tarfile.TarInfo(path.lstrip("/"))
        member.type, member.mode = tarfile.DIRTYPE, mode
        self._add(member)

    def link(self, path: str, target: str) -> None:
        member = tarfile.TarInfo(path.lstrip("/"))
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
        self._add(member)

    def text(self, path: str, content: str) -> None:
        encoded = content.encode()
        member = tarfile.TarInfo(path.lstrip("/"))
        member.size, member.mode = len(encoded), 0o644
        self._add(member, io.BytesIO(encoded))

    def file(self, source: str, path: str) -> None:
        """Add the contents of `source` (links followed) at `path`."""
        status = os.stat(source)
        member = tarfile.TarInfo(path.lstrip("/"))
        member.size, member.mode = status.st_size, stat.S_IMODE(status.st_mode) & 0o755
        with open(source, "rb") as content:
            self._add(member, content)

    def skeleton(self) -> None:
        """Folders and account files that every container expects."""
        for folder in (
            "dev",
            "etc",
            "proc",
            "root",
            "run",
            "sys",
            "usr",
            "usr/bin",
            "usr/lib",
            "usr/lib64",
            "var",
            "work",
        ):
            self.folder(folder)
        self.folder("tmp", 0o1777)
        self.folder("var/tmp", 0o1777)
        for name in ("bin", "lib", "lib64"):
            self.link(name, f"usr/{name}")
        self.link("sbin", "usr/bin")
        self.link("usr/sbin", "bin")
        self.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
        self.text("etc/group", "root:x:0:\nnogroup:x:65534:\n")
        self.text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")


def _normal(path: str) -> str:
    """The path with its folder's links resolved, so that /bin/ls and /usr/bin/ls are one place."""
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def libraries_of(binaries: Iterable[str]) -> set[str]:
    """Absolute paths of all shared libraries (and loaders) that `ldd` names for these binaries.

    Raises ImageUnavailable when one of them is missing on this host.
    """
    found: set[str] = set()
    for binary in binaries:
        listing = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
        for line in listing.stdout.splitlines():
            if "not found" in line:
                raise ImageUnavailable(f"{binary} needs a library that this host lacks: {line.strip()}")
            match = re.search(r"(?:=>\s*|^\s*)(/\S+)", line)
            if match:
                found.add(match.group(1))
    return found


def _add_libraries(tree: RootTree, libraries: Iterable[str]) -> None:
    for library in sorted(libraries):
        place = _normal(library)
        tree.file(library, place)
        folder, name = os.path.split(place)
        multiarch = re.fullmatch(r"/usr/lib/[^/]+-linux-gnu\w*", folder)
        if folder not in DEFAULT_LIBRARY_FOLDERS and not multiarch:
            tree.link(
                f"usr/lib/{name}", place
            )  # the loader has no cache file in there: only its default folders are searched


def _stdlib_files(stdlib: str) -> Iterator[str]:
    for folder, folders, names in os.walk(stdlib):
        folders[:] = sorted(name for name in folders if name not in UNNEEDED_STDLIB and not name.startswith("config-"))
        for name in sorted(names):
            if not name.endswith((".opt-1.pyc", ".opt-2.pyc", ".a")):
                yield os.path.join(folder, name)


def build_busybox(path: Path) -> None:
    """Write the small image's tar: a static busybox with a link for each of its applets.

    Raises ImageUnavailable when no static busybox is installed.
    """
    busybox = shutil.which("busybox")
    if busybox is None or libraries_of([busybox]):
        raise ImageUnavailable("no static busybox on this host; install Debian's busybox-static")
    tree = RootTree(path)
    tree.skeleton()
    tree.file(busybox, "usr/bin/busybox")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        if applet != "busybox":
            tree.link(f"usr/bin/{applet}", "busybox")
    tree.close()


def build_harness(path: Path) -> None:
    """As `build_python`, with the tmux that Harbor's terminus-2 types into.

    Raises ImageUnavailable when tmux or bash is missing.
    """
    if shutil.which("tmux") is None:
        raise ImageUnavailable("no tmux on this host; install Debian's tmux")
    files = [f"{folder}/{name}" for folder in TERMINFO for name in TERMINALS if os.path.exists(f"{folder}/{name}")]
    if os.path.isdir(UTF8):  # tmux starts in no other
        files += [os.path.join(folder, name) for folder, _, names in os.walk(UTF8) for name in names]
    build_python(path, programs=("tmux",), files=files)


def build_python(path: Path, *, programs: Sequence[str] = (), files: Sequence[str] = ()) -> None:
    """Write the larger image's tar: this interpreter and its standard library, bash, coreutils and their libraries; and
    further programs and files of this host.

    Raises ImageUnavailable when bash is missing.
    """
    if shutil.which("bash") is None or shutil.which("ldd") is None:
        raise ImageUnavailable("bash and ldd are needed to make the python image")
    wanted = (*PROGRAMS, *programs)
    found_programs = {name: found for name in wanted if (found := shutil.which(name)) and _runs_in_image(found)}
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    interpreter = os.path.join(sys.base_prefix, "bin", version)
    stdlib = sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix, "base": sys.base_prefix})
    modules = [file for file in _stdlib_files(stdlib) if file.endswith(".so")]
    libraries = libraries_of([*found_programs.values(), interpreter, *modules])
    libraries |= {where for name in COMMON_LIBRARIES if (where := _system_library(name, libraries))}

    tree = RootTree(path)
    tree.skeleton()
    for name, program in sorted(found_programs.items()):
        tree.file(program, f"usr/bin/{name}")
    tree.link("usr/bin/sh", "bash")
    if "mawk" in found_programs:
        tree.link("usr/bin/awk", "mawk")
    tree.file(interpreter, interpreter)
    for name in ("python3", "python"):
        tree.link(f"usr/bin/{name}", interpreter)
    for file in (*_stdlib_files(stdlib), *files):
        tree.file(file, file)
    _add_libraries(tree, libraries)
    tree.close()


def _runs_in_image(program: str) -> bool:
    """True for a native program or a script for sh; false for what needs another interpreter."""
    start = Path(program).read_bytes()[:16]
    return start.startswith(b"\x7fELF") or start.split(b"\n")[0] in (b"#!/bin/sh", b"#! /bin/sh", b"#!/bin/bash")


def _system_library(name: str, known: set[str]) -> str | None:
    """Where the named library lies beside the C library, or None."""
    for library in known:
        if os.path.basename(library) == "libc.so.6":
            beside = os.path.join(os.path.dirname(library), name)
            return beside if os.path.exists(beside) else None
    return None


IMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "ft-busybox": (build_busybox, "sh"),
    "ft-python": (build_python, "bash"),
    "ft-harness": (build_harness, "bash"),
}


def image_tar(name: str, cache: Path) -> Path:
    """The cached tar of an image, built if it is not there yet. Raises ImageUnavailable."""
    build, _ = IMAGES[name]
    key = hashlib.sha256(f"{RECIPE} {sys.version} {sys.base_prefix}".encode()).hexdigest()[:12]
    tar = cache / f"{name}-{key}.tar"
    if not tar.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = cache / f"{name}-{key}.{os.getpid()}.tmp"
        try:
            build(unfinished)
            unfinished.rename(tar)
        finally:
            unfinished.unlink(missing_ok=True)
    return tar


def ensure_image(name: str, docker_host: str, cache: Path) -> str:
    """Import the image into the engine unless it has it already; returns the name to run.

    Raises ImageUnavailable when the tar cannot be built or the engine refuses it.
    """
    docker = shutil.which("docker")
    if docker is None:
        raise ImageUnavailable("no docker client on this host; install Debian's docker.io")
    base = [docker, "--host", docker_host]
    key = hashlib.sha256(f"{RECIPE} {sys.version} {sys.base_prefix}".encode()).hexdigest()[:12]
    label = f"fairtrial.recipe={key}"
    listed = subprocess.run(
        [*base, "images", "-q", "--filter", f"label={label}", name], capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout.strip():
        return name
    changes = [f"LABEL {label}", f'CMD ["{IMAGES[name][1]}"]', "WORKDIR /work", "ENV PATH=/usr/local/bin:/usr/bin:/bin"]
    options = [part for change in changes for part in ("--change", change)]
    imported = subprocess.run(
        [*base, "import", *options, str(image_tar(name, cache)), f"{name}:latest"],
        capture_output=True,
        text=True,
        check=False,
    )
    if imported.returncode != 0:
        raise ImageUnavailable(f"the engine did not take {name}: {imported.stderr.strip()}")
    return name


def main(argv: list[str]) -> int:
    """Import the named images into the engine at argv[0]; cache under $FAIRTRIAL_E2E_DIR or .e2e."""
    docker_host, *names = argv
    cache = Path(os.environ.get("FAIRTRIAL_E2E_DIR", ".e2e")) / "images"
    for name in names or IMAGES:
        try:
            sys.stdout.write(f"{ensure_image(name, docker_host, cache)}: ready\n")
        except ImageUnavailable as missing:
            sys.stdout.write(f"{name}: not made: {missing}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
