"""The relay beside a parse-nothing splice and nginx: latency, throughput, streams, abort, memory; in one run.

`python -m tests.bench relay`, or `python -m tests.bench.relay KIND …` for the bare table.  Everything is on
loopback and bounded in time.  Ratios within one run count; absolute figures depend on the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import uvloop

from tests.bench.rows import Row

TOKEN = "0" * 32
SECONDS = 2.0
CROWD = 32
STREAMS, EVENTS, EVENT_INTERVAL_S = 50, 200, 0.005
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000
BODY = b'{"model":"m","messages":[]}' + b" " * 8000
REQUEST = (
    b"POST /t/%s/v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
    b"Accept-Encoding: gzip, deflate\r\n"
    b"User-Agent: bench/1\r\nX-Api-Key: k\r\nAnthropic-Version: 2023-06-01\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % (TOKEN.encode(), len(BODY)) + BODY
)
STREAM = b"GET /t/%s/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % TOKEN.encode()
SILENCE = b"GET /t/%s/silence HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % TOKEN.encode()
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT_BYTES = 120
KINDS = ("direct", "splice", "nginx", "relay", "relay-unobserved")


@dataclass(slots=True)
class Measured:
    """One proxy's figures: seconds, requests per second, CPU seconds per request, resident MB."""

    alone_s: list[float]
    crowd_per_s: float
    cpu_s: float
    event_s: list[float]
    event_cpu_s: float
    abort_s: list[float]
    rss_mb: float


class Answering(asyncio.Protocol):
    """The upstream: a whole reply, a stream of stamped events, or silence; `gone` gets 0 at its start, then its end."""

    def __init__(self, gone: list[float]) -> None:
        self.gone = gone
        self.left = 0
        self.silent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET ") and b"/stream " in data[:60]:
            self.transport.write(STREAM_HEAD)
            self.event(EVENTS)
            return
        if data.startswith(b"GET "):
            self.silent = True
            self.gone.append(0.0)
            return
        if not self.left:
            self.left = len(BODY) + data.index(b"\r\n\r\n") + 4
        self.left -= len(data)
        if not self.left:
            self.transport.write(REPLY)

    def event(self, left: int) -> None:
        stamp = b"data: %020d " % time.perf_counter_ns()
        self.transport.write(b"%x\r\n" % EVENT_BYTES + stamp.ljust(EVENT_BYTES, b".") + b"\r\n")
        if left > 1:
            asyncio.get_running_loop().call_later(EVENT_INTERVAL_S, self.event, left - 1)
        else:
            self.transport.write(b"0\r\n\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.silent:
            self.gone.append(time.perf_counter())


class Asking(asyncio.Protocol):
    """Asks again as soon as it is answered, until the time is over."""

    def __init__(self, until: float, times_s: list[float]) -> None:
        self.until = until
        self.times_s = times_s
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = 0
        self.began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.left = -1
        self.began = time.perf_counter()
        self.transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        if self.left < 0:  # a proxy may add head lines
            self.left = 2000 + data.index(b"\r\n\r\n") + 4
        self.left -= len(data)
        if not self.left:
            now = time.perf_counter()
            self.times_s.append(now - self.began)
            if now < self.until:
                self.ask()
            else:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set_result(None)


class Listening(asyncio.Protocol):
    """Takes the delay of every stamped event of one stream."""

    def __init__(self, delays_s: list[float]) -> None:
        self.delays_s = delays_s
        self.carry = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self.transport = transport
        transport.write(STREAM)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        data = self.carry + data
        pieces = data.split(b"data: ")
        for piece in pieces[1:]:
            if len(piece) >= 20:
                self.delays_s.append((now - int(piece[:20])) / 1e9)
        self.carry = b"" if len(pieces[-1]) >= 20 else b"data: " + pieces[-1]
        if data.endswith(b"0\r\n\r\n"):
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set_result(None)


async def load(port: int, connections: int, seconds: float) -> list[float]:
    """Seconds per request over so many connections."""
    times_s: list[float] = []
    loop = asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    made = [await loop.create_connection(lambda: Asking(until, times_s), "127.0.0.1", port) for _ in range(connections)]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    return times_s


async def stream(port: int) -> list[float]:
    """Delay of each event over all streams."""
    delays_s: list[float] = []
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: Listening(delays_s), "127.0.0.1", port) for _ in range(STREAMS)]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    return delays_s


