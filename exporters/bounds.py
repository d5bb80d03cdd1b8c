"""Makes a span small: texts that every back end can search, and never more than a fixed size on the wire.

In: a `Span` and `Bounds`.  Out: a `Span` within them; what was left out is counted in it.  The rule, in this order:

1. A text (attribute, name, status) loses what has the shape of a secret, then is cut to `text_chars` characters and to
   `text_bytes` bytes of UTF-8 on a character's border; a cut text ends in `…`.  Lists keep their first 8 items.
2. Events and links beyond their limits are dropped, the last ones first; of attributes likewise.
3. A span that is still over `span_bytes` as OTLP protobuf (`encoding.py` weighs it) has its texts cut to 64 bytes; if
   that is not enough, its events, its links, then its attributes go, the last ones first.

The first attributes of every layout are those that say what the span is, so they stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from fairtrial.exporters.spans import Attributes, AttributeValue, Span
from fairtrial.middleware.core.masking import mask_text

TEXT_BYTES: Final = 255
"""Cassandra, the strictest of Jaeger's back ends, searches values below 256 bytes."""
SPAN_BYTES: Final = 1536
SHORT_BYTES: Final = 64
LIST_ITEMS: Final = 8
_CUT: Final = "…"
_INT64: Final = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one span; None is without limit."""

    text_bytes: int | None = TEXT_BYTES
    text_chars: int | None = None
    span_bytes: int | None = SPAN_BYTES
    attributes: int | None = 128
    events: int | None = 8
    links: int | None = 8
    event_attributes: int | None = 16
    list_items: int | None = LIST_ITEMS


LOSSLESS: Final = Bounds(
    text_bytes=None, span_bytes=None, attributes=None, events=None, links=None, event_attributes=None, list_items=None
)


def bounded(span: Span, bounds: Bounds) -> Span:
    """The span by rules 1 and 2."""
    attributes = _attributes(span.attributes, bounds, bounds.attributes)
    events = tuple(
        replace(event, attributes=_attributes(event.attributes, bounds, bounds.event_attributes))
        for event in span.events[: bounds.events]
    )
    links = span.links[: bounds.links]
    return replace(
        span,
        name=_text(span.name, bounds),
        error=None if span.error is None else _text(span.error, bounds),
        attributes=attributes,
        events=events,
        links=links,
        dropped=(
            span.dropped[0] + len(span.attributes) - len(attributes),
            span.dropped[1] + len(span.events) - len(events),
            span.dropped[2] + len(span.links) - len(links),
        ),
    )


def shrunk(span: Span, most: int, weigh: Callable[[Span], int]) -> Span:
    """The span by rule 3: at most `most` bytes, where `weigh` gives its size on the wire."""
    everything = Bounds(text_bytes=SHORT_BYTES, attributes=None, events=None, links=None, event_attributes=None)
    span = bounded(span, everything)
    while weigh(span) > most and (less := _one_less(span)) is not None:
        span = less
    return span


def _one_less(span: Span) -> Span | None:
    attributes, events, links = span.dropped
    if span.events:
        return replace(span, events=span.events[:-1], dropped=(attributes, events + 1, links))
    if span.links:
        return replace(span, links=span.links[:-1], dropped=(attributes, events, links + 1))
    if span.attributes:
        kept = dict(islice(span.attributes.items(), len(span.attributes) - 1))
        return replace(span, attributes=kept, dropped=(attributes + 1, events, links))
    return None


def _attributes(attributes: Attributes, bounds: Bounds, most: int | None) -> Attributes:
    return {key: _value(value, bounds) for key, value in islice(attributes.items(), most)}


def _value(value: AttributeValue, bounds: Bounds) -> AttributeValue:
    if isinstance(value, str):
        return _text(value, bounds)
    if isinstance(value, list):
        return [_text(item, bounds) for item in value[: bounds.list_items]]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value in _INT64 else str(value)


def _text(text: str, bounds: Bounds) -> str:
    return cut(mask_text(text)[: bounds.text_chars], bounds.text_bytes)


def cut(text: str, most: int | None) -> str:
    """At most `most` bytes of UTF-8; a lone surrogate, which has no UTF-8, becomes `?`."""
    raw = text.encode(errors="replace")
    if most is None or len(raw) <= most:
        return raw.decode()
    mark = _CUT if most > len(_CUT.encode()) else ""
    return raw[: most - len(mark.encode())].decode(errors="ignore") + mark
