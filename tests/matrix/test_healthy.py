"""The ledger's line: what a healthy day takes is not charged, and an outage is."""

from __future__ import annotations

from typing import Final

from fairtrial.middleware.attribution.engine import judge
from fairtrial.middleware.core.observations import TrialStarted
from fairtrial.middleware.core.yardsticks import Yardsticks
from tests.matrix.healthy import MOST, charged, healthy, reference
from tests.middleware.attribution.scene import Scene

SOME: Final = 200
"""`make matrix` tries all of them."""


def test_at_most_one_of_a_hundred_healthy_trials_is_charged_over_the_ledgers_line() -> None:
    over = charged(range(SOME))
    assert len(over) <= MOST * SOME, over


def test_the_same_seed_gives_the_same_trial_and_another_one_another() -> None:
    assert healthy(7).s == healthy(7).s
    assert len({healthy(seed).s for seed in range(20)}) == 20


def test_calls_four_times_as_slow_as_the_reference_are_charged() -> None:
    """The line can be crossed: otherwise it would guard nothing."""
    told = Scene()
    for _ in range(6):
        told.call(seconds=40.0, output_tokens=200, input_tokens=20_000).ran(0)
    begun = next(o for o in told.observations if o.kind == TrialStarted.kind)
    begun.value["command"] = ["timeout", f"{told.s:.3f}", "agent"]
    yardsticks = Yardsticks(reference=reference(), need_s=60.0, need_trials=9)
    verdict = judge(told.end(124).assembly(), yardsticks=yardsticks)
    assert verdict.ledger.limit is not None
    assert (verdict.ledger.infra_seconds or 0.0) > 0.5 * verdict.ledger.limit
    assert (verdict.blame, verdict.grade, verdict.cause) == ("infra", "suspected", "model_api.slow")
