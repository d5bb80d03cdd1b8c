"""Trials made by chance: any order of calls, tools, kills, refusals, cuts, silences and gaps, as a door tells them.

In: a seed.  Out: a `Scene`, for the real assembler and engine.  The same seed gives the same trial.  Trials in which
nothing at all goes wrong are made in `healthy.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from fairtrial.middleware.core.observations import CgroupReading, ReplyFacts
from fairtrial.middleware.core.records import Victim
from tests.middleware.attribution.scene import CLAUDE, MIB, Scene

Act = Callable[[Scene, random.Random], object]


def _kept_cut(told: Scene, chance: random.Random) -> None:
    told.cut(open_tools=chance.randint(0, 1))
    told.turns += 1


def _forged(told: Scene, chance: random.Random) -> None:
    """A call that a tool makes in the agent's name, or in its own."""
    changes: dict[str, object] = {"session": None, "first_user_digest": "hello", "message_digests": ["hello"]}
    request = told.request(**(changes if chance.random() < 0.7 else {}))  # type: ignore[arg-type]
    told.attempt(ReplyFacts(status=chance.choice([429, 500, 529])), outcome="error", request=request, seconds=0.1)


ACTS: tuple[tuple[int, Act], ...] = (
    (8, lambda t, c: t.call(seconds=c.uniform(0.2, 30)).ran(c.choice([0, 0, 0, 1, 137, None]))),
    (3, lambda t, c: t.call(seconds=c.uniform(0.2, 30)).waited(c.uniform(0.1, 20))),
    (2, lambda t, c: t.call().ran(137, oom=True, victim=c.choice([None, Victim(comm="py", pid=8, rss=60 * MIB)]))),
    (1, lambda t, c: t.call().ran(0, oom=True, memory_peak=c.choice([8, 60]) * MIB, constraint="CONSTRAINT_NONE")),
    (3, lambda t, c: t.refused(c.choice([400, 401, 404, 429, 500, 502, 503, 504, 529]), times=c.randint(1, 4))),
    (2, lambda t, c: t.refused(c.choice([500, 502, 503]), provider_id=False, html=True, times=c.randint(1, 2))),
    (1, lambda t, c: t.cut(open_tools=c.randint(0, 1), our_lag=c.choice([None, 5.0]))),
    (1, _kept_cut),
    (1, lambda t, c: t.aborted(silence=c.choice([1.0, 120.0, 400.0])).waited(3)),
    (1, lambda t, c: t.undialled(c.choice(["dns", "connect", "tls"]))),
    (1, lambda t, _: t.runtime("oom")),
    (1, lambda t, _: t.runtime("kill", signal=9)),
    (2, _forged),
    (1, lambda t, c: t.gap(since=t.s, until=t.s + c.uniform(0.1, 2))),
    (1, lambda t, c: t.read("change", memory_shmem=c.choice([0, 60 * MIB]))),
)
ENDS: tuple[tuple[int, Act], ...] = (
    (6, lambda t, _: t.call(tools=0).end(1)),
    (2, lambda t, _: t.call(tools=0).end(0)),
    (4, lambda t, c: t.end(c.choice([1, 1, 124, 137, 143, None]))),
    (1, lambda t, c: t.end(None, signal=c.choice([9, 11, 15]))),
    (1, lambda t, _: t.end(130, forwarded=[2])),
    (1, lambda t, c: t.gone(137, ended_by=c.choice(["oom", "unknown", "runtime_kill"])).end(1)),
    (1, lambda t, _: t.waited()),
)


def trial(seed: int) -> Scene:
    """Any trial."""
    chance = random.Random(seed)
    told = Scene(
        box=chance.random() < 0.8,
        limit=chance.choice([64 * MIB, 64 * MIB, None]),
        reservation=chance.choice([None, 32 * MIB, 128 * MIB]),
        user_agent=chance.choice([CLAUDE, "my-agent/1", "curl/8"]),
        counters=chance.random() < 0.9,
        vmstat=chance.random() < 0.9,
    )
    if chance.random() < 0.3:
        told.tell(CgroupReading(container_id="own", memory_peak=8 * MIB, oom_kill=0))
    for act in chance.choices([a for _, a in ACTS], [w for w, _ in ACTS], k=chance.randint(0, 6)):
        act(told, chance)
    chance.choices([a for _, a in ENDS], [w for w, _ in ENDS])[0](told, chance)
    return told
