"""What is not of the wanted shape is said with its place."""

from __future__ import annotations

import pytest

from fairtrial.middleware.doctor.kinds.shapes import amount, mapping, rows, table_of
from fairtrial.middleware.doctor.quantities import Unreadable, number


def test_what_is_absent_is_empty() -> None:
    assert mapping(None, "x") == {}
    assert rows(None, "x") == []
    assert table_of({"a": {"b": None}}, "a", "b", "c") == {}
    assert amount({}, "k", "x", number) is None


def test_the_place_is_named_down_to_the_key() -> None:
    with pytest.raises(Unreadable, match=r"^a\.b is no table but a text$"):
        table_of({"a": {"b": "text"}}, "a", "b", "c")
    with pytest.raises(Unreadable, match=r"^x\[1\] is no table but a number$"):
        rows([{}, 1], "x")
    with pytest.raises(Unreadable, match=r"^x\.k: 'soon' is no number$"):
        amount({"k": "soon"}, "k", "x", number)
