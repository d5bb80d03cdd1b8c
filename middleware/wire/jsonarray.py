"""A JSON array that is sent piece by piece: bytes become its elements, however the bytes were cut.

In: body bytes of one response in any pieces.  Out: the bytes of each object (or array) in the array, as soon as it is
whole; a body that is one object instead of an array gives that object.  What this module does not do: check or decode
the JSON (dialects do), or hand out numbers, strings and words that stand in the array, which no API sends there.

The carry is bounded: an element of more than 1 MiB is skipped up to its end and counted in `skipped`.

**Source:** RFC 8259; Gemini's `streamGenerateContent` without `alt=sse` (reference page model-api.md section 1.3).
"""

from __future__ import annotations

import re
from typing import Final

MAX_ELEMENT_BYTES: Final = 1 << 20

_MARKS: Final = re.compile(rb'\\.|["{}\[\]]', re.DOTALL)


class JsonArrayFramer:
    """Incremental; one per response."""

    __slots__ = ("_base", "_carry", "_depth", "_escaped", "_in_string", "_skipping", "closed", "skipped")

    def __init__(self) -> None:
        self._carry = bytearray()
        self._depth = 0
        self._base: int | None = None
        self._in_string = False
        self._escaped = False
        self._skipping = False
        self.closed = False
        """Whether the array (or the one object) came to its end."""
        self.skipped = 0
        """Elements that were longer than the bound and were not handed out."""

    @property
    def pending(self) -> bool:
        """Whether an element is half there."""
        return self._base is not None and self._depth > self._base

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take bytes, give the elements that they complete."""
        elements: list[bytes] = []
        if not chunk:
            return elements
        at = 1 if self._escaped else 0
        begun = 0 if self.pending else None
        last = at
        for mark in _MARKS.finditer(chunk, at):
            if self.closed:
                break
            sign = mark.group()
            last = mark.end()
            if self._in_string:
                self._in_string = sign != b'"'
            elif sign == b'"':
                self._in_string = True
            elif sign in b"{[":
                if self._base is None:
                    # The array itself; a lone object has nothing around it.
                    self._base = 1 if sign == b"[" else 0
                self._depth += 1
                if self._depth == self._base + 1:
                    begun = mark.start()
            elif sign in b"}]" and self._base is not None:
                self._depth -= 1
                if self._depth == self._base and begun is not None:
                    self._keep(chunk[begun : mark.end()])
                    elements += self._take()
                    begun = None
                if self._depth <= 0:
                    self.closed = True
        if begun is not None:
            self._keep(chunk[begun:])
        # A backslash at the very end escapes the first byte of the next piece (outside a string too, as
        # the marks above take it: no cut must change what broken bytes give).
        self._escaped = chunk.endswith(b"\\") and last < len(chunk)
        return elements

    def finish(self) -> list[bytes]:
        """The end of the body: half an element is none."""
        self._carry.clear()
        return []

    def _keep(self, piece: bytes) -> None:
        if self._skipping:
            return
        if len(self._carry) + len(piece) > MAX_ELEMENT_BYTES:
            self._skipping = True
            self._carry.clear()
            self.skipped += 1
            return
        self._carry += piece

    def _take(self) -> list[bytes]:
        whole = [] if self._skipping else [bytes(self._carry)]
        self._carry.clear()
        self._skipping = False
        return whole
