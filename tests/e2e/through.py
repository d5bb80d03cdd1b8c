"""A Docker door of the relay in front of a real engine, and the docker command pointed at it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import DoorContainer, DoorExec, Host, Observation, decode
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.relay.bridge import Bridge
from fairtrial.middleware.relay.bridge_front import BridgeFront
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.docker import DockerDoor
from fairtrial.middleware.relay.relay import unix_listener
from fairtrial.middleware.relay.settings import Upstream
from fairtrial.middleware.wire.docker import DockerTracker
from tests.middleware.relay.rig import TOKEN, Rig, UpstreamSide

LIMIT_S = 60.0


class Through:
    """The docker command, pointed at a door."""

    def __init__(self, rig: Rig, door: DockerDoor, image: str, box: str) -> None:
        self.rig = rig
        self.door = door
        self.image = image
        self.box = box

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["docker", "--host", self.door.url, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def docker(self, *arguments: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Exit status, output, errors; without `stdin` it is /dev/null."""
        process = self.start(*arguments, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE)
        try:
            out, err = process.communicate(stdin, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, out, err

    def seen(self) -> list[DoorExec | DoorContainer]:
        """What the observer makes of all that has passed."""
        kept: list[Observation] = []
        tracker = DockerTracker(
            Source("door.docker", kept.append, host=Host()), trial="trial-1", at=clock.Instant(10**18, 0)
        )
        for record in tuple(self.rig.observer.records):
            tracker.take(record)
        assert tracker.faults == 0, tracker.last_fault
        return [value for value in map(decode, kept) if isinstance(value, DoorExec | DoorContainer)]

    def execs(self) -> list[DoorExec]:
        """Execs whose stream has ended."""
        return [value for value in self.seen() if isinstance(value, DoorExec)]


def open_door(rig: Rig, upstream: Upstream, listener: socket.socket) -> DockerDoor:
    def make(upstream: Upstream, dialler: Dialler, listener: socket.socket) -> DockerDoor:
        door = DockerDoor(upstream, dialler, listener, "trial-1")
        # As in a run: every request that makes a container or an exec is held until its body was looked at.
        door.editor = BridgeFront(
            [rig.door.port],
            lambda: Bridge(
                rig.relay, door, [rig.door], lambda _: TOKEN, tell_mutation=lambda _: None, tell_note=lambda *_: None
            ),
        )
        return door

    opened = rig.in_loop(lambda: rig.relay.open_door(upstream, listener, make))
    assert isinstance(opened, DockerDoor)
    return opened


@contextlib.contextmanager
def door_to(upstream: Upstream, folder: Path, *, image: str = "", box: str = "") -> Iterator[Through]:
    """A door on a unix socket; at the end no pair may be open."""
    side = UpstreamSide()  # the rig's own model door leads there; nobody uses it
    rig = Rig("uvloop", side)
    try:
        yield Through(rig, open_door(rig, upstream, unix_listener(str(folder / "docker.sock"))), image, box)
        rig.no_pair_open()
    finally:
        rig.close()
        side.close()
