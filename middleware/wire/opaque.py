"""What passed the connect door: records of the feed become one observation per connection.

In: `feed.Record`s of connections whose door is `connect:egress`.  Out: `connection.ended`.  Sans-IO; an unreadable
record costs its facts only.  Its counterpart is `relay/egress.py`; what is measured, `relay/opaque.py` says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from fairtrial.middleware.core import clock
from fairtrial.middleware.core.observations import OpaqueConnection, Subject
from fairtrial.middleware.core.sink import Source
from fairtrial.middleware.wire import feed
from fairtrial.middleware.wire.feed import Kind
from fairtrial.middleware.wire.http1 import parse_request_head
from fairtrial.middleware.wire.passing import PARTIES, Dial, Ending

DOOR: Final = "connect:egress"
_MAX_CONNECTIONS: Final = 4096
_PROVIDERS: Final = (
    ("anthropic", re.compile(r"api\.anthropic\.com")),
    ("openai", re.compile(r"(?:[a-z0-9-]+\.)?api\.openai\.com|chatgpt\.com")),
    ("gemini", re.compile(r"generativelanguage\.googleapis\.com")),
    ("vertex", re.compile(r"(?:[a-z0-9-]+-)?aiplatform\.googleapis\.com")),
    ("bedrock", re.compile(r"bedrock[a-z-]*\.[a-z0-9-]+\.(?:amazonaws\.com(?:\.cn)?|api\.aws)")),
)


class _Measures(msgspec.Struct, kw_only=True):
    """TUNNEL_END of an opaque tunnel."""

    up: int | None = None
    down: int | None = None
    first_up_ns: int | None = None
    first_down_ns: int | None = None
    last_up_ns: int | None = None
    last_down_ns: int | None = None
    max_wait_s: float | None = None
    max_gap_s: float | None = None
    clean: bool | None = None


class _Close(Ending, kw_only=True):
    """CLOSE: its `how` is how the first side ended."""


@dataclass(slots=True)
class _Tunnel:
    started_ns: int
    host: str = ""
    port: int | None = None
    dial: Dial | None = None
    measures: _Measures | None = None


class OpaqueTracker:
    """Feed it the records of the connect door with `take`; `close` ends what is still open."""

    def __init__(self, source: Source, *, trial: str | None, at: clock.Instant) -> None:
        self._source = source
        self._trial = trial
        self._clock = at
        self._open: dict[int, _Tunnel] = {}
        self.faults = 0
        self.last_fault: str | None = None

    def take(self, record: feed.Record) -> None:
        """Handle one record; never raises."""
        try:
            self._take(record)
        except Exception as error:  # noqa: BLE001 - one record of foreign bytes must not end the observing
            self.faults += 1
            self.last_fault = f"record {record.kind}: {type(error).__name__}: {error}"

    def close(self) -> None:
        """The observing ends: what is still open is told as far as it is known."""
        now_ns = clock.mono_ns()
        for tunnel in self._open.values():
            if tunnel.host:
                self._emit(tunnel, None, now_ns)
        self._open.clear()

    def _take(self, record: feed.Record) -> None:
        if record.kind == Kind.OPEN:
            if len(self._open) < _MAX_CONNECTIONS:
                self._open[record.conn] = _Tunnel(record.t_ns)
            return
        tunnel = self._open.get(record.conn)
        if tunnel is None:
            return
        match record.kind:
            case Kind.REQUEST_HEAD:
                head = parse_request_head(record.payload)
                if head is None:
                    raise ValueError("no head of a request")
                host, _, port = head.target.rpartition(":")
                tunnel.host, tunnel.port = host.strip("[]").lower(), int(port)
            case Kind.DIAL:
                tunnel.dial = msgspec.json.decode(record.payload, type=Dial)
            case Kind.TUNNEL_END:
                tunnel.measures = msgspec.json.decode(record.payload, type=_Measures)
            case Kind.CLOSE:
                del self._open[record.conn]
                if tunnel.host:  # a request that was refused asked for nothing of the trial's
                    self._emit(tunnel, msgspec.json.decode(record.payload, type=_Close), record.t_ns)
            case _:
                pass

    def _emit(self, tunnel: _Tunnel, ending: _Close | None, ended_ns: int) -> None:
        dial = tunnel.dial if tunnel.dial is not None else Dial()
        measures = tunnel.measures if tunnel.measures is not None else _Measures()
        heard = max(measures.last_up_ns or 0, measures.last_down_ns or 0)
        tls: float | None = None
        if measures.first_up_ns is not None and measures.first_down_ns is not None:
            tls = max(0, measures.first_down_ns - measures.first_up_ns) / 1e9
        party: Literal["client", "upstream", "fairtrial"] | None = None
        if ending is not None:
            party = PARTIES.get(ending.first)
        upstream_left = party == "upstream"
        self._source.emit(
            OpaqueConnection(
                host=tunnel.host,
                port=tunnel.port,
                provider=provider_of(tunnel.host),
                started_wall_ns=self._clock.wall_at(tunnel.started_ns),
                ok=dial.ok,
                stage=None if dial.ok else dial.stage,
                dns=dial.dns_s,
                connect=dial.connect_s,
                tls=tls,
                via_proxy=dial.via_proxy,
                remote=dial.remote,
                duration=max(0, ended_ns - tunnel.started_ns) / 1e9,
                bytes_up=measures.up,
                bytes_down=measures.down,
                max_wait=measures.max_wait_s,
                max_gap=measures.max_gap_s,
                silent=max(0, ended_ns - heard) / 1e9 if heard else None,
                closed_by=party,
                close_kind=None if ending is None else ending.how,
                cut=None if measures.clean is None or not upstream_left else not measures.clean,
                errno=dial.errno if not dial.ok else None if ending is None else ending.errno,
                error=dial.error if not dial.ok else None if ending is None else ending.text,
            ),
            subject=Subject(trial=self._trial),
            wall_ns=self._clock.wall_at(ended_ns),
            mono_ns=ended_ns,
        )


def provider_of(host: str) -> str | None:
    """Whose model API is there, by its public name."""
    return next((name for name, pattern in _PROVIDERS if pattern.fullmatch(host)), None)
