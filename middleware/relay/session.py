"""One observed run while it lasts: doors, the command, signals, the observer, and the end.

In: a `Prepared` run.  Out: the `ExitStatus` that this process must end with.  Order: open the doors, say HELLO,
start the command, relay until it is gone, close the doors, hear the verdict, print it.

What reaches the command and what does not: a key at the terminal is sent by the kernel to the whole process group, so
the command has it already; a `kill` that meant us is passed on.  When the command is stopped (Ctrl-Z) we stop as well,
so that the shell gets its terminal back, and `fg` continues both.
How this can be wrong: a `kill` of the whole process group (`kill -TERM -PGID`) looks like one of us alone, so the
command may see that signal twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import resource
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from fairtrial.middleware.core import clock, presence
from fairtrial.middleware.core.errors import EX_TEMPFAIL, CommandError, HostError, OwnBug, UpstreamError
from fairtrial.middleware.relay import child, environment, runtime_dir, settings_files, signals
from fairtrial.middleware.relay.child import ExitStatus
from fairtrial.middleware.relay.engine_door import EngineDoor
from fairtrial.middleware.relay.environment import Mutation
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.launcher import Launched, Launcher
from fairtrial.middleware.relay.model import ModelDoor, SocketDoor
from fairtrial.middleware.relay.observer_link import ObserverLink, Verdict
from fairtrial.middleware.relay.prepare import Prepared
from fairtrial.middleware.relay.relay import Relay, new_event_loop, unix_listener
from fairtrial.middleware.relay.saying import say
from fairtrial.middleware.relay.settings import ClientTls, ProxySettings, RelaySettings, Upstream
from fairtrial.middleware.relay.whereabouts import Whereabouts
from fairtrial.middleware.wire.feed import Kind

_P = ParamSpec("_P")
_T = TypeVar("_T")

_CA_VARIABLES: Final = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "CURL_CA_BUNDLE",
    "CODEX_CA_CERTIFICATE",
    "AWS_CA_BUNDLE",
)
_AS_INIT_WAIT_S: Final = 5.0
"""Process 1 takes its container with it: the observer's last exports get this long."""


_WORKERS: Final = 4


class _AfterStart(ThreadPoolExecutor):
    """The loop's worker threads, which begin to work once the command has started.

    OpenSSL opens certificate files without close-on-exec: a command that starts in that moment would inherit them.
    And nothing of ours is worth a delay of the command.  The threads themselves are made before it: later the command
    may have eaten all processes that its container may have.
    """

    def __init__(self) -> None:
        super().__init__(max_workers=_WORKERS, thread_name_prefix="fairtrial")
        self.started = threading.Event()
        with contextlib.suppress(RuntimeError):
            for _ in range(_WORKERS):
                self.submit(int)

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """As `Executor.submit`."""

        def when_started() -> _T:
            self.started.wait()
            return fn(*args, **kwargs)

        return super().submit(when_started)


_TYPED: Final = (signal.SIGINT, signal.SIGQUIT)
_OWN_DESCRIPTOR: Final = re.compile(r"-|/dev/(?P<name>stdout|stderr)|/(?:dev|proc/self)/fd/(?P<number>\d{1,6})")
_STANDARD: Final = {"-": 1, "stdout": 1, "stderr": 2}


