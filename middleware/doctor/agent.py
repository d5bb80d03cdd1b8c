"""What `run` would do for one command: whether it is there, whose settings beat the environment, what would be set.

In: an environment, the settings in force, a command.  Out: findings.  No door is opened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence

from fairtrial.middleware.core import config
from fairtrial.middleware.core.errors import UsageError
from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.doctor.findings import Finding
from fairtrial.middleware.relay import docker_upstream, settings_files
from fairtrial.middleware.relay.environment import TraceContext, Wishes, child_environment, plan_doors
from fairtrial.middleware.report.words import printable


def require(environ: Mapping[str, str], command: Sequence[str]) -> None:
    """Raises `UsageError` when the command could not be started: the screen would be about nothing."""
    if not command or _started(environ, command) is not None:
        return
    name = printable(command[0])
    if not os.path.exists(command[0]):
        where = "there is no such file" if os.sep in command[0] else "it is no command on PATH, no file and no folder"
        raise UsageError(
            f"{name} was not found: {where}.",
            remedy="Check its spelling, or leave it out: `fairtrial doctor` alone tells of this machine.",
        )
    # Files and folders alone would have been read; something behind this one is neither.
    folder = os.path.isdir(command[0])
    other = next((word for word in command[1:] if not os.path.exists(word)), None)
    what = f"{name} is a {'folder' if folder else 'file that cannot be executed'}"
    what += "." if other is None else f", and {printable(other)} is no file and no folder."
    start = "" if folder else f" If it is the command: chmod +x {name}"
    raise UsageError(what, remedy=f"To have files and folders read, name nothing else.{start}")


def command_finding(environ: Mapping[str, str], command: Sequence[str]) -> Iterator[Finding]:
    """Where the command is."""
    if command:
        yield Finding("command", "ok", _started(environ, command) or command[0])


def _started(environ: Mapping[str, str], command: Sequence[str]) -> str | None:
    """The program that would be started."""
    return shutil.which(command[0], path=environ.get("PATH"))


def changes(environ: Mapping[str, str], settings: config.Config, command: Sequence[str]) -> Iterator[Finding]:
    found = settings_files.inspect(command, environ, os.getcwd(), reader=docker_upstream.read_text)
    for note in found.sentences(adapt=False):
        yield Finding("settings file", "partial", note.text)
    plan = plan_doors(environ, Wishes(upstreams=settings.upstreams, routes=settings.routes, leave=found.leave))
    led = [
        f"{' = '.join(pointer.variable for pointer in door.pointers)} → {mask_url(door.origin)}" for door in plan.doors
    ]
    if led:
        yield Finding("run would set", "ok", f"{', '.join(led)}, each through a door")
    beside = child_environment(
        environ,
        plan,
        # Any address: only the names of what differs are read.
        {door.name: "http://127.0.0.1:1/t/door" for door in plan.doors},
        trial="trial",
        run=None,
        trace=TraceContext("1" * 32, "1" * 16),
    )
    doors = {pointer.variable for door in plan.doors for pointer in door.pointers}
    names = [m.what.removeprefix("environment ") for m in beside.mutations]
    others = ", ".join(name for name in names if name not in doors)
    yield Finding("run would set", "ok", f"{others} (`fairtrial run --verbose` shows old and new)")
    for joined in plan.joined:
        yield Finding("run would keep", "ok", f"{joined.variable}: it points to a door of the run around this one")
    for note in (*plan.notes, *beside.notes):
        yield Finding("note", "partial", note.text)
