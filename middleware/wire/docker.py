"""What the Docker door's traffic says of execs and containers: copies of HTTP messages in, observations out.

In: the feed's records of connections whose door is `docker:…`.  Out: `door.exec` when an exec's stream ended,
`door.image` for a pull (`docker_pulls.py`), and `door.container` for every request that makes, ends or holds up a
container: the trial's own doing, as opposed to what somebody else asks of the same engine.  Of a refusal its kind is
kept (`docker_errors.py`).  Exit codes of execs are not here: the engine tells them by event and inspect
(`collectors/docker_events.py`); a stream's end says only that it ended.

Everything is bounded, and an unreadable body costs facts only.  Of a command leaves what `core/masking.py` leaves
of its first words, and a digest of its text.
**Source:** Docker Engine API v1.41 (paths, bodies), Engine 20.10 and CLI 28 as measured in reference/container.md.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar
from urllib.parse import parse_qs

import msgspec

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.commands import is_plumbing, shell_text, text_digest, typed_text
from fairtrial.middleware.core.masking import mask_command
from fairtrial.middleware.core.observations import DoorContainer, DoorExec, Subject, Value
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.docker_errors import OTHER, kind_of
from fairtrial.middleware.wire.docker_pulls import TAIL_BYTES, pull
from fairtrial.middleware.wire.feed import Flag, Kind
from fairtrial.middleware.wire.http1 import parse_request_head, parse_response_head

DOOR: Final = "docker:"
"""How the label of a Docker door begins."""

_MAX_BODY_BYTES: Final = 64 * 1024
_MAX_EXECS: Final = 4096
_MAX_WORDS: Final = 16
_MAX_CONNECTIONS: Final = 4096
_PATH: Final = re.compile(
    r"(?:/v\d+\.\d+)?/(?:"
    r"(?P<create>containers/create)"
    r"|containers/(?P<container>[^/]+)(?:/(?P<action>exec|attach|start|kill|stop|restart|pause|unpause|wait))?"
    r"|exec/(?P<exec>[^/]+)/start"
    r"|(?P<pull>images/create)"
    r")\Z"
)
_WHOLE_ID: Final = re.compile(r"[0-9a-f]{64}\Z")
_SIGNAL: Final = re.compile(r"[A-Za-z0-9+]{1,12}\Z")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
"""What the engine allows as a container's name; anything else is not repeated."""

Ender = Literal["process", "client", "engine", "fairtrial"]
_Shape = TypeVar("_Shape", bound=msgspec.Struct)


class _Id(msgspec.Struct):
    Id: str = ""


class _ExecCreate(msgspec.Struct):
    Cmd: list[str] | str | None = None
    Tty: bool | None = None


class _Create(msgspec.Struct):
    Entrypoint: list[str] | str | None = None
    Cmd: list[str] | str | None = None


class _Refused(msgspec.Struct):
    message: str = ""


class _ExecStart(msgspec.Struct):
    Detach: bool | None = None


class _Waited(msgspec.Struct):
    StatusCode: int | None = None


class _TunnelEnd(msgspec.Struct):
    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    raw: int | None = None
    upstream_ended: bool | None = None


class _Ending(msgspec.Struct):
    first: str | None = None
    how: str | None = None
    text: str | None = None


@dataclass(slots=True)
class _Exec:
    container: str
    command: list[str] | None
    text_digest: str | None
    typed_digest: str | None
    plumbing: bool | None
    tty: bool | None
    asked_ns: int
    """When the client asked for it to be made."""
    answered_ns: int | None


@dataclass(slots=True)
class _Call:
    """One request of interest and its answer, while they pass."""

    action: str
    ref: str
    query: str
    started_ns: int
    status: int | None = None
    answered_ns: int | None = None
    sent: list[bytes] = field(default_factory=list[bytes])
    got: list[bytes] = field(default_factory=list[bytes])
    kept_bytes: int = 0
    tail: bytes = b""
    tunnel: bool = False
    counted: _TunnelEnd | None = None


