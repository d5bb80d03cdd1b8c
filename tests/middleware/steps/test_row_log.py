"""Rows are kept by what they belong to, in a few bytes each."""

import sys

import pytest

from fairtrial.middleware.steps.row_log import RowLog
from tests.middleware.steps.crowd import Crowd


def test_each_row_is_under_its_key_in_the_order_it_came() -> None:
    log = RowLog[str]()
    for key, source, seq in (("a", "s", 1), ("b", "s", 2), ("a", "t", 1), ("a", "s", 3), ("b", "t", -5)):
        log.add(key, source, seq)
    assert dict(log.rows()) == {"a": [("s", 1), ("t", 1), ("s", 3)], "b": [("s", 2), ("t", -5)]}
    assert log.counts() == {"a": 3, "b": 2}
    assert len(log) == 5


def test_a_number_that_no_store_holds_is_refused_and_leaves_no_half_row() -> None:
    log = RowLog[str]()
    with pytest.raises(OverflowError):
        log.add("a", "s", 1 << 63)
    assert (len(log), dict(log.rows())) == (0, {})


def test_a_row_costs_no_object() -> None:
    """As a tuple in a list a row took some 100 bytes."""
    log = Crowd().facts().others
    before, had, blocks = log.kept_bytes, len(log), sys.getallocatedblocks()
    for seq in range(10_000):
        log.add(("container", "c" * 64), "collector", 1000 + seq)
    assert len(log) == had + 10_000
    assert sys.getallocatedblocks() - blocks < 500
    assert log.kept_bytes - before < 10_000 * 20
