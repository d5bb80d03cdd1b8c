"""What a trial is measured by that it cannot know itself: how long calls should take, and how long its task needs.

In: nothing; shapes only.  `analysis/yardsticks.py` fills them from a store, `attribution/ledger.py` reads them.
A reference is *frozen*: it is made only of trials that had ended before the judged one began.

**Source:** design page VERDICTS.md section 4.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

INPUT_BUCKETS: Final = (1_000, 4_000, 16_000, 64_000, 256_000)
"""Upper ends of the input-size buckets, tokens; cached tokens count, since they were sent."""


def bucket_of(input_tokens: int) -> int:
    """The number of the input-size bucket."""
    return bisect_right(INPUT_BUCKETS, input_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """How long calls were expected to take, per model."""

    source: str
    """Where it is from, for people: "the same hour of the week over 4 weeks (120 calls)"."""
    first_token_p95_s: Mapping[tuple[str, int], float] = field(default_factory=lambda: MappingProxyType({}))
    """By model and input-size bucket."""
    token_rate_p5: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Output tokens per second behind the first one, by model: 95 % of the calls were faster."""

    def expected_s(self, model: str | None, input_tokens: int | None, output_tokens: int | None) -> float | None:
        """The p95 of a whole call of this size; None where the reference knows no such calls."""
        if model is None or input_tokens is None or output_tokens is None:
            return None
        first = self.first_token_p95_s.get((model, bucket_of(input_tokens)))
        rate = self.token_rate_p5.get(model)
        return None if first is None or not rate else first + output_tokens / rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardsticks:
    """What is known beside the trial itself; None is not known."""

    reference: Reference | None = None
    need_s: float | None = None
    """p90 of the time that passed trials of this task needed."""
    need_trials: int = 0
    """From how many of them."""


NO_YARDSTICKS: Final = Yardsticks()
