"""What went through the Docker door: execs, containers, images.

What all of them share is said in the package. In: nothing.  Out: typed values, one struct an observation kind.
**Source:** design page RECORDS.md.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from fairtrial.middleware.core.observations.base import Value


class DoorExec(Value, frozen=True, kw_only=True):
    """One exec as the Docker door saw it pass; written when its stream ended.

    `dispatch_delay` is from the start request to the engine's answer, `duration` from that request to the stream's end;
    bytes are what the process wrote (`raw`: a terminal, or text of the engine's own) and what was sent to it.
    """

    kind: ClassVar[str] = "door.exec"
    exec_id: str
    container_id: str | None = None
    """Only where the client named the container by its whole id: nothing joins by name."""
    command: list[str] | None = None
    """Its words, secrets masked and free text as its length (`core/masking.mask_command`)."""
    text_digest: str | None = None
    typed_digest: str | None = None
    """Of the keys, where it types into a terminal (`core.commands.typed_text`)."""
    plumbing: bool | None = None
    tty: bool | None = None
    detached: bool | None = None
    status: int | None = None
    """HTTP status of the start request."""
    error: str | None = None
    """As in `DoorContainer`."""
    started_wall_ns: int | None = None
    dispatch_delay: float | None = None
    created_wall_ns: int | None = None
    """When the client asked for it to be made, before it asked for its start."""
    create_delay: float | None = None
    """From that request to the engine's answer."""
    duration: float | None = None
    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    raw: int | None = None
    ended_by: Literal["process", "client", "engine", "fairtrial"] | None = None
    """Who ended the stream: the process (an ordinary end), a client that left, an engine that broke off, or we."""


class DoorContainer(Value, frozen=True, kw_only=True):
    """The trial's own client asked the engine for something that makes, ends or holds up a container."""

    kind: ClassVar[str] = "door.container"
    action: str
    """create | start | attach | kill | stop | restart | pause | unpause | remove | wait"""
    container_id: str | None = None
    container_named: str | None = None
    """What the request called it, where that is no whole id."""
    status: int | None = None
    signal: str | None = None
    error: str | None = None
    """What kind of refusal the engine's message tells (`wire/docker_errors.py`); None: none was told."""
    exit_code: int | None = None
    """Of `wait`."""
    duration: float | None = None
    started_wall_ns: int | None = None
    """When the request came."""
    command: list[str] | None = None
    """Of `create`, as in `DoorExec`."""
    text_digest: str | None = None
    """Of `create`: of the last word of what it will run, to join with a tool call."""
    stdin: int | None = None
    """Of `attach`, as in `DoorExec`."""
    stdout: int | None = None
    stderr: int | None = None
    raw: int | None = None
    ended_by: Literal["process", "client", "engine", "fairtrial"] | None = None


class DoorImage(Value, frozen=True, kw_only=True):
    """The trial's own client had the engine pull an image."""

    kind: ClassVar[str] = "door.image"
    image: str | None = None
    """Its name as asked for, without a digest's or a credential's text."""
    status: int | None = None
    error: str | None = None
    """As in `DoorContainer`; None: it was pulled, or the answer was not seen whole."""
    duration: float | None = None
    started_wall_ns: int | None = None
