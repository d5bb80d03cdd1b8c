"""A place with a memory ceiling for the demo's commands: a container where an engine answers, else a cgroup.

In: the environment.  Out: a `Ceiling` that says how to start the agent, or the plain reason why there is none.
The container's image is made from this host's own shell and tools, so nothing is pulled.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

IMAGE: Final = "fairtrial-demo:1"
PROGRAMS: Final = ("sh", "sleep", "tail", "test", "touch", "cat", "kill")
DEFAULT_SOCKET: Final = "unix:///var/run/docker.sock"
CONTAINER_MEMORY: Final = "64m"
CGROUP_BYTES: Final = 96 << 20
"""The agent itself (a Python of about 20 MB) lives in the cgroup as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """How the agent gets a memory ceiling: extra words of its command line, and words before it.

    `where` says for people what the ceiling stands on.
    """

    kind: str
    where: str = ""
    before: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


@contextlib.contextmanager
def memory_ceiling() -> Iterator[Ceiling | str]:
    """Yields a `Ceiling`, or a sentence that says why there is none here."""
    missing_engine = _engine_with_image()
    if missing_engine is None:
        where = "in a Docker container of 64 MiB"
        yield Ceiling(kind="container", where=where, options=("--image", IMAGE, "--memory", CONTAINER_MEMORY))
        return
    with _cgroup() as (folder, missing_cgroup):
        if folder is None:
            yield f"{missing_engine}; {missing_cgroup}"
            return
        procs = folder / "cgroup.procs"
        where = f"in a cgroup of {CGROUP_BYTES >> 20} MiB made for them ({missing_engine})"
        yield Ceiling(kind="cgroup", where=where, before=("/bin/sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh"))


def _engine_with_image() -> str | None:
    """Make sure an engine answers and has our image; else the reason."""
    named = os.environ.get("DOCKER_HOST", DEFAULT_SOCKET)
    if named.startswith("unix://") and not _listens(named.removeprefix("unix://")):
        return "no Docker engine answers"
    import docker
    from docker.errors import DockerException, ImageNotFound

    try:
        client = docker.from_env(timeout=5)
        client.ping()
    except DockerException:
        return "no Docker engine answers"
    try:
        try:
            client.images.get(IMAGE)
        except ImageNotFound:
            client.api.import_image_from_data(_root_tar(), repository=IMAGE.partition(":")[0], tag="1")
    except (DockerException, OSError, subprocess.SubprocessError) as error:
        return f"the demo's image could not be made ({error})"
    finally:
        client.close()
    return None


def _listens(path: str) -> bool:
    """Asked by hand first: the Docker package leaves its socket open when nobody listens."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _root_tar() -> bytes:
    """A root file system of a shell, a few tools and their libraries, from this host."""
    files: dict[str, str] = {}
    for name in PROGRAMS:
        source = shutil.which(name)
        if source is None:
            raise OSError(f"this host has no {name}")
        files[f"bin/{name}"] = source
        for library in _libraries(source):
            files[library.lstrip("/")] = library
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for folder in ("work", "tmp", "dev", "proc", "sys", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, source in files.items():
            content = Path(source).read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


def _libraries(program: str) -> list[str]:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return re.findall(r"(/\S+) \(0x", said)


@contextlib.contextmanager
def _cgroup() -> Iterator[tuple[Path | None, str]]:
    """A cgroup of our own with a memory ceiling, removed at the end; None and the reason where we may not make one."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    if (v1 / "memory.limit_in_bytes").exists():
        parent, limits = v1, {"memory.limit_in_bytes": CGROUP_BYTES}
    elif "memory" in _words(v2 / "cgroup.subtree_control"):
        parent, limits = v2, {"memory.max": CGROUP_BYTES, "memory.swap.max": 0}
    else:
        yield None, "no memory cgroup can be made here"
        return
    folder = parent / f"fairtrial-demo-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        yield None, f"no cgroup can be made ({error.strerror}; it needs root)"
        return
    try:
        for name, value in limits.items():
            if (folder / name).exists():
                (folder / name).write_text(str(value))
        yield folder, ""
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
