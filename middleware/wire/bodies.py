"""Bodies of passing exchanges, read through their dialects, failing open.

In: pieces of bodies as the feed brings them.  Out: `RequestFacts`, and a filled tally per response, on the exchange.
A dialect that raises is given up for that message: `parse` "none" with the reason, counted in `faults`, and nothing
else happens.  What this module does not do: time, frame, judge (`exchange.py`, `outcome.py`).

Memory: request bodies are gathered up to 64 MiB each and 256 MiB together, read when they end, and let go; of responses
at most one unfinished frame, one JSON body (32 MiB) or the arguments of open tool calls are held.
"""

from __future__ import annotations

from typing import Final

import msgspec

from fairtrial.middleware.core.observations import RequestFacts
from fairtrial.middleware.wire import lenient
from fairtrial.middleware.wire.decode import BodyDecoder, decode_whole
from fairtrial.middleware.wire.dialects import UNKNOWN
from fairtrial.middleware.wire.dialects.base import bare_facts
from fairtrial.middleware.wire.dialects.tally import Tally
from fairtrial.middleware.wire.http1 import ResponseHead
from fairtrial.middleware.wire.passing import Exchange
from fairtrial.middleware.wire.redact import digest

MAX_REQUEST_BODY_BYTES: Final = 64 << 20
MAX_BODIES_BYTES: Final = 256 << 20


class Bodies:
    """Reads the bodies of one tracker."""

    def __init__(self) -> None:
        self.held_bytes = 0
        """Of requests that have not ended."""
        self.faults = 0
        """Dialects given up."""
        self.last_fault: str | None = None

    def fault(self, what: str) -> None:
        """Count something that went wrong with reading."""
        self.faults += 1
        self.last_fault = what[:300]

    # --- requests -----------------------------------------------------------------------------------------------------

    def gather(self, exchange: Exchange, piece: bytes) -> None:
        """Keep a piece of a request's body until it is whole."""
        if exchange.body_lost is not None:
            return
        size = len(piece)
        if exchange.body_bytes + size > MAX_REQUEST_BODY_BYTES or self.held_bytes + size > MAX_BODIES_BYTES:
            self.lose(exchange, "the body is larger than what is kept for reading")
            return
        exchange.body += piece
        exchange.body_bytes += size
        self.held_bytes += size

    def lose(self, exchange: Exchange, why: str) -> None:
        """A request's body will not be read."""
        exchange.body_lost = exchange.body_lost or why
        self.release(exchange)

    def release(self, exchange: Exchange) -> None:
        """Let a request's body go."""
        self.held_bytes -= exchange.body_bytes
        exchange.body_bytes = 0
        exchange.body = bytearray()

    def read_request(self, exchange: Exchange) -> RequestFacts:
        """What is known of a request whose body ended, or will not come."""
        if exchange.facts is not None:
            return exchange.facts
        head = exchange.head
        why = exchange.body_lost
        try:
            if why is None:
                body, why = decode_whole(bytes(exchange.body), head.headers.get("content-encoding"))
                if body is not None:
                    facts = _facts(exchange, body)
                    if facts.unreadable is not None:
                        exchange.give_up(f"request: {facts.unreadable}", "partial")
                    return facts
            facts = exchange.dialect.read_request(head, exchange.path, b"")
            exchange.give_up(f"request: {why}", "partial")
            unseen = exchange.request_whole is not False
            return msgspec.structs.replace(facts, unreadable=why, raw_digest=None, unseen=unseen)
        except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
            self._give_up(exchange, "request", error)
            raw = digest(bytes(exchange.body)) if exchange.body else None
            return bare_facts(head, "other", raw_digest=raw, unreadable=type(error).__name__)

    # --- responses ----------------------------------------------------------------------------------------------------

    def begin_reply(self, exchange: Exchange, head: ResponseHead) -> None:
        """Choose how the response will be read."""
        try:
            exchange.reader = exchange.dialect.read_reply(head, exchange.request)
        except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
            self._give_up(exchange, "response", error)
            exchange.reader = UNKNOWN.read_reply(head, exchange.request)
        exchange.decoder = BodyDecoder(head.headers.joined("content-encoding"))

    def feed_reply(self, exchange: Exchange, piece: bytes, t_ns: int) -> bool:
        """Read a piece of a response; False when it carried nothing but pings and comments."""
        reader, decoder = exchange.reader, exchange.decoder
        if reader is None or decoder is None or exchange.holed or exchange.parse == "none":
            return True
        try:
            if decoder.plain:
                return reader.feed(piece, t_ns)
            spoken = False
            for decoded in decoder.feed(piece):
                spoken = reader.feed(decoded, t_ns) or spoken
        except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
            self._give_up(exchange, "response", error)
            return True
        if decoder.failed is not None:
            exchange.holed = True
            exchange.give_up(f"response: {decoder.failed}", "partial")
        return spoken

    def finish_reply(self, exchange: Exchange, *, whole: bool) -> Tally:
        """The response is over: what it has said."""
        reader = exchange.reader
        if reader is None:
            return Tally()
        tally = reader.tally
        if exchange.parse != "none":
            try:
                reader.finish(whole=whole)
            except Exception as error:  # noqa: BLE001 - a dialect's fault costs facts, nothing else
                self._give_up(exchange, "response", error)
        if tally.unread_frames and exchange.parse == "full":
            exchange.give_up(f"response: {tally.unread_frames} frames could not be read", "partial")
        if exchange.holed or exchange.parse == "none":
            # With a hole in the copy a mark that was not seen may have been there.
            tally.terminator = True if tally.terminator else None
        return tally

    def _give_up(self, exchange: Exchange, what: str, error: Exception) -> None:
        self.fault(f"{exchange.dialect.name}: {type(error).__name__}: {error}")
        exchange.give_up(f"{what}: {type(error).__name__}")


def _facts(exchange: Exchange, body: bytes) -> RequestFacts:
    """Facts of a body; what our strict reader refuses is read as lenient readers do."""
    facts = exchange.dialect.read_request(exchange.head, exchange.path, body)
    tidy = lenient.tidied(body) if facts.unreadable is not None else None
    if tidy is None or tidy == body:
        return facts
    again = exchange.dialect.read_request(exchange.head, exchange.path, tidy)
    return facts if again.unreadable is not None else msgspec.structs.replace(again, raw_digest=facts.raw_digest)
