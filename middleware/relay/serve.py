"""`fairtrial serve`, from the first line to the last: a relay that lives for weeks, and drains when it is told to.

In: the arguments after `serve`.  Out: an exit status (`serve_opts.py` lists them).  Order: read and check the settings,
open the sockets or take the inherited ones, start the observer, open the doors, say READY, relay; on SIGTERM or SIGINT
drain, let the observer finish, leave.  A second one ends at once.

This is the relay process: standard library, msgspec, httptools and uvloop.  What observes is `middleware/sidecar.py`,
in a process of its own, and its death changes nothing here but a line on the health page.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import resource
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from fairtrial.middleware.core import clock, config
from fairtrial.middleware.core.errors import ConfigError, FairtrialError, HostError
from fairtrial.middleware.core.masking import mask_url
from fairtrial.middleware.core.places import state_folder
from fairtrial.middleware.relay import serve_opts, serve_plan, signals, systemd
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.health import HealthConnection, HealthPages
from fairtrial.middleware.relay.launcher import Launched, Launcher, log_file
from fairtrial.middleware.relay.relay import new_event_loop, tcp_listener, unix_listener
from fairtrial.middleware.relay.saying import say
from fairtrial.middleware.relay.serve_door import PathTokens, ServeDoor
from fairtrial.middleware.relay.serve_link import TROUBLES, ServeLink
from fairtrial.middleware.relay.serve_plan import Place, ServePlan
from fairtrial.middleware.relay.serve_relay import DrainingRelay
from fairtrial.middleware.relay.session import relay_settings
from fairtrial.middleware.relay.settings import Upstream
from fairtrial.middleware.wire.feed import Kind

OBSERVER: Final = (sys.executable, "-P", "-m", "fairtrial.middleware.sidecar")
STARTUP_S: Final = 10.0
"""So long after the doors are open the start counts as over, whatever became of the observer."""
_HEALTH: Final = "health"
_OBSERVED: Final = ("verdict", "export")
"""Sections of the settings that the observer is told."""
_FORCED_FLUSH_S: Final = 1.0
_LEAVE_MORE_S: Final = 5.0

Listeners = list[tuple[Upstream | None, socket.socket, bool]]
"""Upstream (None: the health port), listening socket, whether it was inherited."""


def main(arguments: Sequence[str], *, observer_command: Sequence[str] = OBSERVER) -> int:
    """`fairtrial serve ARGUMENTS`; the exit status."""
    environ = dict(os.environ)
    try:
        options = serve_opts.parse(arguments)
        settings = serve_plan.read_settings(options, environ)
        for sentence in config.mistyped(environ):
            say(sentence)
        plan = serve_plan.plan(settings, environ, os.getcwd())
        listeners = open_listeners(plan, systemd.inherited(environ))
        mask = signals.block()
        del mask  # nothing that we start runs with ours: the launcher sets an empty one
        for_observer = systemd.without_sockets(environ)
        for secret in ("FAIRTRIAL_SERVE__ACCESS_TOKEN", "FAIRTRIAL_SERVE__KEYS"):
            for_observer.pop(secret, None)
        launcher = Launcher(observer_command, for_observer, log_file(state_folder(environ)))
        _make_store_folder(plan.store)
        serving = Serving(plan, listeners, launcher, launcher.launch(), environ)
    except FairtrialError as error:
        for line in str(error).splitlines():
            say(line, prefix="fairtrial serve: ")
        return error.exit_code
    return serving.run()


def open_listeners(plan: ServePlan, inherited: list[tuple[str, socket.socket]]) -> Listeners:
    """A listening socket for every door and for the health port: an inherited one where there is one, by its name or by
    its address, else our own.  Raises `FairtrialError`."""
    left = list(inherited)

    def take(name: str, place: Place) -> list[socket.socket]:
        mine = [sock for said, sock in left if said == name] or [sock for _, sock in left if _is_at(sock, place)]
        left[:] = [(said, sock) for said, sock in left if sock not in mine]
        return mine

    found: Listeners = []
    missing: list[tuple[Upstream | None, str, Place]] = []
    wanted: list[tuple[Upstream | None, str, Place]] = [
        (door.upstream, door.upstream.name, door.place) for door in plan.doors
    ]
    if plan.health is not None:
        wanted.append((None, _HEALTH, plan.health))
    for upstream, name, place in wanted:
        mine = take(name, place)
        found += [(upstream, sock, True) for sock in mine]
        if not mine:
            missing.append((upstream, name, place))
    if left and len(plan.doors) == 1 and missing and missing[0][0] is not None:
        # One upstream, and a socket that systemd named after its unit: there is nothing to confuse.
        found += [(missing[0][0], sock, True) for _, sock in left]
        left, missing = [], missing[1:]
    if left:
        said, sock = left[0]
        raise ConfigError(
            f"The inherited socket {said or 'without a name'} ({sock.getsockname()}) belongs to no upstream.",
            remedy="Give the socket unit FileDescriptorName= with an upstream's name (or `health`), or its address to "
            "serve.listen.",
            key="serve.listen",
        )
    for _, sock, _ in found:
        _check_guard(plan, sock)
    try:
        for upstream, name, place in missing:
            found.append((upstream, _bind(name, place), False))
    except HostError:
        for _, sock, _ in found:
            sock.close()
        raise
    return found


def _check_guard(plan: ServePlan, sock: socket.socket) -> None:
    """What `serve_plan` checks of places holds for inherited sockets."""
    bound = sock.getsockname()
    if plan.secret is None and not plan.config.serve.unguarded and isinstance(bound, tuple):
        place = Place(str(bound[0]), int(bound[1]))
        if not place.closed:
            raise ConfigError(
                f"The inherited socket on {place} is reached by others, and no secret is asked for.",
                remedy="Set serve.access_token (openssl rand -hex 16), or say serve.unguarded = true.",
                key="serve.access_token",
            )


def _is_at(sock: socket.socket, place: Place) -> bool:
    bound = sock.getsockname()
    return bool(bound == place.path if isinstance(bound, str) else bound[:2] == (place.host, place.port))


def _bind(name: str, place: Place) -> socket.socket:
    try:
        return unix_listener(place.path) if place.path else tcp_listener(place.host, place.port)
    except OSError as error:
        where = "The health port" if name == _HEALTH else f"The door for {name}"
        setting = "serve.health (--health)" if name == _HEALTH else f"serve.listen.{name} (--listen {name}=ADDR)"
        raise HostError(
            f"{where} cannot listen on {place}: {error.strerror or error}.",
            remedy=f"See who holds it (ss -ltnp), or choose another by {setting}.",
            errno=error.errno,
        ) from error


def _raise_descriptor_limit() -> None:
    """A call needs two descriptors here."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _make_store_folder(store: str) -> None:
    with contextlib.suppress(OSError):  # the observer says what is wrong with it, on the health page
        os.makedirs(os.path.dirname(store), mode=0o700, exist_ok=True)


