"""A model door on the engine's bridge: the same door, for containers of this run alone.

In: requests to `http://GATEWAY:PORT/t/<token>/…` from a container.  Out: as `model.py`; a request without a token of
this relay is refused, since whoever shares the bridge can reach the port.  Which clients come so far as to ask is
decided before, by their address (`Route.gate`).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from fairtrial.middleware.relay.coupled import HeadRefused
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.model import ModelDoor
from fairtrial.middleware.relay.route import Gate
from fairtrial.middleware.relay.settings import Upstream


class GatewayDoor(ModelDoor):
    """See the module.  Its label is the model door's, so that both are one in the record."""

    def __init__(
        self, upstream: Upstream, dialler: Dialler, listener: socket.socket, tokens: Mapping[str, str], gate: Gate
    ) -> None:
        super().__init__(upstream, dialler, listener, tokens)
        self.gate = gate

    def rewrite(self, head: RequestHead) -> tuple[bytes, str | None]:
        """See `coupled.Route`."""
        new, trial = super().rewrite(head)
        if trial is None:
            raise HeadRefused("it bears no token of this run (/t/TOKEN/ before the path)", "403 Forbidden")
        return new, trial
