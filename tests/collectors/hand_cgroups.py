"""Real cgroups made by hand, where the test may make them: v1 memory (and the rest), each with a process to put in.

In: root, a v1 memory hierarchy.  Out: a folder name of our own, removed at the end.  The test machine's other cgroups
are never touched.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairtrial.collectors.cgroup_paths import CgroupPlaces, Place

TOP = Path("/sys/fs/cgroup")


def v1_memory() -> bool:
    """Whether this machine has a v1 memory hierarchy that we may add to."""
    return (
        (TOP / "memory" / "cgroup.event_control").exists() and os.access(TOP / "memory", os.W_OK) and os.geteuid() == 0
    )


@contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[CgroupPlaces]:
    """A fresh v1 memory cgroup with a limit."""
    name = f"fairtrial-test-{uuid.uuid4().hex}"
    directory = TOP / "memory" / name
    directory.mkdir()
    try:
        (directory / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield CgroupPlaces(
            version="v1",
            hierarchy_path=f"/{name}",
            places={"memory": Place(path=directory, mount=TOP / "memory", v2=False)},
            unified=None,
        )
    finally:
        if directory.exists():
            directory.rmdir()
