"""How a pair ends: what the ending of one side means for the other, and that both end.

In: the endings that the two links report.  Out: the same endings on the other side, and who was first, for the account.
The rules are DESIGN section 3, "Ends"; every handler below names the one that it carries out.  Whatever raises in here
closes both sides (`_fault`): a pair is never left half alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from fairtrial.middleware.relay.pair import UPSTREAM_FLUSH_S, PairState, Pause
from fairtrial.middleware.wire.feed import Kind

_JSON: Final = {True: b"true", False: b"false", None: b"null"}


class Endings(PairState):
    """The rules for ends."""

    __slots__ = ()

    # ------------------------------------------------------------------ faults of ours

    def _guard(self, act: Callable[..., None]) -> Callable[..., None]:
        def guarded(*args: object) -> None:
            try:
                self.catch_up()
                act(*args)
            except Exception as error:  # noqa: BLE001 - outermost frame: a fault of ours ends the pair, and is counted
                self._fault(error)

        return guarded

    def _fault(self, error: Exception) -> None:
        self._relay.swallow(error)
        self._note_first("fairtrial", "abort", None, f"{type(error).__name__}: {error}")
        self._abort()

    # ------------------------------------------------------------------ back-pressure

    def _client_blocked(self) -> None:
        self.account.blocked("client")
        if self._upstream is not None:
            self._upstream.pause()

    def _client_drained(self) -> None:
        self.account.unblocked("client", self._msg)
        if self._upstream is not None:
            self._upstream.resume()

    def _upstream_blocked(self) -> None:
        self.account.blocked("upstream")
        self._pause(Pause.UPSTREAM_FULL)

    def _upstream_drained(self) -> None:
        self.account.unblocked("upstream", self._msg)
        self._resume(Pause.UPSTREAM_FULL)

    # ------------------------------------------------------------------ ends of the client

    def _client_eof(self, _ragged: bool) -> None:
        self._edit_no_more("its client sends no more")
        upstream = self._upstream
        if upstream is not None and upstream.read_ended:  # the second EOF closes both
            self._note_first("client", "fin", None, None)
            self._settle()
            upstream.finish_and_close(UPSTREAM_FLUSH_S)
            self._client.finish_and_close()
        elif self._tunnel or self._up_blind:
            if self._route.policy.client_eof == "unix" and self._client.vanished():
                self._client_left()
            else:  # half-close is forwarded
                self._half_close()
        elif self.idle or (upstream is None and self._dial_task is None and not self._queued_bytes):
            self._note_first("client", "fin", None, None)
            if upstream is not None:
                upstream.finish_and_close(UPSTREAM_FLUSH_S)
            self._client.finish_and_close()
        elif self._route.policy.client_eof == "gone" or self._refusing is not None or self._client.vanished():
            self._client_gone("fin", None, None)
        else:
            self._half_close()

    def _half_close(self) -> None:
        if self._tunnel or self._up_blind:  # elsewhere a half-close is no ending
            self._note_first("client", "fin", None, "half-close")
        if self._upstream is None or self._held_bytes:
            self._eof_pending = True
        else:
            self._upstream.finish()

    def _client_left(self) -> None:
        """A tunnel's client has closed, behind all that it had sent: so does its upstream, behind the same bytes."""
        if self._upstream is None or self._held_bytes:
            self._half_close()
            return
        self._note_first("client", "fin", None, "left")
        self._settle()
        self._upstream.finish_and_close(UPSTREAM_FLUSH_S)
        self._client.close()

    def _client_gone(self, how: str, code: int | None, text: str | None) -> None:
        """Nobody is there to answer: the upstream is aborted at once.  A FIN behind bytes that it does not take would
        not reach it for minutes.
        """
        self._note_first("client", how, code, text)
        self._settle()
        self._cancel_dial()
        upstream = self._upstream
        if upstream is not None:
            if how == "fin" and not upstream.unsent_bytes and not upstream.kernel_unsent():
                upstream.close()
            else:
                upstream.reset()
        self._client.reset()

    def _client_error(self, error: OSError) -> None:
        """RST of the client: at once, but in a tunnel behind what it had sent before."""
        if (self._tunnel or self._up_blind or self._route.policy.client_eof != "gone") and self._upstream is not None:
            self._note_first("client", "rst", error.errno, error.strerror)
            self._settle()
            self._upstream.reset_when_delivered(UPSTREAM_FLUSH_S)
            self._client.close()
        else:
            self._client_gone("rst", error.errno, error.strerror)

    def _client_write_failed(self, error: OSError) -> None:
        if self._tunnel or self._up_blind or self._route.policy.client_eof != "gone":
            self._note_first("client", "rst", error.errno, error.strerror)
            self._client.resume()  # read what it had sent; the error comes behind it
        else:
            self._client_gone("rst", error.errno, error.strerror)

    def _client_hangup(self, code: int | None) -> None:
        """Seen by the watch while the client was not read (paused upload, full dial, held upgrade)."""
        if code is not None:
            self._client_write_failed(OSError(code, "connection reset while not being read"))
        elif self._tunnel or self._up_blind:
            if self._client.read_ended and self._client.vanished():
                self._client_left()
        elif self._route.policy.client_eof == "gone" or self._client.vanished():  # half-closed unix clients stay
            self._client_gone("fin", None, None)

    # ------------------------------------------------------------------ ends of the upstream

    def _upstream_eof(self, ragged: bool) -> None:
        assert self._upstream is not None
        if self._may_switch():  # it was about to be left
            self._switch_soon()
            return
        until_close = not self._tunnel and self._responses.until_close
        if until_close and not ragged:
            end = self._responses.eof()
            if end is not None:
                listens = _JSON[self.account.far_listens()]
                payload = b'{"wire_bytes":%d,"complete":true,"how":"close_delimited","far_listens":%s}' % (
                    end.wire_bytes,
                    listens,
                )
                self._record(Kind.RESPONSE_END, payload, end.msg)
        self._note_first("upstream", "tls_ragged" if ragged else "fin", None, None)
        self._settle()
        if ragged and (until_close or self._tunnel):  # the client could not tell this end from a clean one
            self._upstream.finish_and_close(UPSTREAM_FLUSH_S)
            self._client.reset_when_delivered()
        elif self._client.read_ended:  # the second EOF closes both
            self._upstream.finish_and_close(UPSTREAM_FLUSH_S)
            self._client.finish_and_close()
        else:
            self._client.finish()
            if self._refusing is not None:
                self._upstream.finish_and_close(UPSTREAM_FLUSH_S)
                self._client.finish_and_discard()
            elif not self._tunnel:
                self._arm_half_open()

    def _arm_half_open(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seen = self.account.client_last_ns
        self._timer = self._loop.call_later(self._settings.half_open_s, self._guard(self._half_open_over), seen)

    def _half_open_over(self, seen_ns: int | None) -> None:
        """A client that keeps a connection whose upstream is gone: its kernel would not have kept it either."""
        self._timer = None
        if self._finished:
            return
        upstream = self._upstream
        in_use = (
            self._paused
            or self._client.unsent_bytes
            or (upstream is not None and upstream.unsent_bytes)
            or not (self._up_blind or self._requests.at_boundary)
        )
        if seen_ns == self.account.client_last_ns and not in_use:
            if upstream is not None:
                upstream.finish_and_close(UPSTREAM_FLUSH_S)
            self._client.finish_and_close()
        else:
            self._arm_half_open()

    def _upstream_error(self, error: OSError) -> None:
        """RST → RST, behind everything that the upstream had sent."""
        assert self._upstream is not None
        if self._may_switch():
            self._switch_soon()
            return
        self._note_first("upstream", "rst", error.errno, error.strerror)
        self._settle()
        self._upstream.close()
        self._client.reset_when_delivered()

    def _upstream_write_failed(self, error: OSError) -> None:
        """It takes no more; what it had answered is still read, then the error comes."""
        if self._may_switch():
            self._switch_soon()
            return
        self._note_first("upstream", "rst", error.errno, error.strerror)
        self._pause(Pause.UPSTREAM_DEAD)

    def _upstream_hangup(self, code: int | None) -> None:
        if code is not None:
            self._note_first("upstream", "rst", code, "reset while the client was slow to read")

    # ------------------------------------------------------------------ the end of the pair

    def _settle(self) -> None:
        """Every attempt that cannot complete any more gets its one end, with who failed first."""
        self.catch_up()
        self.account.note_overdue(self._relay.overdue_s())
        if self._open_request:
            self._json(Kind.REQUEST_END, {"wire_bytes": None, "complete": False}, self._open_request)
            self._open_request = 0
        waiting = list(self._responses.fifo)
        self._responses.fifo.clear()
        self.account.responses_cut(waiting, self._responses.wire_bytes)

    def abort(self, text: str) -> None:
        """End both sides now, as fairtrial's doing (shutdown)."""
        self._note_first("fairtrial", "abort", None, text)
        self._abort()

    def retire(self) -> bool:
        """End a connection that carries nothing, to make room; False when a request has just come."""
        if self._client.readable():
            return False
        self.close_idle("ended while idle, since descriptors ran short")
        return True

    def close_idle(self, text: str = "shutdown") -> None:
        """FIN both ways, for a pair that carries nothing."""
        self._note_first("fairtrial", "fin", None, text)
        if self._upstream is not None:
            self._upstream.finish_and_close(UPSTREAM_FLUSH_S)
        self._client.finish_and_close()

    def _abort(self) -> None:
        self._settle()
        self._cancel_dial()
        if self._upstream is not None:
            self._upstream.reset()
        self._client.reset()

    def _cancel_dial(self) -> None:
        if self._dial_task is not None:
            self._dial_task.add_done_callback(self._dial_never_began)
            self._dial_task.cancel()

    def _dial_never_began(self, task: asyncio.Task[None]) -> None:
        """Cancelled in the very turn that made it, a task runs not one line of `_dial`, its `finally` included."""
        if self._dial_task is task:
            self._dial_task = None
            self._closed()

    def _closed(self) -> None:
        """One side is closed for good; the pair is over when both are and no dial runs."""
        upstream = self._upstream
        if self._finished or not self._client.closed:
            if not self._finished and upstream is not None and upstream.closed and self.account.first is None:
                self._fault(RuntimeError("the upstream was closed without a reason"))
            return
        if self._dial_task is not None:
            return
        if upstream is not None and not upstream.closed:
            if not upstream.closing:
                upstream.finish_and_close(UPSTREAM_FLUSH_S)
            return
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
        if self._edits is not None and self._edits.task is not None:
            self._edits.task.cancel()
        self._settle()
        self.account.close(self._msg, self._tunnel)
        self._relay.forget(self)
