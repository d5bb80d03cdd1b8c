"""The control API of a run, opened late: what a trial may say of itself (`observer/control.py`).

In: the socket that the run process listens on, and the token of the HELLO.  Out: observations of trust `inside`.  A
fault in it ends nothing but itself.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from fairtrial.middleware.core.hello import Hello
from fairtrial.middleware.core.observations import Host
from fairtrial.middleware.core.selfevents import CollectorFailed, Journal
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.observer.book import TrialBook

if TYPE_CHECKING:
    from fairtrial.middleware.observer.control import ControlPage


class RunControl:
    """The control API of one run; without a token or a `listener`, and under `close_only`, there is none."""

    def __init__(
        self, hello: Hello, book: TrialBook, journal: Journal, *, host: Host, listener: socket.socket | None
    ) -> None:
        self._hello = hello
        self._book = book
        self._journal = journal
        self._host = host
        self._listener = listener
        self._control: ControlPage | None = None
        self._opening: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Open it beside what goes on."""
        hello = self._hello
        if hello.control is not None and not hello.close_only and self._listener is not None:
            opening = self._open_control(hello.control, self._listener)
            self._opening = asyncio.get_running_loop().create_task(opening, name="control")

    async def _open_control(self, token: str, listener: socket.socket) -> None:
        """Whoever asked before this waits in the socket's queue."""
        # Late: most runs have no control API, and the packages that it needs cost a moment.
        from fairtrial.middleware.observer.control import SOURCE, ControlPage

        trial = self._hello.trial
        try:
            source = Source(SOURCE, self._book.take, host=self._host, trial=trial)
            self._control = ControlPage(trial, token, source, begun_ns=self._hello.wall_ns)
            await self._control.open(listener)
        except Exception as error:  # noqa: BLE001 - nothing else depends on it
            self._journal.note(CollectorFailed(label="control", detail=repr(error)))
            listener.close()

    def shut(self) -> None:
        """Take no more words: the trial is over."""
        if self._control is not None:
            self._control.shut()

    async def close(self) -> None:
        """Let go of the socket."""
        if self._opening is not None:
            await self._opening
        if self._control is not None:
            await self._control.close()
