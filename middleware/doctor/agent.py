"""What `run` would do for one command: whether it is there, whose settings beat the environment, what would be set.

In: an environment, the settings in force, a command.  Out: findings.  No door is opened.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence

from fairtrial.middleware.core import config
from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.doctor.findings import Finding
from fairtrial.middleware.relay import docker_upstream, settings_files
from fairtrial.middleware.relay.environment import TraceContext, Wishes, child_environment, plan_doors


def command_finding(environ: Mapping[str, str], command: Sequence[str]) -> Iterator[Finding]:
    if not command:
        return
    found = shutil.which(command[0], path=environ.get("PATH"))
    if found is None:
        there = os.path.exists(command[0]) and os.sep in command[0]
        what = "cannot be executed" if there else "was not found"
        yield Finding("command", "no", f"{command[0]} {what}", "check its spelling and PATH")
    else:
        yield Finding("command", "ok", found)


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
