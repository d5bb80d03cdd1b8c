"""Words: numbers as people read them, outside values made harmless."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairtrial.middleware.attribution.sentences import (
    UNKNOWN_WORDS,
    capital,
    clean,
    count,
    fill,
    listed,
    seconds,
    signal_name,
    size,
    statuses,
    steps,
)
from fairtrial.middleware.core.causes import CAUSES


@given(st.text())
def test_a_cleaned_value_has_nothing_that_moves_a_cursor(text: str) -> None:
    kept = clean(text)
    assert kept.isprintable()
    assert len(kept) <= 80


def test_a_long_value_is_cut_short_and_says_so() -> None:
    assert clean("x" * 100, 10) == "x" * 9 + "…"


@pytest.mark.parametrize("name", sorted(CAUSES))
def test_every_place_of_every_template_has_words_for_unknown(name: str) -> None:
    cause = CAUSES[name]
    for template in (cause.template, cause.advice):
        assert "{" not in fill(template, {})
    assert "unknown" not in {k for k in UNKNOWN_WORDS if not k}


@pytest.mark.parametrize(
    "amount, text",
    [(0, "0 B"), (1023, "1023 B"), (64 << 20, "64 MiB"), (3 << 29, "1.5 GiB"), (1 << 41, "2 TiB"), (None, None)],
)
def test_sizes_are_in_binary_units(amount: int | None, text: str | None) -> None:
    assert size(amount) == text


@pytest.mark.parametrize(
    "length, text", [(0.045, "45 ms"), (2.54, "2.5 s"), (72.2, "72 s"), (300.0, "5 min"), (725.0, "12 min 5 s")]
)
def test_lengths_of_time(length: float, text: str) -> None:
    assert seconds(length) == text
    assert seconds(None) is None


def test_steps_are_ranges() -> None:
    assert steps([3]) == "step 3"
    assert steps([4, 2, 3, 3]) == "steps 2-4"
    assert steps([1, 3, 4, 9]) == "steps 1, 3-4 and 9"


def test_lists_counts_and_signals() -> None:
    assert listed([]) == ""
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert (count(1, "kill"), count(2, "kill")) == ("1 kill", "2 kills")
    assert (signal_name(9), signal_name(42), signal_name(None)) == ("SIGKILL", "signal 42", None)
    assert statuses([529, 529, None, 500]) == "HTTP 529 x 2, no reply, 500"
    assert statuses([None]) is None
    assert capital("fairtrial says") == "Fairtrial says"
