"""Opens one upstream connection and times DNS, TCP connect and TLS apart.

In: an `Upstream` and the settings.  Out: a paused `Link` and a `DialReport`, or `DialFailed` with the report
of how far it got.  Through a proxy an https upstream is reached by CONNECT; for an http upstream the
proxy itself is the peer and `coupled.py` writes absolute-form targets.  It never retries; trying each
address of a name once, started 250 ms apart, is one attempt (RFC 8305, without its sorting).
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import Final

from fairtrial.middleware.relay.ends import HangupWatch, Link
from fairtrial.middleware.relay.settings import ClientTls, Proxy, RelaySettings, Upstream

_STAGGER_S: Final = 0.25
_MAX_PROXY_HEAD_BYTES: Final = 16 * 1024
_FULL_S: Final = (0.005, 0.1)
"""A unix socket whose queue is full says so at once: asked again after the first, at most after the second."""
_Address = tuple[int, tuple[str, int] | tuple[str, int, int, int] | str]


@dataclass(slots=True)
class DialReport:
    """One dial; None is "not reached" or "not needed" (an address needs no DNS)."""

    stage: str = "dns"
    ok: bool = False
    dns_s: float | None = None
    connect_s: float | None = None
    proxy_s: float | None = None
    tls_s: float | None = None
    remote: str | None = None
    via_proxy: str | None = None
    proxy_mode: str | None = None
    status: int | None = None
    errno: int | None = None
    error: str | None = None
    tried: int = 0

    def as_json(self) -> dict[str, object]:
        """The payload of a DIAL record."""
        return {name: getattr(self, name) for name in self.__slots__}


class DialFailed(OSError):
    """The upstream could not be reached; `report` says where it ended."""

    def __init__(self, report: DialReport) -> None:
        super().__init__(report.errno or 0, report.error or "dial failed")
        self.report = report


class Trust:
    """The certificates that the relay trusts, read once for all its doors: each reading costs some 35 ms of CPU.

    `tls`: files of one upstream's own, whose door then has a trust of its own.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ca_files: Sequence[str] = (), tls: ClientTls | None = None
    ) -> None:
        self._loop = loop
        self._ca_files = ca_files
        self._tls = tls
        self._context: asyncio.Future[ssl.SSLContext] | None = None

    def warm_up(self) -> None:
        """Begin to read in a thread, before the first dial asks for it."""
        if self._context is None:
            self._context = self._loop.run_in_executor(None, self._load)

    async def context(self) -> ssl.SSLContext:
        """The context, as soon as it is read; a caller that is cancelled cancels no other's."""
        self.warm_up()
        assert self._context is not None
        return await asyncio.shield(self._context)

    def _load(self) -> ssl.SSLContext:
        from fairtrial.middleware.relay.tls import make_context

        tls = self._tls
        if tls is None:
            return make_context(self._ca_files)
        context = make_context(self._ca_files, system=tls.ca_file is None and tls.verify)
        if tls.ca_file is not None:
            context.load_verify_locations(cafile=tls.ca_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class Dialler:
    """Dials one upstream, any number of times."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        watch: HangupWatch,
        upstream: Upstream,
        settings: RelaySettings,
        trust: Trust | None = None,
    ) -> None:
        self._loop = loop
        self._watch = watch
        self._upstream = upstream
        self._settings = settings
        if upstream.tls is not None:
            trust = Trust(loop, settings.ca_files if upstream.tls.ca_file is None else (), upstream.tls)
        self._trust = trust if trust is not None else Trust(loop, settings.ca_files)
        self._proxy_error: str | None = None
        self.proxy: Proxy | None = None
        try:
            self.proxy = settings.proxy.choose(upstream)
        except ValueError as error:
            self._proxy_error = str(error)

    @property
    def absolute_form(self) -> bool:
        """Requests must name the whole URL, because the peer is a proxy for plain http."""
        return self.proxy is not None and self._upstream.scheme == "http"

    def warm_up(self) -> None:
        """Read the certificates, if this upstream needs them, before the first dial asks for it."""
        if self._upstream.scheme == "https":
            self._trust.warm_up()

    async def dial(self) -> tuple[Link, DialReport]:
        """Connect.  Raises `DialFailed`; cancellation leaves no socket behind."""
        report = DialReport()
        try:
            return await self._dial(report), report
        except DialFailed:
            raise
        except TimeoutError:
            report.errno, report.error = errno.ETIMEDOUT, f"no answer in {self._settings.connect_timeout_s:g} s"
        except OSError as error:
            report.errno = None if isinstance(error, socket.gaierror | ssl.SSLError) else error.errno
            report.error = f"{type(error).__name__}: {error.strerror or error}"
        raise DialFailed(report)

    async def _dial(self, report: DialReport) -> Link:
        upstream, proxy = self._upstream, self.proxy
        if self._proxy_error is not None:
            report.stage = "proxy"
            raise OSError(errno.EPROTONOSUPPORT, self._proxy_error)
        if proxy is not None:
            report.via_proxy = proxy.label
            report.proxy_mode = "absolute" if self.absolute_form else "connect"
        addresses: list[_Address] = [(socket.AF_UNIX, upstream.path)]
        if upstream.scheme != "unix":
            host, port = (proxy.host, proxy.port) if proxy is not None else (upstream.host, upstream.port)
            addresses = await self._resolve(host, port, report)
        report.stage = "connect"
        began = monotonic_ns()
        async with asyncio.timeout(self._settings.connect_timeout_s):
            sock = await self._connect(addresses, report)
        report.connect_s = (monotonic_ns() - began) / 1e9
        try:
            report.remote = _prepare(sock, upstream)
            if proxy is not None and not self.absolute_form:
                report.stage = "proxy"
                began = monotonic_ns()
                async with asyncio.timeout(self._settings.connect_timeout_s):
                    await self._ask_proxy(sock, proxy, report)
                report.proxy_s = (monotonic_ns() - began) / 1e9
            if upstream.scheme == "https":
                report.stage = "tls"
                link: Link = await self._start_tls(sock, report)
            else:
                link = Link(self._loop, sock, self._watch)
        except BaseException:
            sock.close()
            raise
        report.ok, report.stage = True, "done"
        return link

    async def _resolve(self, host: str, port: int, report: DialReport) -> list[_Address]:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            if address.version == 4:
                return [(socket.AF_INET, (host, port))]
            return [(socket.AF_INET6, (host, port, 0, 0))]
        began = monotonic_ns()
        try:
            # Not `loop.getaddrinfo`: uvloop's own threads are made at its first use, and where none can be made (a
            # fork bomb under a limit of processes) it aborts the whole process.
            found = await self._loop.run_in_executor(
                None, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            )
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"no thread to resolve {host} in ({error})") from error
        finally:
            report.dns_s = (monotonic_ns() - began) / 1e9
        addresses: list[_Address] = []
        for family, _kind, _proto, _name, sockaddr in found:
            if family in (socket.AF_INET, socket.AF_INET6) and (family, sockaddr) not in addresses:
                addresses.append((family, sockaddr))  # type: ignore[arg-type]  # typeshed allows AF_PACKET shapes
        if not addresses:
            raise OSError(errno.EADDRNOTAVAIL, f"no address for {host}")
        return addresses

    async def _connect(self, addresses: list[_Address], report: DialReport) -> socket.socket:
        if len(addresses) == 1:
            report.tried = 1
            return await self._connect_one(addresses[0])
        waiting = list(addresses)
        running: set[asyncio.Task[socket.socket]] = set()
        failure: OSError | None = None
        won: socket.socket | None = None
        try:
            while won is None and (waiting or running):
                if waiting:
                    report.tried += 1
                    running.add(self._loop.create_task(self._connect_one(waiting.pop(0)), name="dial-address"))
                done, running = await asyncio.wait(
                    running, timeout=_STAGGER_S if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    error = task.exception()
                    if error is None and won is None:
                        won = task.result()
                    elif error is None:
                        task.result().close()
                    elif isinstance(error, OSError):
                        failure = failure or error
                    else:
                        raise error
        finally:
            for task in running:
                task.add_done_callback(_close_result)
                task.cancel()
        if won is None:
            raise failure or OSError(errno.EHOSTUNREACH, "no address answered")
        return won

    async def _connect_one(self, address: _Address) -> socket.socket:
        family, sockaddr = address
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await _connect(self._loop, sock, sockaddr)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _ask_proxy(self, sock: socket.socket, proxy: Proxy, report: DialReport) -> None:
        upstream = self._upstream
        host = f"[{upstream.host}]" if ":" in upstream.host else upstream.host
        ask = f"CONNECT {host}:{upstream.port} HTTP/1.1\r\nHost: {host}:{upstream.port}\r\n"
        if proxy.authorization is not None:
            ask += f"Proxy-Authorization: {proxy.authorization}\r\n"
        await self._loop.sock_sendall(sock, (ask + "\r\n").encode("latin-1"))
        head = b""
        while not head.endswith(b"\r\n\r\n"):  # byte by byte: what follows belongs to the tunnel
            piece = await self._loop.sock_recv(sock, 1)
            if not piece or len(head) > _MAX_PROXY_HEAD_BYTES:
                raise ConnectionResetError(errno.ECONNRESET, "the proxy closed without an answer to CONNECT")
            head += piece
        words = head.split(b"\r\n", 1)[0].split(b" ")
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if not 200 <= status < 300:
            report.status = status
            raise OSError(errno.ECONNREFUSED, f"the proxy answered CONNECT with {status}")

    async def _start_tls(self, sock: socket.socket, report: DialReport) -> Link:
        from fairtrial.middleware.relay.tls import TlsLink

        context = await self._trust.context()
        began = monotonic_ns()
        link = TlsLink(self._loop, sock, self._watch, context, self._upstream.host)
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await link.handshake()
        except BaseException:
            link.reset()
            raise
        finally:
            report.tls_s = (monotonic_ns() - began) / 1e9
        return link


def _close_result(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def _prepare(sock: socket.socket, upstream: Upstream) -> str:
    """Set a connected socket up; gives its peer for the record."""
    if sock.family == socket.AF_UNIX:
        return upstream.path
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
    peer = sock.getpeername()
    return f"{peer[0]}:{peer[1]}"


async def _connect(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: tuple[object, ...] | str) -> None:
    """As `loop.sock_connect`, which uvloop sends through its resolver's threads even for a numeric address.

    Raises `OSError` as connect(2) tells it.
    """
    wait_s = _FULL_S[0]
    while (code := sock.connect_ex(address)) == errno.EAGAIN and sock.family == socket.AF_UNIX:
        await asyncio.sleep(wait_s)  # the queue of a unix socket is full: a blocking client would wait as well
        wait_s = min(2 * wait_s, _FULL_S[1])
    if code == errno.EINPROGRESS:
        connected = loop.create_future()
        loop.add_writer(sock.fileno(), _settle, connected)
        try:
            await connected
        finally:
            loop.remove_writer(sock.fileno())
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _settle(connected: asyncio.Future[None]) -> None:
    if not connected.done():
        connected.set_result(None)
