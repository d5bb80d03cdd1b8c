"""The observer process as the run process sees it: started, fed, listened to, started again once, and closed.

In: how to start it, the HELLO, and the end of the command.  Out: a `Verdict`, or None with `trouble` as a sentence.
What this module does not do: touch traffic, or wait for the observer while the command runs.

Life: `launcher.py` starts the process before anything else is done, so that both start up side by side; `begin` sends
HELLO and hands the socket to the feed.  If the process dies it is started once more on the same store (HELLO
`resumed`).  After a second death the run goes on without; at the end a last one is started only to close the trial
(HELLO `close_only`).  Its counterpart is `middleware/app.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from dataclasses import dataclass
from typing import Final

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.config import EndConfig
from fairtrial.middleware.core.errors import HostError
from fairtrial.middleware.relay import child, signals
from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.launcher import Launched, Launcher
from fairtrial.middleware.wire import feed as wire

_MAX_RESTARTS: Final = 1
_HELLO_TIMEOUT_S: Final = 0.5
_EOF_GRACE_S: Final = 1.0
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Verdict:
    """The observer's answer: what to print, and what `--gate` makes of it (None: the command's own status)."""

    lines: tuple[str, ...]
    gate: int | None
    record: str | None = None
    """The trial as JSON, where the user wants it on standard output."""


class ObserverLink:
    """One run's observer, whichever process it is at the moment.

    `launcher`: for a restart.  `hello`: the payload without `resumed`, `close_only`, `gap_since_ns`.
    """

    def __init__(
        self,
        first: Launched,
        *,
        launcher: Launcher,
        hello: dict[str, object],
        feed: FeedSender,
        loop: asyncio.AbstractEventLoop,
        waits: EndConfig,
    ) -> None:
        self._launcher = launcher
        self._hello = hello
        self._feed = feed
        self._loop = loop
        self._waits = waits
        self._first: Launched | None = first
        self._pid: int | None = None
        self._reader: socket.socket | None = None
        self._decoder = wire.Decoder()
        self._ready = False
        self._containers = 0
        self._trials = 1
        self._restarts = 0
        self._ending = False
        self._died_ns: int | None = None
        self._died_how: str | None = None
        self._child_started: tuple[dict[str, object], int] | None = None
        self._verdict: Verdict | None = None
        self._changed = asyncio.Event()
        self._hurried = False

    @property
    def alive(self) -> bool:
        """Whether a process is there that has not been seen to die."""
        return self._pid is not None

    @property
    def ready(self) -> bool:
        """Whether it has said that it hears and collects."""
        return self._ready

    @property
    def trials(self) -> int:
        """How many trials the run held, as far as was said."""
        return self._trials

    @property
    def deaths(self) -> int:
        """How often it died before the command's end."""
        return self._restarts + (0 if self.alive else 1)

    @property
    def trouble(self) -> str | None:
        """How the last one that died, died."""
        return self._died_how

    def begin(self) -> None:
        """Say HELLO to the process that `launch` started and let the feed flow."""
        assert self._first is not None
        launched, self._first = self._first, None
        self._take(launched, {})

    def child_started(self, facts: dict[str, object], t_ns: int) -> None:
        """Record that the command runs; a later observer is told again."""
        self._child_started = (facts, t_ns)
        self._feed.record_json(wire.Kind.CHILD, facts, t_ns=t_ns)

    def child_moved(self, cgroup: str) -> None:
        """Record in which cgroup the command was seen; a later observer is told the last one."""
        t_ns = clock.mono_ns()
        if self._child_started is not None:
            facts, started_ns = self._child_started
            self._child_started = ({**facts, "cgroup": cgroup}, started_ns)
        self._feed.record_json(wire.Kind.CHILD, {"event": "moved", "cgroup": cgroup}, t_ns=t_ns)

    def reap(self) -> None:
        """Look whether the process has died (called for SIGCHLD)."""
        if self._pid is None:
            return
        status = child.poll(self._pid)
        if isinstance(status, child.ExitStatus):
            how = f"signal {status.signal}" if status.signal is not None else f"exit code {status.exit_code}"
            self._lost(how)

    def hurry(self) -> None:
        """The user wants to leave: the wait for the verdict is over."""
        self._hurried = True
        self._changed.set()

    async def conclude(self, ended: dict[str, object], *, asked: bool) -> Verdict | None:
        """Say that the command is gone, and wait for the verdict as long as the settings allow.

        `ended`: payload of the CHILD record of the end.  `asked`: the answer is what the run is for (--gate, --json).
        """
        self._ending = True
        began_ns = clock.mono_ns()
        closer = not self.alive
        if closer:
            self._close_only()
        was_ready = self._ready
        self._say_end(ended)
        while self._verdict is None and not self._hurried:
            if not self.alive:
                if closer:
                    break
                closer, began_ns = True, clock.mono_ns()
                self._close_only()
                self._say_end(ended)
                continue
            patience_s = self._patience_s(asked=asked, was_ready=was_ready and not closer)
            left_s = patience_s - (clock.mono_ns() - began_ns) / 1e9
            if left_s <= 0:
                break
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                continue
        return self._verdict

    async def gone(self, timeout_s: float) -> None:
        """Wait until the process has ended by itself, at most `timeout_s`."""
        deadline_ns = clock.mono_ns() + int(timeout_s * 1e9)
        while self.alive and (left_s := (deadline_ns - clock.mono_ns()) / 1e9) > 0:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                return

    def close(self) -> None:
        """Let go of the process and its socket; it ends its work by itself, unless somebody stopped it for ever."""
        self._ending = True
        if self._pid is not None and self._verdict is None and signals.is_stopped(self._pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._pid = None
        self._stop_reading()
        self._feed.close()

    # --- how it works -----------------------------------------------------------------------------------------------

    def _patience_s(self, *, asked: bool, was_ready: bool) -> float:
        waits = self._waits
        if asked or self._trials > 1:
            # Several trials are judged one after another; who ran them for an hour wants to read what came of it.
            return waits.verdict_wait_asked_s
        if not was_ready:
            return max(waits.verdict_wait_start_s, waits.verdict_wait_containers_s if self._containers else 0.0)
        return waits.verdict_wait_containers_s if self._containers else waits.verdict_wait_s

    def _take(self, launched: Launched, more: dict[str, object]) -> None:
        self._pid = launched.pid
        self._ready = False
        self._decoder = wire.Decoder()
        sock = launched.sock
        self._reader = sock.dup()
        greeting = wire.encode_json(wire.Kind.HELLO, {**self._hello, **more}, t_ns=clock.mono_ns())
        if more:
            greeting += self._reminder()
        try:
            # HELLO is the first record of every feed, ahead of what the sender kept: so it does not go through it.
            sock.settimeout(_HELLO_TIMEOUT_S)
            sock.sendall(greeting)
        except OSError:
            sock.close()  # it is dead already; SIGCHLD or the end of the stream says so in a moment
        else:
            self._feed.attach(sock)
        self._reader.setblocking(False)
        self._loop.add_reader(self._reader.fileno(), self._read)

    def _reminder(self) -> bytes:
        """What a successor must be told again, behind its HELLO."""
        if self._child_started is None:
            return b""
        facts, t_ns = self._child_started
        return wire.encode_json(wire.Kind.CHILD, facts, t_ns=t_ns)

    def _read(self) -> None:
        reader = self._reader
        if reader is None:
            return
        try:
            chunk = reader.recv(_READ_BYTES)
            records = self._decoder.feed(chunk) if chunk else []
        except (BlockingIOError, InterruptedError):
            return
        except (OSError, wire.FeedCorrupt):
            chunk, records = b"", []
        for record in records:
            self._hear(record)
        if not chunk:
            self._stop_reading()
            if self._pid is not None:
                self._loop.call_later(_EOF_GRACE_S, self._end_of_stream, self._pid)

    def _hear(self, record: wire.Record) -> None:
        facts = record.json()
        match record.kind:
            case wire.Kind.READY:
                self._ready = True
            case wire.Kind.WATCHED:
                count = facts.get("containers")
                self._containers = max(self._containers, count if isinstance(count, int) else 0)
                trials = facts.get("trials")
                self._trials = max(self._trials, trials if isinstance(trials, int) else 1)
                self._changed.set()
            case wire.Kind.VERDICT:
                lines, gate, whole = facts.get("lines"), facts.get("gate"), facts.get("record")
                self._verdict = Verdict(
                    tuple(str(line) for line in lines) if isinstance(lines, list) else (),
                    gate if isinstance(gate, int) and not isinstance(gate, bool) else None,
                    whole if isinstance(whole, str) else None,
                )
                self._changed.set()
            case _:
                return  # a newer observer may say more than we understand

    def _end_of_stream(self, pid: int) -> None:
        """It closed its socket and lives: it can neither hear nor answer, so it is ended."""
        if self._pid == pid and self._verdict is None:
            self.reap()
            if self._pid == pid:
                os.kill(pid, signal.SIGKILL)

    def _gone(self, how: str) -> None:
        """The process is no more: hear its last words, and let the feed wait for another."""
        self._pid = None
        if self._reader is not None:
            self._read()  # what it said before it died
            self._stop_reading()
        self._feed.detach()
        self._died_ns, self._died_how = clock.mono_ns(), how
        self._changed.set()

    def _lost(self, how: str) -> None:
        self._gone(how)
        if self._ending or self._restarts >= _MAX_RESTARTS:
            self._launcher.close_control()
            return
        self._restarts += 1
        self._again({"resumed": True}, "observer.restarted")

    def _close_only(self) -> None:
        self._again({"resumed": True, "close_only": True}, "observer.closing")

    def _again(self, more: dict[str, object], event: str) -> None:
        since_ns = self._died_ns
        try:
            launched = self._launcher.launch()
        except HostError as error:
            self._died_how = str(error)
            self._launcher.close_control()
            return
        self._take(launched, {**more, "gap_since_ns": since_ns})
        until_ns = clock.mono_ns()
        gap_s = None if since_ns is None else (until_ns - since_ns) / 1e9
        self._feed.record_json(
            wire.Kind.NOTE,
            {"event": event, "how": self._died_how, "since_ns": since_ns, "until_ns": until_ns, "gap_s": gap_s},
        )

    def _say_end(self, ended: dict[str, object]) -> None:
        self._feed.record_json(wire.Kind.CHILD, {"event": "exited", **ended})
        self._feed.record_json(wire.Kind.BYE, ended)
        self._feed.flush_now()

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._loop.remove_reader(self._reader.fileno())
            self._reader.close()
            self._reader = None
