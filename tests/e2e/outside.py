"""Somebody outside the trial, who does something to its container while the trial runs: past every door of fairtrial.

In: a real engine, a script of the model's, what to do and when.  Out: the run as fairtrial saw it.  The agent is the
demo's: its commands run by `docker exec` in a container of its own, whose label or name nobody else has.
"""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fairtrial.middleware.demo.script import Step
from fairtrial.middleware.demo.standin import running_standin
from tests.e2e import clients
from tests.e2e.engine import Engine
from tests.e2e.under import Under, run_under

WAIT_S = 60.0


def wait_for(claim: Callable[[], bool]) -> None:
    """Poll until it is so."""
    deadline_s = time.monotonic() + WAIT_S
    while not claim():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not so within {WAIT_S} s")
        time.sleep(0.05)


class Outside:
    """One container of the trial, seen by somebody with the engine's own socket."""

    def __init__(self, engine: Engine, before: set[str]) -> None:
        self.engine = engine
        self._before = before
        self.box = ""

    def find(self) -> str:
        """The trial's container, once it is there and the observer holds a pidfd of its first process.

        What is done before a slow observer has looked, it cannot have seen: that is no test of what it saw.
        """
        wait_for(lambda: bool(set(self.engine.containers()) - self._before))
        (self.box,) = set(self.engine.containers()) - self._before
        wait_for(lambda: held_by_fairtrial(self.init_pid()))
        return self.box

    def has(self, path: str) -> bool:
        """Whether a command of the trial has made this file; asked without an exec."""
        return path in self.engine.docker("diff", self.box, check=False).stdout

    def init_pid(self) -> int:
        """Host pid of its first process."""
        return int(self.engine.docker("inspect", "--format", "{{.State.Pid}}", self.box).stdout)


def held_by_fairtrial(pid: int) -> bool:
    """Whether a process of fairtrial's holds a pidfd of this one (needs root, or its own user)."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"fairtrial" not in (process / "cmdline").read_bytes():
                continue
            held = [one.read_text() for one in (process / "fdinfo").iterdir()]
        except OSError:
            continue  # over, or a descriptor of it
        if any(f"\nPid:\t{pid}\n" in text for text in held):
            return True
    return False


def run_boxed(
    script: Sequence[Step],
    engine: Engine,
    image: str,
    folder: Path,
    *,
    act: Callable[[Outside], None] | None = None,
    agent: Sequence[str] = (),
    **more: str,
) -> Under:
    """The agent on this script; `act` is done beside it, and its failure is the test's."""
    failures: list[BaseException] = []
    outside = Outside(engine, set(engine.containers()))

    def do() -> None:
        try:
            assert act is not None
            act(outside)
        except BaseException as failure:
            failures.append(failure)

    for part in ("home", "project"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    thread = threading.Thread(target=do, name="outside")
    with running_standin(script) as server:
        environment = clients.clean_environment(
            folder / "home", ANTHROPIC_BASE_URL=server.url, DOCKER_HOST=engine.docker_host, **more
        )
        command = [sys.executable, "-m", "fairtrial.middleware.demo.agent", "--image", image, *agent]
        if act is not None:
            thread.start()
        under = run_under(command, environment, folder / "project", kept=folder / "kept")
    if act is not None:
        thread.join(WAIT_S)
    if outside.box:
        engine.docker("rm", "-f", outside.box, check=False)
    assert not failures, f"{failures[0]!r}\n{under.told()}"
    return under


AGENT = (sys.executable, "-m", "fairtrial.middleware.demo.agent")


def run_on_host(script: Sequence[Step], docker_host: str, folder: Path, command: Sequence[str] = AGENT) -> Under:
    """The demo's agent with its tools on the host; `command` may make containers first, as a harness does."""
    for part in ("home", "project"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    with running_standin(script) as server:
        environment = clients.clean_environment(folder / "home", ANTHROPIC_BASE_URL=server.url, DOCKER_HOST=docker_host)
        return run_under(command, environment, folder / "project", kept=folder / "kept")


def with_box(*run: str) -> list[str]:
    """A harness that starts a container (`docker run -d` with these words) and then the agent."""
    started = shlex.join(["docker", "run", "-d", *run])
    return ["sh", "-c", f"{started} >/dev/null && exec {shlex.join(AGENT)}"]
