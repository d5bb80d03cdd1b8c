"""32 MB up and 100 MB down against readers of 1 KB/s: senders are held back, memory is flat, no byte is lost.

The relay is a process of its own (tests/fakes/relay_process.py), so that its resident memory is its own.  Both readers
are slow for some seconds, which proves the holding back; then they read as fast as they can and hashes are compared.
"""

import hashlib
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.middleware.relay.beside import in_background
from tests.middleware.relay.rig import DEADLINE_S, UpstreamSide, read_exactly, read_head, request

RELAY = Path(__file__).resolve().parents[2] / "fakes" / "relay_process.py"
BLOCK = random.Random(100).randbytes(1_000_000)
DOWN_BYTES, UP_BYTES = 100_000_000, 32_000_000
SLOW_TURNS = 12
"""256 bytes each quarter of a second: 1 KB/s, for three seconds at least."""
PAGE = os.sysconf("SC_PAGE_SIZE")
KERNEL_BYTES = 24_000_000
"""More than the kernel's buffers of two connections take on the way (tcp_rmem, tcp_wmem), less than either body."""


@dataclass
class Outside:
    """A relay's process and its upstream."""

    process: subprocess.Popen[str]
    upstream: UpstreamSide
    port: int

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    def peak_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def client(self) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(DEADLINE_S)
        sock.connect(("127.0.0.1", self.port))
        return sock


@pytest.fixture(params=["plain", "tls"])
def outside(request: pytest.FixtureRequest, loop_kind: str, ca_file: str, repo_root: Path) -> Iterator[Outside]:
    """A relay that somebody observes."""
    upstream = UpstreamSide(tls=request.param == "tls")
    near, far = socket.socketpair()

    def observe() -> None:
        while near.recv(1 << 20):
            pass

    threading.Thread(target=observe, name="observer", daemon=True).start()
    process = subprocess.Popen(
        [sys.executable, str(RELAY), loop_kind, upstream.url, str(far.fileno()), ca_file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[far.fileno()],
        env={**os.environ, "PYTHONPATH": str(repo_root)},
    )
    far.close()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Outside(process, upstream, int(process.stdout.readline()))
    finally:
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
        process.stdout.close()
        upstream.close()
        near.close()


def hash_of(count: int) -> str:
    digest = hashlib.sha256()
    for _ in range(count // len(BLOCK)):
        digest.update(BLOCK)
    return digest.hexdigest()


class Sending:
    """Sends a body of blocks; `sent_bytes` is what the kernel took."""

    def __init__(self, sock: socket.socket, count: int) -> None:
        self.sent_bytes = 0
        self._sock = sock
        self._count = count

    def run(self) -> None:
        while self.sent_bytes < self._count:
            at = self.sent_bytes % len(BLOCK)
            self.sent_bytes += self._sock.send(BLOCK[at : at + 65_536])


def held_back(past: list[tuple[int, int]]) -> bool:
    """Within the last turns neither sender has got rid of more than a window's worth."""
    (down, up), (down_now, up_now) = past[-SLOW_TURNS // 2], past[-1]
    return down_now - down < 300_000 and up_now - up < 300_000


def drain(sock: socket.socket, digest: "hashlib._Hash", count: int) -> None:
    while count:
        data = sock.recv(min(count, 262_144))
        assert data
        digest.update(data)
        count -= len(data)


@pytest.mark.slow
def test_bodies_far_larger_than_any_buffer_pass_slow_readers_in_flat_memory(outside: Outside) -> None:
    warm = outside.client()
    warm.sendall(request("GET", "/warm"))
    up = outside.upstream.accept()
    read_head(up)
    up.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    read_head(warm)
    warm.close()

    reader, sender = outside.client(), outside.client()
    reader.sendall(request("GET", "/down"))
    down = outside.upstream.accept()
    read_head(down)
    sender.sendall(request("POST", "/up", b"", f"Content-Length: {UP_BYTES}"))
    up = outside.upstream.accept()
    read_head(up)
    for sock in (down, sender):
        sock.settimeout(60)
    down.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % DOWN_BYTES)
    read_head(reader)
    before_bytes = outside.rss_bytes()
    downward, upward = Sending(down, DOWN_BYTES), Sending(sender, UP_BYTES)
    got_down, got_up = hashlib.sha256(), hashlib.sha256()
    taken = 0
    memory: list[int] = []
    with in_background(downward.run) as down_faults, in_background(upward.run) as up_faults:
        past: list[tuple[int, int]] = []
        while len(past) < SLOW_TURNS or not held_back(past):
            assert len(past) < 40 * SLOW_TURNS, f"the senders are not held back: {past[-SLOW_TURNS:]}"
            got_down.update(read_exactly(reader, 256))
            got_up.update(read_exactly(up, 256))
            taken += 256
            memory.append(outside.rss_bytes())
            past.append((downward.sent_bytes, upward.sent_bytes))
            time.sleep(0.25)
        assert max(downward.sent_bytes, upward.sent_bytes) < KERNEL_BYTES
        with in_background(lambda: drain(up, got_up, UP_BYTES - taken)) as drain_faults:
            drain(reader, got_down, DOWN_BYTES - taken)
    assert (down_faults, up_faults, drain_faults) == ([], [], [])
    assert (got_down.hexdigest(), got_up.hexdigest()) == (hash_of(DOWN_BYTES), hash_of(UP_BYTES))
    assert max(memory) - before_bytes < 4_000_000
    assert outside.peak_bytes() - before_bytes < 12_000_000  # of it up to 8 MB of copies for an observer that is behind
    for sock in (reader, sender):
        sock.close()
