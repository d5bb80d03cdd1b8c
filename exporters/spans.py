"""The shapes that a trace is made of, before any wire format: `Span`, `Event`, `Link`.

In and out: values only.  `trace_layout.py` makes them from a trial, `bounds.py` makes them small, `encoding.py` writes
them as OTLP.  No OpenTelemetry import, no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

AttributeValue = str | bool | int | float | list[str]
Attributes = dict[str, AttributeValue]
Kind = Literal["internal", "client"]


@dataclass(frozen=True, slots=True)
class Link:
    """Another span that this one is about, in this trace or another."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A moment on a span."""

    name: str
    at_ns: int
    attributes: Attributes = field(default_factory=dict[str, AttributeValue])


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span; ids are hex (32 and 16 digits), times ns since the epoch.  `dropped`: attributes, events and links that
    were left out (in this order) because of a bound."""

    service: str
    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ns: int
    end_ns: int
    attributes: Attributes
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = ()
    error: str | None = None
    dropped: tuple[int, int, int] = (0, 0, 0)

    @property
    def link(self) -> Link:
        """This span, as others link to it."""
        return Link(self.trace_id, self.span_id)


def span_id(*parts: object) -> str:
    """A span id made from what the span is about: stable over restarts and replays."""
    return _digest(8, parts)


def trace_id(*parts: object) -> str:
    """A trace id made the same way."""
    return _digest(16, parts)


def _digest(size: int, parts: tuple[object, ...]) -> str:
    return hashlib.blake2b("/".join(map(str, parts)).encode(errors="replace"), digest_size=size).hexdigest()


def present(values: Mapping[str, AttributeValue | None]) -> Attributes:
    """Only what was observed."""
    return {key: value for key, value in values.items() if value is not None}
