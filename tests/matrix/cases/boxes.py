"""Containers: memory, ends from outside, limits, full disks, a dead engine, on a real engine with real cgroups.

Right by VERDICTS sections 3 to 5 and 8 and the container rows of taxonomy.md section 5.  `/shared` in each box is the
scenario's folder, so that its commands and somebody outside can wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairtrial.middleware.core.records import Blame, EndedAs, Grade
from fairtrial.middleware.demo.script import Step, say
from tests.matrix.scenario import Kind, Right, Scenario, of, suspected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.matrix.rig import Stage

OOM: Final = "container.oom_kill"
SMALL: Final = "--memory 64m --memory-swap 64m"
ANOTHER: Final = "FAIRTRIAL_TRIAL=0197aaaa-0000-7000-8000-00000000000a"
"""The mark of somebody else's trial: an engine with several users and no marks clears nobody."""
COMPOSED: Final = "--label com.docker.compose.project=task --label com.docker.compose.service=main"
"""How compose marks what it starts: by that, not by its name, another container takes its place."""
GIVES_UP: Final = say("The command died; I can not go on.")
V1: Final = Path("/sys/fs/cgroup/memory")


def box(options: str = SMALL, *more: str) -> tuple[str, ...]:
    """The agent's options for a box with these of docker run."""
    return ("--box", f"--network none -v %folder%:/shared {options}", *more)


def oom(
    name: str,
    what: str,
    *steps: Step,
    right: Right,
    why: str,
    kind: Kind = Kind.INFRA,
    agent: Sequence[str] = (),
    **more: object,
) -> Scenario:
    """A scenario in which the kernel kills for memory in the box."""
    return Scenario(
        name=name,
        family="memory",
        kind=kind,
        what=what,
        why=why,
        right=right,
        steps=steps,
        engine="shared",
        kills=True,
        agent=agent or box(),
        **more,  # type: ignore[arg-type]
    )


def boxed(
    name: str,
    family: str,
    kind: Kind,
    what: str,
    *steps: Step,
    right: Right,
    why: str,
    agent: Sequence[str] = (),
    **more: object,
) -> Scenario:
    """Any other scenario with a box.  The first reply takes a while, as real ones do: fairtrial watches by then."""
    first = replace(steps[0], head_delay_s=max(2.5, steps[0].head_delay_s))
    return Scenario(
        name=name,
        family=family,
        kind=kind,
        what=what,
        why=why,
        right=right,
        steps=(first, *steps[1:]),
        agent=agent or box(),
        **({"engine": "shared"} | more),  # type: ignore[arg-type]
    )


def struck(cause: str, step: int, *, blame: Blame = Blame.INFRA, ended_as: EndedAs | None = None) -> Right:
    """It ended the trial, for sure; whose doing or demand it was is open."""
    return suspected(cause, step, blame=blame, ended=(cause, Grade.PROVED, step), ended_as=ended_as)


def either(cause: str, step: int, *blames: Blame, ended_as: EndedAs | None = None) -> Right:
    """This cause, whatever grade the evidence of a later version reaches."""
    return Right(
        blame=of(*(blames or (Blame.INFRA,))),
        grade="open",
        cause=cause,
        step=step,
        ended=(cause, None, step),
        ended_as=ended_as,
    )


# --- somebody outside -------------------------------------------------------------------------------------------------


def kill_the_box(stage: Stage) -> None:
    """Past fairtrial's door."""
    stage.until("working")
    stage.docker("kill", stage.box)


def restart_the_box(stage: Stage) -> None:
    """As a node agent does."""
    stage.until("working")
    stage.docker("restart", "-t", "0", stage.box)


def replace_the_box(stage: Stage) -> None:
    """A fresh container in the old one's place, as compose makes it: what was written is gone."""
    stage.until("working")
    time.sleep(0.5)  # the command is over by then
    image = stage.docker("inspect", "-f", "{{.Config.Image}}", stage.box)
    known = stage.docker("inspect", "-f", "{{range .Config.Env}}{{println .}}{{end}}", stage.box).splitlines()
    mark = next(each for each in known if each.startswith("FAIRTRIAL_TRIAL="))
    stage.docker("rm", "-f", stage.box)
    options = ("-d", "-e", mark, "--name", stage.box, "--network", "none", "-w", "/work", *COMPOSED.split())
    stage.docker("run", *options, image, "sleep", "600")


