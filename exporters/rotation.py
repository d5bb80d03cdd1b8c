"""Cuts a long trial into several traces, so that none is too large for a trace viewer to open.

In: the trial's own span and its children in groups that belong together.  Out: the same spans; beyond `max_spans` they
continue in a further trace with a root of its own, which says `fairtrial.part` of `fairtrial.parts`.  Roots link to
the one before and the one after; a span whose parent stayed in another part hangs on its part's root and links to that
parent.  Ids are deterministic: a part's trace id is made from the trial's and the part's number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from fairtrial.exporters.spans import Link, Span, span_id, trace_id
from fairtrial.middleware.core import semconv

MAX_SPANS: Final = 4000
"""Of one trace: complaints about viewers begin between 2 000 and 5 000 spans."""

_IDENTITY: Final = (semconv.TRIAL, semconv.NAME, semconv.RUN, semconv.TASK, semconv.TRY, semconv.CLOSED)
"""What the roots of later parts repeat of the first one.  Not the verdict: a search finds each trial once."""


def rotated(root: Span, groups: Iterable[list[Span]], *, max_spans: int = MAX_SPANS) -> list[Span]:
    """All spans, root first, each part's root before its spans.  A group is cut only when it alone is too large."""
    parts: list[list[Span]] = [[root]]
    part_of = {root.span_id: 0}
    for group in groups:
        if len(parts[-1]) + len(group) > max_spans > len(group) and len(parts[-1]) > 1:
            parts.append([_continued(root, len(parts))])
        for span in group:
            if len(parts[-1]) >= max_spans:
                parts.append([_continued(root, len(parts))])
            part_of[span.span_id] = len(parts) - 1
            parts[-1].append(_placed(span, parts, part_of))
    if len(parts) == 1:
        return parts[0]
    roots = [part[0] for part in parts]
    return [
        _linked(span, roots, part_of) if at else _part_root(span, roots, number, part, part_of)
        for number, part in enumerate(parts)
        for at, span in enumerate(part)
    ]


def _continued(root: Span, number: int) -> Span:
    trial = str(root.attributes.get(semconv.TRIAL, root.trace_id))
    return replace(
        root,
        trace_id=trace_id(root.trace_id, "part", number),
        span_id=span_id(trial, "root", number),
        parent_id=None,
        attributes={key: value for key, value in root.attributes.items() if key in _IDENTITY},
        events=(),
        links=(),
        error=None,
    )


def _placed(span: Span, parts: list[list[Span]], part_of: dict[str, int]) -> Span:
    here = len(parts) - 1
    root = parts[here][0]
    of_parent = part_of.get(span.parent_id or "", 0)
    if of_parent == here:
        return replace(span, trace_id=root.trace_id)
    parent = Link(parts[of_parent][0].trace_id, span.parent_id or parts[0][0].span_id)
    return replace(span, trace_id=root.trace_id, parent_id=root.span_id, links=(*span.links, parent))


def _linked(span: Span, roots: list[Span], part_of: dict[str, int]) -> Span:
    """Links to spans of this trial point into the trace that these went to."""
    if not span.links:
        return span
    links = tuple(
        Link(roots[part_of[link.span_id]].trace_id, link.span_id) if link.span_id in part_of else link
        for link in span.links
    )
    return replace(span, links=links)


def _part_root(span: Span, roots: list[Span], number: int, part: list[Span], part_of: dict[str, int]) -> Span:
    neighbours = [roots[at].link for at in (number - 1, number + 1) if 0 <= at < len(roots)]
    span = _linked(span, roots, part_of)
    inside = part[1:]
    return replace(
        span,
        start_ns=span.start_ns if number == 0 else min(child.start_ns for child in inside),
        end_ns=span.end_ns if number == 0 else max(child.end_ns for child in inside),
        attributes=span.attributes | {semconv.PART: number + 1, semconv.PARTS: len(roots)},
        links=(*span.links, *neighbours),
    )
