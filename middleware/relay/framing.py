"""Framing, both directions: where messages begin and end on one connection.

httptools cannot do this part: it gives no offsets, skips the body of a request with Upgrade, and swallows what follows
the response to a HEAD.  `messages.py`: what is found.  `request_framing.py` is strict, `response_framing.py` gives up
without harm, `chunked.py` is the coding that both meet, `heads.py` judges one head.
"""

from __future__ import annotations

from fairtrial.middleware.relay.chunked import MAX_CHUNK_LINE_BYTES, MAX_TRAILER_BYTES, ChunkedBody, FramingError
from fairtrial.middleware.relay.messages import (
    BadRequest,
    Blind,
    BodyData,
    InFlight,
    MessageEnd,
    RequestEvent,
    ResponseEvent,
    Tunnel,
)
from fairtrial.middleware.relay.request_framing import RequestFramer
from fairtrial.middleware.relay.response_framing import ResponseFramer

__all__ = (
    "MAX_CHUNK_LINE_BYTES", "MAX_TRAILER_BYTES", "BadRequest", "Blind", "BodyData", "ChunkedBody", "FramingError",
    "InFlight", "MessageEnd", "RequestEvent", "RequestFramer", "ResponseEvent", "ResponseFramer", "Tunnel",
)  # fmt: skip
