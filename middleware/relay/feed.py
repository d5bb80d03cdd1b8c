"""Sends copies and stamps to the observer process, and never makes anybody wait for it.

In: records of `wire/feed.py` from the engine and the supervisor.  Out: one byte stream on a non-blocking unix
socket, handed over about every 2 ms or as soon as 64 KiB are waiting.  The queue is bounded in bytes: when it
is full, body bytes go first (an empty record with `Flag.DROPPED` and the count stays), control records live on
a reserve, and what finds no room at all is counted in a LOST record.  What the socket does not take lies in a
`backlog.py`, off the heap.  Nothing here raises into the engine.  When the observer dies `on_dead` is called
once; `attach` gives a new socket.

`LoopLag` is the relay's suspicion against itself: how late its own loop woke.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final

from fairtrial.middleware.relay.backlog import Backlog
from fairtrial.middleware.wire.feed import HEAD, MAX_PAYLOAD, Flag, Kind, json_bytes, parts_of_whole

FLUSH_S: Final = 0.002
FLUSH_BYTES: Final = 64 * 1024
RESERVE_BYTES: Final = 1024 * 1024
_FULL_S: Final = 0.1
"""How often a full socket is tried besides waiting for the loop, which may not tell of a dead reader twice."""
_BATCH_BYTES: Final = 256 * 1024
_BATCH_PIECES: Final = 1024
"""sendmsg(2) takes no more (UIO_MAXIOV)."""
_pack: Final = HEAD.pack
_HEAD_BYTES: Final = HEAD.size
_MAX_HEAD: Final = 0xFFFF
_WHOLE: Final = int(Flag.WHOLE)
_DROPPED: Final = int(Flag.DROPPED)
_SOCKET_BYTES: Final = 4 * 1024 * 1024
_DATA_KINDS: Final = frozenset((Kind.REQUEST_DATA, Kind.RESPONSE_DATA, Kind.TUNNEL_UP, Kind.TUNNEL_DOWN))
LAG_INTERVAL_S: Final = 0.050
LAG_NOTICED_S: Final = 0.005
_NOTICED_NS: Final = int(LAG_NOTICED_S * 1e9)


@dataclass(slots=True)
class FeedStats:
    """Since the start."""

    sent_bytes: int = 0
    dropped_records: int = 0
    """Data records whose payload was left out."""
    dropped_bytes: int = 0
    lost_records: int = 0
    """Records that are missing altogether."""
    lost_bytes: int = 0
    deaths: int = 0
    swallowed: int = 0


class FeedSender:
    """The sending end of the feed.  `sock` None: keep records (bounded) until `attach`.

    Usable before a loop runs; it begins to send with the first call inside one.
    """

    def __init__(
        self,
        sock: socket.socket | None,
        *,
        limit_bytes: int = 8 * 1024 * 1024,
        on_dead: Callable[[], None] | None = None,
    ) -> None:
        self.stats = FeedStats()
        self._limit = limit_bytes
        self._on_dead = on_dead
        self.before_hand_over: Callable[[], None] | None = None
        """Called when the time to hand over has come, for whoever still has something to say."""
        self._sock: socket.socket | None = None
        self._queue: list[bytes] = []
        """Head and payload of each record in turn, never parted."""
        self._backlog = Backlog()
        """What came before the queue."""
        self._waiting = 0
        self._left = 0
        """How much was waiting after the last hand-over."""
        self._next_look = FLUSH_BYTES
        """So much waiting is reason to look whether to hand over."""
        self._lost_records = 0
        self._lost_bytes = 0
        self._lost_since_ns = 0
        self._lost_until_ns = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_is_slow = False
        self._writing = False
        self._partial: memoryview | None = None
        self._partial_records = 0
        if sock is not None:
            self._take(sock)

    @property
    def waiting_bytes(self) -> int:
        """Queued and not yet taken by the socket."""
        return self._waiting

    @property
    def attached(self) -> bool:
        """Somebody is there to read."""
        return self._sock is not None

    def attach(self, sock: socket.socket) -> None:
        """Send to this socket from now on, beginning at a record's start; the cut record is lost and counted."""
        self.detach()
        self._take(sock)
        self._schedule()

    def detach(self) -> None:
        """Close the socket; records are kept, bounded, for the next one."""
        if self._writing and self._loop is not None and self._sock is not None:
            self._loop.remove_writer(self._sock.fileno())
        self._writing = False
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._partial is not None:  # its head may be gone already: a new reader cannot use the rest
            self._count_lost(self._partial_records, len(self._partial), monotonic_ns())
            self._waiting -= len(self._partial)
            self._partial = None

    def _take(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
        self._sock = sock

    # ------------------------------------------------------------------ records in

    def record(
        self, kind: int, payload: bytes = b"", conn: int = 0, msg: int = 0, flags: int = 0, t_ns: int = 0
    ) -> None:
        """Queue one record; `t_ns` 0 is now.  Never blocks, never raises."""
        try:
            size = len(payload) + _HEAD_BYTES
            now = t_ns or monotonic_ns()
            if self._waiting + size > self._limit or len(payload) > MAX_PAYLOAD:
                if kind in _DATA_KINDS:
                    self.stats.dropped_records += 1
                    self.stats.dropped_bytes += len(payload)
                    payload = len(payload).to_bytes(8, "big")
                    flags |= Flag.DROPPED
                    size = len(payload) + _HEAD_BYTES
                if self._waiting + size > self._limit + RESERVE_BYTES or len(payload) > MAX_PAYLOAD:
                    self._count_lost(1, size, now)
                    return
            if self._lost_records and self._waiting < self._limit:
                self._say_lost()
            self._queue += (_pack(kind, flags, 0, conn, msg, now, len(payload)), payload)
            self._waiting += size
            if self._waiting >= self._next_look or self._timer is None:
                self._schedule()
        except Exception:  # noqa: BLE001 - observing fails open
            self.stats.swallowed += 1

    def record_whole(self, kind: int, wire: bytes, head_bytes: int, conn: int, msg: int, t_ns: int) -> None:
        """Queue a message that came whole, as it came: head, body and end are one record.  Never blocks, never raises.

        `kind` is that of its head.  The bytes are referred to, not copied.
        """
        try:
            waiting = self._waiting + len(wire) + _HEAD_BYTES
            if waiting > self._limit or self._lost_records or head_bytes > _MAX_HEAD:
                self._record_without_room(kind, wire, head_bytes, conn, msg, t_ns)
                return
            self._queue += (_pack(kind, _WHOLE, head_bytes, conn, msg, t_ns, len(wire)), wire)
            self._waiting = waiting
            if waiting >= self._next_look or self._timer is None:
                self._schedule()
        except Exception:  # noqa: BLE001 - observing fails open
            self.stats.swallowed += 1

    def _record_without_room(self, kind: int, wire: bytes, head_bytes: int, conn: int, msg: int, t_ns: int) -> None:
        """A whole message of which not all may find room: its body goes first, as in `record`."""
        if head_bytes > _MAX_HEAD:
            for part in parts_of_whole(kind, 0, head_bytes, conn, msg, t_ns, wire):
                self.record(part.kind, part.payload, conn, msg, 0, t_ns)
            return
        if self._lost_records and self._waiting < self._limit:
            self._say_lost()
        flags = _WHOLE
        body_bytes = len(wire) - head_bytes
        if body_bytes and self._waiting + len(wire) + _HEAD_BYTES > self._limit:
            flags |= _DROPPED
            self.stats.dropped_records += 1
            self.stats.dropped_bytes += body_bytes
            wire = wire[:head_bytes] + body_bytes.to_bytes(8, "big")
        size = len(wire) + _HEAD_BYTES
        if self._waiting + size > self._limit + RESERVE_BYTES:
            self._count_lost(3 if body_bytes else 2, size, t_ns)
            return
        self._queue += (_pack(kind, flags, head_bytes, conn, msg, t_ns, len(wire)), wire)
        self._waiting += size
        if self._waiting >= self._next_look or self._timer is None:
            self._schedule()

    def record_json(
        self, kind: int, value: dict[str, object], conn: int = 0, msg: int = 0, flags: int = 0, t_ns: int = 0
    ) -> None:
        """Queue one record with a JSON object; what JSON does not know is written as its `str`."""
        try:
            payload = json_bytes(value)
        except Exception:  # noqa: BLE001 - observing fails open
            self.stats.swallowed += 1
            return
        self.record(kind, payload, conn, msg, flags, t_ns)

    def _count_lost(self, records: int, size: int, now: int) -> None:
        self.stats.lost_records += records
        self.stats.lost_bytes += size
        if not self._lost_records:
            self._lost_since_ns = now
        self._lost_records += records
        self._lost_bytes += size
        self._lost_until_ns = now

    def _say_lost(self) -> None:
        value = {
            "records": self._lost_records,
            "bytes": self._lost_bytes,
            "since_ns": self._lost_since_ns,
            "until_ns": self._lost_until_ns,
        }
        self._lost_records = self._lost_bytes = 0
        payload = json_bytes(value)
        self._queue += (_pack(Kind.LOST, 0, 0, 0, 0, monotonic_ns(), len(payload)), payload)
        self._waiting += len(payload) + _HEAD_BYTES

    # ------------------------------------------------------------------ bytes out

    def _schedule(self) -> None:
        """Hand over in `FLUSH_S`, at the end of this turn of the loop, or now: by how much has come since the last."""
        if self._sock is None:
            if self._waiting - self._left >= _BATCH_BYTES:
                self._set_aside()
                self._left = self._waiting
            return
        if self._loop is None:
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                return
        if self._timer is None:
            self._timer_is_slow = self._writing
            self._timer = self._loop.call_later(_FULL_S if self._writing else FLUSH_S, self._time_has_come)
        fresh = self._waiting - self._left
        if fresh >= _BATCH_BYTES:
            self.flush_now()
        elif fresh >= FLUSH_BYTES:
            self._next_look = self._left + _BATCH_BYTES
            self._loop.call_soon(self._turn_is_over)

    def _turn_is_over(self) -> None:
        if self._waiting - self._left >= FLUSH_BYTES:
            self.flush_now()

    def will_hand_over(self) -> bool:
        """Whether records are handed over within `FLUSH_S` from now; False while nobody reads, or reads too slowly."""
        if self._writing or self._sock is None:
            return False
        if self._timer is None:
            self._schedule()
        return self._timer is not None

    def _time_has_come(self) -> None:
        self._collect()
        self._timer = None
        self.flush_now()

    def _collect(self) -> None:
        if self.before_hand_over is not None:
            try:
                self.before_hand_over()
            except Exception:  # noqa: BLE001 - observing fails open
                self.stats.swallowed += 1

    def flush_now(self) -> None:
        """Hand over what the socket takes at once; the rest follows when it takes more.

        The timer goes on: to make a new one for each full batch costs more than one vain waking.
        """
        if self._timer is not None and self._timer_is_slow:
            self._timer.cancel()
            self._timer = None
        try:
            self._send()
        except OSError:
            self._died()
        except Exception:  # noqa: BLE001 - observing fails open
            self.stats.swallowed += 1
        if self._writing or self._sock is None:
            self._set_aside()
        self._left = self._waiting
        self._next_look = self._left + FLUSH_BYTES

    def _send(self) -> None:
        sock = self._sock
        if sock is None:
            return
        if self._lost_records and self._waiting < self._limit:
            self._say_lost()
        while self._partial is not None or self._backlog or self._queue:
            batch: Sequence[bytes | memoryview]
            if self._partial is None and self._backlog:
                self._partial, self._partial_records = self._backlog.take()
            if self._partial is not None:
                batch, size = (self._partial,), len(self._partial)
            else:
                batch, size = self._take_batch()
                self._partial_records = len(batch) // 2
            try:
                sent = sock.sendmsg(batch, (), socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                if self._partial is None:  # taken from the queue already: `detach` counts it as lost
                    self._partial = memoryview(b"".join(batch))
                raise
            self._waiting -= sent
            self.stats.sent_bytes += sent
            if sent < size:
                rest = self._partial if self._partial is not None else memoryview(b"".join(batch))
                self._partial = rest[sent:]
                self._want_write(sock)
                return
            self._partial = None
        if self._writing and self._loop is not None:
            self._loop.remove_writer(sock.fileno())
            self._writing = False

    def _take_batch(self) -> tuple[list[bytes], int]:
        """Whole records from the queue, as many as one call sends, and their bytes."""
        queue = self._queue
        if len(queue) <= _BATCH_PIECES and self._waiting <= _BATCH_BYTES:
            self._queue = []
            return queue, self._waiting
        pieces, size = self._batch()
        batch = queue[:pieces]
        del queue[:pieces]
        return batch, size

    def _batch(self) -> tuple[int, int]:
        """How many pieces from the queue's begin are a batch, and their bytes."""
        queue = self._queue
        size = pieces = 0
        while pieces < len(queue) and pieces < _BATCH_PIECES and size < _BATCH_BYTES:
            size += len(queue[pieces]) + len(queue[pieces + 1])
            pieces += 2
        return pieces, size

    def _set_aside(self) -> None:
        """Nobody takes them now: full batches leave the queue, and with it the heap."""
        queued = self._waiting - self._backlog.waiting_bytes - (0 if self._partial is None else len(self._partial))
        while queued >= _BATCH_BYTES or len(self._queue) >= _BATCH_PIECES:
            pieces, size = self._batch()
            try:
                self._backlog.put(self._queue[:pieces], size, pieces // 2)
            except OSError:  # no mapping is to be had: it waits where it is
                return
            del self._queue[:pieces]
            queued -= size

    def _want_write(self, sock: socket.socket) -> None:
        if self._writing:
            return
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # `drain` waits by itself
        self._loop.add_writer(sock.fileno(), self.flush_now)
        self._writing = True

    def _died(self) -> None:
        self.stats.deaths += 1
        self.detach()
        if self._on_dead is not None:
            try:
                self._on_dead()
            except Exception:  # noqa: BLE001 - the supervisor's fault must not reach the traffic
                self.stats.swallowed += 1

    def drain(self, timeout_s: float) -> bool:
        """Hand over everything, waiting at most `timeout_s` (for the end, when no loop runs any more)."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.flush_now()
            sock = self._sock
            if sock is None or not (self._queue or self._backlog or self._partial is not None):
                return sock is not None
            left = deadline - time.monotonic()
            if left <= 0 or not select.select((), (sock,), (), left)[1]:
                return False

    def close(self) -> None:
        """Let the socket go; what waits is dropped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._collect()
        self.detach()
        self._queue.clear()
        self._backlog.clear()


def suspended_ns() -> int:
    """Nanoseconds this machine has slept since boot (CLOCK_BOOTTIME − CLOCK_MONOTONIC)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class LoopLag:
    """Samples how late the loop wakes, while somebody is interested.

    `on_lag(lag_s)` is called for every sample over `LAG_NOTICED_S`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lag: Callable[[float], None]) -> None:
        self._loop = loop
        self._on_lag = on_lag
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def start(self) -> None:
        """Begin to sample; harmless when already on."""
        if self._timer is None:
            self._arm()

    def stop(self) -> None:
        """Stop; an idle relay does not wake."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def overdue_s(self) -> float:
        """How late the pending sample is already: the lag of the very turn that asks."""
        return max(0.0, (monotonic_ns() - self._due_ns) / 1e9) if self._timer is not None else 0.0

    def look(self, t_ns: int) -> None:
        """Tell of a lag at once if the pending sample is late: it is due before what came in that lag is told."""
        if t_ns > self._due_ns + _NOTICED_NS and self._timer is not None:
            self._timer.cancel()
            self._sample()

    def _arm(self) -> None:
        self._due_ns = monotonic_ns() + int(LAG_INTERVAL_S * 1e9)
        self._timer = self._loop.call_later(LAG_INTERVAL_S, self._sample)

    def _sample(self) -> None:
        lag_s = (monotonic_ns() - self._due_ns) / 1e9
        self._arm()
        if lag_s > LAG_NOTICED_S:
            self._on_lag(lag_s)
