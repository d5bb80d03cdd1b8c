"""A connection changes its upstream: hold what names another, end the one in use, dial anew.

In: request events of a door whose requests name their upstreams (`Route.lead`).  Out: each to its own upstream, in the
order in which they came.  The change happens behind the last response, so that no byte of two upstreams is ever mixed.
What waits, and for whom, is told by `switch.py`.
"""

from __future__ import annotations

from fairtrial.middleware.relay.endings import Endings
from fairtrial.middleware.relay.framing import ResponseFramer
from fairtrial.middleware.relay.pair import UPSTREAM_FLUSH_S, Pause
from fairtrial.middleware.relay.switch import Queue


class Switching(Endings):
    """Hold and switch: each request to the upstream that it names."""

    __slots__ = ()

    def _pass_queue(self, queue: Queue) -> None:
        """What is for the upstream in use passes; the rest waits until the responses before it have ended."""
        while True:
            for event, t_ns in queue.run():
                self._pass_requests([event], t_ns)
                if self._refusing is not None or self._client.closed:
                    return
            if queue.waiting_for is None:
                self._resume(Pause.SWITCH)
                if self._eof_pending and self._upstream is not None:
                    self._upstream.finish()
                return
            if queue.in_use is not None:
                break
            queue.in_use = self._dialler = queue.waiting_for
        if queue.held_bytes > self._settings.held_bytes or queue.framing_ended:
            self._pause(Pause.SWITCH)
        self._switch_soon()

    def _may_switch(self) -> bool:
        """A request waits for another upstream, and nothing of the one in use is still to come."""
        return (
            self._queue is not None
            and self._queue.waiting_for is not None
            and self._responses.idle
            and not (self._tunnel or self._up_blind or self._down_blind)
            and self.account.first is None
        )

    def _switch_soon(self) -> None:
        """Not within a handler of the upstream that is to be left."""
        if not self._switching and self._may_switch():
            self._switching = True
            self._loop.call_soon(self._guard(self._leave))

    def _leave(self) -> None:
        """FIN to the upstream in use, then a dial to the one that the next request names."""
        upstream = self._upstream
        if not self._may_switch():
            self._switching = False
        elif upstream is None:
            self._left()
        else:
            upstream.release()
            upstream.on_closed = self._guard(self._left)
            upstream.finish_and_close(UPSTREAM_FLUSH_S)

    def _left(self) -> None:
        queue = self._queue
        self._switching = False
        if queue is None or self.account.first is not None:  # the pair has ended meanwhile
            self._closed()
            return
        assert queue.waiting_for is not None
        self._upstream = None
        queue.in_use = self._dialler = queue.waiting_for
        self._responses = ResponseFramer(docker=self._route.policy.docker)
        self.account.unblocked("upstream", self._msg)
        self._resume(Pause.UPSTREAM_FULL | Pause.UPSTREAM_DEAD)
        self._pass_queue(queue)
