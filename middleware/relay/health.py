"""The health port of a `serve`: three pages for whoever watches over it, and one word for an operator.

In: small requests on a port of its own, never on a model door.  Out: JSON that says why::

    GET  /healthz           200 as long as this process answers: dead observer or not
    GET  /readyz            200 while calls are taken, 503 before and while it drains
    GET  /startupz          200 once doors are open and the observer has answered (or its start has failed)
    POST /trials/NAME/over  202: the trial is over; where there is a secret, with `Authorization: Bearer SECRET`

It lives in the relay process, so that what it says of the traffic is true when the observer is dead.  A page that a
browser was led to cannot read it: Host must be an address, localhost or a configured name, and no foreign Origin.

**Source:** RFC 9112; design page DESIGN.md section 8; Kubernetes probes take 200 to 399 for success.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import Callable, Collection
from typing import Final, cast
from urllib.parse import unquote

from fairtrial.middleware.core.hosts import is_our_host

MAX_HEAD_BYTES: Final = 8192
MAX_CONNECTIONS: Final = 64
PATIENCE_S: Final = 5.0

Report = Callable[[str], tuple[bool, dict[str, object]]]
"""Page ("healthz", "readyz", "startupz") → whether all is well, and the body."""

_PHRASES: Final = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
_PAGES: Final = ("healthz", "readyz", "startupz")
_OVER: Final = re.compile(r"/trials/([^/]{1,400})/over")


class HealthPages:
    """What is answered to a request; the sockets are `HealthConnection`s."""

    def __init__(
        self, report: Report, *, over: Callable[[str], None], hosts: Collection[str] = (), secret: str | None = None
    ) -> None:
        self._report = report
        self._over = over
        self._hosts = frozenset(hosts)
        self._secret = secret
        self.connections = 0

    def answer(self, head: bytes) -> bytes:
        """The whole response to one request head."""
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        headers: dict[str, list[str]] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers.setdefault(name.lower(), []).append(value.strip())
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or len(headers.get("host", [])) != 1:
            return _response(400, {"why": "not an HTTP/1 request with one Host"})
        status, body = self._page(words[0], words[1].partition("?")[0], headers)
        return _response(status, body, bodiless=words[0] == "HEAD")

    def _page(self, method: str, path: str, headers: dict[str, list[str]]) -> tuple[int, dict[str, object]]:
        host = headers["host"][0]
        if not is_our_host(host, self._hosts):
            return 403, {"why": "this Host is not ours; name it in serve.health_hosts"}
        if any(origin.partition("://")[2] != host for origin in headers.get("origin", [])):
            return 403, {"why": "the request comes from another site's page"}
        page = path.removeprefix("/")
        if page in _PAGES:
            if method not in ("GET", "HEAD"):
                return 405, {"why": "GET it"}
            well, body = self._report(page)
            return 200 if well else 503, body
        over = _OVER.fullmatch(path)
        if over is None:
            return 404, {"why": "there are /healthz, /readyz, /startupz and /trials/NAME/over"}
        if method != "POST":
            return 405, {"why": "POST it"}
        if self._secret is not None:
            said = "".join(headers.get("authorization", []))
            if not hmac.compare_digest(said.encode("latin-1"), f"Bearer {self._secret}".encode()):
                return 401, {"why": "Authorization: Bearer with serve.access_token is missing"}
        self._over(unquote(over[1]))
        return 202, {"status": "accepted"}


class HealthConnection(asyncio.Protocol):
    """One connection: one request, one response, closed."""

    def __init__(self, pages: HealthPages) -> None:
        self._pages = pages
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # No assertion: uvloop's transports are none of asyncio's classes.
        self._transport = transport = cast("asyncio.Transport", transport)
        self._pages.connections += 1
        if self._pages.connections > MAX_CONNECTIONS:
            transport.abort()
            return
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        assert self._transport is not None
        if self._transport.is_closing():
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end >= 0:
            self._transport.write(self._pages.answer(bytes(self._head[:end])))
            self._transport.close()
        elif len(self._head) > MAX_HEAD_BYTES:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        del exc
        self._pages.connections -= 1
        if self._timer is not None:
            self._timer.cancel()


def _response(status: int, body: dict[str, object], *, bodiless: bool = False) -> bytes:
    text = json.dumps(body, default=str).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if bodiless else text)