def _raise_descriptor_limit() -> None:
    """A call needs two descriptors here where it needs one without us.  The command has its own limit already."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Session:
    """`open` may fail and leaves the command unstarted; `run` starts it and always gives a status."""

    def __init__(self, prepared: Prepared, launcher: Launcher, observer: Launched) -> None:
        self._prepared = prepared
        self._launcher = launcher
        self._observer = observer
        self._loop = new_event_loop()
        self._workers = _AfterStart()
        self._loop.set_default_executor(self._workers)
        self._loop.set_exception_handler(self._on_loop_error)
        self._engine_door: EngineDoor | None = None
        self._feed = FeedSender(None, limit_bytes=prepared.config.relay.feed_limit_bytes)
        self._relay = Relay(relay_settings(prepared.network, tool=prepared.findings.tool), self._feed)
        self._door_urls: dict[str, str] = {}
        self._doors: list[dict[str, object]] = []
        self._command = prepared.options.command
        self._variables: dict[str, str] = {}
        self._mutations: list[Mutation] = []
        self._link: ObserverLink | None = None
        self._pid: int | None = None
        self._ended: asyncio.Future[ExitStatus] | None = None
        self._forwarded: list[int] = []
        self._typed: list[int] = []
        self._presence: socket.socket | None = None
        """Held until this process ends."""

    def open(self) -> None:
        """Open the doors and write the command's environment.  Raises `FairtrialError`."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._open())
        except BaseException:
            self._prepared.runtime.remove()
            raise

    def run(self) -> ExitStatus:
        """Start the command, relay, and give the status that this process must end with."""
        try:
            status = self._loop.run_until_complete(self._run())
        except Exception as error:  # whatever we did wrong, the command is not to suffer for it
            if self._ended is None:
                raise
            say(str(OwnBug(f"fairtrial failed while the command ran: {error!r}.")))
            status = self._loop.run_until_complete(self._ended)
        self._prepared.runtime.remove()
        return status

    # --- start ------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        prepared = self._prepared
        self._relay.add_token(prepared.token, prepared.trial)
        self._engine_door = engine_door = EngineDoor(self._relay, prepared)
        engine_door.open()  # first, so that the engine answers while the rest is made
        await asyncio.sleep(0)
        proxy = self._open_connect_door() if prepared.options.via == "connect" else None
        model_doors: list[ModelDoor] = []
        for plan in prepared.plan.doors:
            try:
                upstream = Upstream.parse(plan.name, plan.origin, _client_tls(prepared.network, plan.name))
            except ValueError as error:
                raise UpstreamError(
                    f"{error}.",
                    remedy="Correct the address (--upstream, --route, or its variable).",
                    upstream=plan.name,
                ) from error
            try:
                if plan.socket:
                    door: ModelDoor = self._relay.open_door(
                        upstream,
                        unix_listener(os.path.join(prepared.runtime.path, runtime_dir.MODEL_SOCKET)),
                        lambda upstream, dialler, listener: SocketDoor(upstream, dialler, listener, prepared.trial),
                    )
                else:
                    door = await self._relay.open_model_door(upstream)
            except OSError as error:
                raise HostError(
                    f"The door for {plan.name} cannot listen on loopback: {error.strerror or error}.",
                    remedy="Check that 127.0.0.1 is up (ip link set lo up) and that files may be opened (ulimit -n).",
                    errno=error.errno,
                ) from error
            model_doors.append(door)
            self._door_urls[plan.name] = f"unix://{door.path}" if door.path else door.url(prepared.token)
            self._doors.append(
                {
                    "name": plan.name,
                    "scheme": upstream.scheme,
                    "host": upstream.host,
                    "port": upstream.port,
                    "base_path": upstream.base_path,
                    "door_port": door.port,
                }
            )
            await asyncio.sleep(0)
        changed = environment.child_environment(
            prepared.environ,
            prepared.plan,
            self._door_urls,
            trial=prepared.trial,
            run=prepared.run,
            trace=prepared.trace,
            proxy=proxy,
            control=self._control_url(),
        )
        adapted = settings_files.adapt(self._command, prepared.environ, prepared.findings, self._door_urls)
        if not (prepared.options.adapt or prepared.config.run.adapt):
            adapted = settings_files.Adapted(self._command, {}, ())
        self._command = adapted.command
        self._variables = {**changed.variables, **adapted.variables}
        self._mutations = [*changed.mutations, *adapted.mutations]
        ports = {int(str(door["door_port"])): str(door["name"]) for door in self._doors if door["door_port"]}
        prepared.runtime.write_doors(prepared.trial, ports, await engine_door.settle())
        engine_door.let_containers_in(model_doors)
        self._mutations += engine_door.mutations
        self._variables |= {m.what.removeprefix("environment "): m.new or "" for m in engine_door.mutations}
        others_at_start = 0
        if (engine := prepared.docker.url) is not None:
            # Before the command starts: whoever sees a container of it must be able to see that we are there.
            others_at_start = presence.others(engine, prepared.trial)
            self._presence = presence.announce(engine, prepared.trial)
        self._link = ObserverLink(
            self._observer,
            launcher=self._launcher,
            hello={**prepared.hello(), "doors": self._doors, "others_at_start": others_at_start},
            feed=self._feed,
            loop=self._loop,
            waits=prepared.config.end,
        )
        self._link.begin()
        for mutation in self._mutations:
            self._feed.record_json(Kind.MUTATION, mutation.record())
        for note in (*prepared.notes, *changed.notes, *engine_door.notes):
            self._feed.record_json(Kind.NOTE, {"event": note.event, "text": note.text})
            if note.say and not prepared.options.quiet:
                say(note.text)
        if prepared.options.verbose:
            self._list_changes()

    def _control_url(self) -> str | None:
        token, listener = self._prepared.control_token, self._launcher.control
        if token is None:
            return None
        if listener is None:
            say("--control: no port on 127.0.0.1 can be opened, so FAIRTRIAL_CONTROL_URL is not set.")
            return None
        return f"http://127.0.0.1:{listener.getsockname()[1]}/t/{token}"

    def _open_connect_door(self) -> str:
        """The door of `--via connect`; its URL.  Raises `HostError`."""
        try:
            door = self._relay.open_connect_door(token=self._prepared.token, trial=self._prepared.trial)
        except OSError as error:
            raise HostError(
                f"The connect door cannot listen on loopback: {error.strerror or error}.",
                remedy="Check that 127.0.0.1 is up (ip link set lo up) and that files may be opened (ulimit -n).",
                errno=error.errno,
            ) from error
        self._doors.append({"name": "connect", "scheme": "tcp", "door_port": door.port})
        return door.url

    def _list_changes(self) -> None:
        say(f"trial {self._prepared.trial}; for this command fairtrial changes:")
        for mutation in self._mutations:
            say(f"{mutation.what}: {mutation.old or '(not set)'} → {mutation.new} ({mutation.why})", prefix="  ")
        for joined in self._prepared.plan.joined:
            say(f"{joined.variable} points to the outer run's door {joined.door} and stays", prefix="  ")

    # --- while it runs ----------------------------------------------------------------------------------------------

    async def _run(self) -> ExitStatus:
        link = self._link
        assert link is not None
        early = signals.waiting()
        try:
            self._pid = child.spawn(self._command, self._variables, mask=self._prepared.mask)
            _raise_descriptor_limit()
        except CommandError as error:
            say(str(error))
            if _no_room(error) and not (self._prepared.options.require or self._prepared.config.run.require):
                say("It takes fairtrial's own place, and runs unobserved.")
                self._prepared.runtime.remove()
                child.replace_ourselves(self._command, self._prepared.environ, mask=self._prepared.mask)
            status = ExitStatus(exit_code=error.exit_code)
            return await self._finish(status, error=error.what)
        finally:
            self._workers.started.set()
        self._ended = self._loop.create_future()
        link.child_started({"event": "started", "pid": self._pid}, clock.mono_ns())
        ended = self._ended
        Whereabouts(self._pid, self._loop, enough=lambda: link.ready or ended.done(), tell=link.child_moved).look()
        for arrival in signals.take(early):
            self._on_signal(arrival)
        signals.watch(self._hand_over)
        return await self._finish(await self._ended)

    def _hand_over(self, arrival: signals.Arrival) -> None:
        self._loop.call_soon_threadsafe(self._on_signal, arrival)

    def _on_signal(self, arrival: signals.Arrival) -> None:
        assert self._ended is not None
        number = arrival.number
        if number == signal.SIGCHLD:
            self._reap()
        elif self._ended.done():
            if number in signals.ENDING and self._link is not None:
                self._link.hurry()
        elif number == signal.SIGCONT:
            # A shell continues the whole group; only a command that still stands has not been reached.
            if self._pid is not None and signals.is_stopped(self._pid):
                self._forward(arrival)
        elif arrival.from_terminal and number in _TYPED:
            self._typed.append(number)
        elif not arrival.from_terminal or (number == signal.SIGHUP and os.getsid(0) == os.getpid()):
            # A terminal that hangs up tells the leader of its session alone; without us that were the command.
            self._forward(arrival)

    def _forward(self, arrival: signals.Arrival) -> None:
        assert self._pid is not None
        if signals.is_descendant(arrival.sender, self._pid):
            # From inside the command: without us it would have hit its harness, not itself.
            self._note("signal.from_inside", signal=arrival.number, sender=arrival.sender)
            return
        try:
            os.kill(self._pid, arrival.number)
        except (ProcessLookupError, PermissionError) as error:
            self._note("signal.not_forwarded", signal=arrival.number, error=str(error))
            return
        if arrival.number != signal.SIGCONT:
            self._forwarded.append(arrival.number)
            self._note("signal.forwarded", signal=arrival.number, sender=arrival.sender, early=arrival.early)

    def _reap(self) -> None:
        assert self._link is not None
        try:
            self._link.reap()
        except Exception as error:  # noqa: BLE001 - the observer's end must not hide the command's
            self._note("swallowed", error=repr(error))
        while self._pid is not None and self._ended is not None and not self._ended.done():
            change = child.poll(self._pid)
            if change is None:
                return
            if isinstance(change, ExitStatus):
                self._ended.set_result(change)
            else:
                self._stop_with_it(change.signal)

    def _stop_with_it(self, number: int) -> None:
        """The command was stopped.  Where a shell waits at a terminal, stop too; else go on relaying."""
        terminal = _controlling_terminal()
        if terminal is None:
            self._note("child.stopped", signal=number)
            return
        try:
            assert self._pid is not None
            own_group, group = os.getpgrp(), _group_of(self._pid)
            self._feed.flush_now()
            since_ns = clock.mono_ns()
            signals.stop_ourselves(number)
            self._note("suspended", signal=number, since_ns=since_ns, until_ns=clock.mono_ns())
            if group is not None and group != own_group and signals.is_stopped(self._pid):
                # It leads a group of its own (a shell): what our shell gave back to us is passed on.
                if os.tcgetpgrp(terminal) == own_group:
                    os.tcsetpgrp(terminal, group)
                os.killpg(group, signal.SIGCONT)
        except OSError as error:
            self._note("child.stopped", signal=number, error=str(error))
        finally:
            os.close(terminal)

    # --- end --------------------------------------------------------------------------------------------------------

    async def _finish(self, status: ExitStatus, *, error: str | None = None) -> ExitStatus:
        prepared, link = self._prepared, self._link
        assert link is not None
        lost = None if self._engine_door is None else self._engine_door.lost()
        if lost is not None:
            self._feed.record_json(Kind.NOTE, {"event": lost.event, "text": lost.text})
            say(lost.text)
        await self._relay.close(prepared.config.relay.close_grace_s)
        ended: dict[str, object] = {
            **status.record(),
            "forwarded_signals": self._forwarded,
            "keyboard_signals": self._typed,
        }
        if error is not None:
            ended["error"] = error
        asked = prepared.options.gate or prepared.options.json is not None
        verdict = await link.conclude(ended, asked=asked)
        self._print(verdict, link)
        if verdict is not None and verdict.record is not None:
            self._write_record(verdict.record)
        if os.getpid() == 1:
            await link.gone(_AS_INIT_WAIT_S)
        link.close()
        if prepared.options.gate and verdict is not None and verdict.gate is not None:
            say(f"--gate: exit status {verdict.gate} instead of the command's own, since a retry is worth it")
            return ExitStatus(exit_code=verdict.gate)
        return status

    def _write_record(self, record: str) -> None:
        path = self._prepared.json_target
        assert path is not None
        ours = _OWN_DESCRIPTOR.fullmatch(path)
        try:
            # A descriptor is written to as it is: opening its name anew would cut off what the command wrote there.
            target = path if ours is None else os.dup(int(ours["number"] or _STANDARD[ours["name"] or "-"]))
            with open(target, "w", encoding="utf-8") as out:
                out.write(record + "\n")
        except OSError as error:
            say(f"--json {path} could not be written: {error.strerror or error}")

    def _print(self, verdict: Verdict | None, link: ObserverLink) -> None:
        prepared = self._prepared
        if verdict is not None:
            for line in verdict.lines:
                say(line, prefix="")
            return
        show = f"fairtrial show {prepared.trial[-12:]}"
        if link.trials > 1:
            show = "fairtrial trials" if prepared.run is None else f"fairtrial trials --run {prepared.run}"
        if link.alive:
            say(f"the verdict was not ready in time; it will be there: {show}")
        else:
            say(
                f"this run was not observed to its end: the observer process failed ({link.trouble}). "
                f"Its log is {self._launcher.log}; what was recorded: {show}"
            )
        if prepared.options.gate:
            say(f"--gate has no verdict to go by, so the command's own status is kept (not {EX_TEMPFAIL}).")

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """A fault in a callback of ours: recorded, not printed into the agent's output."""
        del loop
        self._note("swallowed", error=str(context.get("exception") or context.get("message")))

    def _note(self, event: str, **facts: object) -> None:
        self._feed.record_json(Kind.NOTE, {"event": event, **facts})


