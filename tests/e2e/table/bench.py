"""What the scenarios run on: an engine with images, a memory cgroup, Claude Code's line; each may be missing.

In: the machine.  Out: `Bench`, and `NotHere` with the reason where a part cannot be had.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e import clients, harbor
from tests.e2e.engine import Engine, EngineUnavailable, named_engine, private_engine
from tests.e2e.image import ImageUnavailable, ensure_image

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


class NotHere(Exception):
    """Something that a scenario needs is not on this machine; the message is the page's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """None is not there, with the reason in `no_engine`."""

    docker: Engine | None
    no_engine: str
    folder: Path
    stack: contextlib.ExitStack
    """Ends what was started late."""
    started: list[Engine] = field(default_factory=list[Engine])
    """The newer engine, once it is asked for."""

    def engine(self) -> Engine:
        """Raises NotHere."""
        if self.docker is None:
            raise NotHere(self.no_engine)
        return self.docker

    def newer(self, least: tuple[int, ...]) -> Engine:
        """The engine, or a newer one beside it where that one is too old.  Raises NotHere, ToolMissing."""
        if not self.started and too_old(version(self.engine()), least):
            try:
                self.started.append(self.stack.enter_context(private_engine(daemon=str(clients.newer_dockerd()))))
            except EngineUnavailable as reason:
                raise NotHere(str(reason)) from reason
        return self.started[0] if self.started else self.engine()

    def image(self, name: str, engine: Engine | None = None) -> str:
        """Raises NotHere."""
        try:
            host = (engine or self.engine()).docker_host
            return ensure_image(name, host, clients.e2e_folder() / "images")
        except ImageUnavailable as reason:
            raise NotHere(str(reason)) from reason


def version(engine: Engine) -> str:
    """As the engine says it."""
    return engine.docker("version", "--format", "{{.Server.Version}}").stdout.strip()


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    """An engine named by FAIRTRIAL_TEST_DOCKER, else a private one; a folder that is deleted."""
    folder = Path(tempfile.mkdtemp(prefix="ft-table-", dir="/tmp"))
    with contextlib.ExitStack() as stack:
        if not os.environ.get("FAIRTRIAL_TABLE_KEEP"):
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        engine, why = None, ""
        try:
            named = os.environ.get("FAIRTRIAL_TEST_DOCKER")
            engine = named_engine(named) if named else stack.enter_context(private_engine())
        except EngineUnavailable as reason:
            why = str(reason)
        yield Bench(docker=engine, no_engine=why, folder=folder, stack=stack)


@contextlib.contextmanager
def limited(megabytes: int | None) -> Iterator[list[str]]:
    """Words before a command that put it into a memory cgroup of its own; none without a limit.  Raises NotHere."""
    if megabytes is None:
        yield []
        return
    v2 = (V2 / "cgroup.controllers").exists()
    group = (V2 if v2 else V1) / f"ft-table-{os.getpid()}-{time.monotonic_ns()}"
    try:
        group.mkdir()
        (group / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text(f"{megabytes << 20}\n")
    except OSError as error:
        raise NotHere(f"a memory cgroup cannot be made here ({error.strerror})") from error
    swap = group / ("memory.swap.max" if v2 else "memory.memsw.limit_in_bytes")
    with contextlib.suppress(OSError):
        swap.write_text("0\n" if v2 else f"{megabytes << 20}\n")
    try:
        yield ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        for _ in range(50):  # it is busy until the last process is gone
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


@contextlib.contextmanager
def claude_line(stamp: str) -> Iterator[None]:
    """Which of npm's lines `clients.claude_program` finds."""
    before = os.environ.get("FAIRTRIAL_E2E_CLAUDE")
    os.environ["FAIRTRIAL_E2E_CLAUDE"] = stamp
    try:
        yield
    finally:
        if before is None:
            del os.environ["FAIRTRIAL_E2E_CLAUDE"]
        else:
            os.environ["FAIRTRIAL_E2E_CLAUDE"] = before


def stamped(tool: str) -> str:
    """The version of a harness that tools.sh wrote down."""
    stamp = clients.e2e_folder() / "stamps" / tool
    return stamp.read_text().strip() if stamp.exists() else "?"


def too_old(said: str, least: tuple[int, ...]) -> bool:
    """Whether an engine's version is below this one."""
    return tuple(int(part) for part in re.findall(r"\d+", said)[:3]) < least


HARNESS_IMAGE = harbor.IMAGE
