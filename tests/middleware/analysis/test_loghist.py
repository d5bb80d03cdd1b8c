"""Quantiles within a percent, merging that is adding, and nothing that a number could break."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.analysis.loghist import GAMMA, LogHistogram

values = st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1, max_size=200)


@given(values, st.floats(min_value=0, max_value=1))
def test_a_quantile_is_within_one_bucket_of_a_value_of_its_rank(numbers: list[float], q: float) -> None:
    found = LogHistogram.of(numbers).quantile(q)
    assert found is not None
    ranked = sorted(numbers)
    rank = q * (len(ranked) - 1)
    low, high = ranked[math.floor(rank)], ranked[math.ceil(rank)]
    assert low / GAMMA <= found <= high * GAMMA


@given(values, values)
def test_merging_is_counting_both(one: list[float], other: list[float]) -> None:
    merged = LogHistogram.of(one)
    merged.merge(LogHistogram.of(other))
    assert merged == LogHistogram.of([*one, *other])
    assert len(merged) == len(one) + len(other)


@given(values)
def test_json_and_back(numbers: list[float]) -> None:
    made = LogHistogram.of(numbers)
    assert LogHistogram.from_json(made.as_json()) == made


@given(st.lists(st.floats(), max_size=50))
def test_no_number_breaks_it(numbers: list[float]) -> None:
    made = LogHistogram.of(numbers)
    assert len(made) == sum(not math.isnan(number) for number in numbers)
    quantile = made.quantile(0.5)
    assert quantile is None or quantile > 0


def test_the_median_of_latencies_is_right_to_a_percent() -> None:
    chance = random.Random(4)
    numbers = [chance.lognormvariate(0.3, 0.6) for _ in range(20_000)]
    found = LogHistogram.of(numbers).quantile(0.95)
    assert found == pytest.approx(sorted(numbers)[19_000], rel=0.01)
