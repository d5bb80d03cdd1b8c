"""Sizes in the dialect of their file: Docker's g is 1024³, Kubernetes' G is 1000³."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.doctor.quantities import (
    Unreadable,
    docker_bytes,
    duration_s,
    kubernetes_quantity,
    number,
)


@pytest.mark.parametrize(
    "text, size",
    [("512m", 512 << 20), ("1.5gb", 3 << 29), ("2G", 2 << 30), (1024, 1024), ("0", 0), ("-1", -1), ("1k", 1024)],
)
def test_docker_counts_in_binary_units(text: object, size: int) -> None:
    assert docker_bytes(text) == size


@pytest.mark.parametrize(
    "text, amount",
    [("500m", 0.5), ("2Gi", 2 << 30), ("2G", 2e9), (4, 4), ("1.5", 1.5), ("100Mi", 100 << 20), ("1e3", 1000)],
)
def test_kubernetes_counts_in_both(text: object, amount: float) -> None:
    assert kubernetes_quantity(text) == pytest.approx(amount)


@pytest.mark.parametrize("text, seconds", [("1m30s", 90), ("10s", 10), ("500ms", 0.5), (7, 7), ("1h", 3600)])
def test_durations(text: object, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("read", [docker_bytes, kubernetes_quantity, number, duration_s])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), "1e9999", "inf", 10**400, "1" * 400])
def test_what_is_beyond_all_numbers_is_none(read: object, value: object) -> None:
    """TOML and YAML both have inf and nan."""
    assert callable(read)
    with pytest.raises(Unreadable):
        read(value)


@pytest.mark.parametrize("read", [docker_bytes, kubernetes_quantity, number, duration_s])
@given(
    value=st.one_of(st.text(), st.none(), st.booleans(), st.lists(st.integers()), st.dictionaries(st.text(), st.text()))
)
def test_anything_else_is_a_sentence_never_another_error(read: object, value: object) -> None:
    assert callable(read)
    with contextlib.suppress(Unreadable):
        assert isinstance(read(value), int | float)
