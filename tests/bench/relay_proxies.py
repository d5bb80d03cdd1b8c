"""The proxies that the relay bench compares, each as a process: relay, parse-nothing splice, nginx, none.

`python -m tests.bench.relay_proxies KIND UPSTREAM_PORT` prints the port that it listens on and the pid that
does the work, and serves until its standard input ends.  Loopback only.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import cast

import uvloop

from fairtrial.middleware.relay.feed import FeedSender
from fairtrial.middleware.relay.relay import Relay
from fairtrial.middleware.relay.settings import RelaySettings, Upstream

TOKEN = "0" * 32


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
            asyncio.get_running_loop().create_task(self.dial(), name="dial")

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


async def serve_splice(upstream_port: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Splice(upstream_port), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], os.getpid(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def serve_relay(upstream_port: int, *, record: bool) -> None:
    near, far = socket.socketpair()
    if record:
        pid = os.fork()
        if pid == 0:  # an observer that keeps up and does nothing else
            near.close()
            while far.recv(1 << 20):
                pass
            os._exit(0)
        far.close()
        feed = FeedSender(near)
    else:
        near.close()
        far.close()
        feed = FeedSender(None, limit_bytes=0)
    relay = Relay(RelaySettings(), feed)
    relay.add_token(TOKEN, "bench")
    door = await relay.open_model_door(Upstream.parse("bench", f"http://127.0.0.1:{upstream_port}"))
    print(door.port, os.getpid(), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await relay.close(0.1)


NGINX = """
worker_processes 1; daemon off; error_log /dev/null; pid {folder}/pid;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; keepalive_requests 10000000;
upstream up {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 10000000; }}
server {{ listen 127.0.0.1:{port}; location / {{ rewrite ^/t/[0-9a-f]+(/.*)$ $1 break; proxy_pass http://up;
proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_request_buffering off; }} }} }}
"""


def serve_nginx(upstream_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "nginx.conf"
        conf.write_text(NGINX.format(folder=folder, upstream=upstream_port, port=port))
        process = subprocess.Popen([shutil.which("nginx") or "nginx", "-c", str(conf), "-e", "/dev/null"])
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                continue
        worker = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        print(port, worker[0] if worker else process.pid, flush=True)
        sys.stdin.read()
        process.terminate()
        process.wait()


def main() -> None:
    kind, upstream_port = sys.argv[1], int(sys.argv[2])
    if kind == "nginx":
        serve_nginx(upstream_port)
    elif kind == "splice":
        uvloop.run(serve_splice(upstream_port))
    elif kind == "direct":
        print(upstream_port, os.getpid(), flush=True)
        threading.Thread(target=sys.stdin.read).start()
    else:
        uvloop.run(serve_relay(upstream_port, record=kind == "relay"))


if __name__ == "__main__":
    main()
