"""Opens one upstream connection and times DNS, TCP connect and TLS apart.

In: an `Upstream` and the settings.  Out: a paused `Link` and a `DialReport`, or `DialFailed` with the report
of how far it got.  Through a proxy an https upstream is reached by CONNECT; for an http upstream the
proxy itself is the peer and `coupled.py` writes absolute-form targets.  It never retries; trying each
address of a name once, started 250 ms apart, is one attempt (RFC 8305).
"""

from __future__ import annotations

import asyncio
import errno
import functools
import ipaddress
import itertools
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

from fairtrial.middleware.relay import socks5
from fairtrial.middleware.relay.descriptors import Descriptors
from fairtrial.middleware.relay.ends import HangupWatch, Link
from fairtrial.middleware.relay.settings import ClientTls, Proxy, RelaySettings, Upstream

if TYPE_CHECKING:
    import ssl

    from fairtrial.middleware.relay.tls import TlsLink
    from fairtrial.middleware.relay.tls_proxy import OuterTls

_STAGGER_S: Final = 0.25
_NOTICED_S: Final = 0.001
_MAX_PROXY_HEAD_BYTES: Final = 16 * 1024
_FULL_S: Final = (0.005, 0.1)
"""A unix socket whose queue is full says so at once: asked again after the first, at most after the second."""
_Address = tuple[int, tuple[str, int] | tuple[str, int, int, int] | str]


@dataclass(slots=True)
class DialReport:
    """One dial; None is "not reached" or "not needed" (an address needs no DNS).

    `proxy_s`: from the proxy's connection to its answer, its own TLS included.  `descriptor_s`: the wait for a free
    descriptor, where there was one.
    """

    stage: str = "dns"
    ok: bool = False
    dns_s: float | None = None
    connect_s: float | None = None
    proxy_s: float | None = None
    tls_s: float | None = None
    descriptor_s: float | None = None
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
        if self._context is not None and not (self._context.done() and self._context.exception() is not None):
            return
        try:
            self._context = self._loop.run_in_executor(None, self._load)
        except RuntimeError:  # no thread can be made: then here and now, which holds up the loop once
            self._context = self._loop.create_future()
            try:
                self._context.set_result(self._load())
            except Exception as error:  # noqa: BLE001 - as the thread would have told it
                self._context.set_exception(error)

    async def context(self) -> ssl.SSLContext:
        """The context, as soon as it is read; a caller that is cancelled cancels no other's."""
        self.warm_up()
        assert self._context is not None
        return await asyncio.shield(self._context)

    def _load(self) -> ssl.SSLContext:
        import ssl

        from fairtrial.middleware.relay.tls import make_context

        tls = self._tls
        if tls is None:
            return make_context((*self._ca_files, *_hidden_system_store()))
        context = make_context(self._ca_files, system=tls.ca_file is None and tls.verify)
        if tls.ca_file is not None:
            context.load_verify_locations(cafile=tls.ca_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file, tls.password)
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _hidden_system_store() -> list[str]:
    """The system's store, where SSL_CERT_FILE or SSL_CERT_DIR hides it from OpenSSL: the user's file is meant in
    addition.
    """
    import ssl

    paths = ssl.get_default_verify_paths()
    pairs = (
        (paths.openssl_cafile_env, paths.openssl_cafile),
        (paths.openssl_capath_env, paths.openssl_capath),
    )
    return [path for variable, path in pairs if os.environ.get(variable) and os.path.exists(path)]


def _of_tls(error: OSError) -> bool:
    """Whether OpenSSL has said so, if it is loaded at all: its numbers are no errno."""
    ssl = sys.modules.get("ssl")
    # While a thread is importing it the module is there and its names are not.
    return isinstance(error, getattr(ssl, "SSLError", ()))


