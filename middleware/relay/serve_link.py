"""The observer of a `serve`: started again as often as it dies, with a pause that grows, and told when all is over.

In: the first process, how to start another, the HELLO.  Out: what it last said of itself, and for how long it is gone.
What this module does not do: touch traffic.  While no observer is there the feed keeps what fits and counts the rest.

`fairtrial run` restarts its observer once (`observer_link.py`), because a trial has an end; a service goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

from fairtrial.middleware.core import clock
from fairtrial.middleware.relay.observer_link import ObserverLink
from fairtrial.middleware.relay.saying import say
from fairtrial.middleware.wire import feed as wire

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 30.0
_DONE: Final = "exit code 0"
STEADY_S: Final = 60.0
"""An observer that lived so long was no failed start: the next pause is a short one again."""
SILENT_S: Final = 30.0
"""It says something every few seconds; so long without a word, it hangs."""
HUNG_S = 90.0
"""So long without a word it is killed, and started again as if it had died."""
LOOK_S = 10.0
"""How often that is looked at; it must be so twice, since we may have been stopped together."""


TROUBLES: Final = ("store", "metrics")
"""Words of a STATUS that say what is wrong; None while nothing is."""


class ServeLink(ObserverLink):
    """See the module; constructed as an `ObserverLink`."""

    _pauses = 0
    _since_ns = 0
    _heard_ns = 0
    _ever_ready = False
    _retry: asyncio.TimerHandle | None = None
    _look: asyncio.TimerHandle | None = None
    _hung = 0
    _said: frozenset[str] = frozenset()
    introduce: Callable[[], bytes] = bytes
    """Gives the records that tell a successor of the connections that are open."""
    status: dict[str, object] = {}
    """Its newest STATUS."""

    @property
    def ever_ready(self) -> bool:
        """Whether an observer ever answered."""
        return self._ever_ready

    def begin(self) -> None:
        """As `ObserverLink.begin`; from now on a process that hangs is ended."""
        super().begin()
        self._look = self._loop.call_later(LOOK_S, self._look_after_it)

    def _look_after_it(self) -> None:
        self._look = self._loop.call_later(LOOK_S, self._look_after_it)
        silent = self._pid is not None and self._ready and clock.mono_ns() - self._heard_ns > HUNG_S * 1e9
        self._hung = self._hung + 1 if silent else 0
        if silent and self._hung > 1 and self._pid is not None:
            say(f"the observer process has said nothing for {HUNG_S:g} s and is ended")
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def report(self) -> dict[str, object]:
        """How it is, for the health endpoints: state is starting | up | silent | down."""
        now_ns = clock.mono_ns()
        if not self.alive:
            state = "down"
        elif not self._ready:
            state = "starting"
        else:
            state = "silent" if now_ns - self._heard_ns > SILENT_S * 1e9 else "up"
        said: dict[str, object] = {"state": state, "deaths": self._restarts}
        if self._died_how is not None:
            said["last_death"] = self._died_how
        if state == "down" and self._died_ns is not None:
            said["down_s"] = round((now_ns - self._died_ns) / 1e9, 1)
        return said | ({"last_status": self.status} if self.status else {})

    async def stop(self, ended: dict[str, object], timeout_s: float) -> bool:
        """No more traffic: let it close its trials and hand over its traces; False when it was not done in time."""
        if not self.alive:
            self._try_again()
        self._ending = True
        for timer in (self._retry, self._look):
            if timer is not None:
                timer.cancel()
        self._feed.record_json(wire.Kind.BYE, ended)
        self._feed.flush_now()
        deadline_ns = clock.mono_ns() + int(timeout_s * 1e9)
        while self.alive and not self._hurried and (left_s := (deadline_ns - clock.mono_ns()) / 1e9) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)
        done = not self.alive and self._died_how == _DONE
        self.close()
        return done

    # --- how it works -----------------------------------------------------------------------------------------------

    def _reminder(self) -> bytes:
        return self.introduce()

    def _hear(self, record: wire.Record) -> None:
        self._heard_ns = clock.mono_ns()
        if record.kind == wire.Kind.STATUS:
            self.status = record.json()
            self._say_troubles()
            return
        super()._hear(record)
        if record.kind == wire.Kind.READY:
            self._ever_ready, self._since_ns = True, clock.mono_ns()

    def _say_troubles(self) -> None:
        """Each once, when it first comes: whoever reads the journal does not ask the health page."""
        for name in TROUBLES:
            trouble = self.status.get(name)
            if trouble and str(trouble) not in self._said:
                self._said |= {str(trouble)}
                say(str(trouble))

    def _lost(self, how: str) -> None:
        steady = self._since_ns and clock.mono_ns() - self._since_ns > STEADY_S * 1e9
        self._since_ns = 0
        self._gone(how)
        if self._ending:
            return
        self._restarts += 1
        self._pauses = 0 if steady else self._pauses
        self._again_later()

    def _again_later(self) -> None:
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**self._pauses)
        self._pauses = min(self._pauses + 1, 16)
        say(f"the observer process died ({self._died_how}); traffic goes on, it is started again in {pause_s:g} s")
        self._retry = self._loop.call_later(pause_s, self._try_again)

    def _try_again(self) -> None:
        if self._ending or self.alive:
            return
        self._again({"resumed": True}, "observer.restarted")
        if not self.alive:
            self._again_later()
