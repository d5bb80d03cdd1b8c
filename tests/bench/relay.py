"""The relay beside direct, a parse-nothing splice, nginx and aiohttp: latency, throughput, streams; in one run.

`python -m tests.bench relay`.  The relay is a real `fairtrial run` with its real observer: recorded, stored and
exported to a collector.  All kinds are up at once and measured in turn, slice by slice, several rounds with new
processes for each; before each slice ours have nothing left to do.  Ratios within one run count, and the spread over
the rounds is each row's noise.  The proxy has a core to itself; client, upstream, observer and collector share the
others.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, Literal, Self

import uvloop

from tests.bench.observed import ROOT, Observing, Run, Upstreams
from tests.bench.processes import OTHER_CORES, PROXY_CORE, Process, on, raise_file_limit, settle
from tests.bench.relay_load import Door, Heard, connected, load, streams
from tests.bench.relay_proxies import NGINX_PATH
from tests.bench.rows import Row, percentile, spread

ROUNDS: Final = 5
CROWD: Final = 32
KINDS: Final = (
    "direct",
    "splice",
    "nginx",
    "relay",
    "relay-alone",
    "relay-saturated",
    "aiohttp",
    "nginx-tls",
    "relay-tls",
)
"""`-tls`: the upstream speaks TLS, the client never does.  `relay-alone`: its observer reads and does nothing else;
`relay-saturated`: its observer takes 3 MB/s, so that the feed overflows."""

_OBSERVING: Final[Mapping[str, Observing]] = {"relay-alone": "keeps-up", "relay-saturated": "saturated"}

Took = dict[tuple[str, str], list[float]]
"""(kind, figure) → one value per round."""


@dataclass(slots=True)
class Effort:
    """How long each slice lasts, in seconds."""

    rounds: int = ROUNDS
    alone_s: float = 0.4
    crowd_s: float = 0.6
    fresh_s: float = 0.3
    first_s: float = 0.9
    stream: bool = True


QUICK: Final = Effort(rounds=1, alone_s=0.05, crowd_s=0.05, fresh_s=0.05, first_s=0.1)


@dataclass(slots=True)
class Proxy:
    """One kind, up and ready; nothing where the clients talk to the upstream directly."""

    kind: str
    door: Door
    process: Process | None = None
    observer: Process | None = None

    @property
    def ours(self) -> list[Process]:
        """Processes that may still be busy with what has passed."""
        return [process for process in (self.process, self.observer) if process is not None]


class Bare:
    """A proxy of `relay_proxies.py`, for a `with` block."""

    def __init__(self, kind: str, upstream_port: int, ca_file: str) -> None:
        with on(PROXY_CORE):
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.relay_proxies", kind, str(upstream_port), ca_file],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=ROOT,
            )
        assert self.popen.stdout is not None
        words = self.popen.stdout.readline().split()
        if len(words) != 2:
            raise RuntimeError(f"{kind} did not start")
        self.port, self.pid = int(words[0]), int(words[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.popen.communicate()


def start(kind: str, ups: Upstreams, stack: AsyncExitStack) -> Proxy:
    """Up, until the stack is unwound."""
    tls = kind.endswith("-tls")
    if kind == "direct":
        return Proxy(kind, Door(ups.behind(tls=False).port))
    if kind.startswith("relay"):
        run: Run = stack.enter_context(ups.run(tls=tls, observing=_OBSERVING.get(kind, "real")))
        if kind not in _OBSERVING:
            run.ready()
        return Proxy(kind, run.door, run.relay, run.observer)
    bare = stack.enter_context(Bare(kind, ups.behind(tls=tls).port, str(ups.ca_file)))
    return Proxy(kind, Door(bare.port), Process(bare.pid))


class Taking:
    """Measures slices and keeps their figures."""

    def __init__(self, ups: Upstreams, effort: Effort) -> None:
        self.ups = ups
        self.effort = effort
        self.took: Took = {}

    def note(self, proxy: Proxy, **figures: float) -> None:
        for name, value in figures.items():
            self.took.setdefault((proxy.kind, name), []).append(value)

    async def client(self, proxy: Proxy, how: str, seconds: float) -> list[float]:
        """Seconds per call of the client in a process of its own."""
        ask = self.ups.folder / f"ask-{proxy.kind}-{how}"
        ask.write_bytes(proxy.door.call("first", stream=True) if how == "first" else proxy.door.call(""))
        # Without a proxy the client takes its core, so that a direct call crosses cores as well; but not while streams
        # flow, whose clients and upstream it has to share a core with in any case.
        crosses = proxy.process is None and how != "first"
        with on(PROXY_CORE if crosses else OTHER_CORES):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.bench.relay_client", how, str(proxy.door.port), str(ask), str(seconds),
                stdout=asyncio.subprocess.PIPE, cwd=ROOT,
            )  # fmt: skip
        out, _ = await process.communicate()
        spent_s: list[float] = json.loads(out)
        return spent_s

    async def alone(self, proxy: Proxy) -> None:
        """One call after the other on one connection."""
        spent_s = await self.client(proxy, "whole", self.effort.alone_s)
        spent_s = spent_s[len(spent_s) // 10 :]
        self.note(proxy, alone_p50_s=statistics.median(spent_s), alone_p99_s=percentile(spent_s, 0.99))

    async def fresh(self, proxy: Proxy) -> None:
        """A new connection per call."""
        self.note(proxy, fresh_p50_s=statistics.median(await self.client(proxy, "fresh", self.effort.fresh_s)))

    async def crowd(self, proxy: Proxy) -> None:
        """32 connections, each asking again at once."""
        await load(await connected(proxy.door, CROWD), self.effort.crowd_s / 6)
        crowd = await connected(proxy.door, CROWD)
        if not settle(proxy.ours):
            self.note(proxy, unsettled=1.0)
        before_s, load_s = [process.cpu_s() for process in proxy.ours], Process(os.getpid()).cpu_s()
        calls = len(await load(crowd, self.effort.crowd_s))
        cpu_s = [process.cpu_s() - was_s for process, was_s in zip(proxy.ours, before_s, strict=True)]
        load_s = Process(os.getpid()).cpu_s() - load_s
        self.note(proxy, crowd_per_s=calls / self.effort.crowd_s, load_share=load_s / self.effort.crowd_s)
        self.note_cpu(proxy, cpu_s, "call", calls)

    async def stream(self, proxy: Proxy) -> None:
        """50 streams of 200 events/s."""
        before_s = [process.cpu_s() for process in proxy.ours]
        heard = await streams(proxy.door, "stream")
        events = len(heard.delays_s)
        settle([proxy.observer] if proxy.observer is not None else [])
        cpu_s = [process.cpu_s() - was_s for process, was_s in zip(proxy.ours, before_s, strict=True)]
        self.note(proxy, event_p50_s=statistics.median(heard.delays_s), event_p99_s=percentile(heard.delays_s, 0.99))
        self.note_cpu(proxy, cpu_s, "event", events)

    async def first(self, proxy: Proxy) -> None:
        """The time to the first event of a stream that begins while 50 others flow."""
        flowing = asyncio.get_running_loop().create_task(streams(proxy.door, "stream"), name="background")
        await asyncio.sleep(0.1)
        spent_s = await self.client(proxy, "first", self.effort.first_s)
        heard: Heard = await flowing
        self.note(proxy, first_p50_s=statistics.median(spent_s), first_p99_s=percentile(spent_s, 0.99))
        self.note(proxy, streams_heard=float(len(heard.first_s)))

    def note_cpu(self, proxy: Proxy, cpu_s: list[float], what: str, count: int) -> None:
        """CPU time per call or event, of the proxy and of the observer behind it."""
        for name, spent_s in zip((f"{what}_cpu_s", f"{what}_observer_cpu_s"), cpu_s, strict=False):
            self.note(proxy, **{name: spent_s / count})


_SLICES: Final = ("alone", "crowd", "fresh", "stream", "first")
_WANTED: Final[Mapping[str, Sequence[str]]] = {
    "alone": ("direct", "splice", "nginx", "relay", "relay-alone", "nginx-tls", "relay-tls"),
    "crowd": KINDS,
    "fresh": ("nginx", "relay", "nginx-tls", "relay-tls"),
    "stream": ("splice", "relay", "relay-tls"),
    "first": ("direct", "splice", "relay"),
}


async def measured(effort: Effort) -> Took:
    """All slices of all rounds."""
    kinds = [kind for kind in KINDS if NGINX_PATH is not None or not kind.startswith("nginx")]
    async with Upstreams() as ups:
        taking = Taking(ups, effort)
        slices: dict[str, Callable[[Proxy], Awaitable[None]]] = {name: getattr(taking, name) for name in _SLICES}
        for number in range(effort.rounds):
            async with AsyncExitStack() as stack:
                proxies = [start(kind, ups, stack) for kind in kinds]
                ours = [process for proxy in proxies for process in proxy.ours]
                turn = number % len(proxies)
                for name, measure in slices.items():
                    for proxy in (*proxies[turn:], *proxies[:turn]):
                        if proxy.kind in _WANTED[name]:
                            settle(ours)
                            await measure(proxy)
    return taking.took


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The budgets of DESIGN section 7 that this measures, and the figures beside them."""
    raise_file_limit()
    os.sched_setaffinity(0, OTHER_CORES)
    effort = QUICK if quick else Effort()
    took = uvloop.run(measured(effort))
    table = Table(took, effort.rounds)
    yield from table.latency()
    yield from table.throughput()
    yield from table.streaming()


