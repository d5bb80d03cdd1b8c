"""A span stays small, by a rule that can be said in three sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairtrial.exporters.bounds import LOSSLESS, SHORT_BYTES, SPAN_BYTES, TEXT_BYTES, Bounds, bounded, cut, shrunk
from fairtrial.exporters.encoding import small, weigh
from fairtrial.exporters.spans import Event, Link, Span
from fairtrial.exporters.trace_layout import spans_of
from tests.fakes.traced import a_trial

PLAIN = Span(
    service="s",
    name="n",
    kind="internal",
    trace_id="ab" * 16,
    span_id="cd" * 8,
    parent_id=None,
    start_ns=1,
    end_ns=2,
    attributes={},
)


@pytest.mark.parametrize(
    "text, most, kept",
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("abcdef", 5, "ab…"),
        ("ααα", 6, "ααα"),
        ("αααα", 6, "α…"),
        ("a\ud800b", None, "a?b"),
        ("x", None, "x"),
    ],
)
def test_a_text_is_cut_on_the_border_of_a_character(text: str, most: int | None, kept: str) -> None:
    assert cut(text, most) == kept


@given(st.text(), st.integers(0, 40))
def test_a_cut_text_is_never_longer_and_always_utf8(text: str, most: int) -> None:
    assert len(cut(text, most).encode()) <= most


def test_every_text_can_be_searched_by_the_strictest_back_end() -> None:
    span = replace(PLAIN, name="n" * 999, error="e" * 999, attributes={"a": "v" * 999, "l": ["i" * 999] * 20})
    small_one = bounded(span, Bounds())
    assert TEXT_BYTES == 255
    assert len(small_one.name.encode()) == len((small_one.error or "").encode()) == TEXT_BYTES
    assert small_one.attributes["a"] == "v" * 252 + "…"
    items = small_one.attributes["l"]
    assert isinstance(items, list)
    assert (len(items), len(items[0].encode())) == (8, 255)


def test_what_has_the_shape_of_a_secret_goes_nowhere() -> None:
    key = "sk-ant-api03-" + "A" * 40
    span = replace(
        PLAIN,
        error=f"401 for {key}",
        attributes={"a": key, "l": [f"x {key}"]},
        events=(Event(name="e", at_ns=1, attributes={"k": key}),),
    )
    for bounds in (Bounds(), LOSSLESS):
        assert key[:20] not in repr(bounded(span, bounds))


def test_limits_drop_the_last_ones_and_count_them() -> None:
    span = replace(
        PLAIN,
        attributes={f"a{n}": n for n in range(10)},
        events=tuple(Event(name="e", at_ns=n, attributes={"k": 1, "l": 2}) for n in range(5)),
        links=tuple(Link("ab" * 16, f"{n:016x}") for n in range(1, 7)),
    )
    kept = bounded(span, Bounds(attributes=4, events=3, links=2, event_attributes=1))
    assert list(kept.attributes) == ["a0", "a1", "a2", "a3"]
    assert ([event.at_ns for event in kept.events], len(kept.links)) == ([0, 1, 2], 2)
    assert kept.events[0].attributes == {"k": 1}
    assert kept.dropped == (6, 2, 4)


def test_characters_may_be_limited_as_well() -> None:
    assert bounded(replace(PLAIN, attributes={"a": "abcdef"}), Bounds(text_chars=3)).attributes == {"a": "abc"}


def test_numbers_that_have_no_place_on_the_wire_become_texts() -> None:
    span = replace(PLAIN, attributes={"big": 1 << 70, "nan": float("nan"), "bool": True, "n": -(1 << 63)})
    assert bounded(span, Bounds()).attributes == {"big": str(1 << 70), "nan": "nan", "bool": True, "n": -(1 << 63)}


def test_a_span_that_is_too_large_loses_text_first_then_events_links_and_the_last_attributes() -> None:
    span = replace(PLAIN, attributes={f"key{n:02}": "v" * 300 for n in range(15)})
    kept = shrunk(bounded(span, Bounds()), SPAN_BYTES, weigh)
    assert (len(kept.attributes), kept.dropped) == (15, (0, 0, 0))
    assert {len(str(value).encode()) for value in kept.attributes.values()} == {SHORT_BYTES}
    crowded = replace(
        span,
        attributes={f"key{n:02}": "v" * 300 for n in range(40)},
        events=tuple(Event(name="e", at_ns=1) for _ in range(8)),
        links=tuple(Link("ab" * 16, f"{n:016x}") for n in range(1, 9)),
    )
    kept = shrunk(bounded(crowded, Bounds()), SPAN_BYTES, weigh)
    assert list(kept.attributes) == [f"key{n:02}" for n in range(len(kept.attributes))]
    assert (kept.events, kept.links) == ((), ())
    assert kept.dropped == (40 - len(kept.attributes), 8, 8)
    assert SPAN_BYTES - 100 < weigh(kept) <= SPAN_BYTES


_TEXTS = st.text(max_size=600)
_VALUES = st.one_of(_TEXTS, st.integers(), st.floats(), st.booleans(), st.lists(_TEXTS, max_size=12))


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=60), _VALUES, max_size=60), _TEXTS, st.integers(0, 30))
def test_no_span_weighs_more_than_1536_bytes_on_the_wire(
    attributes: dict[str, str | int | float | bool | list[str]], error: str, links: int
) -> None:
    span = replace(
        PLAIN,
        error=error,
        attributes=attributes,
        links=tuple(Link("ab" * 16, f"{n:016x}") for n in range(1, links + 1)),
        events=(Event(name="e", at_ns=1, attributes=attributes),),
    )
    assert small(span, Bounds()).ByteSize() <= SPAN_BYTES == 1536


def test_the_spans_of_an_ordinary_trial_lose_nothing_but_a_long_sentence() -> None:
    for span in spans_of(a_trial()):
        assert small(span, Bounds()).ByteSize() < 1200
        assert bounded(span, Bounds()).dropped == (0, 0, 0)
