"""The proxies that the relay is compared with, each as a process: parse-nothing splice, nginx, a bare aiohttp proxy.

`python -m tests.bench.relay_proxies KIND UPSTREAM_PORT CA_FILE` prints the port that it listens on and the pid that
does the work, and serves until its standard input ends.  A kind that ends in `-tls` speaks TLS to the upstream.
Loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, cast

import uvloop

from tests.bench.processes import raise_file_limit

NGINX_PATH: Final = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Splice(asyncio.Protocol):
    """Copies bytes between two transports and looks at none of them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.peer: asyncio.Transport | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.transport = transport
        if self.port:
            self.dialling = asyncio.get_running_loop().create_task(self.dial(), name="dial")

    async def dial(self) -> None:
        other = Splice(0)
        other.peer = self.transport
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", self.port)
        transport.write(b"".join(self.early))
        self.peer = transport

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            self.early.append(data)
        else:
            self.peer.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer is not None:
            self.peer.close()


def tell(port: int, pid: int) -> None:
    """The one line that the bench reads."""
    print(port, pid, flush=True)


async def asked_to_end() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def serve_splice(upstream_port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Splice(upstream_port), "127.0.0.1", 0)
    tell(server.sockets[0].getsockname()[1], os.getpid())
    await asked_to_end()


async def serve_aiohttp(upstream_port: int) -> None:
    """The reverse proxy that one writes with aiohttp in a quarter of an hour: a pooled client, streamed answers."""
    import aiohttp
    from aiohttp import web

    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def passed_on(request: web.Request) -> web.StreamResponse:
            path = "/" + request.raw_path.split("/", 3)[3]
            lines = {name: value for name, value in request.headers.items() if name not in ("Host", "Content-Length")}
            url = f"http://127.0.0.1:{upstream_port}{path}"
            async with session.request(request.method, url, headers=lines, data=await request.read()) as answer:
                response = web.StreamResponse(status=answer.status)
                response.content_type = answer.content_type
                response.content_length = answer.content_length
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                return response

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", passed_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listener).start()
        tell(listener.getsockname()[1], os.getpid())
        await asked_to_end()
        await runner.cleanup()


NGINX: Final = """
worker_processes 1; daemon off; error_log /dev/null; pid {folder}/pid; worker_rlimit_nofile 4096;
events {{ worker_connections 2048; }}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 10000000;
upstream up {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 10000000; }}
server {{ listen 127.0.0.1:{port}; location / {{ rewrite ^/t/[0-9a-f]+(/.*)$ $1 break; proxy_pass {scheme}://up;
proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_request_buffering off;
proxy_ssl_trusted_certificate {ca_file}; proxy_ssl_verify on; proxy_ssl_name localhost; }} }} }}
"""


def serve_nginx(upstream_port: int, scheme: str, ca_file: str) -> None:
    assert NGINX_PATH is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "nginx.conf"
        conf.write_text(NGINX.format(folder=folder, upstream=upstream_port, port=port, scheme=scheme, ca_file=ca_file))
        process = subprocess.Popen([NGINX_PATH, "-c", str(conf), "-e", "/dev/null"])
        workers: list[str] = []
        while not workers and process.poll() is None:  # the master listens before its worker is there
            workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        while process.poll() is None:
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
        tell(port, int(workers[0]) if workers else 0)
        sys.stdin.read()
        process.terminate()
        process.wait()


def main() -> None:
    kind, upstream_port, ca_file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    raise_file_limit()
    if kind.startswith("nginx"):
        serve_nginx(upstream_port, "https" if kind.endswith("-tls") else "http", ca_file)
    elif kind == "splice":
        uvloop.run(serve_splice(upstream_port))
    else:
        uvloop.run(serve_aiohttp(upstream_port))


if __name__ == "__main__":
    main()
