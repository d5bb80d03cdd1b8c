"""The relay: binds doors, accepts, keeps count of the pairs, watches its own loop, and closes in order.

In: `RelaySettings` and a `FeedSender`.  Out: doors.  The child and its environment are the work of
`supervise.py`; what happens between two sockets is the work of `coupled.py`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from fairtrial.middleware.relay.coupled import Pair, Route
from fairtrial.middleware.relay.descriptors import OUT_OF_ROOM, Descriptors
from fairtrial.middleware.relay.dial import Dialler, Trust
from fairtrial.middleware.relay.ends import HangupWatch, Link
from fairtrial.middleware.relay.feed import FeedSender, LoopLag
from fairtrial.middleware.relay.gates import Gates
from fairtrial.middleware.relay.model import ModelDoor, RunTokens
from fairtrial.middleware.relay.pair import PairState
from fairtrial.middleware.relay.senders import Senders
from fairtrial.middleware.relay.settings import Counters, RelaySettings, Upstream
from fairtrial.middleware.wire.feed import Kind

if TYPE_CHECKING:
    from fairtrial.middleware.relay.egress import ConnectDoor

_ACCEPT_BATCH: Final = 64
_ACCEPT_PAUSE_S: Final = 0.1
_QUIET_S: Final = 1.0
"""A connection must have been idle for so long before it is ended to make room for another."""
_BACKLOG: Final = 1024


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it can be imported, else asyncio's own; the relay is correct on both."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def new_token() -> str:
    """128 random bits as hexadecimal digits."""
    return os.urandom(16).hex()


def tcp_listener(host: str, port: int = 0) -> socket.socket:
    """A listening TCP socket.  Raises `OSError`."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def unix_listener(path: str) -> socket.socket:
    """A listening socket at `path` that only our user may connect to.  Raises `OSError`.

    A socket that a dead process has left there is replaced, one that is answered is not.
    """
    if _is_left_over(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)  # before listen: until then nobody can connect
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _is_left_over(path: str) -> bool:
    with suppress(OSError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
                return probe.connect_ex(path) == errno.ECONNREFUSED
    return False


class Door(Route, Protocol):
    """A route with the socket that it listens on."""

    listener: socket.socket


_Door = TypeVar("_Door", bound=Door)


class Relay:
    """All doors of one relay process.  `counters` may be read at any time."""

    def __init__(self, settings: RelaySettings, feed: FeedSender) -> None:
        self.settings = settings
        self.feed = feed
        self.feed.before_hand_over = self._observe_streams
        self.counters = Counters()
        self.senders = Senders()
        self.doors: list[Door] = []
        self._tokens = RunTokens()
        self.generation = 0
        self._pairs: dict[int, Pair] = {}
        self._gates = Gates(self.counters, self._begin_pair, self.swallow)
        self._unseen: list[PairState] = []
        self._unseen_streams: list[PairState] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch: HangupWatch | None = None
        self._trust: Trust | None = None
        self._lag: LoopLag | None = None
        self._emptied: asyncio.Event | None = None
        self._room: Descriptors | None = None
        self._full_since_ns = 0
        """Since when no connection is taken; 0: they are."""
        self._again: asyncio.TimerHandle | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it runs on; there once a door is open."""
        if self._loop is None:
            raise RuntimeError("no door of this relay was opened yet")
        return self._loop

    @property
    def tokens(self) -> Mapping[str, str]:
        """Token -> trial, as they are at any time."""
        return self._tokens

    def add_token(self, token: str, trial_id: str) -> None:
        """Requests under `/t/<token>/` and `/t/<token>.<name>/` are of this trial, or of one within it, from now on."""
        self._tokens.add(token, trial_id)
        self.generation += 1

    async def open_model_door(
        self, upstream: Upstream, *, host: str = "127.0.0.1", port: int = 0, listener: socket.socket | None = None
    ) -> ModelDoor:
        """A model door that leads to `upstream`, on a listener (`unix_listener`, an inherited one) or on a port.

        Raises `OSError` when the port cannot be bound.
        """
        if listener is None:
            listener = tcp_listener(host, port)
        return self.open_door(upstream, listener, self._model_door)

    def _model_door(self, upstream: Upstream, dialler: Dialler, listener: socket.socket) -> ModelDoor:
        return ModelDoor(upstream, dialler, listener, self._tokens)

    def open_door(
        self, upstream: Upstream, listener: socket.socket, make: Callable[[Upstream, Dialler, socket.socket], _Door]
    ) -> _Door:
        """Accept on `listener` for the door that `make` gives; a door that cannot be made closes the listener."""
        try:
            self._begin()
            dialler = self._dialler(upstream)
            listener.setblocking(False)
            door = make(upstream, dialler, listener)
        except BaseException:
            listener.close()
            raise
        self.doors.append(door)
        self.loop.add_reader(listener.fileno(), self._accept, listener, door)
        bound = listener.getsockname()
        host, port = bound[:2] if isinstance(bound, tuple) else (bound, 0)
        proxy = dialler.proxy.label if dialler.proxy is not None else None
        self.feed.record_json(
            Kind.NOTE,
            {
                "event": "door_bound",
                "door": door.label,
                "upstream": upstream.url,
                "host": host,
                "port": port,
                "via_proxy": proxy,
            },
        )
        return door

    def open_connect_door(self, *, token: str, trial: str) -> ConnectDoor:
        """A door for CONNECT on a loopback port, for who has the token.  Raises `OSError`."""
        from fairtrial.middleware.relay.egress import ConnectDoor  # late: only `--via connect` has one

        def make(upstream: Upstream, dialler: Dialler, listener: socket.socket) -> ConnectDoor:
            return ConnectDoor(upstream, dialler, listener, token=token, trial=trial, dialler_for=self._dialler)

        return self.open_door(Upstream("connect", "tcp", "localhost", 0), tcp_listener("127.0.0.1"), make)

    def _dialler(self, upstream: Upstream) -> Dialler:
        watch = self._begin()
        if self._trust is None:
            self._trust = Trust(self.loop, self.settings.ca_files)
        return Dialler(self.loop, watch, upstream, self.settings, self._trust, self._room)

    def close_door(self, door: Door) -> None:
        """Listen no more at this door; what came through it goes on."""
        self.doors.remove(door)
        self.loop.remove_reader(door.listener.fileno())
        door.listener.close()

    def _begin(self) -> HangupWatch:
        if self._watch is None:
            self._loop = asyncio.get_running_loop()
            self._watch = HangupWatch(self._loop)
            self._lag = LoopLag(self._loop, self._on_lag)
            self._room = Descriptors(self._loop)
        return self._watch

    def _accept(self, listener: socket.socket, route: Route) -> None:
        assert self._watch is not None
        assert self._lag is not None
        for _ in range(self._may_accept()):
            try:
                sock, address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self.counters.accept_failed += 1
                if error.errno in OUT_OF_ROOM:
                    self._accept_no_more()
                return
            sock.setblocking(False)
            peer = "unix"
            if listener.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer = f"{address[0]}:{address[1]}"
            if route.gate is None:
                self._begin_pair(sock, route, peer)
            else:
                self._gates.ask(sock, route, route.gate, peer)

    def _begin_pair(self, sock: socket.socket, route: Route, peer: str, container: str | None = None) -> None:
        assert self._watch is not None
        assert self._lag is not None
        self.counters.connections += 1
        self.counters.open_pairs += 1
        conn = self.counters.connections
        link = Link(self.loop, sock, self._watch)
        try:
            self._pairs[conn] = Pair(self, route, link, conn, peer, container)
        except Exception as error:  # noqa: BLE001 - outermost frame: the door goes on
            self.swallow(error)
            self.counters.open_pairs -= 1
            link.reset()
        else:
            route.dialler.warm_up()  # not before: who never calls by TLS never loads it
            self._lag.start()

    def _may_accept(self) -> int:
        """How many of those that knock may come in now.  The others wait in the listener's queue, not refused."""
        assert self._room is not None
        most = self._room.connections(len(self._pairs), self._connected, _ACCEPT_BATCH)
        if not most and self._make_room():
            most = self._room.connections(len(self._pairs), self._connected, 1)
        if not most:
            self._accept_no_more()
        elif self._full_since_ns:
            self._enough()
        return most

    def _connected(self) -> int:
        return sum(pair.has_upstream for pair in self._pairs.values())

    def _make_room(self) -> bool:
        """End one connection that carries nothing: one that never had a request, where there is none the one that is
        idle longest.
        """
        idle = [pair for pair in self._pairs.values() if pair.idle]
        unused = [pair for pair in idle if not pair.has_upstream]
        before_ns = monotonic_ns() - int(_QUIET_S * 1e9)
        for pair in sorted(unused or idle, key=lambda pair: pair.quiet_since_ns):
            if pair.quiet_since_ns > before_ns:
                return False
            if pair.retire():
                self.counters.made_room += 1
                return True
        return False

    def _accept_no_more(self) -> None:
        """Until a connection ends, or until the next look: whatever waits at a door must not keep the loop awake."""
        if not self._full_since_ns:
            self._full_since_ns = monotonic_ns()
            self.counters.accept_waits += 1
            self.feed.record_json(Kind.NOTE, {"event": "descriptors.short", "connections": len(self._pairs)})
        for door in self.doors:
            self.loop.remove_reader(door.listener.fileno())
        if self._again is not None:
            self._again.cancel()
        self._again = self.loop.call_later(_ACCEPT_PAUSE_S, self._accept_again)

    def _enough(self) -> None:
        waited_s = (monotonic_ns() - self._full_since_ns) / 1e9
        self._full_since_ns = 0
        self.feed.record_json(Kind.NOTE, {"event": "descriptors.enough", "waited_s": waited_s})

    def _accept_again(self) -> None:
        self._again = None
        assert self._room is not None
        if self._full_since_ns and self._room.connections(len(self._pairs), self._connected, 1):
            self._enough()
        for door in self.doors:
            self.loop.add_reader(door.listener.fileno(), self._accept, door.listener, door)

    # ------------------------------------------------------------------ what pairs report

    def forget(self, pair: PairState) -> None:
        """A pair is over."""
        if self._pairs.pop(pair.conn, None) is not None:
            self.counters.open_pairs -= 1
        if self._room is not None:
            self._room.freed()
        if self._again is not None:
            self._again.cancel()
            self._again = self.loop.call_later(0, self._accept_again)
        if not self._pairs:
            if self._lag is not None:
                self._lag.stop()
            if self._emptied is not None:
                self._emptied.set()

    def swallow(self, error: Exception) -> None:
        """Count a fault of ours that must not reach the traffic."""
        self.counters.swallowed += 1
        self.counters.last_swallowed = f"{type(error).__name__}: {error}"
        self.feed.record_json(Kind.NOTE, {"event": "swallowed", "error": self.counters.last_swallowed})

    def observe_soon(self, pair: PairState) -> None:
        """Let a pair look at what has passed, once all that is ready in this turn of the loop has passed."""
        if not self._unseen:
            self.loop.call_soon(self._observe)
        self._unseen.append(pair)

    def observe_with_feed(self, pair: PairState) -> None:
        """Let a pair look at what has passed when the feed is handed over next: one waking of the loop for both."""
        if self.feed.will_hand_over():
            self._unseen_streams.append(pair)
        else:
            self.observe_soon(pair)

    def _observe(self) -> None:
        pairs, self._unseen = self._unseen, []
        self._let_look(pairs)

    def _observe_streams(self) -> None:
        pairs, self._unseen_streams = self._unseen_streams, []
        self._let_look(pairs)

    def _let_look(self, pairs: list[PairState]) -> None:
        for pair in pairs:
            try:
                pair.catch_up()
            except Exception as error:  # noqa: BLE001 - observing fails open
                self.swallow(error)

    def look_at_lag(self, t_ns: int) -> None:
        """Tell of a lag of this very turn, in which a read returned at `t_ns`, before that read is told."""
        if self._lag is not None:
            self._lag.look(t_ns)

    def overdue_s(self) -> float:
        """How late the loop is at this moment."""
        return self._lag.overdue_s() if self._lag is not None else 0.0

    def _on_lag(self, lag_s: float) -> None:
        for pair in self._pairs.values():
            pair.account.note_lag(lag_s)
        if lag_s > self.settings.lag_threshold_s:
            self.feed.record_json(Kind.LAG, {"lag_s": lag_s})

    # ------------------------------------------------------------------ the end

    async def close(self, grace_s: float) -> None:
        """Stop listening, let what is in flight end for `grace_s` seconds, then abort the rest as fairtrial's doing."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        doors, self.doors = self.doors, []
        for door in doors:
            self.loop.remove_reader(door.listener.fileno())
            door.listener.close()
        self._gates.close()
        deadline_ns = monotonic_ns() + int(grace_s * 1e9)
        while self._pairs and monotonic_ns() < deadline_ns:
            for pair in tuple(self._pairs.values()):
                if pair.idle:
                    pair.close_idle()
            if self._pairs:
                self._emptied = asyncio.Event()
                try:
                    async with asyncio.timeout(min(0.02, max(0.0, (deadline_ns - monotonic_ns()) / 1e9))):
                        await self._emptied.wait()
                except TimeoutError:
                    continue
        for pair in tuple(self._pairs.values()):
            pair.abort("fairtrial was shut down")
        for _ in range(3):  # cancelled dials end in the next turns of the loop
            await asyncio.sleep(0)
        if self._lag is not None:
            self._lag.stop()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