class DockerTracker:
    """Feed it the records of Docker doors with `take`; `close` ends what is still open.

    `trial`: whose door it is; the door's socket belongs to one trial.  `on_created` is told the id of each container
    that was made through it.  `keep_text` keeps the free text of commands (`privacy.content`).
    `faults`: records that made no sense.
    """

    def __init__(
        self,
        source: Source,
        *,
        trial: str | None,
        at: clock.Instant,
        on_created: Callable[[str], None] | None = None,
        keep_text: bool = False,
    ) -> None:
        self._source = source
        self._on_created = on_created
        self._keep_text = keep_text
        self._trial = trial
        self._clock = at
        self._calls: OrderedDict[int, dict[int, _Call]] = OrderedDict()
        self._execs: OrderedDict[str, _Exec] = OrderedDict()
        self.faults = 0
        self.last_fault: str | None = None
        self._takers: dict[int, Callable[[feed.Record], None]] = {
            Kind.REQUEST_HEAD: self._request_head,
            Kind.REQUEST_DATA: self._request_data,
            Kind.RESPONSE_HEAD: self._response_head,
            Kind.RESPONSE_DATA: self._response_data,
            Kind.RESPONSE_END: self._response_end,
            Kind.TUNNEL_END: self._tunnel_end,
            Kind.CLOSE: self._close,
        }

    def take(self, record: feed.Record) -> None:
        """Handle one record; never raises."""
        taker = self._takers.get(record.kind)
        if taker is None:
            return
        try:
            taker(record)
        except Exception as error:  # noqa: BLE001 - one record of foreign bytes must not end the observing
            self.faults += 1
            self.last_fault = f"record {record.kind}: {type(error).__name__}: {error}"

    def close(self) -> None:
        """The observing ends: a stream that is still open has no end that we know of."""
        now_ns = clock.mono_ns()
        for calls in self._calls.values():
            for call in calls.values():
                if call.tunnel:
                    self._stream_over(call, now_ns, None)
        self._calls.clear()

    # --- messages -------------------------------------------------------------------------------------------------

    def _call(self, record: feed.Record) -> _Call | None:
        calls = self._calls.get(record.conn)
        return None if calls is None else calls.get(record.msg)

    def _request_head(self, record: feed.Record) -> None:
        head = parse_request_head(record.payload)
        if head is None:
            return
        path, _, query = head.target.partition("?")
        found = _PATH.match(path)
        if found is None or head.method not in ("POST", "DELETE"):
            return
        if found["pull"]:
            action, ref = "pull", ""
        elif found["create"]:
            action, ref = "create", ""
        elif found["exec"]:
            action, ref = "exec_start", found["exec"]
        else:
            action, ref = found["action"] or "remove", found["container"]
        if (head.method == "DELETE") != (action == "remove"):
            return
        calls = self._calls.setdefault(record.conn, {})
        calls[record.msg] = _Call(action=action, ref=ref, query=query, started_ns=record.t_ns)
        while len(self._calls) > _MAX_CONNECTIONS:  # of connections whose CLOSE was lost
            self._calls.popitem(last=False)

    def _request_data(self, record: feed.Record) -> None:
        call = self._call(record)
        if call is not None and call.action in ("create", "exec", "exec_start"):
            self._keep(call, call.sent, record)

    def _response_head(self, record: feed.Record) -> None:
        call = self._call(record)
        head = parse_response_head(record.payload)
        if call is None or head is None or record.flags & Flag.INTERIM:
            return
        call.status, call.answered_ns = head.status, record.t_ns

    def _response_data(self, record: feed.Record) -> None:
        call = self._call(record)
        if call is None or record.flags & Flag.DROPPED:
            return
        if call.action == "pull":
            call.tail = (call.tail + record.payload)[-TAIL_BYTES:]  # its error is the last of many lines
        elif call.action in ("create", "exec", "wait") or (call.status or 0) >= 400:
            self._keep(call, call.got, record)

    @staticmethod
    def _keep(call: _Call, parts: list[bytes], record: feed.Record) -> None:
        call.kept_bytes += len(record.payload)
        if call.kept_bytes <= _MAX_BODY_BYTES and not record.flags & Flag.DROPPED:
            parts.append(record.payload)

    def _response_end(self, record: feed.Record) -> None:
        call = self._call(record)
        if call is None:
            return
        if record.json().get("how") == "tunnel":
            call.tunnel = True
            return
        self._calls[record.conn].pop(record.msg, None)
        self._answered(call, record.t_ns)

    def _tunnel_end(self, record: feed.Record) -> None:
        call = self._call(record)
        if call is not None:
            call.counted = msgspec.json.decode(record.payload, type=_TunnelEnd)

    def _close(self, record: feed.Record) -> None:
        calls = self._calls.pop(record.conn, {})
        for call in calls.values():
            if call.tunnel:
                said = msgspec.json.decode(record.payload, type=_Ending)
                self._stream_over(call, record.t_ns, _ender(call.counted, said))
            else:
                self._answered(call, record.t_ns)

    # --- what they say --------------------------------------------------------------------------------------------

    def _answered(self, call: _Call, t_ns: int) -> None:
        match call.action:
            case "exec":
                self._remember_exec(call)
            case "exec_start":
                self._exec_over(call, t_ns, None)
            case "attach":
                return
            case "pull":
                self._say_image(call, t_ns)
            case _:
                self._say_container(call, t_ns)

    def _remember_exec(self, call: _Call) -> None:
        exec_id = _decoded(call.got, _Id()).Id
        if call.status != 201 or not exec_id:
            return
        asked = _decoded(call.sent, _ExecCreate())
        argv = _words(asked.Cmd)
        text, typed = shell_text(argv, None), typed_text(argv)
        self._execs[exec_id] = _Exec(
            container=call.ref,
            command=self._shown(argv),
            text_digest=None if text is None else text_digest(text),
            typed_digest=None if typed is None else text_digest(typed),
            plumbing=is_plumbing(argv or None, None, ()),
            tty=asked.Tty,
            asked_ns=call.started_ns,
            answered_ns=call.answered_ns,
        )
        while len(self._execs) > _MAX_EXECS:
            self._execs.popitem(last=False)

    def _stream_over(self, call: _Call, t_ns: int, ender: Ender | None) -> None:
        if call.action == "attach":
            self._say_container(call, t_ns, ender)
        else:
            self._exec_over(call, t_ns, ender)

    def _shown(self, words: tuple[str, ...]) -> list[str] | None:
        return mask_command(words[:_MAX_WORDS], keep_text=self._keep_text) or None

    def _exec_over(self, call: _Call, t_ns: int, ender: Ender | None) -> None:
        if call.action != "exec_start" or not _WHOLE_ID.match(call.ref):
            return
        known = self._execs.pop(call.ref, None)
        counted = call.counted or _TunnelEnd()
        self._emit(
            DoorExec(
                exec_id=call.ref,
                container_id=known.container if known is not None and _WHOLE_ID.match(known.container) else None,
                command=None if known is None else known.command,
                text_digest=None if known is None else known.text_digest,
                typed_digest=None if known is None else known.typed_digest,
                plumbing=None if known is None else known.plumbing,
                tty=None if known is None else known.tty,
                detached=_decoded(call.sent, _ExecStart()).Detach,
                status=call.status,
                error=_refusal(call),
                started_wall_ns=self._clock.wall_at(call.started_ns),
                dispatch_delay=_seconds(call.started_ns, call.answered_ns),
                created_wall_ns=None if known is None else self._clock.wall_at(known.asked_ns),
                create_delay=None if known is None else _seconds(known.asked_ns, known.answered_ns),
                duration=_seconds(call.started_ns, t_ns) if call.tunnel else None,
                stdin=counted.stdin,
                stdout=counted.stdout,
                stderr=counted.stderr,
                raw=counted.raw,
                ended_by=ender,
            ),
            t_ns,
            exec_id=call.ref,
        )

    def _say_container(self, call: _Call, t_ns: int, ender: Ender | None = None) -> None:
        ref = _decoded(call.got, _Id()).Id if call.action == "create" else call.ref
        if call.action == "create" and not ref:
            ref = parse_qs(call.query).get("name", [""])[0]
        whole = ref if _WHOLE_ID.match(ref) else None
        signal = parse_qs(call.query).get("signal", [""])[0]
        if call.action == "create" and call.status == 201 and whole is not None and self._on_created is not None:
            self._on_created(whole)
        waited = _decoded(call.got, _Waited()) if call.action == "wait" else _Waited()
        made = _decoded(call.sent, _Create()) if call.action == "create" else _Create()
        words = _words(made.Entrypoint) + _words(made.Cmd)
        text = shell_text(words, None)
        counted = call.counted or _TunnelEnd()
        self._emit(
            DoorContainer(
                action=call.action,
                container_id=whole,
                container_named=ref if whole is None and _NAME.match(ref) else None,
                status=call.status,
                signal=signal if _SIGNAL.match(signal) else None,
                error=_refusal(call),
                exit_code=waited.StatusCode,
                duration=_seconds(call.started_ns, t_ns),
                started_wall_ns=self._clock.wall_at(call.started_ns),
                command=self._shown(words),
                text_digest=None if text is None else text_digest(text),
                stdin=counted.stdin,
                stdout=counted.stdout,
                stderr=counted.stderr,
                raw=counted.raw,
                ended_by=ender,
            ),
            t_ns,
            container_id=whole,
        )

    def _say_image(self, call: _Call, t_ns: int) -> None:
        told = pull(
            call.query,
            call.tail,
            status=call.status,
            duration=_seconds(call.started_ns, t_ns),
            started_wall_ns=self._clock.wall_at(call.started_ns),
        )
        if told is not None:
            self._emit(told, t_ns)

    def _emit(self, value: Value, t_ns: int, *, exec_id: str | None = None, container_id: str | None = None) -> None:
        self._source.emit(
            value,
            subject=Subject(trial=self._trial, exec=exec_id, container_id=container_id),
            wall_ns=self._clock.wall_at(t_ns),
            mono_ns=t_ns,
        )


