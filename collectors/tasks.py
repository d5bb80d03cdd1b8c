"""Short pieces of asynchronous work that nobody awaits: kept alive, counted, and their failure said.

In: coroutines.  Out: nothing but a note when one failed; the others go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine

from fairtrial.middleware.core.observations import Note
from fairtrial.middleware.core.sink import Source


class Tasks:
    """A task without a reference can be collected while it waits, so they are held here."""

    def __init__(self, source: Source, prefix: str) -> None:
        self._source = source
        self._prefix = prefix
        self._open: set[asyncio.Task[None]] = set()
        self.active_ns = time.monotonic_ns()
        """When the last one ended, or something else happened that was told by `touch`."""

    def __len__(self) -> int:
        return len(self._open)

    def touch(self) -> None:
        """Something happened now."""
        self.active_ns = time.monotonic_ns()

    def spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        """Begin it; returns at once."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._prefix}-{name}")
        self._open.add(task)
        task.add_done_callback(self._done)

    def cancel(self) -> None:
        """End them all; safe to call twice."""
        for task in self._open:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self.touch()
        if not task.cancelled() and (error := task.exception()) is not None:
            text = f"{task.get_name()}: {type(error).__name__}: {error}"[:300]
            self._source.emit(Note(event="collector_failed", text=text))
