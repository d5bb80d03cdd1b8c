"""The relay beside a parse-nothing splice, nginx and aiohttp: latency, throughput, streams, abort, memory; in one run.

`python -m tests.bench relay`, or `python -m tests.bench.relay KIND …` for the bare table.  Everything is on
loopback and bounded in time.  Ratios within one run count; absolute figures depend on the machine, and on what else
it does: all kinds are measured in turn, several times, and the spread over the rounds is each row's noise.
"""

from __future__ import annotations

import resource
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import trustme
import uvloop

from tests.bench.relay_load import abort, fresh, hold, load, serve, stream
from tests.bench.rows import Row

SECONDS = 1.0
ROUNDS = 5
CROWD = 32
HELD_STREAMS = 500
KINDS = (
    "direct",
    "splice",
    "nginx",
    "relay",
    "relay-unobserved",
    "relay-saturated",
    "aiohttp",
    "nginx-tls",
    "relay-tls",
)
"""What the bare table shows; `-tls`: the upstream speaks TLS, the client never does."""


@dataclass(slots=True)
class Measured:
    """One proxy in one round; times in seconds, CPU time of the proxy's process alone."""

    idle_mb: float
    alone_s: list[float]
    crowd_per_s: float
    call_cpu_s: float
    fresh_s: list[float]
    event_s: list[float]
    event_cpu_s: float
    abort_s: list[float]
    rss_mb: float

    @property
    def alone_p50_s(self) -> float:
        return statistics.median(self.alone_s)

    @property
    def fresh_p50_s(self) -> float:
        return statistics.median(self.fresh_s)

    @property
    def event_p50_s(self) -> float:
        return statistics.median(self.event_s)


class Proxy:
    """A proxy in front of an upstream of its own, for a `with` block inside a loop."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.gone: list[float] = []

    async def __aenter__(self) -> Self:
        self.folder = tempfile.TemporaryDirectory()
        ca_file, context = Path(self.folder.name) / "ca.pem", None
        ca_file.touch()
        if self.kind.endswith("-tls"):
            authority = trustme.CA()
            authority.cert_pem.write_to_path(ca_file)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
        self.server, upstream = await serve(self.gone, context)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.relay_proxies", self.kind, str(upstream), str(ca_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        if len(words) != 2:
            raise RuntimeError(f"{self.kind} did not start")
        self.port, self.pid = int(words[0]), int(words[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.process.communicate()
        self.server.close()
        self.folder.cleanup()

    def cpu_s(self) -> float:
        """CPU seconds of the process (its own, not those of its children)."""
        tasks = Path(f"/proc/{self.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    def rss_mb(self) -> float:
        """Resident megabytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


async def measure(kind: str, seconds: float = SECONDS) -> Measured:
    """All figures of one proxy."""
    async with Proxy(kind) as proxy:
        port = proxy.port
        idle_mb = proxy.rss_mb()
        await load(port, 1, 0.2)
        alone_s = await load(port, 1, seconds)
        began_s = proxy.cpu_s()
        crowd_s = await load(port, CROWD, seconds)
        call_cpu_s = (proxy.cpu_s() - began_s) / len(crowd_s)
        fresh_s = await fresh(port, seconds / 2)
        began_s = proxy.cpu_s()
        event_s = await stream(port)
        event_cpu_s = (proxy.cpu_s() - began_s) / len(event_s)
        abort_s = await abort(port, proxy.gone)
        rss_mb = proxy.rss_mb()
    return Measured(
        idle_mb, alone_s, len(crowd_s) / seconds, call_cpu_s, fresh_s, event_s, event_cpu_s, abort_s, rss_mb
    )


async def measure_held(kind: str) -> float:
    """Resident megabytes of a proxy with `HELD_STREAMS` open streams."""
    async with Proxy(kind) as proxy:
        transports = await hold(proxy.port, HELD_STREAMS)
        rss_mb = proxy.rss_mb()
        for transport in transports:
            transport.close()
    return rss_mb


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return sorted(values)[int(len(values) * 0.99)]


Rounds = dict[str, list[Measured]]


def spread(took: Rounds, kinds: tuple[str, ...], figure: Callable[..., float]) -> tuple[float, float]:
    """Median of a figure over the rounds, and half the distance of its quartiles: what the machine adds by itself.

    `figure` gets one `Measured` of each kind, all of the same round.
    """
    values = [figure(*together) for together in zip(*(took[kind] for kind in kinds), strict=True)]
    low, _, high = statistics.quantiles(values, n=4)
    return statistics.median(values), (high - low) / 2


