"""Scenes of what holds a trial up outside its model calls: late starts, pulls, the CPU limit."""

from __future__ import annotations

from fairtrial.middleware.core.observations import DoorContainer, DoorExec, DoorImage
from tests.middleware.attribution.scene import BOX, Scene

IDLE: dict[str, object] = {"cpu_used": 1.0, "cpu_throttled": 0.0, "psi_cpu": 0.0, "memory_max_hits": 0}


def boxed() -> Scene:
    told = Scene()
    told.also |= IDLE
    return told.read("baseline")


def dispatched(told: Scene, delay: float, *, then: float = 0.5, **facts: object) -> Scene:
    """A command whose start the engine answered so late, as the Docker door tells it at the command's end."""
    at = told.wall()
    told.s += delay + then
    fields: dict[str, object] = {
        "exec_id": told.name("exec"),
        "container_id": BOX,
        "started_wall_ns": at,
        "dispatch_delay": delay,
        "duration": delay + then,
        "status": 200,
        "ended_by": "process",
    }
    told.tell(DoorExec(**(fields | facts)), told.events)  # type: ignore[arg-type]
    return told


def pulled(told: Scene, length: float, **facts: object) -> Scene:
    at = told.wall()
    told.s += length
    fields: dict[str, object] = {"image": "img", "status": 200, "duration": length, "started_wall_ns": at}
    told.tell(DoorImage(**(fields | facts)), told.events)  # type: ignore[arg-type]
    return told.waited(0.1)


def made(told: Scene, length: float, action: str = "create", **facts: object) -> Scene:
    at = told.wall()
    told.s += length
    fields: dict[str, object] = {"action": action, "status": 201, "duration": length, "started_wall_ns": at}
    told.tell(DoorContainer(**(fields | facts)), told.events)  # type: ignore[arg-type]
    return told.waited(0.1)


def throttled(told: Scene, length: float, *, counted: float, **moved: object) -> Scene:
    """Tool work of so many seconds, after which the box's counter had moved so far."""
    told.s += length
    told.also |= {"cpu_throttled": float(str(told.also["cpu_throttled"])) + counted} | moved
    return told.read("change")
