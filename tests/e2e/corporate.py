"""A corporate proxy: CONNECT only, to one place whatever host is asked for, with a login and TLS if asked.

In: a port (or a unix socket's path) to splice to, others for hosts that are named, the login that it wants, a
certificate for localhost to be reached by https, the address to listen at (loopback's). Out: tunnels, and a line per
request head in a log file. Run as a process of its own, so that it can stand in another network namespace;
`running_proxy` does that.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import ssl
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.clients import REPO_ROOT


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A running proxy. `requests` are the request lines so far, such as `CONNECT host:443 HTTP/1.1`."""

    url: str
    log: Path

    @property
    def requests(self) -> list[str]:
        return self.log.read_text().splitlines()


@contextlib.contextmanager
def running_proxy(
    target: int | Path,
    folder: Path,
    *,
    login: str | None = None,
    tls: tuple[Path, Path] | None = None,
    command_prefix: Sequence[str] = (),
    listen: str = "127.0.0.1",
    routes: Mapping[str, int] | None = None,
) -> Generator[Proxy, None, None]:
    """A proxy that leads every tunnel to 127.0.0.1:target, or to a unix socket.

    `login` is user:password, `tls` (chain, key); `routes`: other ports, by the host that is asked for.
    """
    log = folder / "proxy.log"
    log.touch()
    command = [*command_prefix, sys.executable, "-m", "tests.e2e.corporate", str(target), str(log)]
    command += [] if login is None else ["--login", login]
    command += [] if tls is None else ["--tls", *map(str, tls)]
    command += ["--listen", listen, *(f"--route={host}={port}" for host, port in (routes or {}).items())]
    process = subprocess.Popen(
        command, cwd=REPO_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield Proxy(url=f"http://{listen}:{port}" if tls is None else f"https://localhost:{port}", log=log)
    finally:
        process.kill()
        process.communicate()


class _Proxy:
    def __init__(self, target: str, log: Path, login: str | None, routes: Mapping[str, str]) -> None:
        self._target = target
        self._routes = routes
        self._log = log
        self._wanted = None if login is None else b"Basic " + base64.b64encode(login.encode())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._tunnel(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            return  # either side left: so does the other
        finally:
            writer.close()

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head.split(b"\r\n")
        with self._log.open("a") as log:
            log.write(first.decode() + "\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in rest)}
        if not first.startswith(b"CONNECT "):
            writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        if self._wanted is not None and headers.get(b"proxy-authorization") != self._wanted:
            writer.write(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n"
                b"Content-Length: 0\r\nConnection: close\r\n\r\n"
            )
            await writer.drain()
            return
        host = first.split(b" ")[1].rpartition(b":")[0].decode()
        target = self._routes.get(host, self._target)
        if target.isdecimal():
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(target))
        else:
            far_reader, far_writer = await asyncio.open_unix_connection(target)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def _main(options: argparse.Namespace) -> None:
    context = None
    if options.tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*options.tls)
    routes = {host: port for host, _, port in (route.rpartition("=") for route in options.route)}
    proxy = _Proxy(options.target, options.log, options.login, routes)
    server = await asyncio.start_server(proxy.serve, options.listen, 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("log", type=Path)
    parser.add_argument("--login")
    parser.add_argument("--tls", nargs=2)
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--route", action="append", default=[])
    asyncio.run(_main(parser.parse_args()))