@dataclass(slots=True)
class Table:
    """Rows from what was taken."""

    took: Took
    rounds: int
    missing: str = field(default="nginx is not installed", init=False)

    def row(
        self,
        what: str,
        unit: str,
        *of: tuple[str, str],
        figure: Callable[..., float] = lambda value: value,
        how: str = "",
        budget: float | None = None,
        sense: Literal["at most", "at least"] = "at most",
    ) -> Row:
        """`figure` gets one value for each (kind, figure) in `of`, all of the same round."""
        value: float | None = None
        noise = 0.0
        if any(one not in self.took for one in of):
            how = self.missing
        else:
            together = zip(*(self.took[one] for one in of), strict=True)
            value, noise = spread([figure(*values) for values in together])
        return Row(what=what, value=value, noise=noise, unit=unit, how=how, budget=budget, sense=sense)

    def over(
        self,
        what: str,
        name: str,
        ours: str,
        other: str,
        how: str = "",
        *,
        budget: float | None = None,
        sense: Literal["at most", "at least"] = "at most",
    ) -> Row:
        """A ratio."""
        return self.row(
            what, "x", (ours, name), (other, name), figure=lambda a, b: a / b, how=how, budget=budget, sense=sense
        )

    def latency(self) -> Iterator[Row]:
        """One call after the other."""
        rounds = f"{self.rounds} rounds"
        added = {
            "relay": ("added p50, sequential, recording on", 0.12, f"over direct, {rounds}"),
            "relay-alone": ("the same, an observer that only reads", None, "what the relay process adds"),
            "nginx": ("the same, nginx", None, ""),
            "splice": ("the same, a splice", None, ""),
        }
        for kind, (what, budget, how) in added.items():
            yield self.row(
                what, "ms", (kind, "alone_p50_s"), ("direct", "alone_p50_s"),
                figure=lambda ours, direct: (ours - direct) * 1e3, how=how, budget=budget,
            )  # fmt: skip
        yield self.row("direct p50", "ms", ("direct", "alone_p50_s"), figure=lambda p50_s: p50_s * 1e3)
        yield self.over("sequential p50 over nginx's", "alone_p50_s", "relay", "nginx")
        yield self.over("sequential p99 over nginx's", "alone_p99_s", "relay", "nginx")
        yield self.over("sequential p50 over nginx's, TLS upstream", "alone_p50_s", "relay-tls", "nginx-tls")
        yield self.over("a new connection per call, p50 over nginx's", "fresh_p50_s", "relay", "nginx")
        yield self.over(
            "a new connection per call, p50 over nginx's, TLS upstream", "fresh_p50_s", "relay-tls", "nginx-tls",
            "we dial by name and shake hands for each, nginx keeps its upstream connections",
        )  # fmt: skip

    def throughput(self) -> Iterator[Row]:
        """32 connections."""
        yield self.row("calls per second at 32", "/s", ("relay", "crowd_per_s"))
        yield self.row("calls per second at 32, nginx", "/s", ("nginx", "crowd_per_s"))
        yield self.over(
            "what client and upstream can do at 32, over what they did for nginx", "crowd_per_s", "direct", "nginx",
            "they may not be the bottleneck", budget=1, sense="at least",
        )  # fmt: skip
        for kind, budget in (("nginx", 97), ("nginx-tls", 97), ("relay", None), ("relay-tls", None)):
            yield self.row(
                f"busy share of client and upstream at 32, {kind}", "%", (kind, "load_share"),
                figure=lambda share: share * 100, budget=budget,
                how="else they are the bottleneck, and a ratio to nginx says too little" if budget else "",
            )  # fmt: skip
        for kind in ("relay", "relay-alone", "relay-tls", "nginx", "nginx-tls", "splice", "aiohttp"):
            yield self.row(f"CPU per call at 32, {kind}", "us", (kind, "call_cpu_s"), figure=lambda cpu_s: cpu_s * 1e6)
        yield self.row(
            "CPU per call at 32, the observer behind relay", "us", ("relay", "call_observer_cpu_s"),
            figure=lambda cpu_s: cpu_s * 1e6, how="while the load lasts; of calls that the feed did not drop",
        )  # fmt: skip
        yield self.over("CPU per call at 32 over nginx's", "call_cpu_s", "relay", "nginx")
        for suffix, words in (("", ""), ("-tls", ", TLS upstream")):
            yield self.over(
                f"calls/s at 32 over nginx's{words}", "crowd_per_s", f"relay{suffix}", f"nginx{suffix}",
                budget=0.6, sense="at least",
            )  # fmt: skip
        yield self.over(
            "calls/s at 32 over nginx's, an observer that only reads", "crowd_per_s", "relay-alone", "nginx",
            "where the observer takes nothing from client and upstream",
        )  # fmt: skip
        yield self.over("calls/s at 32 over aiohttp's", "crowd_per_s", "relay", "aiohttp", budget=5, sense="at least")
        yield self.over(
            "calls/s at 32, saturated observer over one that keeps up", "crowd_per_s", "relay-saturated",
            "relay-alone", budget=0.9, sense="at least",
        )  # fmt: skip

    def streaming(self) -> Iterator[Row]:
        """50 streams of 200 events a second."""
        how = "50 x 200/s"
        yield self.over("p50 delay per SSE event over a splice's", "event_p50_s", "relay", "splice", how, budget=1.5)
        yield self.over("p50 delay per SSE event over a splice's, TLS upstream", "event_p50_s", "relay-tls", "splice")
        yield self.row(
            "p99 delay per SSE event over a splice's", "ms", ("relay", "event_p99_s"), ("splice", "event_p99_s"),
            figure=lambda ours, splice: (ours - splice) * 1e3, how=how, budget=2,
        )  # fmt: skip
        for kind, budget in (("relay", 30), ("relay-tls", None), ("splice", None)):
            yield self.row(
                f"CPU per SSE event, {kind}", "us", (kind, "event_cpu_s"), figure=lambda cpu_s: cpu_s * 1e6,
                how=f"{how}, the relay process" if kind == "relay" else "", budget=budget,
            )  # fmt: skip
        yield self.row(
            "CPU per SSE event, the observer behind relay", "us", ("relay", "event_observer_cpu_s"),
            figure=lambda cpu_s: cpu_s * 1e6, how="until it has nothing left to do",
        )  # fmt: skip
        yield self.row(
            "added TTFT p99", "ms", ("relay", "first_p99_s"), ("direct", "first_p99_s"),
            figure=lambda ours, direct: (ours - direct) * 1e3, how=f"over direct, while {how} flow", budget=5,
        )  # fmt: skip
        for what, kind, figure in (
            ("the same, a splice", "splice", "first_p99_s"),
            ("added TTFT p50", "relay", "first_p50_s"),
            ("the same, a splice", "splice", "first_p50_s"),
        ):
            yield self.row(
                what, "ms", (kind, figure), ("direct", figure), figure=lambda ours, direct: (ours - direct) * 1e3
            )
