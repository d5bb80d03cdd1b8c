"""Scenes of containers for the rules of the runtime: the model's commands run inside, and what the engine tells."""

from __future__ import annotations

from fairtrial.middleware.core.observations import (
    ContainerEvent,
    ContainerGone,
    ContainerSeen,
    DoorContainer,
    ExecEnded,
    ExecStarted,
    RuntimeState,
    ToolUse,
)
from tests.middleware.attribution.scene import BOX, Scene

SERVICE = "5e" * 32
COMPOSE = {"com.docker.compose.project": "task", "com.docker.compose.service": "main"}


def seen(told: Scene, container_id: str = BOX, **facts: object) -> Scene:
    """As it was seen now, in a life that began now."""
    fields: dict[str, object] = {
        "container_id": container_id,
        "name": "task-1" if container_id == BOX else "other-1",
        "init_pid": round(told.s * 1000) + 1,
        "started_wall_ns": told.wall(),
        "own_pid_namespace": True,
    }
    told.tell(ContainerSeen(**(fields | facts)), told.events)  # type: ignore[arg-type]
    return told


def inside(told: Scene, *, exit_code: int | None = 0, ends: bool = True, box: str = BOX) -> Scene:
    """A reply whose command the harness runs in the box, word for word."""
    name = told.name("text")
    told.call(tool_calls=[ToolUse(id=name, name="bash", text_digest=name)])
    told.tell(ExecStarted(container_id=box, exec_id=name, pid=9, text_digest=name), told.events)
    told.waited(0.5)
    if ends:
        told.tell(ExecEnded(container_id=box, exec_id=name, exit_code=exit_code), told.events)
        told.waited(0.1)
    return told


def gone(
    told: Scene, container_id: str = BOX, *, code: int | None = 137, by: str = "unknown", **facts: object
) -> Scene:
    """Its end, as the engine and its first process's wait status tell it."""
    fields: dict[str, object] = {"container_id": container_id, "exit_code": code, "ended_by": by}
    told.tell(ContainerGone(**(fields | facts)), told.events)  # type: ignore[arg-type]
    return told.waited(0.1)


def event(told: Scene, action: str, container_id: str = BOX, *, signal: int | None = None) -> Scene:
    told.tell(ContainerEvent(container_id=container_id, action=action, signal=signal), told.events)
    return told.waited(0.01)


def engine(told: Scene, state: str, *, restarted: bool | None = None) -> Scene:
    told.tell(RuntimeState(state=state, restarted=restarted), told.events)  # type: ignore[arg-type]
    return told.waited(0.1)


def asked(told: Scene, action: str, container_id: str = BOX, *, status: int | None = 204, **facts: object) -> Scene:
    """A request of the trial's own at its Docker door, answered now."""
    fields: dict[str, object] = {"action": action, "container_id": container_id, "status": status, "duration": 0.1}
    told.tell(DoorContainer(**(fields | {"started_wall_ns": told.wall()} | facts)), told.events)  # type: ignore[arg-type]
    return told.waited(0.05)


def failed(told: Scene) -> Scene:
    """The agent goes on in vain and gives up."""
    return told.waited().call(tools=0).end(1)
