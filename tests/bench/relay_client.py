"""A client as a process of its own, one call after the other on blocking sockets: what latency is measured with.

`python -m tests.bench.relay_client HOW PORT REQUEST_FILE SECONDS` prints a JSON list of seconds, one per call.
`whole`: one connection, to the end of a JSON answer; `fresh`: the same with a new connection for each call, connecting
included; `first`: one connection, to the first event of a streamed answer.  The upstream is on the bench's loop, so it
is another process on another core than the proxy, or than this client where there is no proxy: every hop wakes a
sleeper, as it does in a direct call.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def whole(sock: socket.socket) -> None:
    """Read one answer with a length."""
    data = sock.recv(65536)
    while (end := data.find(b"\r\n\r\n")) == -1:
        data += some(sock)
    at = data.lower().index(b"content-length: ", 0, end) + 16
    left = int(data[at : data.index(b"\r", at)]) + end + 4 - len(data)
    while left:
        left -= len(some(sock))


def some(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    if not data:
        raise SystemExit("cut within an answer")
    return data


def main() -> None:
    how, port, ask, seconds = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).read_bytes(), float(sys.argv[4])
    spent_s: list[float] = []
    sock = connect(port)
    until_s = time.perf_counter() + seconds
    while (began_s := time.perf_counter()) < until_s:
        if how == "fresh":
            sock.close()
            sock = connect(port)
        sock.sendall(ask)
        if how == "first":
            data = b""
            while b'"text":"@' not in data:
                data += some(sock)
            spent_s.append(time.perf_counter() - began_s)
            while not data.endswith(b"\r\n0\r\n\r\n"):
                data += some(sock)
        else:
            whole(sock)
            spent_s.append(time.perf_counter() - began_s)
    print(json.dumps(spent_s))


if __name__ == "__main__":
    main()
