"""Sends one OTLP request over HTTP, once, and says what became of it.

In: a serialized request and a time limit.  Out: an `Answer`.  Proxies and CA settings of the environment are honoured;
redirects are not followed.  Never repeats a request: whether its bytes were sent whole is watched, so that a failure
before that is surely one (`Later`), and one after it is not (`Unknown`).  No connection that was idle is used again,
since the other side may be closing it at that moment.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Final

import httpx

from fairtrial.exporters.answers import Answer, Later, Misdirected, Unknown, of_http
from fairtrial.exporters.otlp_json import to_json
from fairtrial.exporters.settings import ExportSettings

IDLE_S: Final = 1.0
ANSWER_BYTES: Final = 1 << 16
_COMPRESS: Final = {"gzip": lambda body: gzip.compress(body, 6, mtime=0), "deflate": zlib.compress}


class HttpSender:
    """One connection to one endpoint.  Raises `OSError` (also for TLS) or `ValueError` for settings that are no use."""

    def __init__(self, settings: ExportSettings, *, version: str) -> None:
        self._settings = settings
        self._json = settings.protocol == "http/json"
        headers = {
            "user-agent": f"OTel-OTLP-Exporter-fairtrial/{version}",
            "content-type": "application/json" if self._json else "application/x-protobuf",
        }
        if settings.compression != "none":
            headers["content-encoding"] = settings.compression
        self._watch = _Watch()
        self._client = httpx.Client(
            headers=headers | dict(settings.headers),
            verify=_trust(settings),
            limits=httpx.Limits(max_connections=1, keepalive_expiry=IDLE_S),
            follow_redirects=False,
        )

    def send(self, body: bytes, timeout_s: float) -> Answer:
        """POST once; returns within about `timeout_s`."""
        if self._json:
            body = to_json(body)
        if (compress := _COMPRESS.get(self._settings.compression)) is not None:
            body = compress(body)
        watch = self._watch
        try:
            with (
                watch.until(timeout_s),
                self._client.stream(
                    "POST",
                    self._settings.endpoint,
                    content=body,
                    timeout=httpx.Timeout(timeout_s),
                    extensions={"trace": watch.take},
                ) as response,
            ):
                text = _read(response)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            return Misdirected(f"{self._settings.shown} cannot be used ({error})")
        except (httpx.HTTPError, ssl.SSLError, OSError) as error:
            why = _said(error, watch.over)
            return Unknown(why) if watch.sent else Later(why)
        headers = {name.lower(): value for name, value in response.headers.items()}
        return of_http(response.status_code, headers, text, time.time())  # noqa: TID251 - compared with a date header

    @property
    def connection(self) -> socket.socket | None:
        """The socket that was dialled last."""
        return self._watch.socket

    def close(self) -> None:
        """Give the connection back."""
        self._client.close()


def _read(response: httpx.Response) -> bytes:
    """The body as far as it is of use; the status counts even when the body breaks off."""
    text = b""
    with contextlib.suppress(httpx.HTTPError, OSError):
        for chunk in response.iter_bytes():
            text += chunk
            if len(text) > ANSWER_BYTES:
                break
    return text[:ANSWER_BYTES]


def _said(error: Exception, over: bool) -> str:
    if over or isinstance(error, httpx.TimeoutException):
        return f"no answer in time ({type(error).__name__})"
    return str(error) or type(error).__name__


def _trust(settings: ExportSettings) -> ssl.SSLContext | bool:
    if settings.certificate is None and settings.client_certificate is None:
        return True
    context = ssl.create_default_context(cafile=settings.certificate)
    if settings.client_certificate is not None:
        context.load_cert_chain(settings.client_certificate, settings.client_key)
    return context


class _Watch:
    """Follows each request: whether its last byte was sent, and the end of its time."""

    def __init__(self) -> None:
        self.sent = False
        self.over = False
        self.socket: socket.socket | None = None

    def take(self, event: str, facts: dict[str, object]) -> None:
        """A trace event of httpcore."""
        if event.endswith("send_request_body.complete"):
            self.sent = True
        elif event.endswith(("connect_tcp.complete", "start_tls.complete")):
            stream = facts.get("return_value")
            found = getattr(stream, "get_extra_info", lambda _: None)("socket")
            self.socket = found if isinstance(found, socket.socket) else None

    @contextlib.contextmanager
    def until(self, timeout_s: float) -> Iterator[None]:
        """Ends the request when its time is over: httpx's own limits are per read, and a byte a second keeps them."""
        self.sent = self.over = False
        timer = threading.Timer(timeout_s, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _end(self) -> None:
        self.over = True
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
