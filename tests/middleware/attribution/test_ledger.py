"""The ledger is a union of intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.attribution.ledger import union_s
from tests.middleware.attribution.scene import Scene

S = 10**9
spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda p: (min(p) * S, max(p) * S)), max_size=12)


@given(spans)
def test_the_union_is_what_a_clock_that_ticks_each_second_would_count(intervals: list[tuple[int, int]]) -> None:
    ticks = sum(1 for t in range(50) if any(a <= t * S and (t + 1) * S <= b for a, b in intervals))
    assert union_s(intervals) == pytest.approx(ticks)


def test_failed_attempts_and_the_waits_after_them_are_charged_and_the_whole_reply_is_not() -> None:
    told = Scene().call().ran(0).refused(529, times=3, seconds=0.5, wait=2.0)
    told.waited(4.0).call(tools=0, seconds=30.0).end(1)
    ledger = told.verdict().ledger
    assert ledger.infra_seconds == pytest.approx(0.5 * 3 + 2.0 * 2 + 4.0)
    assert ledger.by_cause == {"model_api.overloaded": pytest.approx(9.5)}
    assert (ledger.limit, ledger.need) == (None, None)
    assert ledger.elapsed is not None
    assert ledger.elapsed > 30


def test_a_long_silence_inside_a_whole_reply_is_charged_and_a_short_one_is_not() -> None:
    def with_silence(length: float, upstream: float | None = None) -> float | None:
        told = Scene().call(seconds=130.0)
        last = next(o for o in reversed(told.observations) if o.kind == "attempt.ended")
        last.value["max_gap_with_pings"] = length
        if upstream is not None:
            last.value["upstream_gap_with_pings"] = upstream
        return told.end(1).verdict().ledger.infra_seconds

    assert with_silence(120.0) == pytest.approx(120.0)
    assert with_silence(20.0) == 0.0
    # Of 120 s our own loop slept through 80: less than a stall is the upstream's.
    assert with_silence(120.0, upstream=40.0) == 0.0


def test_what_the_operator_has_to_mend_is_not_charged_to_infra() -> None:
    assert Scene().refused(401, times=3).end(1).verdict().ledger.infra_seconds == 0.0