class Serving:
    """One `serve` while it lasts."""

    def __init__(
        self,
        plan: ServePlan,
        listeners: Listeners,
        launcher: Launcher,
        observer: Launched,
        environ: Mapping[str, str],
    ) -> None:
        self._plan = plan
        self._serve = plan.config.serve
        self._listeners = listeners
        self._loop = new_event_loop()
        self._loop.set_exception_handler(self._on_loop_error)
        self._feed = FeedSender(None, limit_bytes=plan.config.relay.feed_limit_bytes)
        self._relay = DrainingRelay(replace(relay_settings(environ), refuse_bad_heads=True), self._feed)
        self._relay.senders.stop()  # its clients are not of its making
        self._launcher = launcher
        self._first = observer
        self._link: ServeLink | None = None
        self._notifier = systemd.Notifier(environ)
        self._watchdog_s = systemd.watchdog_s(environ)
        self._pages = HealthPages(self._report, over=self._over, hosts=plan.health_hosts, secret=plan.secret)
        self._health: asyncio.Server | None = None
        self._doors: list[tuple[str, str, str]] = []
        """Name, where it listens, where it leads."""
        self._state = "starting"
        self._open_since_s = 0.0
        self._stopping: asyncio.Future[int] | None = None
        self._forced: int | None = None

    def run(self) -> int:
        """Serve until told to stop; the exit status."""
        asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(self._run())

    async def _run(self) -> int:
        self._stopping = self._loop.create_future()
        _raise_descriptor_limit()
        began = clock.now()
        tokens = PathTokens(self._plan.secret)

        def door(upstream: Upstream, dialler: Dialler, listener: socket.socket) -> ServeDoor:
            return ServeDoor(upstream, dialler, listener, tokens)

        for upstream, listener, _ in self._listeners:
            if upstream is None:
                listener.setblocking(False)
                self._health = await self._loop.create_server(lambda: HealthConnection(self._pages), sock=listener)
                continue
            where = _shown(listener)
            self._relay.open_door(upstream, listener, door)
            self._doors.append((upstream.name, where, mask_url(upstream.url)))
        self._link = link = ServeLink(
            self._first,
            launcher=self._launcher,
            hello=self._hello(began),
            feed=self._feed,
            loop=self._loop,
            waits=self._plan.config.end,
        )
        link.introduce = self._relay.introduction
        link.begin()
        signals.watch(self._hand_over)
        self._state, self._open_since_s = "serving", self._loop.time()
        for name, where, leads_to in self._doors:
            say(f"{name}: {where} -> {leads_to}")
        self._notifier.say("READY=1", f"STATUS=serving {', '.join(name for name, _, _ in self._doors)}")
        self._pet_watchdog()
        number = await self._stopping
        return await self._drain(number)

    def _hello(self, began: clock.Instant) -> dict[str, object]:
        return {
            "protocol": 1,
            "pid": os.getpid(),
            "wall_ns": began.wall_ns,
            "mono_ns": began.mono_ns,
            "boot_ns": began.mono_ns + clock.suspended_ns(),
            "run": self._serve.run,
            "store": self._plan.store,
            "doors": [
                {
                    "name": upstream.name,
                    "scheme": upstream.scheme,
                    "host": upstream.host,
                    "port": upstream.port,
                    "base_path": upstream.base_path,
                    "door_port": 0 if listener.family == socket.AF_UNIX else listener.getsockname()[1],
                }
                for upstream, listener, _ in self._listeners
                if upstream is not None
            ],
            "serve": {
                "guarded": self._plan.secret is not None,
                "idle_s": self._serve.idle_s,
                "max_trials": self._serve.max_trials,
                "keys": {key: name for name, key in self._serve.keys.items()},
                "peers": {str(ipaddress.ip_address(peer)): name for name, peer in self._serve.peers.items()},
                "metrics": None if self._plan.metrics is None else [self._plan.metrics.host, self._plan.metrics.port],
                "hosts": sorted(self._plan.health_hosts),
            },
            "config": self._observed_settings(),
        }

    def _observed_settings(self) -> dict[str, object]:
        """Only what the observer needs: the rest holds a secret.  It must be done within `flush_s`."""
        export = self._plan.config.export
        settings = replace(
            self._plan.config, export=replace(export, wait_s=min(export.wait_s, self._serve.flush_s / 2))
        )
        return {name: table for name, table in config.to_tree(settings).items() if name in _OBSERVED}

    # --- while it runs ----------------------------------------------------------------------------------------------

    def _hand_over(self, arrival: signals.Arrival) -> None:
        self._loop.call_soon_threadsafe(self._on_signal, arrival)

    def _on_signal(self, arrival: signals.Arrival) -> None:
        assert self._stopping is not None
        number = arrival.number
        if number == signal.SIGCHLD:
            if self._link is not None:
                self._link.reap()
        elif number == signal.SIGHUP:
            say("settings are read at the start only: restart to change them (open calls are drained)")
        elif number in signals.ENDING:
            if not self._stopping.done():
                self._stopping.set_result(number)
            elif self._forced is None:
                self._forced = number
                say(f"a second signal ({signal.Signals(number).name}): what is open is cut")
                self._relay.cut_all()
                if self._link is not None:
                    self._link.hurry()
        elif number in signals.STOPPING:
            signals.stop_ourselves(number)

    def _over(self, trial: str) -> None:
        self._feed.record_json(Kind.NOTE, {"event": "trial.over", "trial": trial})

    def _report(self, page: str) -> tuple[bool, dict[str, object]]:
        link, counters, feed = self._link, self._relay.counters, self._feed.stats
        started = self._state != "starting" and (
            link is None or link.ever_ready or link.deaths > 0 or self._loop.time() - self._open_since_s > STARTUP_S
        )
        well = {"healthz": True, "readyz": self._state == "serving", "startupz": started}[page]
        observer: dict[str, object] = {"state": "starting"} if link is None else link.report()
        why = {
            "starting": "doors are not open yet",
            "serving": "serving",
            "draining": "draining: no new connections are taken",
        }[self._state]
        if page == "startupz" and not started:
            why = "the observer has not answered yet"
        if observer["state"] in ("down", "silent"):
            why += f"; the observer is {observer['state']}: calls pass unobserved"
        for trouble in TROUBLES:
            if link is not None and link.status.get(trouble):
                why += f"; {link.status[trouble]}"
        return well, {
            "status": "ok" if well else "unavailable",
            "why": why,
            "state": self._state,
            "observer": observer,
            "doors": [{"name": name, "listens": where, "upstream": to} for name, where, to in self._doors],
            "connections": {
                "open": counters.open_pairs,
                "total": counters.connections,
                "requests": counters.requests,
                "refused": counters.refused,
                "dial_failed": counters.dial_failed,
                "blind": counters.blind,
                "swallowed": counters.swallowed,
            },
            "feed": {
                "waiting_bytes": self._feed.waiting_bytes,
                "dropped_records": feed.dropped_records,
                "lost_records": feed.lost_records,
            },
        }

    def _pet_watchdog(self) -> None:
        """From the loop itself: a loop that hangs is restarted by systemd."""
        if self._watchdog_s is not None:
            self._notifier.say("WATCHDOG=1")
            self._loop.call_later(self._watchdog_s, self._pet_watchdog)

    # --- end --------------------------------------------------------------------------------------------------------

    async def _drain(self, number: int) -> int:
        assert self._link is not None
        serve, name = self._serve, signal.Signals(number).name
        self._state = "draining"
        longest_s = serve.drain_s + serve.flush_s + _LEAVE_MORE_S
        self._notifier.say(
            "STOPPING=1", f"STATUS=draining, at most {serve.drain_s:g} s", f"EXTEND_TIMEOUT_USEC={longest_s * 1e6:.0f}"
        )
        if self._relay.counters.open_pairs:
            say(f"{name}: draining {self._relay.counters.open_pairs} connection(s), at most {serve.drain_s:g} s")
        cut = await self._relay.drain(serve.drain_s)
        if cut:
            say(f"{cut} connection(s) were still busy after {serve.drain_s:g} s and were cut")
        flush_s = serve.flush_s if self._forced is None else _FORCED_FLUSH_S
        if not await self._link.stop({"why": name}, flush_s):
            say("the observer was not done in time; what it leaves open is closed at the next start")
        if self._health is not None:
            self._health.close()
        for upstream, listener, inherited in self._listeners:
            if upstream is not None and not inherited and listener.family == socket.AF_UNIX:
                self._unlink(upstream.name)
        self._notifier.close()
        return 0 if self._forced is None else 128 + self._forced

    def _unlink(self, name: str) -> None:
        for door in self._plan.doors:
            if door.upstream.name == name and door.place.path:
                with contextlib.suppress(OSError):
                    os.unlink(door.place.path)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        del loop
        fault = context.get("exception")
        error = str(context.get("message")) if fault is None else repr(fault)
        self._feed.record_json(Kind.NOTE, {"event": "swallowed", "error": error})


def _shown(listener: socket.socket) -> str:
    bound = listener.getsockname()
    if isinstance(bound, str):
        return f"unix:{bound}"
    return f"http://[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"http://{bound[0]}:{bound[1]}"
