"""Healthy trials by chance, and how many of them the ledger would charge: at most one in a hundred.

In: seeds.  Out: trials without an outside fault, of which a part runs into its time limit all the same, and the seeds
of those that are charged over the line.  Times are heavy-tailed, as calls and commands are; each trial has a pace of
its own, since all calls of one hour are slow or quick together; each command bears the delay of its start; a 529 that a
retry mends comes once in 300 calls.  The frozen reference is made of other trials by the same chance, as a person's
would be of earlier weeks.

**Source:** design page VERDICTS.md section 4.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.attribution.thresholds import DEFAULT_THRESHOLDS
from fairtrial.middleware.core.observations import DoorExec, ExecEnded, TrialStarted
from fairtrial.middleware.core.records import Blame
from fairtrial.middleware.core.yardsticks import Reference, Yardsticks, bucket_of
from tests.middleware.attribution.scene import BOX, Scene

TRIALS: Final = 1000
MOST: Final = 0.01
"""Part of them that may be charged over the line."""
_MODEL: Final = "claude-test"
_NEED_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Call:
    """How one model call goes."""

    input_tokens: int
    output_tokens: int
    first_s: float
    rate: float

    @property
    def seconds(self) -> float:
        return self.first_s + self.output_tokens / self.rate


def _call(chance: random.Random, pace: float) -> Call:
    sent = chance.randint(2_000, 90_000)
    first_s = chance.lognormvariate(0.3, 0.5) * (1 + sent / 100_000) * pace
    tokens = min(32_000, max(1, round(chance.lognormvariate(5.5, 1.1))))
    return Call(sent, tokens, first_s, chance.uniform(40.0, 90.0) / pace)


def _pace(chance: random.Random) -> float:
    return chance.lognormvariate(0.0, 0.12)


@cache
def reference() -> Reference:
    """Of 600 other trials."""
    first: dict[int, list[float]] = {}
    rates: list[float] = []
    for seed in range(TRIALS, TRIALS + 600):
        chance = random.Random(f"reference {seed}")
        pace = _pace(chance)
        for _ in range(10):
            call = _call(chance, pace)
            first.setdefault(bucket_of(call.input_tokens), []).append(call.first_s)
            rates.append(call.rate)
    p95 = {(_MODEL, bucket): sorted(values)[int(0.95 * len(values))] for bucket, values in first.items()}
    p5 = sorted(rates)[int(0.05 * len(rates))]
    return Reference(source="600 other trials", first_token_p95_s=p95, token_rate_p5={_MODEL: p5})


def _command(chance: random.Random, told: Scene) -> None:
    """A command in the box: the engine starts it within a tenth of a second or so, and once in 400 within a few."""
    dispatch_s = chance.uniform(1.0, 5.0) if chance.random() < 1 / 400 else chance.lognormvariate(-2.1, 0.6)
    code, length_s = chance.choice([0, 0, 0, 1, 2]), min(600.0, chance.lognormvariate(0.5, 1.6))
    at = told.wall()
    told.waited(dispatch_s).ran(code, seconds=length_s)
    exec_id = str(next(o for o in reversed(told.observations) if o.kind == ExecEnded.kind).value["exec_id"])
    door = DoorExec(
        exec_id=exec_id,
        container_id=BOX,
        status=200,
        started_wall_ns=at,
        dispatch_delay=dispatch_s,
        duration=dispatch_s + length_s,
        ended_by="process",
    )
    told.tell(door, told.events)


def healthy(seed: int) -> Scene:
    """A trial that failed by itself, or ran out of its time."""
    chance = random.Random(seed)
    told, pace = Scene(), _pace(chance)
    for _ in range(chance.randint(2, 14)):
        if chance.random() < 1 / 300:
            told.refused(529, wait=chance.uniform(0.5, 2.0)).waited(chance.uniform(0.5, 2.0))
        call = _call(chance, pace)
        told.call(seconds=call.seconds, output_tokens=call.output_tokens, input_tokens=call.input_tokens)
        _command(chance, told)
    if chance.random() < 0.6:
        begun = next(o for o in told.observations if o.kind == TrialStarted.kind)
        begun.value["command"] = ["timeout", f"{told.s:.3f}", "agent"]
        return told.end(124)
    return told.call(tools=0).end(1)


def is_charged(seed: int) -> bool:
    """Whether a healthy trial's ledger reaches the line, or the trial is blamed on infra."""
    yardsticks = Yardsticks(reference=reference(), need_s=_NEED_S, need_trials=9)
    verdict = judge(healthy(seed).assembly(), yardsticks=yardsticks)
    book = verdict.ledger
    span_s = None if book is None else book.limit or book.elapsed
    if book is None or book.infra_seconds is None or not span_s:
        raise ValueError(f"the ledger of healthy trial {seed} was not kept")
    return book.infra_seconds >= DEFAULT_THRESHOLDS.ledger_share * span_s or verdict.blame is Blame.INFRA


def charged(seeds: Iterable[int] = range(TRIALS)) -> list[int]:
    """Those of the trials that are."""
    return [seed for seed in seeds if is_charged(seed)]