def relay_settings(environ: Mapping[str, str], *, tool: str | None = None) -> RelaySettings:
    """How the relay reaches the upstreams: by the user's proxies, with the user's certificates beside the system's.

    Claude Code takes one proxy for http and https alike (seen with 2.1.197 and 2.1.332): the https one, else the other.
    """

    def either(name: str) -> str:
        # Lower case first, as curl and Python's clients; the user's own list, without the doors that we add.
        return environ.get(name.lower()) or environ.get(name) or ""

    https, http, fallback, none = (either(name) for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"))
    one = https or http or fallback
    return RelaySettings(
        proxy=ProxySettings(https_proxy=https or fallback, http_proxy=http or fallback, no_proxy=none),
        proxy_of={"anthropic": ProxySettings(https_proxy=one, http_proxy=one, no_proxy=none)}
        if tool == "claude"
        else {},
        ca_files=tuple(dict.fromkeys(value for name in _CA_VARIABLES if (value := environ.get(name)))),
    )


def _client_tls(environ: Mapping[str, str], door: str) -> ClientTls | None:
    """The certificate by which Claude Code shows itself to a company's gateway; an unreadable one is left out."""
    certificate, key = environ.get("CLAUDE_CODE_CLIENT_CERT"), environ.get("CLAUDE_CODE_CLIENT_KEY")
    if door != "anthropic" or not certificate or not key:
        return None
    if not all(os.access(path, os.R_OK) for path in (certificate, key)):
        return None
    password = environ.get("CLAUDE_CODE_CLIENT_KEY_PASSPHRASE")
    return ClientTls(cert_file=certificate, key_file=key, password=password or None)


def _no_room(error: CommandError) -> bool:
    """Whether there is no process or memory left for the command, of which fairtrial's own may have taken the last."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in {errno.EAGAIN, errno.ENOMEM}


def _controlling_terminal() -> int | None:
    try:
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except OSError:
        return None
