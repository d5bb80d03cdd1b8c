"""What framing finds on a connection: heads, pieces of bodies, ends of messages, and where it can go on no more.

Events with the exact bytes: heads raw, body pieces both as they are on the wire and with the transfer framing taken
off.  Every byte of a request is in exactly one event, in its order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fairtrial.middleware.relay.heads import RequestHead, ResponseHead


@dataclass(slots=True)
class BodyData:
    """A piece of a body: `wire` as it travels (request side only), `payload` without transfer framing."""

    wire: bytes
    payload: bytes


@dataclass(slots=True)
class MessageEnd:
    """The message is whole (`complete`) or will never be.  `wire_bytes` counts head and body as sent."""

    msg: int
    wire_bytes: int
    complete: bool = True
    how: str = "framed"


@dataclass(slots=True)
class BadRequest:
    """Framing of the request side ends here.  `rest`: every byte that was read and not given out."""

    reason: str
    in_body: bool
    rest: bytes
    fault: Exception | None = None
    """Not the client's doing: framing itself failed."""


@dataclass(slots=True)
class Tunnel:
    """The response opened a tunnel; `rest` (already forwarded) is its first piece."""

    msg: int
    rest: bytes


@dataclass(slots=True)
class Blind:
    """The response side cannot be framed any more."""

    reason: str


@dataclass(slots=True)
class InFlight:
    """A request whose final response has not ended."""

    msg: int
    method: bytes
    may_tunnel: bool = False
    responded: bool = False


RequestEvent: TypeAlias = RequestHead | BodyData | MessageEnd | BadRequest
ResponseEvent: TypeAlias = ResponseHead | BodyData | MessageEnd | Tunnel | Blind