def kill_the_service(stage: Stage) -> None:
    """The database of the task dies under it."""
    stage.until("working")
    stage.docker("kill", f"{stage.box}-service")
    stage.note("died")


def kill_the_engine(stage: Stage) -> None:
    """The daemon dies without a word."""
    stage.until("working")
    assert stage.engine is not None and stage.engine.pid is not None
    os.kill(stage.engine.pid, signal.SIGKILL)


def kill_the_engine_later(stage: Stage) -> None:
    """The same, once the command is over and before the next."""
    stage.until("working")
    time.sleep(1.5)
    kill_the_engine(stage)


HOGS: Final = (
    "for i in 1 2 3; do ((head -c 45000000 /dev/zero; sleep 3) | tail -c 45000000 > /dev/null) & done; wait; true"
)
"""Three of them, each smaller than what the trial's process counts for by its score."""


def fill_the_node(stage: Stage) -> None:
    """A neighbour under the same parent cgroup takes all of it; the kernel picks the trial's process."""
    stage.until("working")
    image = stage.docker("inspect", "-f", "{{.Config.Image}}", stage.box)
    (V1 / f"ft-{stage.box}" / "memory.limit_in_bytes").write_text(str(96 << 20))
    stage.docker(
        "run",
        "--rm",
        "-e",
        ANOTHER,
        "--network",
        "none",
        "--cgroup-parent",
        f"/ft-{stage.box}",
        image,
        "sh",
        "-c",
        HOGS,
    )
    stage.note("over")
    remove_the_cgroup(stage)


def kill_next_door(stage: Stage) -> None:
    """A neighbour under the same parent cgroup is killed for memory; the box is not."""
    stage.until("working")
    image = stage.docker("inspect", "-f", "{{.Config.Image}}", stage.box)
    (V1 / f"ft-{stage.box}" / "memory.limit_in_bytes").write_text(str(96 << 20))
    stage.docker(
        "run",
        "--rm",
        "-e",
        ANOTHER,
        "--network",
        "none",
        "--cgroup-parent",
        f"/ft-{stage.box}",
        image,
        "sh",
        "-c",
        "tail /dev/zero || true",
    )
    stage.note("over")
    remove_the_cgroup(stage)


def remove_the_cgroup(stage: Stage) -> None:
    """Once the trial is over."""
    assert stage.run is not None
    stage.run.wait()
    left = list(V1.parent.glob(f"*/ft-{stage.box}"))
    for _ in range(100):
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        left = [folder for folder in left if folder.exists()]
        if not left:
            return
        time.sleep(0.05)


# --- what stands around a trial ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(folder: Path) -> Generator[Mapping[str, str]]:
    """A disk of 16 MB."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], check=True)
    try:
        yield {"disk": str(disk)}
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


@contextlib.contextmanager
def full_disk(folder: Path) -> Generator[Mapping[str, str]]:
    """The same, and somebody else filled it before."""
    with small_disk(folder) as made:
        with contextlib.suppress(OSError):
            (Path(made["disk"]) / "theirs").write_bytes(bytes(16 << 20))
        yield made


class _Registry(BaseHTTPRequestHandler):
    status = 503

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class calls it
        """Tests print nothing."""


class _Empty(_Registry):
    status = 404


@contextlib.contextmanager
def registry(_: Path, handler: type[_Registry] = _Registry) -> Generator[Mapping[str, str]]:
    """A registry that answers 503 to everything."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield {"registry": f"127.0.0.1:{server.server_address[1]}"}
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def empty_registry(folder: Path) -> contextlib.AbstractContextManager[Mapping[str, str]]:
    """A registry that knows no image."""
    return registry(folder, _Empty)