def _ender(counted: _TunnelEnd | None, said: _Ending) -> Ender | None:
    """Who ended an exec's stream.  A client that only half-closed (every exec without stdin) has not left."""
    if said.first == "fairtrial":
        return "fairtrial"
    if counted is not None and counted.upstream_ended is not None:
        if counted.upstream_ended:
            return "engine" if said.first == "upstream" and said.how in ("rst", "tls_ragged") else "process"
        return "client" if said.first == "client" else None
    if said.first == "upstream":
        return "process" if said.how == "fin" else "engine"
    return None if said.text == "half-close" else "client"


def _refusal(call: _Call) -> str | None:
    """What kind of refusal the answer tells; None where it is none."""
    if (call.status or 0) < 400:
        return None
    return kind_of(_decoded(call.got, _Refused()).message) or OTHER


def _words(said: list[str] | str | None) -> tuple[str, ...]:
    return tuple(said.split()) if isinstance(said, str) else tuple(said or ())


def _seconds(since_ns: int, until_ns: int | None) -> float | None:
    return None if until_ns is None else max(0, until_ns - since_ns) / 1e9


def _decoded(parts: list[bytes], empty: _Shape) -> _Shape:
    """The body as this type; one that is cut, too long or of another shape gives no facts."""
    try:
        return msgspec.json.decode(b"".join(parts), type=type(empty))
    except (msgspec.ValidationError, msgspec.DecodeError):
        return empty
