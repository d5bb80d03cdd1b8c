"""What is known of connections and exchanges while they pass: the tracker's working memory.

Shapes only, filled by `exchange.py` and its neighbours, let go when the attempt was reported.  `Ending`, `Dial` and
`Opened` are payloads of the feed (`feed.py`); the counterpart that writes them is `relay/account.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from fairtrial.middleware.core.claims import Assigned
from fairtrial.middleware.core.observations import RequestFacts, Sender
from fairtrial.middleware.wire.decode import BodyDecoder
from fairtrial.middleware.wire.dialects.base import Dialect, ReplyReader
from fairtrial.middleware.wire.dialects.responses_socket import ResponsesSocket, SocketCall
from fairtrial.middleware.wire.http1 import Headers, RequestHead
from fairtrial.middleware.wire.stalls import Stalls

Outcome = Literal["ok", "error", "truncated", "client_disconnect", "proxy_shutdown"]
Party = Literal["client", "upstream", "fairtrial"]

PARTIES: Final[Mapping[object, Party]] = {"client": "client", "upstream": "upstream", "fairtrial": "fairtrial"}
MAX_TRIALS: Final = 64
NO_HEAD: Final = RequestHead(method="", target="", headers=Headers())


class Ending(msgspec.Struct, kw_only=True):
    """What RESPONSE_END and CLOSE say about an end; all optional."""

    wire_bytes: int | None = None
    complete: bool | None = None
    how: str | None = None
    first: str | None = None
    close_how: str | None = None
    errno: int | str | None = None
    text: str | None = None
    first_ns: int | None = None
    client_last_ns: int | None = None
    upstream_last_ns: int | None = None
    lag_max_s: float | None = None
    """The longest lag since the connection was opened."""
    lag_now_s: float | None = None
    """How late the very turn of our loop was that met the end."""
    suspend_gap_s: float | None = None
    far_listens: bool | None = None


CALL_OVER: Final = Ending(how="framed", complete=True)
SHUTDOWN: Final = Ending(how="shutdown", complete=False)


class Dial(msgspec.Struct, kw_only=True):
    """One dial of the upstream."""

    ok: bool = False
    stage: str | None = None
    dns_s: float | None = None
    connect_s: float | None = None
    tls_s: float | None = None
    remote: str | None = None
    via_proxy: str | None = None
    status: int | None = None
    errno: int | str | None = None
    error: str | None = None


class Opened(msgspec.Struct, kw_only=True):
    """A client connection was accepted."""

    door: str = ""
    upstream: str | None = None
    peer: str | None = None
    container: str | None = None
    """The client's, as the engine told the relay."""


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and its response."""

    id: str
    conn: int
    msg: int
    started_ns: int
    head: RequestHead
    path: str
    dialect: Dialect
    stalls: Stalls
    assigned: Assigned = field(default_factory=Assigned)
    request: RequestFacts = field(default_factory=RequestFacts)
    body: bytearray = field(default_factory=bytearray)
    body_bytes: int = 0
    body_lost: str | None = None
    announced: bool = False
    is_main: bool = False
    said_ended: bool = False
    request_end_ns: int | None = None
    request_whole: bool | None = None
    after_close: bool = False
    bytes_up: int | None = None
    bytes_down: int | None = None
    dial: Dial | None = None
    status: int | None = None
    reader: ReplyReader | None = None
    decoder: BodyDecoder | None = None
    parse: Literal["full", "partial", "none"] = "full"
    parse_why: str | None = None
    holed: bool = False
    """Bytes of the response are missing from the copy."""
    key: str | None = None
    """Digest of the API key that it carried."""
    facts: RequestFacts | None = None
    """Of a call that came over a WebSocket: read already."""
    socket: ResponsesSocket | None = None
    socket_calls: dict[int, tuple[SocketCall, Exchange]] = field(
        default_factory=dict["int", "tuple[SocketCall, Exchange]"]
    )
    """Calls over this WebSocket that have not ended, by the call's identity."""
    socket_count: int = 0

    def give_up(self, why: str, parse: Literal["partial", "none"] = "none") -> None:
        """It cannot be read, or not whole; the first reason stands."""
        if self.parse == "full" or parse == "none":
            self.parse = parse
        self.parse_why = self.parse_why or why


@dataclass(slots=True)
class Conn:
    """One client connection."""

    door: str = ""
    provider: str | None = None
    upstream_host: str | None = None
    peer: str | None = None
    container: str | None = None
    dialled: bool = False
    blind: str | None = None
    blind_since_ns: int | None = None
    """Wall ns since which calls of a trial may pass on it unseen."""
    trials: list[str] = field(default_factory=list[str])
    """Whose requests it carried; the last 64."""
    sender: Sender | None = None
    """The process at its other end, where somebody looked in time."""
    closing: bool = False
    """A head on it said that the connection ends with its message."""
    lag_max_s: float = 0.0
    """The longest lag while it was open."""
    open: dict[int, Exchange] = field(default_factory=dict[int, Exchange])
    broken: list[tuple[Exchange, Ending, int]] = field(default_factory=list[tuple[Exchange, Ending, int]])
    """Ended before their time, and not yet reported: what CLOSE and the last BLOCKED say belongs to them."""

    def add_trial(self, trial: str) -> None:
        """It carried a request of this trial."""
        if trial not in self.trials:
            self.trials.append(trial)
            del self.trials[:-MAX_TRIALS]


def peer_host(peer: str | None) -> str | None:
    """The address of `address:port`; a client's port is new for each connection and names nobody."""
    if peer is None or ":" not in peer:
        return peer or None
    return peer.rpartition(":")[0].strip("[]") or None
