"""The Docker door of one run, from its opening until it is known whether there is an engine behind it.

In: what the environment says about engines.  Out: a door that the command is sent to, or none and a note that says why.
Nothing of this may keep the command from its engine: what fails leaves DOCKER_HOST as it is.  And nothing keeps it
waiting: the engine is asked while the rest of the run is made ready.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fairtrial.middleware.relay import runtime_dir
from fairtrial.middleware.relay.environment import Mutation, Note
from fairtrial.middleware.relay.model import ModelDoor
from fairtrial.middleware.relay.prepare import Prepared
from fairtrial.middleware.relay.relay import Relay, unix_listener
from fairtrial.middleware.wire.feed import Kind

if TYPE_CHECKING:
    from fairtrial.middleware.relay.docker import DockerDoor
    from fairtrial.middleware.relay.route import Editor

_NEAR_S: Final = 0.02
"""How long the command waits for an engine that is reached to answer a ping."""
_FAR_S: Final = 0.25
"""And for one that is not reached yet."""


class EngineDoor:
    """`open` it first, `settle` it last; then `mutations` and `notes` tell, and containers may be let in."""

    def __init__(self, relay: Relay, prepared: Prepared) -> None:
        self.mutations: tuple[Mutation, ...] = ()
        self.notes: list[Note] = []
        self._relay = relay
        self._prepared = prepared
        self._path = os.path.join(prepared.runtime.path, runtime_dir.DOCKER_SOCKET)
        self._asked: tuple[DockerDoor, asyncio.Task[str | None]] | None = None
        self._door: DockerDoor | None = None
        """The open door, once it is settled that it stays."""
        self._inode: tuple[int, int] | None = None

    def open(self) -> None:
        """Open the door to the engine that the command would use, and begin to ask whether that engine is there."""
        prepared = self._prepared
        found = prepared.docker
        if found.url is None or not prepared.config.run.docker_door:
            return
        if found.outer_door is not None:
            self.notes.append(Note("docker.joined", f"DOCKER_HOST is the outer run's door {found.outer_door}."))
            return
        from fairtrial.middleware.relay import docker  # late: most commands run where no engine is named

        try:
            upstream = docker.upstream_of(found)
            door = self._relay.open_door(
                upstream,
                unix_listener(self._path),
                lambda upstream, dialler, listener: docker.DockerDoor(upstream, dialler, listener, prepared.trial),
            )
        except (OSError, ValueError) as error:
            self.notes.append(Note("docker.no_door", f"The Docker door could not be opened: {error}", say=True))
            return
        self._inode = self._at_path()
        self._asked = door, asyncio.get_running_loop().create_task(door.ping(), name="engine-ping")

    async def settle(self) -> dict[str, object] | None:
        """The engine behind the door, for those who run inside; None when the command keeps the way that it has.

        An engine that is reached and slow keeps its door: the command waits there as it would at the engine itself.
        """
        if self._asked is None:
            return None
        door, ping = self._asked
        await asyncio.wait([ping], timeout=_NEAR_S)
        if not (ping.done() or door.reached):
            await asyncio.wait([ping], timeout=_FAR_S)
        silent: str | None = None
        if ping.done():
            try:
                silent = ping.result()
            except Exception as error:  # noqa: BLE001 - no fault of ours may keep the command from its engine
                silent = f"{type(error).__name__}: {error}"
        else:
            ping.cancel()
            if not door.reached:
                silent = f"no connection in {_FAR_S:g} s"
        if silent is not None:
            self._relay.close_door(door)
            os.unlink(self._path)
            self.notes.append(Note("docker.no_door", f"No Docker door: the engine does not answer ({silent})."))
            return None
        from fairtrial.middleware.relay import docker

        self._door = door
        found = self._prepared.docker
        self.mutations = docker.child_changes(self._prepared.environ, door.url, found)
        return found.record()

    def lost(self) -> Note | None:
        """A word about a door whose socket somebody took away meanwhile: who came later met no engine."""
        if self._door is None or self._inode is None or self._at_path() == self._inode:
            return None
        text = f"The Docker door's socket {self._path} was gone before the command ended: nothing reached the engine."
        return Note("docker.door_lost", text, say=True)

    def _at_path(self) -> tuple[int, int] | None:
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def let_containers_in(self, doors: Sequence[ModelDoor]) -> None:
        """Let agents in containers reach these doors, if there is a Docker door through which they are made."""
        if self._door is None or not self._prepared.config.run.bridge_door:
            return
        from fairtrial.middleware.relay.bridge_front import BridgeFront

        relay, engine, token = self._relay, self._door, self._prepared.token

        def make() -> Editor:
            from fairtrial.middleware.relay.bridge import Bridge

            feed = relay.feed
            return Bridge(
                relay,
                engine,
                doors,
                lambda _container: token,
                tell_mutation=lambda mutation: feed.record_json(Kind.MUTATION, mutation.record()),
                tell_note=lambda event, text: feed.record_json(Kind.NOTE, {"event": event, "text": text}),
            )

        engine.editor = BridgeFront([door.port for door in doors if door.port], make)
