"""A long trial in several traces: none too large, all linked, nothing lost or doubled."""

from __future__ import annotations

from collections import Counter

import pytest

from fairtrial.exporters.rotation import MAX_SPANS
from fairtrial.exporters.spans import Link, Span
from fairtrial.exporters.trace_layout import spans_of
from fairtrial.middleware.core import semconv
from tests.fakes.traced import a_trial, span_count


def roots_of(spans: list[Span]) -> list[Span]:
    return [span for span in spans if span.name == semconv.SPAN_TRIAL]


def test_four_thousand_spans_share_a_trace_and_no_more() -> None:
    trial = a_trial(steps=1200)
    spans = spans_of(trial, root_span_id="d" * 16)
    sizes = Counter(span.trace_id for span in spans)
    assert MAX_SPANS == 4000
    assert max(sizes.values()) <= MAX_SPANS
    assert len(sizes) == 3
    assert len({span.span_id for span in spans}) == len(spans) == span_count(1200) + 2
    assert spans[0].trace_id == trial.trace_id, "the trace that the child was given is the first"


def test_a_trial_that_fits_is_not_marked() -> None:
    spans = spans_of(a_trial(steps=3))
    assert len({span.trace_id for span in spans}) == 1
    assert semconv.PART not in spans[0].attributes


def test_the_roots_link_to_their_neighbours_and_only_the_first_carries_the_verdict() -> None:
    roots = roots_of(spans_of(a_trial(steps=9), max_spans=30))
    assert [root.attributes[semconv.PART] for root in roots] == [1, 2, 3]
    assert [root.attributes[semconv.PARTS] for root in roots] == [3, 3, 3]
    first, second, third = roots
    assert second.link in first.links
    assert second.links == (first.link, third.link)
    assert third.links == (second.link,)
    assert semconv.CAUSE in first.attributes
    assert not [root for root in roots[1:] if semconv.CAUSE in root.attributes or root.error]
    assert [root.attributes[semconv.TRIAL] for root in roots] == [first.attributes[semconv.TRIAL]] * 3


@pytest.mark.parametrize("limit", [3, 8, 9, 10, 17, 50])
def test_every_parent_and_every_link_is_found_in_the_trace_that_is_named(limit: int) -> None:
    spans = spans_of(a_trial(steps=9), max_spans=limit)
    traces: dict[str, set[str]] = {}
    for span in spans:
        assert span.parent_id is None or span.parent_id in traces[span.trace_id]
        traces.setdefault(span.trace_id, set()).add(span.span_id)
    assert max(len(members) for members in traces.values()) <= limit
    for span in spans:
        assert all(link.span_id in traces[link.trace_id] for link in span.links)


def test_a_step_is_kept_whole_where_it_fits() -> None:
    spans = spans_of(a_trial(steps=9), max_spans=30)
    for step in (span for span in spans if span.name == semconv.SPAN_STEP):
        children = [span for span in spans if span.parent_id == step.span_id]
        assert {child.trace_id for child in children} == {step.trace_id}


def test_a_step_in_a_later_part_links_to_its_phase() -> None:
    spans = spans_of(a_trial(steps=9), max_spans=30)
    phase = next(span for span in spans if span.name == semconv.SPAN_PHASE)
    later = [s for s in spans if s.name == semconv.SPAN_STEP and s.trace_id != phase.trace_id]
    assert later
    assert all(Link(phase.trace_id, phase.span_id) in step.links for step in later)


def test_a_parts_root_spans_what_is_in_it() -> None:
    for root in roots_of(spans_of(a_trial(steps=9), max_spans=30))[1:]:
        inside = [span for span in spans_of(a_trial(steps=9), max_spans=30) if span.name != semconv.SPAN_TRIAL]
        assert root.start_ns == min(span.start_ns for span in inside)
        assert root.end_ns >= max(span.end_ns for span in inside) - 1000