async def abort(port: int, gone: list[float]) -> list[float]:
    """Seconds from the client's close to the end of the silent upstream connection."""
    spent_s: list[float] = []
    for _ in range(50):
        gone.clear()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(SILENCE)
        while not gone:  # the upstream has the request
            await asyncio.sleep(0.001)
        began = time.perf_counter()
        writer.close()
        while len(gone) < 2 and time.perf_counter() - began < 5:
            await asyncio.sleep(0.0005)
        spent_s.append(gone[1] - began if len(gone) > 1 else 5.0)
    return spent_s


async def measure(kind: str, seconds: float) -> Measured:
    """All figures of one proxy."""
    gone: list[float] = []
    server = await asyncio.get_running_loop().create_server(lambda: Answering(gone), "127.0.0.1", 0)
    upstream = server.sockets[0].getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.relay_proxies", kind, str(upstream)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        port, pid = int(words[0]), int(words[1])
        await load(port, 1, 0.2)
        alone_s = await load(port, 1, seconds)
        before_s = cpu_s(pid)
        crowd_s = await load(port, CROWD, seconds)
        between_s = cpu_s(pid)
        event_s = await stream(port)
        after_s = cpu_s(pid)
        abort_s = await abort(port, gone)
        rss = rss_mb(pid)
    finally:
        process.communicate()
        server.close()
    return Measured(
        alone_s,
        len(crowd_s) / seconds,
        (between_s - before_s) / len(crowd_s),
        event_s,
        (after_s - between_s) / len(event_s),
        abort_s,
        rss,
    )


def cpu_s(pid: int) -> float:
    """CPU seconds of a process (its own, not those of its children)."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident megabytes."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return sorted(values)[int(len(values) * 0.99)]


def rows() -> Iterator[Row]:
    """The budgets of DESIGN section 7 that this measures, and the figures beside them."""
    took = {kind: uvloop.run(measure(kind, SECONDS)) for kind in ("direct", "splice", "relay")}
    direct, splice, relay = took["direct"], took["splice"], took["relay"]
    added_ms = (statistics.median(relay.alone_s) - statistics.median(direct.alone_s)) * 1e3
    yield Row(
        what="relay: added p50, sequential, recording on", value=added_ms, unit="ms", budget=0.12, how="over direct"
    )
    yield Row(what="relay: requests per second at 32", value=relay.crowd_per_s, unit="/s", how="recording on")
    if shutil.which("nginx"):
        nginx = uvloop.run(measure("nginx", SECONDS))
        ratio = relay.crowd_per_s / nginx.crowd_per_s
        how = f"nginx {nginx.crowd_per_s:.0f}/s in this run"
        yield Row(what="relay: req/s at 32 over nginx's", value=ratio, unit="x", budget=0.6, sense="at least", how=how)
    else:
        yield Row(
            what="relay: req/s at 32 over nginx's", value=None, unit="x", budget=0.6, how="nginx is not installed"
        )
    ratio = statistics.median(relay.event_s) / statistics.median(splice.event_s)
    yield Row(
        what="relay: p50 delay per SSE event over a splice's", value=ratio, unit="x", budget=1.5, how="50 x 200/s"
    )
    over_ms = (p99(relay.event_s) - p99(splice.event_s)) * 1e3
    yield Row(
        what="relay: p99 delay per SSE event over a splice's", value=over_ms, unit="ms", budget=2, how="50 x 200/s"
    )
    yield Row(what="relay: CPU per SSE event", value=relay.event_cpu_s * 1e6, unit="us", budget=30, how="50 x 200/s")
    yield Row(
        what="relay: client abort to upstream closed",
        value=max(relay.abort_s) * 1e3,
        unit="ms",
        budget=100,
        how="max of 50",
    )
    yield Row(what="relay: resident memory after all this", value=relay.rss_mb, unit="MB", how="bench process included")


def main() -> None:
    """The bare table of the kinds that are named."""
    print(
        f"{'proxy':18} {'p50 ms':>7} {'p99 ms':>7} {'req/s':>7} {'us/req':>7}"
        f" {'ev p50':>7} {'ev p99':>7} {'us/ev':>6} {'abort':>6} {'MB':>6}"
    )
    for kind in sys.argv[1:] or KINDS:
        with contextlib.suppress(FileNotFoundError):
            took = uvloop.run(measure(kind, SECONDS))
            print(
                f"{kind:18} {statistics.median(took.alone_s) * 1e3:7.3f} {p99(took.alone_s) * 1e3:7.3f}"
                f" {took.crowd_per_s:7.0f} {took.cpu_s * 1e6:7.1f} {statistics.median(took.event_s) * 1e3:7.3f}"
                f" {p99(took.event_s) * 1e3:7.3f} {took.event_cpu_s * 1e6:6.1f} {max(took.abort_s) * 1e3:6.1f}"
                f" {took.rss_mb:6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