class Dialler:
    """Dials one upstream, any number of times."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        watch: HangupWatch,
        upstream: Upstream,
        settings: RelaySettings,
        trust: Trust | None = None,
        room: Descriptors | None = None,
    ) -> None:
        self._loop = loop
        self._watch = watch
        self._upstream = upstream
        self._settings = settings
        self._room = room if room is not None else Descriptors(loop)
        self._lookups: dict[tuple[str, int], asyncio.Future[list[_Address]]] = {}
        self._proxy_trust = trust if trust is not None else Trust(loop, settings.ca_files)
        if upstream.tls is not None:
            trust = Trust(loop, settings.ca_files if upstream.tls.ca_file is None else (), upstream.tls)
        else:
            trust = self._proxy_trust
        self._trust = trust
        self._proxy_error: str | None = None
        self.proxy: Proxy | None = None
        try:
            self.proxy = settings.proxy_for(upstream)
        except ValueError as error:
            self._proxy_error = str(error)

    @property
    def absolute_form(self) -> bool:
        """Requests must name the whole URL, because the peer is a proxy for plain http."""
        return self.proxy is not None and self._upstream.scheme == "http" and not self.proxy.socks

    def warm_up(self) -> None:
        """Read the certificates, if this upstream needs them, before the first dial asks for it."""
        if self._upstream.scheme == "https":
            self._trust.warm_up()
        if self.proxy is not None and self.proxy.tls:
            self._proxy_trust.warm_up()

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
            report.errno = None if isinstance(error, socket.gaierror) or _of_tls(error) else error.errno
            report.error = f"{type(error).__name__}: {error.strerror or error}"
        raise DialFailed(report)

    async def _dial(self, report: DialReport) -> Link:
        upstream, proxy = self._upstream, self.proxy
        if self._proxy_error is not None:
            report.stage = "proxy"
            raise OSError(errno.EPROTONOSUPPORT, self._proxy_error)
        if proxy is not None:
            report.via_proxy = proxy.label
            report.proxy_mode = "socks5" if proxy.socks else "absolute" if self.absolute_form else "connect"
        addresses: list[_Address] = [(socket.AF_UNIX, upstream.path)]
        if upstream.scheme != "unix":
            host, port = (proxy.host, proxy.port) if proxy is not None else (upstream.host, upstream.port)
            addresses = await self._resolve(host, port, report)
        report.stage = "connect"
        sock = await self._socket(addresses[0][0], report)
        began = monotonic_ns()
        async with asyncio.timeout(self._settings.connect_timeout_s):
            sock = await self._connect(addresses, sock, report)
        report.connect_s = (monotonic_ns() - began) / 1e9
        try:
            report.remote = _prepare(sock, upstream)
            link = await self._speak(sock, report)
        except BaseException:
            sock.close()
            raise
        report.ok, report.stage = True, "done"
        return link

    async def _speak(self, sock: socket.socket, report: DialReport) -> Link:
        """Whatever stands between a connected socket and the first request."""
        upstream, proxy = self._upstream, self.proxy
        outer: OuterTls | None = None
        if proxy is not None and (proxy.tls or not self.absolute_form):
            report.stage = "proxy"
            context = await self._proxy_trust.context() if proxy.tls else None
            began = monotonic_ns()
            async with asyncio.timeout(self._settings.connect_timeout_s):
                if context is not None and self.absolute_form:
                    from fairtrial.middleware.relay.tls import TlsLink

                    link = await _handshake(TlsLink(self._loop, sock, self._watch, context, proxy.host))
                    report.proxy_s = (monotonic_ns() - began) / 1e9
                    return link
                if context is not None:
                    from fairtrial.middleware.relay.tls_proxy import OuterTls

                    outer = OuterTls(self._loop, sock, context, proxy.host)
                    await outer.handshake()
                if proxy.socks:
                    await socks5.ask(self._loop, sock, upstream.host, upstream.port, proxy.login)
                else:
                    await self._ask_proxy(sock, outer, proxy, report)
            report.proxy_s = (monotonic_ns() - began) / 1e9
        if upstream.scheme != "https":
            if outer is not None:
                from fairtrial.middleware.relay.tls_proxy import OpaqueTlsLink

                return OpaqueTlsLink(self._loop, sock, self._watch, outer)
            return Link(self._loop, sock, self._watch)
        report.stage = "tls"
        context = await self._trust.context()
        from fairtrial.middleware.relay.tls import TlsLink  # late: loaded by now, in the thread that read the context

        began = monotonic_ns()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                if outer is None:
                    return await _handshake(TlsLink(self._loop, sock, self._watch, context, upstream.host))
                from fairtrial.middleware.relay.tls_proxy import TunnelledTlsLink

                return await _handshake(TunnelledTlsLink(self._loop, sock, self._watch, context, upstream.host, outer))
        finally:
            report.tls_s = (monotonic_ns() - began) / 1e9

    async def _socket(self, family: int, report: DialReport) -> socket.socket:
        """A socket, as soon as there is a descriptor for it; that wait is ours, so it is no part of `connect_s`."""
        began = monotonic_ns()
        try:
            return await self._room.take(
                lambda: socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK),
                self._settings.connect_timeout_s,
            )
        finally:
            waited_s = (monotonic_ns() - began) / 1e9
            if waited_s > _NOTICED_S:
                report.descriptor_s = waited_s

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
            async with asyncio.timeout(self._settings.dns_timeout_s):
                return await self._look_up(host, port)
        except TimeoutError as error:
            text = f"no answer for {host} in {self._settings.dns_timeout_s:g} s"
            raise OSError(errno.ETIMEDOUT, text) from error
        finally:
            report.dns_s = (monotonic_ns() - began) / 1e9

    async def _look_up(self, host: str, port: int) -> list[_Address]:
        """Asked once for all dials that wait for the same name: threads are few, and a silent resolver holds each for
        long.  Nothing is kept once it is answered.
        """
        asked = self._lookups.get((host, port))
        if asked is None:
            # A resolver that finds no descriptor says that there is no such name: so there must be one first.
            await self._room.take(_open_and_close, self._settings.connect_timeout_s)
            asked = self._lookups.get((host, port))
        if asked is None:
            # Not `loop.getaddrinfo`: uvloop's own threads are made at its first use, and where none can be made (a
            # fork bomb under a limit of processes) it aborts the whole process.
            try:
                asked = self._loop.run_in_executor(None, _resolve, host, port)
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, f"no thread to resolve {host} in ({error})") from error
            self._lookups[host, port] = asked
            asked.add_done_callback(lambda done: self._looked_up((host, port), done))
        return await asyncio.shield(asked)

    def _looked_up(self, name: tuple[str, int], done: asyncio.Future[list[_Address]]) -> None:
        del self._lookups[name]
        if not done.cancelled():
            done.exception()  # whoever asked may be gone

    async def _connect(self, addresses: list[_Address], first: socket.socket, report: DialReport) -> socket.socket:
        """Each address once, started 250 ms apart or as soon as another has failed; `first` is the first one's."""
        if len(addresses) == 1:
            report.tried = 1
            return await self._connect_one(addresses[0], first)
        waiting = list(addresses)
        spare: socket.socket | None = first
        running: set[asyncio.Task[socket.socket]] = set()
        failure: OSError | None = None
        won: socket.socket | None = None
        try:
            while won is None and (waiting or running):
                if waiting:
                    report.tried += 1
                    attempt = self._connect_one(waiting.pop(0), spare)
                    task = self._loop.create_task(attempt, name="dial-address")
                    if spare is not None:
                        task.add_done_callback(functools.partial(_close_cancelled, spare))
                        spare = None
                    running.add(task)
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

    async def _connect_one(self, address: _Address, sock: socket.socket | None) -> socket.socket:
        family, sockaddr = address
        if sock is None:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            await _connect(self._loop, sock, sockaddr)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _ask_proxy(self, sock: socket.socket, outer: OuterTls | None, proxy: Proxy, report: DialReport) -> None:
        upstream = self._upstream
        host = f"[{upstream.host}]" if ":" in upstream.host else upstream.host
        ask = f"CONNECT {host}:{upstream.port} HTTP/1.1\r\nHost: {host}:{upstream.port}\r\n"
        if proxy.authorization is not None:
            ask += f"Proxy-Authorization: {proxy.authorization}\r\n"
        wire = (ask + "\r\n").encode("latin-1")
        await (self._loop.sock_sendall(sock, wire) if outer is None else outer.sendall(wire))
        head = b""
        while not head.endswith(b"\r\n\r\n"):  # byte by byte: what follows belongs to the tunnel
            piece = await (self._loop.sock_recv(sock, 1) if outer is None else outer.recv(1))
            if not piece or len(head) > _MAX_PROXY_HEAD_BYTES:
                raise ConnectionResetError(errno.ECONNRESET, "the proxy closed without an answer to CONNECT")
            head += piece
        words = head.split(b"\r\n", 1)[0].split(b" ")
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        if not 200 <= status < 300:
            report.status = status
            raise OSError(errno.ECONNREFUSED, f"the proxy answered CONNECT with {status}")


async def _handshake(link: TlsLink) -> TlsLink:
    try:
        await link.handshake()
    except BaseException:
        link.reset()
        raise
    return link


def _close_cancelled(sock: socket.socket, task: asyncio.Task[socket.socket]) -> None:
    if task.cancelled():  # perhaps before it began, and then nobody else closes it
        sock.close()


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


def _resolve(host: str, port: int) -> list[_Address]:
    """The addresses of a name, families in turn so that a family without a way out costs one step, not one for each
    of its addresses (RFC 8305 section 4).  Raises `OSError`.  Runs in a thread.
    """
    families: dict[int, list[_Address]] = {}
    for family, _kind, _proto, _name, sockaddr in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        if family in (socket.AF_INET, socket.AF_INET6):
            address: _Address = (family, sockaddr)  # type: ignore[assignment]  # typeshed allows AF_PACKET shapes
            found = families.setdefault(family, [])
            if address not in found:
                found.append(address)
    if not families:
        raise OSError(errno.EADDRNOTAVAIL, f"no address for {host}")
    return [address for turn in itertools.zip_longest(*families.values()) for address in turn if address is not None]


def _open_and_close() -> None:
    os.close(os.eventfd(0))


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