def rows() -> Iterator[Row]:
    """The budgets of DESIGN section 7 that this measures, and the figures beside them."""
    raise_file_limit()
    nginx = shutil.which("nginx") is not None
    kinds = ["direct", "splice", "relay", "relay-saturated", "aiohttp", "relay-tls"]
    kinds[3:3] = ["nginx", "nginx-tls"] if nginx else []
    took: Rounds = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind in kinds:
            took[kind].append(uvloop.run(measure(kind)))

    def row(
        what: str, unit: str, of: tuple[str, ...], figure: Callable[..., float], how: str = "", **budget: object
    ) -> Row:
        if any(kind not in took for kind in of):
            return Row(what=f"relay: {what}", value=None, unit=unit, how="nginx is not installed", **budget)  # type: ignore[arg-type]  # passed on
        value, noise = spread(took, of, figure)
        return Row(what=f"relay: {what}", value=value, noise=noise, unit=unit, how=how, **budget)  # type: ignore[arg-type]  # passed on

    def over(attribute: str) -> Callable[[Measured, Measured], float]:
        return lambda ours, other: getattr(ours, attribute) / getattr(other, attribute)

    rounds = f"{ROUNDS} rounds"
    yield row(
        "added p50, sequential, recording on", "ms", ("relay", "direct"),
        lambda ours, direct: (ours.alone_p50_s - direct.alone_p50_s) * 1e3, f"over direct, {rounds}", budget=0.12,
    )  # fmt: skip
    yield row("sequential p50 over nginx's", "x", ("relay", "nginx"), over("alone_p50_s"))
    yield row("sequential p50 over nginx's, TLS upstream", "x", ("relay-tls", "nginx-tls"), over("alone_p50_s"))
    yield row("a new connection per call, p50 over nginx's", "x", ("relay", "nginx"), over("fresh_p50_s"))
    yield row(
        "a new connection per call, p50 over nginx's, TLS upstream", "x", ("relay-tls", "nginx-tls"),
        over("fresh_p50_s"), "nginx keeps its upstream connections, we do not",
    )  # fmt: skip
    yield row("calls per second at 32", "/s", ("relay",), lambda ours: ours.crowd_per_s)
    yield row("CPU per call at 32", "us", ("relay",), lambda ours: ours.call_cpu_s * 1e6)
    yield row("CPU per call at 32 over nginx's", "x", ("relay", "nginx"), over("call_cpu_s"))
    for suffix, words in (("", ""), ("-tls", ", TLS upstream")):
        yield row(
            f"calls/s at 32 over nginx's{words}", "x", (f"relay{suffix}", f"nginx{suffix}"), over("crowd_per_s"),
            budget=0.6, sense="at least",
        )  # fmt: skip
    yield row(
        "calls/s at 32 over aiohttp's", "x", ("relay", "aiohttp"), over("crowd_per_s"), budget=5, sense="at least"
    )
    yield row(
        "calls/s at 32, saturated observer over one that keeps up", "x", ("relay-saturated", "relay"),
        over("crowd_per_s"), budget=0.9, sense="at least",
    )  # fmt: skip
    yield row(
        "p50 delay per SSE event over a splice's",
        "x",
        ("relay", "splice"),
        over("event_p50_s"),
        "50 x 200/s",
        budget=1.5,
    )
    yield row(
        "p99 delay per SSE event over a splice's", "ms", ("relay", "splice"),
        lambda ours, splice: (p99(ours.event_s) - p99(splice.event_s)) * 1e3, "50 x 200/s", budget=2,
    )  # fmt: skip
    yield row("CPU per SSE event", "us", ("relay",), lambda ours: ours.event_cpu_s * 1e6, "50 x 200/s", budget=30)
    yield row(
        "client abort to upstream closed", "ms", ("relay",),
        lambda ours: max(ours.abort_s) * 1e3, "max of 50", budget=100,
    )  # fmt: skip
    yield row(
        "client abort to upstream closed, silent behind TLS", "ms", ("relay-tls",),
        lambda ours: max(ours.abort_s) * 1e3, "max of 50", budget=100,
    )  # fmt: skip
    yield row(
        "resident memory, idle", "MB", ("relay",), lambda ours: ours.idle_mb,
        "the bench's imports included: the budget of 25 MB is for `fairtrial run`",
    )  # fmt: skip
    yield row("resident memory after all this", "MB", ("relay",), lambda ours: ours.rss_mb)
    yield Row(
        what=f"relay: resident memory, {HELD_STREAMS} open streams, TLS upstream",
        value=uvloop.run(measure_held("relay-tls")), unit="MB", budget=160, how="the relay process alone",
    )  # fmt: skip


def raise_file_limit() -> None:
    """Both ends of every held stream are in this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


def main() -> None:
    """The bare table of the kinds that are named."""
    raise_file_limit()
    print(
        f"{'proxy':18} {'p50 ms':>7} {'p99 ms':>7} {'new ms':>7} {'req/s':>7} {'us/req':>7}"
        f" {'ev p50':>7} {'ev p99':>7} {'us/ev':>6} {'abort':>6} {'idle':>6} {'MB':>6}"
    )
    for kind in sys.argv[1:] or KINDS:
        if kind.startswith("nginx") and shutil.which("nginx") is None:
            continue
        took = uvloop.run(measure(kind))
        print(
            f"{kind:18} {took.alone_p50_s * 1e3:7.3f} {p99(took.alone_s) * 1e3:7.3f} {took.fresh_p50_s * 1e3:7.3f}"
            f" {took.crowd_per_s:7.0f} {took.call_cpu_s * 1e6:7.1f} {took.event_p50_s * 1e3:7.3f}"
            f" {p99(took.event_s) * 1e3:7.3f} {took.event_cpu_s * 1e6:6.1f} {max(took.abort_s) * 1e3:6.1f}"
            f" {took.idle_mb:6.1f} {took.rss_mb:6.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
