"""The connect door: a proxy on loopback that only knows CONNECT, for the programs of one trial.

In: `CONNECT host:port` with the trial's token as password.  Out: a tunnel to that host, verbatim in both directions;
who is inside is not read.  Each host and port is dialled by the user's own proxy settings.  A dial that fails is shown
as a reset, as at the model door; its reason is in the record.

It is no open proxy: without the token there is a 407, and what is no CONNECT gets a 405.  Addresses of the link alone
(169.254/16, fe80::/10: among them the metadata services of clouds) are refused when they are named as such; a name
that leads there is dialled, as the program itself could do.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import re
import socket
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fairtrial.middleware.relay.coupled import DoorPolicy
from fairtrial.middleware.relay.dial import Dialler
from fairtrial.middleware.relay.heads import RequestHead
from fairtrial.middleware.relay.route import HeadRefused
from fairtrial.middleware.relay.settings import Upstream

LABEL: Final = "connect:egress"
USER: Final = "fairtrial"
MAX_DIALLERS: Final = 1024
_AUTHORITY: Final = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
_CREDENTIALS: Final = re.compile(rb"\r\nproxy-authorization:[ \t]*basic[ \t]+([A-Za-z0-9+/=]+)", re.IGNORECASE)
_ASKED_FOR: Final = '407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="fairtrial"'
"""With the line that a client waits for which shows its password only when asked."""
_LINK_LOCAL: Final = (ipaddress.ip_network("169.254.0.0/16"), ipaddress.ip_network("fe80::/10"))
_METADATA: Final = ipaddress.ip_address("fd00:ec2::254")


class ConnectDoor:
    """A bound door.  `url` is for the child's environment and holds the token; the rest is for the engine."""

    label = LABEL
    editor = None
    gate = None

    def __init__(
        self,
        upstream: Upstream,
        dialler: Dialler,
        listener: socket.socket,
        *,
        token: str,
        trial: str,
        dialler_for: Callable[[Upstream], Dialler],
    ) -> None:
        self.upstream = upstream
        self.dialler = dialler
        self.listener = listener
        self.policy = DoorPolicy(client_eof="gone", connect=True)
        self.port: int = listener.getsockname()[1]
        self.url = f"http://{USER}:{token}@127.0.0.1:{self.port}"
        self._trial = trial
        self._secret = base64.b64encode(f"{USER}:{token}".encode())
        self._dialler_for = dialler_for
        self._diallers: OrderedDict[tuple[str, int], Dialler] = OrderedDict()

    def lead(self, head: RequestHead) -> Dialler:
        """See `coupled.Route`: the dialler of the host and port that are asked for."""
        named = _named(head)
        if named is None:
            return self.dialler  # `rewrite` refuses it before anybody dials
        known = self._diallers.get(named)
        if known is None:
            known = self._diallers[named] = self._dialler_for(Upstream("connect", "tcp", *named))
            if len(self._diallers) > MAX_DIALLERS:
                self._diallers.popitem(last=False)
        return known

    def rewrite(self, head: RequestHead) -> tuple[bytes, str | None]:
        """See `coupled.Route`: nothing of the request goes upstream.  Raises `HeadRefused`."""
        if head.method != b"CONNECT":
            raise HeadRefused("this door takes CONNECT only", "405 Method Not Allowed")
        found = _CREDENTIALS.search(head.raw)
        if found is None or not hmac.compare_digest(found[1], self._secret):
            raise HeadRefused("this door is another trial's", _ASKED_FOR)
        named = _named(head)
        if named is None:
            raise HeadRefused("CONNECT needs host:port")
        if _is_of_the_link(named[0]):
            raise HeadRefused("addresses of the link alone are not reached through this door", "403 Forbidden")
        return b"", self._trial

    def rewrite_loosely(self, rest: bytes) -> bytes:
        """See `coupled.Route`: what is no head asks for nothing, and there is nowhere to send it."""
        del rest
        return b""


def _named(head: RequestHead) -> tuple[str, int] | None:
    found = _AUTHORITY.fullmatch(head.target)
    if head.method != b"CONNECT" or found is None or not 0 < int(found[3]) < 1 << 16:
        return None
    return (found[1] or found[2]).decode("ascii").lower(), int(found[3])


def _is_of_the_link(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address == _METADATA or any(address.version == net.version and address in net for net in _LINK_LOCAL)
