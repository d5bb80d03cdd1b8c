"""Where the command runs, looked at by the run process until the observer can look for itself.

In: the command's pid.  Out: the text of its /proc/PID/cgroup, each time that it changed.  A wrapper (systemd-run,
cgexec, a shell) moves the command after its start, and on a busy machine a short command is over before the observer
is up: nobody could say afterwards whether an OOM kill was in the command's cgroup or in a stranger's.

What it does not do: read anything else, or go on once the observer is up or the command has ended.  One look is one
small read of /proc, `EVERY_S` apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

EVERY_S: Final = 0.02


class Whereabouts:
    """Looks now and then, until `enough` says so.  `tell` gets the text as the kernel prints it."""

    def __init__(
        self,
        pid: int,
        loop: asyncio.AbstractEventLoop,
        *,
        enough: Callable[[], bool],
        tell: Callable[[str], None],
        proc: str = "/proc",
    ) -> None:
        self._path = f"{proc}/{pid}/cgroup"
        self._loop = loop
        self._enough = enough
        self._tell = tell
        self._seen = ""

    def look(self) -> None:
        """Look once and come again; ends by itself when the process is gone or `enough` is true."""
        try:
            with open(self._path, "rb") as file:
                text = file.read().decode("utf-8", "surrogateescape")
        except OSError:
            return
        if text and text != self._seen and not _all_root(text):
            self._seen = text
            self._tell(text)
        if not self._enough():
            self._loop.call_later(EVERY_S, self.look)


def _all_root(text: str) -> bool:
    """An exiting process is shown in the root of every v1 hierarchy: that is no place where it ran.

    **Source:** kernel/cgroup/cgroup.c, proc_cgroup_show.
    """
    return all(line.split(":", 2)[-1] == "/" for line in text.splitlines() if not line.startswith("0:"))
